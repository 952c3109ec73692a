//! Clients for one namespace, without a fleet.

use http::{Request, Response};
use kube::client::Body;
use mcr_core::{AnswerBody, BoxError};

use crate::{error::NamespaceError, route::route};

/// Makes clients for which one namespace is a whole cluster, without a provider or a fleet.
///
/// ```
/// use mcr_provider_namespace::NamespaceMapping;
/// # async fn example(host: kube::Client) -> Result<(), mcr_provider_namespace::NamespaceError> {
/// let island = NamespaceMapping::new().client(&host, "island")?;
/// assert_eq!(island.default_namespace(), "island");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct NamespaceMapping {}

impl NamespaceMapping {
    /// A mapping.
    pub fn new() -> Self {
        Self::default()
    }

    /// A client for which `namespace` of the host is a whole cluster. Does not check that the namespace exists.
    ///
    /// # Errors
    /// [`NamespaceError::Name`] if the name is not a valid name of a namespace.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn client(&self, host: &kube::Client, namespace: &str) -> Result<kube::Client, NamespaceError> {
        if !is_name(namespace) {
            return Err(NamespaceError::Name(namespace.to_owned()));
        }
        let (host, own) = (host.clone(), namespace.to_owned());
        let service = tower::service_fn(move |request| {
            let (host, own) = (host.clone(), own.clone());
            send(own, request, async move |request| {
                Ok(host.send(request).await?.map(AnswerBody::new))
            })
        });
        Ok(kube::Client::new(service, namespace))
    }
}

/// Sends a request in the cluster whose namespace is `own`, or refuses it as an API server would.
///
/// Dropping the future cancels the request.
pub(crate) async fn send<F>(
    own: impl AsRef<str>,
    mut request: Request<Body>,
    host: impl FnOnce(Request<Body>) -> F,
) -> Result<Response<AnswerBody>, BoxError>
where
    F: Future<Output = Result<Response<AnswerBody>, BoxError>>,
{
    match route(request.method(), request.uri(), own.as_ref()) {
        Ok(to) => {
            if let Some(to) = to {
                *request.uri_mut() = to.parse()?;
            }
            host(request).await
        }
        Err(refusal) => {
            tracing::debug!(
                code = refusal.code.as_u16(),
                "a request of a cluster that is a namespace was refused"
            );
            Ok(refusal.into_response())
        }
    }
}

/// Whether a text is a DNS label.
pub(crate) fn is_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
        && bytes[0] != b'-'
        && bytes[bytes.len() - 1] != b'-'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_a_namespace_gets_into_a_path() {
        let long = "a".repeat(64);
        for bad in [
            "", ".", "..", "a/b", "a%2fb", "A", "-a", "a-", "a.b", "a b", "ä", &long,
        ] {
            assert!(!is_name(bad), "{bad:?}");
        }
        for good in ["a", "0", "kube-system", &long[1..]] {
            assert!(is_name(good), "{good:?}");
        }
    }
}
