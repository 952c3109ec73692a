//! How the fleet recognizes a cluster.

use std::sync::Arc;

use super::spec_change::Target;
use mcr_access::Fingerprint;

/// A UID as Kubernetes makes them. A server may report anything, and the UID is shown.
pub(crate) fn is_uid(uid: &str) -> bool {
    (1..=100).contains(&uid.len()) && uid.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Everything that is known of the identity of a cluster.
#[derive(Debug, Clone)]
pub(crate) struct KnownIdentity {
    /// The identity that the provider declares.
    pub(crate) declared: Option<Arc<str>>,
    /// The UID of the `kube-system` namespace, if the credentials may read it.
    pub(crate) uid: Option<Arc<str>>,
    /// The server that answered.
    pub(crate) target: Target,
    /// The credentials of the spec by which it answered. A front may choose the cluster by them.
    pub(crate) credentials: Fingerprint,
}

impl KnownIdentity {
    /// Whether the cluster that answers now is the known one.
    pub(crate) fn is_same(&self, now: &Self) -> bool {
        let same_declared = match (&self.declared, &now.declared) {
            (Some(old), Some(new)) if old != new => return false,
            (old, new) => old.is_some() && new.is_some(),
        };
        match (&self.uid, &now.uid) {
            (Some(old), Some(new)) => old == new,
            // Nothing shows that what is reached in another way is the known cluster.
            (Some(_), None) => self.target == now.target && self.credentials == now.credentials,
            (None, _) => same_declared || self.target.is_same_cluster(&now.target),
        }
    }

    /// The identity that is shown to users.
    pub(crate) fn shown(&self) -> Option<Arc<str>> {
        self.declared.clone().or_else(|| self.uid.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcr_access::Endpoint;

    /// What is known of a cluster: the declared identity, the UID, server, authority, SNI name, proxy and credential.
    fn known(
        declared: &str,
        uid: &str,
        [server, authority, sni, proxy, credential]: [&str; 5],
    ) -> KnownIdentity {
        let some = |text: &str| (!text.is_empty()).then(|| Arc::from(text));
        let mut endpoint = Endpoint::new(server.parse().unwrap());
        endpoint.certificate_authority = (!authority.is_empty()).then(|| authority.as_bytes().into());
        endpoint.tls_server_name = (!sni.is_empty()).then(|| sni.into());
        endpoint.proxy = (!proxy.is_empty()).then(|| proxy.parse().unwrap());
        KnownIdentity {
            declared: some(declared),
            uid: some(uid),
            target: Target::Endpoint(Arc::new(endpoint)),
            credentials: Fingerprint::of(&credential),
        }
    }

    #[test]
    fn a_uid_is_short_and_has_no_control_characters() {
        assert!(is_uid("75f1cf31-9a3d-45a8-8b3c-3f3d0a3a2f6e") && is_uid(&"x".repeat(100)));
        for uid in ["", "a b", "a\nb", "\u{202e}a", &"x".repeat(101)] {
            assert!(!is_uid(uid), "{uid:?}");
        }
    }

    #[test]
    fn identity_goes_by_what_is_declared_and_by_kube_system_and_only_without_them_by_place() {
        let at = ["https://x", "", "", "", "t"];
        let moved = [
            ["https://y", "", "", "", "t"],
            ["https://x", "another", "", "", "t"],
            ["https://x", "", "y", "", "t"],
            ["https://x", "", "", "http://proxy", "t"],
            ["https://x", "", "", "", "another"],
        ];
        // Declared and UID before and now. Whether it is the same where nothing else has changed, and where each of these has.
        let (yes, no) = ([true; 5], [false; 5]);
        for (before, now, unmoved, is_same) in [
            (["a", "1"], ["a", "1"], true, yes),
            (["", "1"], ["", "1"], true, yes),
            (["a", "1"], ["b", "1"], false, no),
            (["a", ""], ["b", ""], false, no),
            (["a", "1"], ["a", "2"], false, no),
            (["", "1"], ["", "2"], false, no),
            (["a", "1"], ["", "1"], true, yes),
            (["a", "1"], ["a", ""], true, no),
            (["", "1"], ["", ""], true, no),
            (["a", ""], ["a", "1"], true, yes),
            (["a", ""], ["a", ""], true, yes),
            (["", ""], ["", "1"], true, [false, false, false, true, true]),
            (["", ""], ["", ""], true, [false, false, false, true, true]),
        ] {
            let is = |to| known(before[0], before[1], at).is_same(&known(now[0], now[1], to));
            assert_eq!((is(at), moved.map(is)), (unmoved, is_same), "{before:?} {now:?}");
        }
        let by = |client: u64, uid: Option<&str>| KnownIdentity {
            target: Target::Client(client),
            uid: uid.map(Arc::from),
            ..known("", "", at)
        };
        assert!(by(1, None).is_same(&by(1, Some("1"))));
        assert!(by(1, Some("1")).is_same(&by(2, Some("1"))));
        assert!(!by(1, None).is_same(&by(2, Some("1"))));
    }
}
