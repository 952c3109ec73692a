//! The decisions of `progressive-rollout`, without a cluster.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    api::apps::v1::Deployment,
    jiff::{SignedDuration, Timestamp},
};
use serde_json::{Value, json};

use crate::progressive_rollout::{
    api::{ClusterState, Phase, Rollout, WaveState},
    decide::{Decision, decide},
    member::{Contact, Health, Member, health},
};

/// A Rollout and its clusters. Each decision starts from JSON: the object in the hub is all that is kept.
struct Play {
    rollout: Value,
    members: BTreeMap<String, Member>,
    now: Timestamp,
}

fn progressing() -> Health {
    Health::Progressing("1 of 2".to_owned())
}

fn member(tier: &str) -> Member {
    Member {
        labels: BTreeMap::from([("tier".to_owned(), tier.to_owned())]),
        contact: Contact::Connected,
        revision: None,
        health: progressing(),
        answer: None,
    }
}

fn wave(name: &str, tier: &str, max_parallel: i32, soak: i32) -> Value {
    let selector = json!({"matchLabels": {"tier": tier}});
    json!({"name": name, "selector": selector, "maxParallel": max_parallel, "soakSeconds": soak})
}

impl Play {
    fn new(waves: Value, members: &[(&str, &str)]) -> Self {
        let spec = json!({"template": {"spec": {"image": 1}}, "waves": waves});
        let metadata = json!({"name": "web", "namespace": "default", "generation": 1});
        Self {
            rollout: json!({
                "apiVersion": "fleet.example.com/v1", "kind": "Rollout", "metadata": metadata, "spec": spec,
            }),
            members: members
                .iter()
                .map(|(name, tier)| ((*name).to_owned(), member(tier)))
                .collect(),
            now: Timestamp::from_second(1_000_000).unwrap(),
        }
    }

    /// Two canaries and two others, one at a time.
    fn two_waves() -> Self {
        let waves = json!([wave("canary", "canary", 1, 0), wave("rest", "prod", 1, 0)]);
        Self::new(
            waves,
            &[("a", "canary"), ("b", "canary"), ("c", "prod"), ("d", "prod")],
        )
    }

    fn read(&self) -> Rollout {
        serde_json::from_value(self.rollout.clone()).unwrap()
    }

    fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        change(&mut self.rollout["spec"]);
        let generation = self.rollout["metadata"]["generation"].as_i64().unwrap();
        self.rollout["metadata"]["generation"] = (generation + 1).into();
    }

    fn of(&mut self, name: &str) -> &mut Member {
        self.members.get_mut(name).unwrap()
    }

    /// Decides, and writes the status.
    fn decide(&mut self) -> Decision {
        let decision = decide(&self.read(), &self.members, self.now);
        self.rollout["status"] = json!(decision.status);
        decision
    }

    /// Decides, and gives the version to the clusters. Their Deployments are not healthy yet.
    fn go(&mut self) -> Decision {
        let decision = self.decide();
        for name in &decision.apply {
            let revision = decision.status.revision.clone();
            let member = self.of(name);
            (member.revision, member.health) = (Some(revision), progressing());
        }
        decision
    }

    /// The clusters with the version become healthy, until nothing is left to do.
    fn complete(&mut self) -> Decision {
        for _ in 0..100 {
            let decision = self.go();
            if decision.status.phase == Phase::Complete {
                return decision;
            }
            for member in self.members.values_mut() {
                if member.revision.as_ref() == Some(&decision.status.revision) {
                    member.health = Health::Healthy;
                }
            }
            self.now += SignedDuration::from_secs(60);
        }
        panic!("the roll-out is not complete: {:#}", self.rollout["status"]);
    }
}

fn state_of(decision: &Decision, name: &str) -> Option<ClusterState> {
    let mut named = decision.status.clusters.iter();
    named
        .find(|cluster| cluster.name == name)
        .map(|cluster| cluster.state)
}

#[test]
fn waves_follow_each_other_one_cluster_at_a_time() {
    let mut play = Play::two_waves();
    for name in ["a", "b", "c", "d"] {
        assert_eq!(play.go().apply, [name]);
        assert_eq!(play.go().apply, [""; 0], "{name} is not healthy yet");
        play.of(name).health = Health::Healthy;
    }
    let decision = play.go();
    assert_eq!((decision.status.phase, decision.again), (Phase::Complete, None));
    assert!(decision.status.clusters.is_empty());
    let ready = &decision.status.conditions[0];
    assert_eq!(
        (&*ready.type_, &*ready.status, &*ready.message),
        ("Ready", "True", "4 of 4 clusters are healthy")
    );
}

#[test]
fn the_next_wave_begins_when_the_last_one_has_soaked() {
    let mut play = Play::two_waves();
    play.rollout["spec"]["waves"][0]["soakSeconds"] = 30.into();
    for name in ["a", "b"] {
        play.go();
        play.of(name).health = Health::Healthy;
    }
    let decision = play.go();
    assert_eq!(decision.status.waves[0].state, WaveState::Soaking);
    assert_eq!(
        (decision.apply.len(), decision.again),
        (0, Some(Duration::from_secs(30)))
    );
    play.now += SignedDuration::from_secs(29);
    assert_eq!(play.go().again, Some(Duration::from_secs(1)));
    // A cluster that becomes unhealthy begins the time again.
    play.of("a").health = progressing();
    assert_eq!(play.go().status.waves[0].healthy_since, None);
    play.of("a").health = Health::Healthy;
    assert_eq!(play.go().again, Some(Duration::from_secs(30)));
    play.now += SignedDuration::from_secs(30);
    assert_eq!(play.go().apply, ["c"]);
    // Later it holds the next waves, but does not soak again.
    play.of("c").health = Health::Healthy;
    play.of("a").health = progressing();
    assert_eq!(play.go().apply, [""; 0]);
    play.of("a").health = Health::Healthy;
    assert_eq!(play.go().apply, ["d"]);
}

#[test]
fn a_failure_stops_until_the_spec_changes() {
    for recovers in [false, true] {
        let mut play = Play::two_waves();
        play.rollout["spec"]["waves"][0]["maxParallel"] = 2.into();
        assert_eq!(play.go().apply, ["a", "b"]);
        play.of("b").health = Health::Healthy;
        play.of("a").health = Health::Failed("no image".to_owned());
        let decision = play.go();
        assert_eq!((decision.status.phase, decision.apply.len()), (Phase::Failed, 0));
        assert_eq!(decision.status.conditions[1].message, "a: no image");
        // Neither its recovery nor its leave lets the others have the version.
        if recovers {
            play.of("a").health = Health::Healthy;
        } else {
            play.members.remove("a");
        }
        let decision = play.go();
        assert_eq!((decision.status.phase, decision.apply.len()), (Phase::Failed, 0));
        play.edit(|spec| spec["waves"][0]["soakSeconds"] = 0.into());
        assert_eq!(play.go().apply, ["c"]);
    }
}

#[test]
fn unreachable_clusters_are_named_and_skipped_or_waited_for() {
    for policy in ["Skip", "Wait"] {
        let mut play = Play::two_waves();
        play.rollout["spec"]["unreachable"] = policy.into();
        play.of("a").contact = Contact::Unreachable("no route".to_owned());
        play.of("b").contact = Contact::Unreachable("no route".to_owned());
        let decision = play.go();
        // Nothing is known of the wave, so it is not complete.
        assert_eq!(decision.apply, [""; 0]);
        assert_eq!(state_of(&decision, "a"), Some(ClusterState::Unreachable));
        play.of("b").contact = Contact::Connected;
        assert_eq!(play.go().apply, ["b"]);
        play.of("b").health = Health::Healthy;
        let skips = policy == "Skip";
        assert_eq!(play.go().apply.first().map(String::as_str), skips.then_some("c"));
        // It is back.
        play.of("a").contact = Contact::Connected;
        assert_eq!(play.go().apply, ["a"]);
        play.complete();
    }
}

#[test]
fn a_cluster_that_joins_a_wave_which_is_done_gets_the_version_at_once() {
    let mut play = Play::two_waves();
    play.complete();
    // It takes up the place of its wave.
    play.of("a").health = progressing();
    for (name, tier) in [("e", "canary"), ("f", "canary"), ("g", "prod"), ("h", "none")] {
        play.members.insert(name.to_owned(), member(tier));
    }
    assert_eq!(play.go().apply, ["e", "f", "g"]);
    let decision = play.complete();
    assert_eq!(decision.status.waves[0].clusters, 4);
    play.members.remove("e");
    assert_eq!(play.go().status.waves[0].clusters, 3);
}

#[test]
fn health_is_that_of_kubectl_rollout_status() {
    let health = |change: Value| {
        let mut deployment = json!({
            "metadata": {"generation": 2}, "spec": {"replicas": 2, "selector": {}, "template": {}},
            "status": {"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2},
        });
        let status = deployment["status"].as_object_mut().unwrap();
        status.extend(change.as_object().unwrap().clone());
        health(&serde_json::from_value::<Deployment>(deployment).unwrap())
    };
    assert_eq!(health(json!({})), Health::Healthy);
    for change in [
        json!({"observedGeneration": 1}),
        json!({"updatedReplicas": 1}),
        json!({"availableReplicas": 1}),
        json!({"replicas": 3}),
    ] {
        assert!(
            matches!(health(change.clone()), Health::Progressing(_)),
            "{change}"
        );
    }
    let condition = |reason: &str| {
        json!({"availableReplicas": 1, "conditions": [
            {"type": "Available", "status": "False"},
            {"type": "Progressing", "status": "False", "reason": reason, "message": "too slow"},
        ]})
    };
    assert_eq!(
        health(condition("ProgressDeadlineExceeded")),
        Health::Failed("too slow".to_owned())
    );
    assert!(matches!(
        health(condition("ReplicaSetUpdated")),
        Health::Progressing(_)
    ));
}
