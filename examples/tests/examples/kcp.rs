//! What the tests of the examples for kcp share: manifests and commands as a reader has them, and the rights that are used.

use std::{collections::BTreeSet, fs, path::PathBuf, time::Duration};

use mcr_kcp_double::{KcpServer, KcpUser, KcpWorkspace};
use mcr_testkit::{
    sim::{SimAuditEvent, SimRule},
    waiting::OrFail,
};
use serde_json::{Value, json};

use crate::{
    page::{Terminal, blocks, repository},
    program::Program,
};

pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// The folder of an example, with its manifests.
#[derive(Clone, Copy)]
pub(crate) struct Example(pub(crate) &'static str);

impl Example {
    pub(crate) fn folder(self) -> PathBuf {
        repository("examples/examples").join(self.0)
    }

    /// The objects of a manifest.
    pub(crate) fn manifest(self, name: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.folder().join(name)).or_fail();
        text.split("\n---\n")
            .map(|document| serde_saphyr::from_str(document).or_fail())
            .collect()
    }

    /// Applies manifests in the workspace that they are for.
    pub(crate) fn apply(self, workspace: &KcpWorkspace, manifests: &[&str]) {
        for object in manifests.iter().flat_map(|name| self.manifest(name)) {
            workspace.apply(object).or_fail();
        }
    }

    /// The rules of a role in `rbac.yaml`.
    pub(crate) fn rules(self, role: &str) -> Vec<Value> {
        let mut all = self.manifest("rbac.yaml").into_iter();
        let is_role = |object: &Value| object["kind"] == "ClusterRole" && object["metadata"]["name"] == role;
        let role = all.find(is_role).unwrap();
        role["rules"].as_array().unwrap().clone()
    }

    /// A user named `controller` with the rights of a role in a workspace.
    pub(crate) fn user(self, workspace: &KcpWorkspace, role: &str) -> KcpUser {
        let rules = self.rules(role);
        rules.iter().fold(KcpUser::new("controller"), |user, rule| {
            let of = |field: &str| texts(&rule[field]);
            let granted =
                SimRule::new(of("apiGroups"), of("resources"), of("verbs")).names(of("resourceNames"));
            user.rule(workspace.id(), granted)
        })
    }

    /// Every manifest is applied by a command of the page, and nothing else is.
    pub(crate) fn applies_every_manifest(self, page: &str) {
        let commands = blocks(page).join("\n");
        let mut applied: BTreeSet<&str> = commands
            .split("-f $here/")
            .skip(1)
            .filter_map(|rest| rest.split_whitespace().next())
            .collect();
        for entry in fs::read_dir(self.folder()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(
                !name.ends_with(".yaml") || applied.remove(name.as_str()),
                "{name} is not applied"
            );
        }
        assert!(applied.is_empty(), "{applied:?}");
    }
}

pub(crate) fn texts(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// A resource and a verb.
pub(crate) type Right = (String, String);

pub(crate) fn granted(rules: &[Value]) -> BTreeSet<Right> {
    let all = rules.iter().flat_map(|rule| {
        let verbs = texts(&rule["verbs"]);
        let resources = texts(&rule["resources"]).into_iter();
        resources.flat_map(move |resource| {
            let of = move |verb: &String| (resource.clone(), verb.clone());
            verbs.iter().map(of).collect::<Vec<_>>()
        })
    });
    all.collect()
}

/// The requests of the controller at all shards, apart from those that anybody may send.
pub(crate) fn requests(server: &KcpServer) -> Vec<SimAuditEvent> {
    let logs = server.kcp().shards().into_iter().map(|shard| shard.audit());
    let of_controller = |event: &SimAuditEvent| {
        let anybody = ["authentication.k8s.io", "authorization.k8s.io"];
        event.user == "controller"
            && event.is_start()
            && !event.resource.is_empty()
            && event.resource != "namespaces"
            && !anybody.contains(&event.group.as_str())
    };
    logs.flat_map(|log| log.events().cloned().collect::<Vec<_>>())
        .filter(of_controller)
        .collect()
}

/// A new folder with the kubeconfig of a controller, and an example that runs with it.
pub(crate) struct Started {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) program: Program,
}

impl Started {
    /// `folders`: a flag, and the folder in the new one that it names.
    pub(crate) fn new(example: Example, kubeconfig: &str, folders: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let hub = folder.path().join("controller.kubeconfig");
        fs::write(&hub, kubeconfig).unwrap();
        let mut args = vec!["--hub-kubeconfig".into(), hub];
        for (flag, name) in folders {
            args.extend([PathBuf::from(flag), folder.path().join(name)]);
        }
        let program = Program::start(example.0, args);
        Self { folder, program }
    }

    /// Waits for a line about a workspace.
    pub(crate) fn says(&self, after: usize, workspace: &KcpWorkspace, event: &str) -> Value {
        let line = |line: &Value| {
            line["cluster"] == workspace.id()
                && line["workspace"] == workspace.path()
                && line["event"] == event
        };
        let what = format!("{} in {}", event, workspace.path());
        self.program.after(after, &what, line)
    }
}

/// A terminal beside a kcp that runs. `None` without kubectl, which the log says.
pub(crate) fn terminal(server: &KcpServer, test: &str) -> Option<Terminal> {
    Terminal::open(test, ".kcp/admin.kubeconfig", &server.kubeconfig("root"))
}

/// What the part of kcp does that issues tokens: the user of a manifest, and its token in the Secret that waits for it.
pub(crate) fn issue_token(server: &KcpServer, workspace: &KcpWorkspace, user: KcpUser, secret: &str) {
    server.kcp().set_user("least", user);
    let mut secret = workspace.get("secrets", &format!("default/{secret}")).unwrap();
    secret["data"] = json!({"token": "bGVhc3Q="});
    workspace.update(secret).or_fail();
}
