//! Checks of the announcements of a discovery, without a fleet.

use std::collections::BTreeSet;

use mcr_core::{Access, Availability, ClusterName};

use super::{
    Ability::{Add, Remove},
    Draft, Subject,
    listen::Received,
};
use crate::{discovery::address_and_token, suite::fail};

/// Makes a world with `count` clusters, if the subject can add clusters. Returns the names of all clusters.
pub(super) async fn world<S: Subject>(count: usize) -> (S, Vec<Draft>, Vec<ClusterName>) {
    let mut subject = S::start().await;
    let mut drafts = Vec::new();
    let mut names = Vec::new();
    if S::CAN.contains(&Add) {
        for number in 0..count {
            let draft = Draft::new(number);
            names.push(subject.add(&draft).await);
            drafts.push(draft);
        }
    }
    (subject, drafts, names)
}

fn expected<S: Subject>(subject: &S, names: &[ClusterName]) -> BTreeSet<ClusterName> {
    let all: Vec<ClusterName> = subject.fixed().into_iter().chain(names.iter().cloned()).collect();
    let set: BTreeSet<ClusterName> = all.iter().cloned().collect();
    if set.len() != all.len() {
        fail(format!(
            "the subject expects two clusters of the same name: {all:?}"
        ));
    }
    set
}

pub(super) async fn the_provider_has_a_short_name<S: Subject>() {
    let subject = S::start().await;
    let provider = subject.provider();
    let name = provider.name().to_owned();
    let usable = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 63 || !name.chars().all(usable) {
        fail(format!(
            "the name {name:?} can't be a label: 1 to 63 of letters, digits, '-', '_' and '.'"
        ));
    }
    if provider.name() != name || subject.provider().name() != name {
        fail(format!("the name changes: it was {name:?} first"));
    }
}

pub(super) async fn synced_comes_once_after_all_that_exists<S: Subject>() {
    for count in [0, 3] {
        let (mut subject, _, names) = world::<S>(count).await;
        let expected = expected(&subject, &names);
        let mut received = Received::synced(&subject).await;
        received.must(
            received.names() == expected,
            format!("{expected:?} existed before Synced was announced"),
        );
        if S::CAN.contains(&Add) {
            // `Received` fails whenever `Synced` is announced a second time.
            let name = subject.add(&Draft::new(count)).await;
            received.until_there(&name).await;
        }
        received.listen(&mut subject).await;
    }
}

pub(super) async fn a_restarted_discovery_reports_everything_anew<S: Subject>() {
    let (mut subject, drafts, names) = world::<S>(3).await;
    let mut expected = expected(&subject, &names);
    let received = Received::synced(&subject).await;
    received.stopped().await;
    // The second discovery must announce the changes that happened between the two discoveries.
    if S::CAN.contains(&Remove) && S::CAN.contains(&Add) {
        subject.remove(&drafts[1]).await;
        expected.remove(&names[1]);
        expected.insert(subject.add(&Draft::new(7)).await);
    }
    let received = Received::synced(&subject).await;
    received.must(
        received.names() == expected,
        format!(
            "a restarted discovery should announce {expected:?} and announced {:?}",
            received.names()
        ),
    );
}

pub(super) async fn nothing_is_announced_twice_without_a_change<S: Subject>() {
    let (mut subject, _, _) = world::<S>(3).await;
    let mut received = Received::synced(&subject).await;
    let once: BTreeSet<&String> = received.log.iter().collect();
    received.must(
        once.len() == received.log.len(),
        "the first round announces something twice",
    );
    received.silence(&mut subject, "nothing has changed").await;
    if S::CAN.contains(&Add) {
        let name = subject.add(&Draft::new(3)).await;
        received.until_there(&name).await;
        received
            .silence(&mut subject, format!("only {name} was added"))
            .await;
        received.must(
            received.log.iter().filter(|line| line.starts_with('+')).count() == received.names().len(),
            "adding one cluster announces others again",
        );
    }
}

pub(super) async fn many_clusters_at_once_are_all_announced<S: Subject>() {
    let mut subject = S::start().await;
    let mut received = Received::synced(&subject).await;
    for number in 0..40 {
        let name = subject.add(&Draft::new(number)).await;
        received.must(
            !received.clusters.contains_key(&name),
            format!("{name} is the name of two clusters"),
        );
    }
    let count = subject.fixed().len() + 40;
    received
        .until(format!("{count} clusters"), |received| {
            received.clusters.len() == count
        })
        .await;
    let again = Received::synced(&subject).await;
    again.must(
        again.names() == received.names(),
        "another discovery announces the same",
    );
}

pub(super) async fn a_removed_cluster_is_removed_and_may_come_back<S: Subject>() {
    let (mut subject, drafts, names) = world::<S>(3).await;
    let mut received = Received::synced(&subject).await;
    let others: BTreeSet<ClusterName> = received
        .names()
        .into_iter()
        .filter(|name| *name != names[1])
        .collect();
    subject.remove(&drafts[1]).await;
    received.until_gone(&names[1]).await;
    received
        .silence(
            &mut subject,
            "the removed cluster is gone and the others are as before",
        )
        .await;
    received.must(received.names() == others, "another cluster went as well");
    let back = subject.add(&drafts[1]).await;
    received.must(back == names[1], "a cluster that comes back has its old name");
    received.until_there(&back).await;
}

pub(super) async fn what_happens_to_a_cluster_is_reported_in_order<S: Subject>() {
    let (mut subject, _, _) = world::<S>(1).await;
    let mut received = Received::synced(&subject).await;
    for _ in 0..3 {
        let draft = Draft::new(5);
        let name = subject.add(&draft).await;
        // No pause between the changes: the provider may announce several changes as one, but must not change their
        // order.
        subject.change(&draft.clone().changed()).await;
        received.until_there(&name).await;
        subject.change(&draft.clone().changed().changed()).await;
        subject.remove(&draft).await;
        received.until_gone(&name).await;
        let late = received.listen(&mut subject).await;
        received.must(
            late.is_empty(),
            format!("after the Remove of {name} came {late:?}"),
        );
    }
}

pub(super) async fn a_change_is_an_upsert<S: Subject>() {
    let (mut subject, drafts, names) = world::<S>(2).await;
    let mut received = Received::synced(&subject).await;
    let identity = received.spec(&names[0]).identity.clone();
    subject.change(&drafts[0].clone().changed()).await;
    received.until_announced_again(&names[0]).await;
    received.listen(&mut subject).await;
    only_upserts(&received, &names, "a change of address or labels");
    let after = received.spec(&names[0]);
    received.must(
        after.identity == identity,
        "a change of address or labels is none of the identity",
    );
    received.must(
        after.availability == Availability::Available,
        "the cluster is still available",
    );
}

pub(super) async fn a_rotation_is_an_upsert_with_the_new_credentials<S: Subject>() {
    let (mut subject, drafts, names) = world::<S>(2).await;
    let mut received = Received::synced(&subject).await;
    let identity = received.spec(&names[0]).identity.clone();
    let rotated = drafts[0].clone().rotated();
    subject.rotate(&rotated).await;
    received
        .until_spec(&names[0], "the new credentials", |spec| match &spec.access {
            Access::Kubeconfig(_) => address_and_token(&spec.access).contains(&rotated.token()),
            Access::Endpoint(access) if access.credentials.known().is_some() => {
                address_and_token(&spec.access).contains(&rotated.token())
            }
            // Credentials that are requested on demand need no announcement.
            _ => true,
        })
        .await;
    received.listen(&mut subject).await;
    only_upserts(&received, &names, "a change of credentials");
    received.must(
        received.spec(&names[0]).identity == identity,
        "other credentials don't make another cluster",
    );
}

/// Fails if the first cluster was removed meanwhile, or if another cluster was announced again.
#[track_caller]
fn only_upserts(received: &Received, names: &[ClusterName], what: &str) {
    let count = |line: String| {
        received
            .log
            .iter()
            .filter(|announced| **announced == line)
            .count()
    };
    received.must(
        count(format!("-{}", names[0])) == 0,
        format!("{what} is an Upsert, not a Remove and another cluster"),
    );
    received.must(
        count(format!("+{}", names[1])) == 1,
        format!("{what} of {} announced {} again", names[0], names[1]),
    );
}

pub(super) async fn another_cluster_of_the_same_name_has_another_identity<S: Subject>() {
    let (mut subject, drafts, names) = world::<S>(2).await;
    let mut received = Received::synced(&subject).await;
    let before = received.spec(&names[0]).identity.clone();
    let from = received.log.len();
    subject.replace(&drafts[0].clone().replaced()).await;
    received.until_announced_again(&names[0]).await;
    received.listen(&mut subject).await;
    let removed = received.log[from..].contains(&format!("-{}", names[0]));
    let after = received
        .clusters
        .get(&names[0])
        .and_then(|spec| spec.identity.clone());
    received.must(
        removed || (before.is_some() && after.is_some() && before != after),
        format!(
            "the cluster was replaced, but neither removed nor given another identity ({before:?}, {after:?})"
        ),
    );
}

pub(super) async fn a_broken_description_is_shown_and_removes_nothing<S: Subject>() {
    let (mut subject, drafts, names) = world::<S>(2).await;
    let mut received = Received::synced(&subject).await;
    let name = subject.break_it(&drafts[0]).await;
    received.must(name == names[0], "a broken cluster keeps its name");
    received.until_broken(&name).await;
    received.listen(&mut subject).await;
    received.must(
        received.clusters.contains_key(&name),
        "a broken description is no Remove",
    );
}

pub(super) async fn a_broken_description_leaves_the_neighbours_alone<S: Subject>() {
    let (mut subject, mut drafts, mut names) = world::<S>(3).await;
    let mut received = Received::synced(&subject).await;
    let from = received.log.len();
    let name = subject.break_it(&drafts[1]).await;
    received.until_broken(&name).await;
    received.listen(&mut subject).await;
    let others = received.log[from..]
        .iter()
        .filter(|line| !line.ends_with(name.as_str()))
        .count();
    received.must(
        others == 0,
        format!("what is wrong with {name} made the provider announce others"),
    );
    // The discovery must continue after that.
    drafts.push(Draft::new(3));
    names.push(subject.add(&drafts[3]).await);
    received.until_there(&names[3]).await;
    if S::CAN.contains(&Remove) {
        subject.remove(&drafts[0]).await;
        received.until_gone(&names[0]).await;
        subject.remove(&drafts[1]).await;
        received.until_gone(&names[1]).await;
    }
}

pub(super) async fn what_was_broken_from_the_start_is_announced_before_synced<S: Subject>() {
    let (mut subject, _, names) = world::<S>(1).await;
    // This cluster has never been good. Once it is good, it must have the same name.
    let broken = subject.break_it(&Draft::new(1)).await;
    let mut received = Received::synced(&subject).await;
    received.must(
        !received.broken.is_empty(),
        format!("what describes {broken} is broken, which is not announced before Synced"),
    );
    received.must(
        received.clusters.contains_key(&names[0]),
        "a broken neighbour keeps a cluster out",
    );
    received.must(
        !received.clusters.contains_key(&broken),
        "there is nothing to announce yet",
    );
    subject.repair(&Draft::new(1)).await;
    let repaired = received.clusters.len() + 1;
    received
        .until("an Upsert of the repaired cluster", |received| {
            received.clusters.len() == repaired
        })
        .await;
}

pub(super) async fn a_repaired_description_is_an_upsert<S: Subject>() {
    let (mut subject, drafts, names) = world::<S>(2).await;
    let mut received = Received::synced(&subject).await;
    for round in 0..2 {
        let name = subject.break_it(&drafts[0]).await;
        received.until_broken(&name).await;
        // In the first round, the repaired description is the old one. In the second round, it differs.
        let repaired = if round == 0 {
            drafts[0].clone()
        } else {
            drafts[0].clone().changed()
        };
        subject.repair(&repaired).await;
        received.until_announced_again(&names[0]).await;
    }
    received.must(received.broken.is_empty(), "nothing is broken any more");
}

pub(super) async fn a_suspended_cluster_reports_so_and_stays<S: Subject>() {
    let (mut subject, drafts, names) = world::<S>(2).await;
    let mut received = Received::synced(&subject).await;
    subject.suspend(&drafts[0]).await;
    let name = &names[0];
    let suspended = |availability: &Availability| match availability {
        Availability::Suspended { reason } => !reason.is_empty(),
        _ => false,
    };
    received
        .until_spec(name, "Suspended and a reason", |spec| {
            suspended(&spec.availability)
        })
        .await;
    received.silence(&mut subject, "a suspended cluster stays").await;
    let again = Received::synced(&subject).await;
    again.must(
        again
            .clusters
            .get(name)
            .is_some_and(|spec| suspended(&spec.availability)),
        "a restarted discovery announces that it is suspended",
    );
    subject.resume(&drafts[0]).await;
    received
        .until_spec(name, "Available", |spec| {
            spec.availability == Availability::Available
        })
        .await;
    received.must(
        !received.log.contains(&format!("-{name}")),
        "suspending is no Remove",
    );
}

pub(super) async fn a_cluster_being_deleted_stays_until_it_is_gone<S: Subject>() {
    let (mut subject, drafts, names) = world::<S>(2).await;
    let mut received = Received::synced(&subject).await;
    subject.begin_deletion(&drafts[0]).await;
    received.listen(&mut subject).await;
    let stays =
        "finalizers must be releasable, so a cluster whose object is being deleted stays until that is gone";
    received.must(received.clusters.contains_key(&names[0]), stays);
    let again = Received::synced(&subject).await;
    again.must(
        again.clusters.contains_key(&names[0]),
        format!("after a restart too: {stays}"),
    );
    subject.finish_deletion(&drafts[0]).await;
    received.until_gone(&names[0]).await;
    received.must(received.clusters.contains_key(&names[1]), "the neighbour stays");
}

pub(super) async fn the_stop_token_ends_the_discovery<S: Subject>() {
    let (subject, _, _) = world::<S>(3).await;
    for received in [Received::start(&subject), Received::synced(&subject).await] {
        received.stopped().await;
    }
}
