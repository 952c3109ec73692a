use std::sync::Arc;

use futures::{StreamExt, stream};
use mcr_core::{Change, ClusterSpec, Discovery, Provider};
use tokio_util::sync::CancellationToken;

/// A provider of one cluster that never changes.
///
/// # Cancellation
/// A discovery has no task of its own. It ends as soon as its token is cancelled.
#[derive(Debug, Clone)]
pub struct SingleProvider {
    pub(crate) name: Arc<str>,
    pub(crate) spec: ClusterSpec,
}

impl Provider for SingleProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        let idle = stream::pending().take_until(stop.cancelled_owned());
        stream::iter([Ok(Change::Upsert(self.spec.clone())), Ok(Change::Synced)])
            .chain(idle)
            .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mcr_core::{Access, ClusterName, Trust};

    use super::*;

    #[test]
    fn a_name_is_checked() {
        let access = || Access::kubeconfig(b"".as_slice(), Trust::Trusted);
        let provider = SingleProvider::named("hub", access()).unwrap();
        assert_eq!((provider.spec.name.as_str(), provider.name()), ("hub", "single"));
        let error = SingleProvider::named("", access()).unwrap_err();
        assert_eq!(error.to_string(), "a cluster name must not be empty");
    }

    #[tokio::test(start_paused = true)]
    async fn announces_its_cluster_once_and_stays() {
        let provider = SingleProvider::builder(
            ClusterName::new("hub").unwrap(),
            Access::kubeconfig(b"".as_slice(), Trust::Trusted),
        )
        .label("role", "hub")
        .property("region", "eu")
        .identity("uid")
        .build();
        for _ in 0..2 {
            let stop = CancellationToken::new();
            let mut discovery = provider.discover(stop.clone());
            let first = discovery.next().await;
            let Some(Ok(Change::Upsert(spec))) = first else {
                panic!("no cluster but {first:?}")
            };
            assert_eq!(spec.name, "hub");
            assert_eq!(
                (&*spec.labels["role"], &*spec.properties["region"]),
                ("hub", "eu")
            );
            assert_eq!(spec.identity.as_deref(), Some("uid"));
            assert!(matches!(discovery.next().await, Some(Ok(Change::Synced))));
            let silence = tokio::time::timeout(Duration::from_secs(3600), discovery.next()).await;
            assert!(silence.is_err(), "nothing follows: {silence:?}");
            stop.cancel();
            assert!(discovery.next().await.is_none());
        }
    }
}
