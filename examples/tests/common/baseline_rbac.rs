//! `baseline-rbac`, from the first start to a baseline that has become smaller.

use std::{fs, path::Path, time::Duration};

use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    core::v1::Service,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    member::{Member, create, delete, edit, unique},
    program::Program,
};

/// What is in `examples/deploy`, under names of the test's own.
fn baseline(id: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/overlays/baseline-rbac/baseline.yaml");
    fs::read_to_string(file)
        .unwrap()
        .replace("example-", &format!("{id}-"))
}

fn start(folder: &Path, id: &str) -> Program {
    let (file, folder) = (folder.join("baseline.yaml"), folder.to_str().unwrap());
    let (file, globs) = (file.to_str().unwrap(), "*.kubeconfig");
    let args = format!("--baseline {file} --name {id} --kubeconfig-dirs {folder} --globs {globs}");
    Program::start("baseline-rbac", args.split(' '))
}

fn line(member: &Member, kind: &str, name: &str, event: &str) -> impl Fn(&Value) -> bool {
    let cluster = member.name.clone();
    let wanted = [kind, name, event].map(str::to_owned);
    move |line| {
        line["cluster"].as_str().is_some_and(|found| found == cluster)
            && [&line["kind"], &line["name"], &line["event"]] == [&wanted[0], &wanted[1], &wanted[2]]
    }
}

/// Whether a load balancer would be let in. Nothing is made.
async fn load_balancer(member: &Member, labels: Value) -> Result<(), String> {
    let services = Api::<Service>::namespaced(member.client.clone(), "default");
    let service = json!({
        "metadata": {"name": "shop", "labels": labels},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    });
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let created = services
        .create(&dry, &serde_json::from_value(service).unwrap())
        .await;
    created.map(drop).map_err(|error| error.to_string())
}

/// A policy works a moment after it is there.
async fn refuses(member: &Member, wanted: bool) {
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        let answer = load_balancer(member, json!({"app": "shop"})).await;
        match &answer {
            Err(error) if wanted && error.contains("needs the label example.io/owner") => return,
            Ok(()) if !wanted => return,
            _ => assert!(Instant::now() < deadline, "{}: {answer:?}", member.name),
        }
        sleep(Duration::from_millis(100)).await;
    }
}

async fn is_gone<K>(all: Api<K>, name: &str)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let found = all.get_opt(name).await.unwrap();
    assert!(found.is_none(), "{found:?}");
}

/// Two members; the second joins later.
pub(crate) async fn story(early: &Member, late: &Member) {
    let folder = tempfile::tempdir().unwrap();
    let id = &unique("baseline");
    let file = folder.path().join("baseline.yaml");
    let (support, on_call, balancers) = (
        &format!("{id}-support"),
        &format!("{id}-on-call"),
        &format!("{id}-load-balancers"),
    );
    let all = [
        ("ClusterRole", support),
        ("Role", on_call),
        ("ValidatingAdmissionPolicy", balancers),
        ("ClusterRoleBinding", support),
        ("RoleBinding", on_call),
        ("ValidatingAdmissionPolicyBinding", balancers),
    ];
    fs::write(&file, baseline(id)).unwrap();
    for member in [early, late] {
        // API servers make it a moment after they start.
        let _ = member
            .namespaces()
            .create(
                &PostParams::default(),
                &serde_json::from_value(json!({"metadata": {"name": "kube-system"}})).unwrap(),
            )
            .await;
    }

    // A cluster that is there, and one that joins.
    early.join(folder.path());
    let program = start(folder.path(), id);
    for (kind, name) in all {
        program.line(kind, line(early, kind, name, "created"));
    }
    late.join(folder.path());
    for (kind, name) in all {
        program.line(kind, line(late, kind, name, "created"));
    }
    for member in [early, late] {
        refuses(member, true).await;
        load_balancer(member, json!({"example.io/owner": "shop"}))
            .await
            .unwrap();
    }

    // Drift.
    for member in [early, late] {
        let repaired = |mark, what: &str, kind: &str, name: &str| {
            program.after(mark, what, line(member, kind, name, "repaired"));
        };
        let roles = Api::<ClusterRole>::all(member.client.clone());
        let mark = program.mark();
        let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
        edit(&roles, support, json!({"rules": everything})).await;
        repaired(mark, "other rules", "ClusterRole", support);
        let rules = roles.get(support).await.unwrap().rules.unwrap();
        assert_eq!(rules.len(), 2, "{rules:#?}");

        let bindings = Api::<ClusterRoleBinding>::all(member.client.clone());
        let mark = program.mark();
        let mallory = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mallory"}]);
        edit(&bindings, support, json!({"subjects": mallory})).await;
        repaired(mark, "other subjects", "ClusterRoleBinding", support);
        assert_eq!(
            bindings.get(support).await.unwrap().subjects.unwrap()[0].name,
            "example:support"
        );

        // What turns a policy off without a change of what we said.
        let bound = Api::<ValidatingAdmissionPolicyBinding>::all(member.client.clone());
        let mark = program.mark();
        let nowhere = json!({"namespaceSelector": {"matchLabels": {"no": "where"}}});
        edit(&bound, balancers, json!({"spec": {"matchResources": nowhere}})).await;
        repaired(
            mark,
            "a selector more",
            "ValidatingAdmissionPolicyBinding",
            balancers,
        );
        assert!(bound.get(balancers).await.unwrap().spec.match_resources.is_none());
        let policies = Api::<ValidatingAdmissionPolicy>::all(member.client.clone());
        for more in [
            json!({"matchConditions": [{"name": "never", "expression": "false"}]}),
            json!({"matchConstraints": {"objectSelector": {"matchLabels": {"no": "where"}}}}),
            json!({"matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["services"], "resourceNames": ["one"]},
            ]}}),
        ] {
            let mark = program.mark();
            edit(&policies, balancers, json!({"spec": more})).await;
            repaired(mark, "a condition more", "ValidatingAdmissionPolicy", balancers);
        }
        let found = policies.get(balancers).await.unwrap().spec.unwrap();
        assert!(found.match_conditions.unwrap_or_default().is_empty());
        let constraints = found.match_constraints.unwrap();
        assert!(
            constraints
                .object_selector
                .unwrap_or_default()
                .match_labels
                .is_none()
        );
        let rules = constraints.resource_rules.unwrap();
        assert!(rules[0].resource_names.is_none(), "{rules:?}");
        refuses(member, true).await;

        let mark = program.mark();
        edit(&policies, balancers, json!({"metadata": {"labels": {"example.io/baseline": null}}, "spec": {"failurePolicy": "Ignore"}})).await;
        repaired(mark, "without its label", "ValidatingAdmissionPolicy", balancers);
        let mark = program.mark();
        delete(&policies, balancers).await;
        program.after(
            mark,
            "deleted",
            line(member, "ValidatingAdmissionPolicy", balancers, "created"),
        );
        refuses(member, true).await;
    }
    let lines = program.interrupt();
    let of_all = lines.iter().filter(|line| line["event"] == "created").count();
    assert_eq!(
        of_all,
        2 * all.len() + 2,
        "each once, and the two that were deleted: {lines:#?}"
    );

    // Another role for a binding, and less of everything else; and one that somebody copied, label and all.
    let only: String = baseline(id)
        .split("---\n")
        .filter(|one| one.contains("kind: ClusterRole"))
        .collect::<Vec<_>>()
        .join("---\n");
    let other = format!("  kind: ClusterRole\n  name: {id}-support\n");
    assert!(only.contains(&other), "{only}");
    fs::write(&file, only.replace(&other, "  kind: ClusterRole\n  name: view\n")).unwrap();
    for member in [early, late] {
        let roles = Api::<ClusterRole>::all(member.client.clone());
        create(&roles, json!({"metadata": {"name": format!("{id}-copy"), "labels": {"example.io/baseline": id}}, "rules": []})).await;
    }
    let program = start(folder.path(), id);
    for member in [early, late] {
        program.line(
            "another role",
            line(member, "ClusterRoleBinding", support, "replaced"),
        );
        for (kind, name) in all.iter().filter(|(kind, _)| !kind.starts_with("ClusterRole")) {
            program.line(kind, line(member, kind, name, "deleted"));
        }
        let client = || member.client.clone();
        let bound = Api::<ClusterRoleBinding>::all(client())
            .get(support)
            .await
            .unwrap();
        assert_eq!(bound.role_ref.name, "view");
        is_gone(Api::<Role>::namespaced(client(), "kube-system"), on_call).await;
        is_gone(Api::<RoleBinding>::namespaced(client(), "kube-system"), on_call).await;
        is_gone(Api::<ValidatingAdmissionPolicyBinding>::all(client()), balancers).await;
        refuses(member, false).await;
    }
    let lines = program.interrupt();
    assert!(
        !lines.iter().any(|line| line["name"] == format!("{id}-copy")),
        "a label can be copied: {lines:#?}"
    );

    // What is somebody else's stays, and no binding leads to it.
    fs::write(
        &file,
        baseline(id).replace(&format!("{id}-support"), &format!("{id}-copy")),
    )
    .unwrap();
    let program = start(folder.path(), id);
    for member in [early, late] {
        program.line(
            "somebody else's",
            line(member, "ClusterRole", &format!("{id}-copy"), "conflict"),
        );
    }
    program.logged("is there, and not made by this program", 2);
    for line in program.interrupt() {
        assert_eq!(line["event"], "conflict", "nothing comes after it");
    }
    for member in [early, late] {
        let roles = Api::<ClusterRole>::all(member.client.clone());
        let copy = roles.get(&format!("{id}-copy")).await.unwrap();
        assert_eq!(copy.labels().get("example.io/baseline"), Some(id));
        assert!(copy.rules.unwrap_or_default().is_empty());
        let bindings = Api::<ClusterRoleBinding>::all(member.client.clone());
        for role in [support, &format!("{id}-copy")] {
            let _ = roles.delete(role, &DeleteParams::default()).await;
            let _ = bindings.delete(role, &DeleteParams::default()).await;
        }
    }
}
