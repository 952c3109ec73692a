use std::{
    io,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::{Client, client::Body};
use mcr_access::{
    ClusterName, Credential, CredentialError, CredentialSource, Endpoint, EndpointAccess, Fingerprint,
    Refresh,
};
use tokio::time::{sleep, timeout};

use super::*;
use crate::{
    access::Access,
    fleet::{FleetSettings, connection::dial},
    spec::ClusterSpec,
};

/// A cluster that answers probes after a moment, and no other request.
fn client() -> Client {
    let answer = |request: Request<Body>| async move {
        if !request.uri().path().ends_with("kube-system") {
            return Err(io::Error::from(io::ErrorKind::ConnectionRefused));
        }
        sleep(Duration::from_millis(100)).await;
        let it =
            br#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": "u"}}"#;
        Ok(Response::new(Body::from(it.to_vec())))
    };
    Client::new(tower::service_fn(answer), "default")
}

fn desired(name: &str, access: Access) -> DesiredCluster {
    DesiredCluster {
        provider: "test".into(),
        spec: Arc::new(ClusterSpec::new(ClusterName::unchecked(name), access).into()),
        claim: Claim::default(),
    }
}

/// What an attempt to connect has come to.
async fn connected(engagement: &Engagement<'_>) -> NewConnection {
    let resources = &engagement.fleet.resources;
    let mut new = dial(resources, &engagement.desired.spec, Refresh::First, "")
        .await
        .unwrap();
    new.connection.channel = resources.dialer.client_channel(client());
    new.identity.uid = Some("u".into());
    new
}

#[tokio::test(start_paused = true)]
async fn a_hub_takes_the_place_of_a_name_at_any_moment_and_a_suspended_one_stays_suspended() {
    for is_suspended in [false, true] {
        let fleet = FleetContext::new(FleetSettings::default());
        let [(_a, mut of_a), (_hub, mut of_hub)] = [(); 2].map(|()| watch::channel(None));
        let mut a = Engagement::begin(&fleet, desired("a", client().into()), &mut of_a, None);
        let mut hub = Engagement::begin(&fleet, desired("hub", client().into()), &mut of_hub, None);
        let announced = |suspended: Option<&str>| Event::Announced {
            suspended: suspended.map(Arc::from),
        };
        a.follow(announced(None), None);
        let new = connected(&a).await;
        let (mut event, mut new) = a.judge(Outcome::Attempt(Ok(new)));
        if is_suspended {
            a.follow(event, new);
            a.follow(announced(Some("it sleeps")), None);
            (event, new) = (announced(None), None);
        }
        let of_hub = connected(&hub).await;
        hub.judge(Outcome::Attempt(Ok(of_hub)));
        let expected = if is_suspended { "Suspended" } else { "Connecting" };
        assert_eq!(a.cluster.state().as_str(), expected);
        a.follow(event, new);
        assert_eq!(a.life.state, State::Draining(End::Replaced));
    }
}

/// Gives the same token every two seconds, but fails once.
struct Source(AtomicUsize);

impl CredentialSource for Source {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&"source")
    }
    fn credential(&self, _: Refresh) -> BoxFuture<'_, Result<Credential, CredentialError>> {
        let fails = self.0.fetch_add(1, Ordering::SeqCst) == 1;
        Box::pin(async move {
            if fails {
                Err(CredentialError::temporary("it fails"))
            } else {
                Ok(Credential::token("t"))
            }
        })
    }
    fn renew_every(&self) -> Option<Duration> {
        Some(Duration::from_secs(2))
    }
}

#[tokio::test(start_paused = true)]
async fn renewals_do_not_wait_for_probes_and_their_warning_ends_when_the_source_answers_again() {
    let fleet = FleetContext::new(FleetSettings::default());
    let endpoint = Endpoint::new("https://h".parse().unwrap());
    let desired = desired(
        "a",
        EndpointAccess::new(endpoint, Source(AtomicUsize::new(0))).into(),
    );
    let (_sender, mut changes) = watch::channel(Some(desired.clone()));
    let mut a = Engagement::begin(&fleet, desired, &mut changes, None);
    let new = connected(&a).await;
    a.adopt(new);
    a.life.state = State::Ready;
    let cluster = a.cluster.clone();
    let warning_ends = async {
        let mut warned = false;
        loop {
            // It fails, and so asks for a probe.
            sleep(Duration::from_millis(10)).await;
            let request = Request::get("/version").body(Body::empty()).unwrap();
            let _ = cluster.transport().send(request).await;
            let warns = cluster.info().warning.is_some();
            if warned && !warns {
                return;
            }
            warned |= warns;
        }
    };
    tokio::select! {
        end = a.live(false) => panic!("{end:?}"),
        ended = timeout(Duration::from_secs(60), warning_ends) => ended.unwrap(),
    }
    assert!(cluster.state().is_ready());
}
