use mcr_core::{Access, AccessPolicy, ClusterSpec, Trust};
use mcr_testkit::discovery::address_and_token;
use serde_json::{Value, json};

use super::*;
use mcr_core::internal::NoticeKind as Kind;

const LABEL: &str = "sigs.k8s.io/multicluster-runtime-kubeconfig";

fn rules() -> Rules {
    Rules {
        label: LABEL.into(),
        key: "kubeconfig".into(),
        qualified: false,
        trust: Trust::Untrusted,
        policy: None,
        fleet_policy: AccessPolicy::default(),
    }
}

fn inventory() -> Inventory {
    Inventory::new(Arc::new(rules()))
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
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn key() -> ObjectKey {
    ObjectKey::namespaced("fleet", "a")
}

/// What the watch keeps of a Secret.
fn facts(inventory: &Inventory, secret: Value) -> SecretFacts {
    inventory
        .rules
        .facts(&key(), serde_json::from_value(secret).unwrap())
}

/// A Secret was created or changed.
fn applied(inventory: &mut Inventory, secret: Value) -> Outcome {
    let facts = facts(inventory, secret);
    inventory.applied(&key(), facts)
}

/// What an inventory makes of a Secret, in short.
fn put(inventory: &mut Inventory, secret: Value) -> Vec<String> {
    shown(&applied(inventory, secret))
}

fn shown(outcome: &Outcome) -> Vec<String> {
    let change = |change: &Change| match change {
        Change::Upsert(spec) => format!("+{}", spec.name),
        Change::Broken(broken) => format!("!{}: {}: {}", broken.name, broken.object, broken.error),
        Change::Remove(name) => format!("-{name}"),
        other => format!("{other:?}"),
    };
    outcome.changes.iter().map(change).collect()
}

fn with(kubeconfig: impl AsRef<[u8]>) -> Value {
    json!({"metadata": {"uid": "1", "labels": {LABEL: "true"}}, "data": {"kubeconfig": base64(kubeconfig)}})
}

fn spec(inventory: &mut Inventory, secret: Value) -> ClusterSpec {
    let mut outcome = applied(inventory, secret);
    match outcome.changes.pop() {
        Some(Change::Upsert(spec)) => spec,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_kubeconfig_is_a_cluster_and_another_one_is_a_change_of_it() {
    let mut inventory = inventory();
    assert_eq!(put(&mut inventory, with(kubeconfig("a"))), ["+a"]);
    assert_eq!(put(&mut inventory, with(kubeconfig("a"))), [""; 0]);
    assert_eq!(put(&mut inventory, with(kubeconfig("b"))), ["+a"]);
    assert_eq!(shown(&inventory.deleted(&key())), ["-a"]);
    assert_eq!(shown(&inventory.deleted(&key())), [""; 0]);
    assert_eq!(put(&mut inventory, with(kubeconfig("b"))), ["+a"]);
}

/// No identity is declared: the Secret's UID says nothing of which cluster its kubeconfig leads to.
#[test]
fn another_secret_of_the_same_name_with_the_same_content_is_no_change() {
    let mut inventory = inventory();
    let first = spec(&mut inventory, with(kubeconfig("a")));
    assert_eq!(first.identity, None);
    let mut again = with(kubeconfig("a"));
    again["metadata"]["uid"] = "2".into();
    assert_eq!(put(&mut inventory, again), [""; 0]);
}

#[test]
fn a_secret_that_never_had_a_kubeconfig_is_broken_and_one_that_lost_it_is_removed_too() {
    let no_key = "!a: Secret fleet/a, key \"kubeconfig\": the Secret has no key \"kubeconfig\"; put the kubeconfig under it";
    let empty = "!a: Secret fleet/a, key \"kubeconfig\": the Secret's key \"kubeconfig\" is empty; put the kubeconfig \
                 there, or remove the label";
    for (without, error) in [
        (json!({"metadata": {}}), no_key),
        (json!({"metadata": {}, "data": null}), no_key),
        (json!({"data": {}}), no_key),
        (json!({"data": {"value": base64(kubeconfig("a"))}}), no_key),
        (json!({"data": {"kubeconfig": ""}}), empty),
    ] {
        let mut inventory = inventory();
        assert_eq!(put(&mut inventory, without.clone()), ["-a", error]);
        assert_eq!(put(&mut inventory, without.clone()), [""; 0], "once");
        assert_eq!(put(&mut inventory, with(kubeconfig("a"))), ["+a"]);
        assert_eq!(put(&mut inventory, without), ["-a", error]);
        assert_eq!(shown(&inventory.deleted(&key())), ["-a"]);
    }
}

#[test]
fn a_broken_kubeconfig_removes_nothing_and_is_reported_once() {
    let mut inventory = inventory();
    put(&mut inventory, with(kubeconfig("a")));
    let broken = put(&mut inventory, with("half: [a"));
    assert!(
        broken.len() == 1 && broken[0].starts_with("!a: Secret fleet/a, key \"kubeconfig\": "),
        "{broken:?}"
    );
    assert_eq!(
        put(&mut inventory, with("half: [b")),
        [""; 0],
        "the same in other words"
    );
    assert_eq!(put(&mut inventory, with("\n")).len(), 1);
    assert_eq!(
        put(&mut inventory, with(kubeconfig("a"))),
        ["+a"],
        "as it was before"
    );
}

#[test]
fn each_kind_of_hostile_kubeconfig_is_broken_with_what_to_do() {
    let of = |cluster: &str, user: &str| {
        format!(
            "current-context: x\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
        )
    };
    let server = "server: 'https://c.example'";
    let exec = "exec: {command: /bin/sh, args: [-c, id], apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}";
    let bomb = (1..12).fold("a0: &a0 [x]\n".to_owned(), |bomb, n| {
        format!(
            "{bomb}a{n}: &a{n} [{}]\n",
            vec![format!("*a{}", n - 1); 10].join(", ")
        )
    });
    let deep = "[".repeat(100_000);
    for (kubeconfig, problem) in [
        (of(server, exec), "asks to run \"/bin/sh\""),
        (
            of(server, "auth-provider: {name: gcp}"),
            "is a login helper that Kubernetes removed",
        ),
        (
            of(
                server,
                "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token",
            ),
            "names a file",
        ),
        (
            of(&format!("{server}, certificate-authority: /etc/passwd"), ""),
            "names a file",
        ),
        (
            of(&format!("{server}, insecure-skip-tls-verify: true"), ""),
            "untrusted kubeconfigs may not do",
        ),
        (
            of(&format!("{server}, proxy-url: 'http://p.example'"), ""),
            "names a proxy",
        ),
        (
            of("server: 'https://169.254.169.254'", ""),
            "link-local or metadata",
        ),
        (of("server: 'https://127.0.0.1:6443'", ""), "loopback"),
        (bomb, ""),
        (deep, ""),
        ("a\0b".to_owned(), ""),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n".to_owned(),
            "current-context: is missing",
        ),
        ("[1, 2]".to_owned(), "the kubeconfig can't be read"),
        ("<html></html>".to_owned(), "the kubeconfig can't be read"),
    ] {
        let announced = put(&mut inventory(), with(&kubeconfig));
        let start = &kubeconfig[..kubeconfig.len().min(100)];
        assert_eq!(announced.len(), 1, "{start}: {announced:?}");
        assert!(
            announced[0].starts_with("!a") && announced[0].contains(problem),
            "{start}: {announced:?}"
        );
        assert!(announced[0].len() < 1000, "{start}: {announced:?}");
    }
    assert!(put(&mut inventory(), with(b"a: \xff\x00"))[0].contains("not UTF-8"));
    assert!(put(&mut inventory(), with(b"\xff\xfe\x00"))[0].starts_with('!'));
    let secret = json!({"data": {"kubeconfig": "%%%"}});
    assert!(put(&mut inventory(), secret)[0].contains("not base64"));
}

#[test]
fn what_a_policy_allows_is_good_and_what_it_could_allow_reports_where() {
    let insecure = kubeconfig("a").replace("6443'", "6443', insecure-skip-tls-verify: true");
    let (strict, lenient) = (AccessPolicy::default, || {
        AccessPolicy::default().allow_insecure_tls(true)
    });
    let announced = |policy: Option<AccessPolicy>, fleet_policy: AccessPolicy| {
        let rules = Rules {
            policy,
            fleet_policy,
            ..rules()
        };
        put(&mut Inventory::new(Arc::new(rules)), with(&insecure)).remove(0)
    };
    let allow = "allow it with AccessPolicy::allow_insecure_tls";
    let refused = announced(None, strict());
    assert!(
        refused.ends_with(&format!(
            "{allow}; the policy is in `FleetSettings::access_policy`"
        )),
        "{refused}"
    );
    assert_eq!(announced(None, lenient()), "+a", "the fleet's policy");
    let refused = announced(Some(strict()), lenient());
    let both =
        "both policies must allow it: the `access_policy` of the provider and `FleetSettings::access_policy`";
    assert!(refused.ends_with(&format!("{allow}; {both}")), "{refused}");
    assert_eq!(
        announced(Some(lenient()), strict()),
        "+a",
        "the fleet refuses it when it connects"
    );
}

#[test]
fn trusted_kubeconfigs_may_what_files_may() {
    let exec = kubeconfig("a").replace(
        "token: a",
        "exec: {command: sh, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}",
    );
    assert!(put(&mut inventory(), with(&exec))[0].starts_with('!'));
    let mut rules = rules();
    rules.trust = Trust::Trusted;
    let mut inventory = Inventory::new(Arc::new(rules));
    assert_eq!(put(&mut inventory, with(&exec)), ["+a"]);
    // A file that is not there yet is for the fleet to wait for: no change of the Secret would tell of it.
    let file = kubeconfig("a").replace("token: a", "tokenFile: /not/there/yet");
    assert_eq!(put(&mut inventory, with(file)), ["+a"]);
    assert!(put(&mut inventory, with("half: ["))[0].starts_with('!'));
}

#[test]
fn labels_and_annotations_are_those_of_the_cluster() {
    let mut inventory = inventory();
    let mut secret = with(kubeconfig("a"));
    secret["metadata"]["annotations"] = json!({"property.mcr.dev/context": "none was chosen"});
    let plain = spec(&mut inventory, secret.clone());
    assert!(plain.labels.is_empty());
    assert_eq!(
        plain.properties.iter().collect::<Vec<_>>(),
        [(&"secret".into(), &"fleet/a".into())]
    );
    assert!(matches!(&plain.access, Access::Endpoint(access) if access.trust == Trust::Untrusted));
    assert_eq!(address_and_token(&plain.access), "https://c.example:6443/ a");

    secret["metadata"]["labels"]["region"] = "eu".into();
    secret["metadata"]["annotations"] = json!({
        "mcr.dev/context": " two ",
        "property.mcr.dev/version": "1.36",
        "property.mcr.dev/secret": "another",
        "kubectl.kubernetes.io/last-applied-configuration": "the whole Secret",
    });
    let rich = spec(&mut inventory, secret.clone());
    assert_eq!(
        rich.labels.iter().collect::<Vec<_>>(),
        [(&"region".into(), &"eu".into())]
    );
    let properties: Vec<_> = rich.properties.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(properties, ["context=two", "secret=fleet/a", "version=1.36"]);
    assert_eq!(
        address_and_token(&rich.access),
        "https://c.example:6443/ ",
        "of the context two"
    );

    // Annotations that mean nothing here change nothing.
    secret["metadata"]["annotations"]["example.com/touched"] = "today".into();
    assert_eq!(put(&mut inventory, secret.clone()), [""; 0]);
    secret["metadata"]["annotations"]["mcr.dev/context"] = "three".into();
    let announced = put(&mut inventory, secret);
    assert!(
        announced[0].contains("context \"three\" is not defined (there are \"one\", \"two\")"),
        "{announced:?}"
    );
}

/// The watch reports a Secret only if its facts have changed.
#[test]
fn the_facts_of_a_secret_are_all_that_has_an_effect() {
    let inventory = inventory();
    let of = |change: &dyn Fn(&mut Value)| {
        let mut secret = with(kubeconfig("a"));
        change(&mut secret);
        facts(&inventory, secret)
    };
    let before = of(&|_| {});
    assert_eq!(
        before,
        of(&|secret| secret["data"]["other"] = base64("other").into())
    );
    assert_eq!(
        before,
        of(&|secret| secret["metadata"]["annotations"] = json!({"example.com/touched": "now"}))
    );
    // A problem is reported on the Secret with this UID, and again if there is another one.
    assert_ne!(before, of(&|secret| secret["metadata"]["uid"] = "2".into()));
    assert_ne!(
        before,
        of(&|secret| secret["metadata"]["labels"]["region"] = "eu".into())
    );
    assert_ne!(
        before,
        of(&|secret| secret["data"]["kubeconfig"] = base64(kubeconfig("b")).into())
    );
    for annotation in ["mcr.dev/context", "property.mcr.dev/region"] {
        assert_ne!(
            before,
            of(&|secret| secret["metadata"]["annotations"] = json!({annotation: "two"}))
        );
    }
}

#[test]
fn no_text_of_a_kubeconfig_is_kept() {
    let mut inventory = inventory();
    for (kubeconfig, changes) in [
        (kubeconfig("a"), 1),
        (kubeconfig("a"), 0),
        ("half: [".to_owned(), 1),
        (kubeconfig("a"), 1),
    ] {
        let facts = facts(&inventory, with(&kubeconfig));
        assert_eq!(inventory.applied(&key(), facts.clone()).changes.len(), changes);
        assert!(facts.described.unwrap().take_text().is_none(), "{kubeconfig}");
    }
}

#[test]
fn in_all_namespaces_names_have_the_namespace() {
    let mut rules = rules();
    rules.qualified = true;
    let mut inventory = Inventory::new(Arc::new(rules));
    assert_eq!(put(&mut inventory, with(kubeconfig("a"))), ["+fleet/a"]);
    assert_eq!(shown(&inventory.deleted(&key())), ["-fleet/a"]);
}

#[test]
fn what_is_reported_on_a_secret_has_nothing_of_its_kubeconfig() {
    let mut inventory = inventory();
    let notice = |inventory: &mut Inventory, secret: Value| applied(inventory, secret).notice;
    let wrong = kubeconfig("a").replace("cluster: c, user: u", "cluster: sesame, user: u");
    let reported = notice(&mut inventory, with(&wrong)).unwrap();
    assert_eq!(&*reported.uid, "1");
    let Kind::Broken(text) = reported.kind else {
        panic!("{reported:?}")
    };
    assert_eq!(
        &*text,
        "contexts[name=\"…\"].context.cluster: cluster \"…\" is not defined (there are \"…\"); define it or correct the name"
    );
    assert_eq!(
        notice(&mut inventory, with(kubeconfig("a"))).unwrap().kind,
        Kind::Well
    );
    assert_eq!(notice(&mut inventory, with(kubeconfig("a"))), None);
    assert_eq!(inventory.deleted(&key()).notice.unwrap().kind, Kind::Gone);
}

#[test]
fn nothing_shows_a_secret() {
    let mut inventory = inventory();
    let secret = spec(&mut inventory, with(kubeconfig("sesame")));
    for shown in [format!("{inventory:?}"), format!("{secret:?}")] {
        assert!(!shown.contains("sesame"), "{shown}");
    }
}

/// Whatever a Secret goes through, a fleet that follows what is said ends where the Secret is; and what changes nothing is not
/// said.
#[test]
fn every_short_history_of_a_secret_ends_with_what_it_is() {
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Step {
        Good(&'static str),
        Bad(&'static str),
        Empty,
        Gone,
    }
    /// The token of the cluster that runs, and whether something is wrong.
    type Shown = (Option<&'static str>, bool);
    fn follow(shown: &mut Shown, change: &Change) {
        match change {
            Change::Upsert(spec) => {
                let access = address_and_token(&spec.access);
                *shown = (
                    ["one", "two"].into_iter().find(|token| access.ends_with(token)),
                    false,
                );
            }
            Change::Broken(_) => shown.1 = true,
            Change::Remove(_) => *shown = (None, false),
            other => panic!("{other:?}"),
        }
    }
    let steps = [
        Step::Good("one"),
        Step::Good("two"),
        Step::Bad("[1"),
        Step::Bad("\n"),
        Step::Empty,
        Step::Gone,
    ];
    let many = steps.len();
    for history in 0..many.pow(4) {
        let history: Vec<Step> = (0..4).map(|at| steps[history / many.pow(at) % many]).collect();
        let (mut inventory, mut shown, mut expected, mut last) =
            (inventory(), (None, false), (None, false), Step::Gone);
        for &step in &history {
            let outcome = match step {
                Step::Good(token) => applied(&mut inventory, with(kubeconfig(token))),
                Step::Bad(text) => applied(&mut inventory, with(text)),
                Step::Empty => applied(&mut inventory, with("")),
                Step::Gone => inventory.deleted(&key()),
            };
            expected = match step {
                Step::Good(token) => (Some(token), false),
                Step::Bad(_) => (expected.0, true),
                Step::Empty => (None, true),
                Step::Gone => (None, false),
            };
            assert_eq!(outcome.changes.is_empty(), step == last, "{history:?}: {step:?}");
            outcome
                .changes
                .iter()
                .for_each(|change| follow(&mut shown, change));
            assert_eq!(shown, expected, "{history:?}: {step:?}");
            last = step;
        }
    }
}
