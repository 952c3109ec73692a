//! Credentials that expire, and rights that are taken away, while a fleet runs.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use futures::future::BoxFuture;
use mcr_core::{
    Access, ClusterState, Credential, CredentialError, CredentialSource, Endpoint, EndpointAccess,
    Fingerprint, Refresh,
};
use mcr_kcp_double::KcpUser;
use mcr_provider_kcp::KcpProvider;
use mcr_testkit::{log::Log, sim::SimRule};
use tracing::Level;

use crate::world::*;

/// Hands out the newest token.
#[derive(Clone, Default)]
struct Issuer(Arc<Mutex<String>>, Arc<AtomicUsize>);

impl Issuer {
    /// How often it was asked because a token was refused.
    fn refused(&self) -> usize {
        self.1.load(Ordering::Acquire)
    }

    fn hand_out(&self, token: &str) {
        *self.0.lock().unwrap() = token.to_owned();
    }
}

impl CredentialSource for Issuer {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&"the issuer")
    }

    fn credential(&self, why: Refresh) -> BoxFuture<'_, Result<Credential, CredentialError>> {
        if why == Refresh::Unauthorized {
            self.1.fetch_add(1, Ordering::AcqRel);
        }
        let token = self.0.lock().unwrap().clone();
        Box::pin(std::future::ready(Ok(Credential::token(token))))
    }
}

fn access(world: &World, issuer: &Issuer) -> Access {
    let server = world.server.kcp().url("root:provider").parse().unwrap();
    let endpoint = Endpoint::new(server).certificate_authority(world.server.ca_pem());
    EndpointAccess::new(endpoint, issuer.clone()).into()
}

/// The user of a provider with the least rights.
fn provider_user(world: &World) -> KcpUser {
    KcpUser::new("provider").provider(world.provider.id(), "widgets")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_an_expired_token_is_renewed_without_a_list() {
    let world = World::with_shards(2).await;
    let kcp = world.server.kcp();
    let issuer = Issuer::default();
    issuer.hand_out("first");
    kcp.set_user("first", provider_user(&world));
    let (a, b) = (world.consumer("a", "root"), world.consumer("b", "shard-1"));
    widget(&a, "w", "red");
    widget(&b, "w", "red");
    let provider = KcpProvider::builder()
        .access(access(&world, &issuer))
        .slice("widgets");
    let running = Running::start(provider.build().or_fail());
    let (in_a, in_b) = (running.ready(a.id()).await, running.ready(b.id()).await);
    let seen = [&in_a, &in_b].map(Witness::of_widgets);
    for witness in &seen {
        witness.holds(&["default/w red"]).await;
    }
    let asked = || {
        let of = |shard| ["apibindings", "widgets"].map(|resource| lists(&world, shard, resource));
        [of("root"), of("shard-1")]
    };
    let before = asked();
    // The token expires while the next one is not there yet, so that requests fail for some time.
    kcp.remove_user("first");
    for shard in kcp.shards() {
        shard.end_watches();
    }
    eventually(PATIENCE, "the token is refused", || issuer.refused() > 0).await;
    assert_eq!(seen[0].objects(), ["default/w red"]);
    kcp.set_user("second", provider_user(&world));
    issuer.hand_out("second");
    for (workspace, cluster, witness) in [(&a, &in_a, &seen[0]), (&b, &in_b, &seen[1])] {
        reaches(cluster, ClusterState::is_ready).await;
        widget(workspace, "w", "green");
        witness.holds(&["default/w green"]).await;
        assert!(
            running
                .fleet
                .get(workspace.id())
                .is_ok_and(|now| now.is_same(cluster))
        );
        assert!(witness.lines().iter().all(|line| !line.starts_with('-')));
    }
    // New workspaces are found with the new token.
    for shard in ["root", "shard-1"] {
        caught_up(&world, &running, shard).await;
    }
    assert_eq!(asked(), before);
    running.stop().await;
}

#[tokio::test]
async fn kcp_rights_that_are_taken_away_are_named_and_work_again_when_they_are_back() {
    let log = Log::of_this_thread(Level::INFO);
    let world = World::with_shards(1).await;
    let kcp = world.server.kcp();
    kcp.set_user("token", provider_user(&world));
    let a = world.consumer("a", "root");
    widget(&a, "w", "red");
    let issuer = Issuer::default();
    issuer.hand_out("token");
    let provider = KcpProvider::builder()
        .access(access(&world, &issuer))
        .slice("widgets");
    let running = Running::start(provider.build().or_fail());
    let in_a = running.ready(a.id()).await;
    let seen = Witness::of_widgets(&in_a);
    seen.holds(&["default/w red"]).await;

    let slices = SimRule::new(
        ["apis.kcp.io"],
        ["apiexportendpointslices"],
        ["get", "list", "watch"],
    );
    kcp.set_user(
        "token",
        KcpUser::new("provider").rule(world.provider.id(), slices),
    );
    kcp.shard("root").unwrap().end_watches();
    let advice = format!(
        "Grant the resource apiexports/content with the name widgets in workspace {} to the credentials in use",
        world.provider.id()
    );
    eventually(PATIENCE, "the missing right is logged", || {
        !log.lines_with(&advice).is_empty()
    })
    .await;
    let refused = || {
        let audit = kcp.shard("root").unwrap().audit();
        audit.count(|event| event.resource == "apibindings" && event.code == 403)
    };
    eventually(PATIENCE, "it is tried again", || refused() >= 3).await;
    assert!(
        running.fleet.get(a.id()).is_ok_and(|now| now.is_same(&in_a)),
        "it stays"
    );
    assert_eq!(seen.objects(), ["default/w red"]);

    kcp.set_user(
        "token",
        KcpUser::new("provider").rule(
            world.provider.id(),
            SimRule::new(["apis.kcp.io"], ["apiexports/content"], ["*"]).names(["widgets"]),
        ),
    );
    kcp.shard("root").unwrap().end_watches();
    widget(&a, "w", "green");
    seen.holds(&["default/w green"]).await;
    // Now the slices can't be watched. The known endpoints stay.
    eventually(PATIENCE, "the slices can't be watched", || {
        !log.lines_with("APIExportEndpointSlices can't be watched")
            .is_empty()
    })
    .await;
    caught_up(&world, &running, "root").await;
    kcp.set_user("token", provider_user(&world));
    unbind(&a);
    running.left(a.id()).await;
    // Each problem is logged once, however often it is tried.
    assert_eq!(log.lines_with(&advice).len(), 1, "{}", log.text());
    running.stop().await;
}
