//! The deprecated Secrets of a consumer.

use mcr_core::hub::Kubeconfig;

use super::*;

fn inventory() -> World {
    let builder = ClusterInventoryProvider::builder()
        .namespace("fleet")
        .consumer_secrets("me");
    World::of(builder, &Arc::default(), AccessPolicy::default())
}

impl World {
    fn secret(&mut self, key: &ObjectKey, secret: Option<Arc<SecretFacts>>) -> Vec<Change> {
        let event = match secret {
            Some(secret) => HubEvent::Applied(key.clone(), secret),
            None => HubEvent::Deleted(key.clone()),
        };
        self.decide(vec![Event::Secret(0, event)])
    }

    fn secrets_synced(&mut self) -> Vec<Change> {
        self.decide(vec![Event::Secret(0, HubEvent::Synced)])
    }
}

fn synced() -> World {
    let mut inventory = inventory();
    assert_eq!(shown(&inventory.profiles_synced()), [""; 0]);
    assert_eq!(shown(&inventory.secrets_synced()), ["synced"]);
    inventory
}

fn ready() -> Arc<Facts> {
    let mut facts = Facts::clone(&super::ready("u", "unused"));
    facts.offer = Offer::Secret;
    Arc::new(facts)
}

fn secret(profile: &str, server: &str) -> Option<Arc<SecretFacts>> {
    let kubeconfig = format!(
        "current-context: x\n\
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: 'https://{server}.example'}}}}]\n\
         users: [{{name: u, user: {{token: t}}}}]\n"
    );
    text(profile, kubeconfig.into_bytes())
}

fn text(profile: &str, text: Vec<u8>) -> Option<Arc<SecretFacts>> {
    Some(Arc::new(SecretFacts {
        profile: Some(profile.into()),
        kubeconfig: Ok(Arc::new(Kubeconfig::new(text, None))),
    }))
}

/// What is announced when a Secret has changed, is there or has gone.
fn put(inventory: &mut World, name: &str, secret: Option<Arc<SecretFacts>>) -> Vec<String> {
    shown(&inventory.secret(&key(name), secret))
}

const NO_SECRET: &str = "no Secret in namespace fleet has the labels x-k8s.io/cluster-inventory-consumer=me and \
                         x-k8s.io/cluster-profile=a";

#[test]
fn a_secret_and_its_profile_may_come_in_any_order() {
    let mut inventory = synced();
    assert_eq!(put(&mut inventory, "s", secret("a", "one")), [""; 0]);
    assert_eq!(applied(&mut inventory, "a", ready()), ["+a one"]);
    assert_eq!(put(&mut inventory, "s", secret("a", "two")), ["+a two"]);

    let mut inventory = synced();
    let waits = format!("~a: the cluster is ready, but can't be reached yet: {NO_SECRET}");
    assert_eq!(applied(&mut inventory, "a", ready()), [waits]);
    assert_eq!(put(&mut inventory, "s", secret("a", "one")), ["+a one"]);

    // At the start nothing is missing until the list of Secrets is complete.
    let mut inventory = self::inventory();
    assert_eq!(applied(&mut inventory, "a", ready()), [""; 0]);
    assert_eq!(shown(&inventory.profiles_synced()), [""; 0]);
    assert_eq!(put(&mut inventory, "s", secret("a", "one")), [""; 0]);
    assert_eq!(shown(&inventory.secrets_synced()), ["+a one", "synced"]);
}

#[test]
fn exactly_one_secret_is_needed() {
    let mut inventory = synced();
    inventory.profile(&key("a"), ready());
    inventory.secret(&key("s"), secret("a", "one"));
    assert_eq!(
        put(&mut inventory, "t", secret("a", "two")),
        [
            "!a: ClusterProfile fleet/a: the Secrets s and t both have the labels x-k8s.io/cluster-inventory-consumer=me \
             and x-k8s.io/cluster-profile=a; delete one"
        ]
    );
    assert_eq!(put(&mut inventory, "s", None), ["+a two"]);
    let gone = format!("!a: ClusterProfile fleet/a: {NO_SECRET}");
    assert_eq!(
        put(&mut inventory, "t", None),
        [gone],
        "an engaged cluster goes on with what it has"
    );
    assert!(inventory.0.secrets.is_empty() && inventory.0.profiles.is_empty());
}

#[test]
fn a_secret_counts_for_the_profile_of_its_label_and_its_namespace() {
    let mut inventory = synced();
    inventory.profile(&key("a"), ready());
    let elsewhere = ObjectKey::namespaced("other", "s");
    assert_eq!(shown(&inventory.secret(&elsewhere, secret("a", "one"))), [""; 0]);
    assert_eq!(put(&mut inventory, "s", secret("b", "one")), [""; 0]);
    assert_eq!(put(&mut inventory, "s", secret("a", "one")), ["+a one"]);
    let moved = put(&mut inventory, "s", secret("b", "one"));
    assert!(moved.len() == 1 && moved[0].starts_with("!a"), "{moved:?}");
}

#[test]
fn a_broken_secret_is_explained_and_repaired() {
    let mut inventory = synced();
    inventory.profile(&key("a"), ready());
    inventory.secret(&key("s"), secret("a", "one"));
    let broken = put(&mut inventory, "s", text("a", b"clusters: [".to_vec()));
    assert!(
        broken.len() == 1 && broken[0].starts_with("!a: Secret fleet/s, key \"Config\": "),
        "{broken:?}"
    );
    let missing = Some(Arc::new(SecretFacts {
        profile: Some("a".into()),
        kubeconfig: Err("the key is missing".into()),
    }));
    assert_eq!(
        put(&mut inventory, "s", missing),
        ["!a: Secret fleet/s, key \"Config\": the key is missing"]
    );
    assert_eq!(put(&mut inventory, "s", secret("a", "one")), ["+a one"]);
}
