use mcr_core::{Access, Change, ClusterSpec, DiscoverySettings, Trust, hub::NoticeKind};
use mcr_testkit::{discovery::address_and_token, sim::SimCluster};
use serde_json::{Value, json};

use super::*;
use crate::{
    builder::{KubeconfigProviderBuilder, SECRET_LABEL},
    provider::KubeconfigProvider,
};

fn decisions() -> Decisions {
    of(KubeconfigProvider::builder())
}

fn trusting() -> Decisions {
    of(KubeconfigProvider::builder().trusted())
}

fn of(builder: KubeconfigProviderBuilder) -> Decisions {
    let provider = builder.client(SimCluster::new().client()).build().unwrap();
    let judge = provider.0.hub.judge(&DiscoverySettings::default());
    Decisions::new(provider.0, judge)
}

fn kubeconfig(token: &str) -> String {
    format!(
        "current-context: one\n\
         contexts: [{{name: one, context: {{cluster: c, user: u}}}}, {{name: two, context: {{cluster: c}}}}]\n\
         clusters: [{{name: c, cluster: {{server: 'https://c.example:6443'}}}}]\n\
         users: [{{name: u, user: {{token: {token}}}}}]\n"
    )
}

fn base64(text: impl AsRef<[u8]>) -> String {
    serde_json::to_value(k8s_openapi::ByteString(text.as_ref().into()))
        .unwrap()
        .as_str()
        .unwrap()
        .to_owned()
}

fn with(kubeconfig: impl AsRef<[u8]>) -> Value {
    json!({"metadata": {"uid": "1", "labels": {SECRET_LABEL: "true"}}, "data": {"kubeconfig": base64(kubeconfig)}})
}

fn key() -> ObjectKey {
    ObjectKey::namespaced("fleet", "a")
}

fn facts(decisions: &Decisions, secret: Value) -> SecretFacts {
    let secret = serde_json::from_value(secret).unwrap();
    decisions.config.rules.facts(&key(), secret)
}

/// What follows from a Secret that was created or changed.
fn applied(decisions: &mut Decisions, secret: Value) -> Outcome<HubEvent<Decoded<SecretFacts>>> {
    let facts = facts(decisions, secret);
    decide(decisions, HubEvent::Applied(key(), Ok(facts.into())))
}

fn decide(
    decisions: &mut Decisions,
    event: HubEvent<Decoded<SecretFacts>>,
) -> Outcome<HubEvent<Decoded<SecretFacts>>> {
    decisions.decide(vec![event], Instant::now())
}

fn put(decisions: &mut Decisions, secret: Value) -> Vec<String> {
    shown(applied(decisions, secret).changes)
}

fn shown(changes: Vec<Change>) -> Vec<String> {
    let change = |change| match change {
        Change::Upsert(spec) => format!("+{}", spec.name),
        Change::Broken(broken) => format!("!{}: {}: {}", broken.name, broken.object, broken.error),
        Change::Remove(name) => format!("-{name}"),
        other => format!("{other:?}"),
    };
    changes.into_iter().map(change).collect()
}

fn spec(decisions: &mut Decisions, secret: Value) -> ClusterSpec {
    match applied(decisions, secret).changes.pop() {
        Some(Change::Upsert(spec)) => spec,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_secret_that_never_had_a_kubeconfig_is_broken_and_one_that_lost_it_is_removed_too() {
    for (without, error) in [
        (json!({"metadata": {}}), "has no key \"kubeconfig\""),
        (
            json!({"data": {"value": base64(kubeconfig("a"))}}),
            "has no key \"kubeconfig\"",
        ),
        (json!({"data": {"kubeconfig": ""}}), "is empty"),
    ] {
        let mut decisions = decisions();
        let lost = |announced: Vec<String>| {
            assert!(
                announced[0] == "-a"
                    && announced[1].starts_with("!a: Secret fleet/a, key \"kubeconfig\": ")
                    && announced[1].contains(error),
                "{announced:?}"
            );
        };
        lost(put(&mut decisions, without.clone()));
        assert_eq!(put(&mut decisions, without.clone()), [""; 0], "once");
        assert_eq!(put(&mut decisions, with(kubeconfig("a"))), ["+a"]);
        lost(put(&mut decisions, without));
        assert_eq!(
            shown(decide(&mut decisions, HubEvent::Deleted(key())).changes),
            ["-a"]
        );
    }
}

/// No identity is declared: the UID of a Secret does not tell which cluster its kubeconfig leads to.
#[tokio::test]
async fn another_secret_with_the_same_content_is_no_change_and_a_broken_one_removes_nothing() {
    let mut decisions = decisions();
    assert_eq!(spec(&mut decisions, with(kubeconfig("a"))).identity, None);
    let mut again = with(kubeconfig("a"));
    again["metadata"]["uid"] = "2".into();
    assert_eq!(put(&mut decisions, again), [""; 0]);
    let broken = put(&mut decisions, with("half: [a"));
    assert!(
        broken.len() == 1 && broken[0].starts_with("!a: Secret fleet/a, key"),
        "{broken:?}"
    );
    assert_eq!(put(&mut decisions, with("half: [b")), [""; 0], "the same problem");
    assert_eq!(
        put(&mut decisions, with(kubeconfig("a"))),
        ["+a"],
        "as it was before"
    );
}

#[tokio::test]
async fn trusted_kubeconfigs_may_what_files_may() {
    let exec = kubeconfig("a").replace(
        "token: a",
        "exec: {command: sh, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}",
    );
    // A file that is not there yet is for the fleet to wait for: no change of the Secret would report it.
    let file = kubeconfig("a").replace("token: a", "tokenFile: /not/there/yet");
    for kubeconfig in [exec, file] {
        assert!(put(&mut decisions(), with(&kubeconfig))[0].starts_with('!'));
        assert_eq!(put(&mut trusting(), with(&kubeconfig)), ["+a"]);
    }
    assert!(put(&mut trusting(), with("half: ["))[0].starts_with('!'));
}

#[tokio::test]
async fn nothing_shows_a_secret() {
    let mut decisions = decisions();
    let secret = with(kubeconfig("sesame"));
    let facts = facts(&decisions, secret.clone());
    let shown = format!("{facts:?} {:?}", spec(&mut decisions, secret));
    assert!(!shown.contains("sesame"), "{shown}");
}

#[tokio::test]
async fn labels_and_annotations_are_those_of_the_cluster() {
    let mut decisions = decisions();
    let mut secret = with(kubeconfig("a"));
    secret["metadata"]["annotations"] = json!({"property.mcr.dev/context": "none was chosen"});
    let plain = spec(&mut decisions, secret.clone());
    assert!(plain.labels.is_empty());
    let properties = |spec: &ClusterSpec| {
        let properties = spec.properties.iter();
        properties
            .map(|(name, value)| format!("{name}={value}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(properties(&plain), ["secret=fleet/a"]);
    assert!(matches!(&plain.access, Access::Endpoint(access) if access.trust == Trust::Untrusted));
    assert_eq!(address_and_token(&plain.access), "https://c.example:6443/ a");

    secret["metadata"]["labels"]["region"] = "eu".into();
    secret["metadata"]["annotations"] = json!({
        "mcr.dev/context": " two ",
        "property.mcr.dev/version": "1.36",
        "property.mcr.dev/secret": "another",
        "kubectl.kubernetes.io/last-applied-configuration": "the whole Secret",
    });
    let rich = spec(&mut decisions, secret.clone());
    assert_eq!(
        rich.labels.iter().collect::<Vec<_>>(),
        [(&"region".into(), &"eu".into())]
    );
    assert_eq!(
        properties(&rich),
        ["context=two", "secret=fleet/a", "version=1.36"]
    );
    assert_eq!(
        address_and_token(&rich.access),
        "https://c.example:6443/ ",
        "of the context two"
    );

    // Annotations that mean nothing here are no facts.
    let before = facts(&decisions, secret.clone());
    secret["metadata"]["annotations"]["example.com/touched"] = "today".into();
    secret["data"]["other"] = base64("other").into();
    assert_eq!(before, facts(&decisions, secret.clone()));
    secret["metadata"]["annotations"]["mcr.dev/context"] = "three".into();
    assert_ne!(before, facts(&decisions, secret.clone()));
    let announced = put(&mut decisions, secret);
    assert!(
        announced[0].contains("context \"three\" is not defined (there are \"one\", \"two\")"),
        "{announced:?}"
    );
}

#[tokio::test]
async fn what_is_reported_on_a_secret_has_nothing_of_its_kubeconfig() {
    let mut decisions = decisions();
    let wrong = kubeconfig("a").replace("cluster: c, user: u", "cluster: sesame, user: u");
    let reported = applied(&mut decisions, with(&wrong)).notices.remove(0);
    assert_eq!(&*reported.uid, "1");
    let expected = "contexts[name=\"…\"].context.cluster: cluster \"…\" is not defined (there are \"…\"); define it or correct the name";
    assert_eq!(reported.kind, NoticeKind::Broken(expected.into()));
    let notices = applied(&mut decisions, with(kubeconfig("sesame"))).notices;
    assert_eq!(notices[0].kind, NoticeKind::Well);
    let shown = format!("{:?} {:?}", decisions.inventory, decisions.config);
    assert!(!shown.contains("sesame"), "{shown}");
    let gone = decide(&mut decisions, HubEvent::Deleted(key())).notices.remove(0);
    assert_eq!(gone.kind, NoticeKind::Gone);
}
