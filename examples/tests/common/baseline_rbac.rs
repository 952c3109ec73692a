//! `baseline-rbac`, from the first start to a baseline that has become smaller.

use std::{fs, path::Path, time::Duration};

use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    core::v1::Service,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    member::{Member, delete, edit, unique},
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

    // Drift: more rights, a policy that is turned off without a change of its own fields, and one that is deleted.
    for member in [early, late] {
        let repaired = |mark, kind: &str, name: &str, event: &str| {
            program.after(mark, kind, line(member, kind, name, event));
        };
        let roles = Api::<ClusterRole>::all(member.client.clone());
        let mark = program.mark();
        let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
        edit(&roles, support, json!({"rules": everything})).await;
        repaired(mark, "ClusterRole", support, "repaired");
        assert_eq!(roles.get(support).await.unwrap().rules.unwrap().len(), 2);

        let bound = Api::<ValidatingAdmissionPolicyBinding>::all(member.client.clone());
        let mark = program.mark();
        let nowhere = json!({"namespaceSelector": {"matchLabels": {"no": "where"}}});
        edit(&bound, balancers, json!({"spec": {"matchResources": nowhere}})).await;
        repaired(mark, "ValidatingAdmissionPolicyBinding", balancers, "repaired");
        assert!(bound.get(balancers).await.unwrap().spec.match_resources.is_none());

        let policies = Api::<ValidatingAdmissionPolicy>::all(member.client.clone());
        let mark = program.mark();
        delete(&policies, balancers).await;
        repaired(mark, "ValidatingAdmissionPolicy", balancers, "created");
        refuses(member, true).await;
    }
    let lines = program.interrupt();
    let of_all = lines.iter().filter(|line| line["event"] == "created").count();
    assert_eq!(
        of_all,
        2 * all.len() + 2,
        "each once, and the two that were deleted: {lines:#?}"
    );

    // Another role for a binding, and less of everything else.
    let only: String = baseline(id)
        .split("---\n")
        .filter(|one| one.contains("kind: ClusterRole"))
        .collect::<Vec<_>>()
        .join("---\n");
    let other = format!("  kind: ClusterRole\n  name: {id}-support\n");
    assert!(only.contains(&other), "{only}");
    fs::write(&file, only.replace(&other, "  kind: ClusterRole\n  name: view\n")).unwrap();
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
        let bound = bindings(member).get(support).await.unwrap();
        assert_eq!(bound.role_ref.name, "view");
        is_gone(Api::<Role>::namespaced(client(), "kube-system"), on_call).await;
        is_gone(Api::<RoleBinding>::namespaced(client(), "kube-system"), on_call).await;
        is_gone(Api::<ValidatingAdmissionPolicyBinding>::all(client()), balancers).await;
        refuses(member, false).await;
    }
    program.interrupt();
    for member in [early, late] {
        let (roles, bindings) = (Api::<ClusterRole>::all(member.client.clone()), bindings(member));
        let _ = roles.delete(support, &DeleteParams::default()).await;
        let _ = bindings.delete(support, &DeleteParams::default()).await;
    }
}

fn bindings(member: &Member) -> Api<ClusterRoleBinding> {
    Api::all(member.client.clone())
}
