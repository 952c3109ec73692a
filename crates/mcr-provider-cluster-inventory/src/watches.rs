//! Several watches of the hub that are followed as one.

use std::{future::poll_fn, sync::Arc, task::Poll};

use futures::FutureExt;
use kube::Client;
use mcr_core::{HubEvent, HubWatch, Object, WatchRequest, internal::LoggedWatch};

use crate::config::Times;

/// Watches of the same kind, each with its number.
pub(crate) struct Watches<T>(Vec<(usize, LoggedWatch<T>)>);

impl<T: Clone + PartialEq + Send + Sync + 'static> Watches<T> {
    /// A watch for each request. All keep `project(object)` of each object.
    pub(crate) fn new(
        client: &Client,
        requests: Vec<WatchRequest>,
        times: &Times,
        project: impl Fn(&Object) -> Option<T> + Send + Sync + 'static,
    ) -> Self {
        let project = Arc::new(project);
        let watch = |request: WatchRequest| {
            let project = project.clone();
            let watch = HubWatch::projected(client.clone(), request.clone(), move |object| project(object));
            let watch = watch.settings(times.watch.clone().unwrap_or_default());
            LoggedWatch::new(watch, request, times.blocked_for)
        };
        Self(requests.into_iter().map(watch).enumerate().collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The next event of any of them, and the number of the watch. Without watches it never comes. Cancel safe.
    pub(crate) async fn next(&mut self) -> (usize, HubEvent<T>) {
        let (at, number, event) = {
            let mut all: Vec<_> = self
                .0
                .iter_mut()
                .map(|(number, watch)| (*number, Box::pin(watch.next())))
                .collect();
            poll_fn(|context| {
                for (at, (number, next)) in all.iter_mut().enumerate() {
                    if let Poll::Ready(event) = next.poll_unpin(context) {
                        return Poll::Ready((at, *number, event));
                    }
                }
                Poll::Pending
            })
            .await
        };
        // One that always has events does not keep the others from being asked.
        self.0.rotate_left(at + 1);
        (number, event)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::ConfigMap;
    use mcr_testkit::{sim::SimCluster, waiting::eventually};
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_watch_that_always_has_events_does_not_silence_the_others() {
        let hub = SimCluster::new();
        for space in ["a", "b"] {
            hub.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}))
                .unwrap();
            for number in 0..8 {
                let metadata = json!({"name": format!("m{number}"), "namespace": space});
                hub.create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}))
                    .unwrap();
            }
        }
        let requests = ["a", "b"].map(|space| WatchRequest::of::<ConfigMap>().namespace(space));
        let mut watches = Watches::new(&hub.client(), requests.into(), &Times::default(), |_| Some(()));
        assert_eq!(watches.len(), 2);
        let mut received = vec![watches.next().await.0];
        let watched = || hub.watches() == 2;
        eventually(Duration::from_secs(60), "both are watched", watched).await;
        while received.len() < 18 {
            received.push(watches.next().await.0);
        }
        // One takes turns with the other: each has nine events, the last of which is that it is in sync.
        let changes = received[1..].windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(changes >= 14, "{received:?}");
        assert!(
            Watches::<()>::new(&hub.client(), Vec::new(), &Times::default(), |_| None)
                .next()
                .now_or_never()
                .is_none()
        );
    }
}
