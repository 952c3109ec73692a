//! How the fleet recognizes a cluster.

use std::sync::Arc;

use super::spec_change::Target;

/// Everything that is known of the identity of a cluster.
#[derive(Debug)]
pub(crate) struct KnownIdentity {
    /// The identity that the provider declares.
    pub(crate) declared: Option<Arc<str>>,
    /// The UID of the `kube-system` namespace, if the credentials may read it.
    pub(crate) uid: Option<Arc<str>>,
    /// The server that answered.
    pub(crate) target: Target,
}

impl KnownIdentity {
    /// Whether the cluster that answers now is the known one.
    pub(crate) fn is_same(&self, now: &Self) -> bool {
        if let (Some(old), Some(new)) = (&self.declared, &now.declared) {
            return old == new;
        }
        if let (Some(old), Some(new)) = (&self.uid, &now.uid) {
            return old == new;
        }
        self.target.is_same_cluster(&now.target)
    }

    /// The identity that is shown to users.
    pub(crate) fn shown(&self) -> Option<Arc<str>> {
        self.declared.clone().or_else(|| self.uid.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Endpoint;

    #[test]
    fn identity_goes_by_what_is_declared_then_by_kube_system_then_by_place() {
        let target = |s: &str| Target::Endpoint(Arc::new(Endpoint::new(s.parse().unwrap())));
        let known = |declared: Option<&str>, uid: Option<&str>, at: &str| KnownIdentity {
            declared: declared.map(Arc::from),
            uid: uid.map(Arc::from),
            target: target(at),
        };
        assert!(known(Some("a"), Some("1"), "https://x").is_same(&known(Some("a"), Some("2"), "https://y")));
        assert!(!known(Some("a"), Some("1"), "https://x").is_same(&known(Some("b"), Some("1"), "https://x")));
        assert!(known(None, Some("1"), "https://x").is_same(&known(None, Some("1"), "https://y")));
        assert!(!known(None, Some("1"), "https://x").is_same(&known(None, Some("2"), "https://x")));
        assert!(known(None, None, "https://x").is_same(&known(None, Some("2"), "https://x")));
        assert!(!known(None, None, "https://x").is_same(&known(None, Some("2"), "https://y")));
        let reached = |change: &dyn Fn(&mut Endpoint)| {
            let mut endpoint = Endpoint::new("https://x".parse().unwrap());
            change(&mut endpoint);
            KnownIdentity {
                target: Target::Endpoint(Arc::new(endpoint)),
                declared: None,
                uid: None,
            }
        };
        let plainly = reached(&|_| ());
        assert!(!plainly.is_same(&reached(
            &|to| to.certificate_authority = Some(b"another".as_slice().into())
        )));
        assert!(plainly.is_same(&reached(&|to| to.tls_server_name = Some("y".into()))));
        assert!(plainly.is_same(&reached(&|to| to.proxy = Some("http://proxy".parse().unwrap()))));
        let by = |client: u64, uid: Option<&str>| KnownIdentity {
            target: Target::Client(client),
            uid: uid.map(Arc::from),
            declared: None,
        };
        assert!(by(1, None).is_same(&by(1, Some("1"))));
        assert!(by(1, Some("1")).is_same(&by(2, Some("1"))));
        assert!(!by(1, None).is_same(&by(2, Some("1"))));
    }
}
