//! What the tests of the examples for kcp share: manifests and commands as a reader has them, and the rights that are used.

use std::{collections::BTreeSet, fs, path::PathBuf, time::Duration};

use mcr_kcp_double::{Kcp, KcpServer, KcpUser, KcpWorkspace};
use mcr_testkit::{
    sim::{SimAuditEvent, SimRule},
    waiting::OrFail,
};
use serde_json::{Value, json};

use crate::{
    page::{Terminal, blocks, texts},
    program::Program,
};

pub(crate) use crate::page::Example;

pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

impl Example {
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

/// What the controller did at the endpoints of an APIExport. Nothing was refused but this request, if there is one.
pub(crate) fn used(server: &KcpServer, refused: Option<(&str, &str)>) -> BTreeSet<Right> {
    let mut used = BTreeSet::new();
    for event in requests(server) {
        if event.code == 403 {
            assert_eq!(refused, Some((&*event.resource, &*event.verb)), "{event:?}");
            continue;
        }
        let of_content = event.uri.contains("/services/apiexport/");
        let resource = if of_content {
            "apiexports/content"
        } else {
            &event.resource
        };
        used.insert((resource.to_owned(), event.verb.clone()));
    }
    used
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
    pub(crate) fn reports(&self, after: usize, workspace: &KcpWorkspace, event: &str) -> Value {
        let line = |line: &Value| {
            line["cluster"] == workspace.id()
                && line["workspace"] == workspace.path()
                && line["event"] == event
        };
        let what = format!("{} in {}", event, workspace.path());
        self.program.after(after, &what, line)
    }
}

/// A reader's way along a page, beside a double of kcp.
pub(crate) struct Walk {
    pub(crate) server: KcpServer,
    pub(crate) terminal: Terminal,
    /// The blocks that are not typed yet.
    pub(crate) left: Vec<String>,
}

impl Walk {
    /// Types the first four blocks of a page. After the third kcp issues the token of the controller, in the workspace that has its
    /// role. `None` without kubectl, which is logged.
    pub(crate) async fn begin(
        (example, page): (Example, &str),
        (workspace, role): (&str, &str),
        files: &[(&str, &str)],
    ) -> Option<Self> {
        let server = Kcp::builder().serve().await.or_fail();
        let admin = server.kubeconfig("root");
        let terminal = Terminal::open(example.0, ".kcp/admin.kubeconfig", &admin)?;
        for (name, content) in files {
            fs::write(terminal.file(name), content).unwrap();
        }
        let mut left = blocks(page);
        for (at, block) in left.drain(..4).enumerate() {
            if at == 3 {
                let workspace = server.kcp().workspace(workspace).unwrap();
                server.kcp().set_user("least", example.user(&workspace, role));
                let key = format!("default/{role}-token");
                let mut secret = workspace.get("secrets", &key).unwrap();
                secret["data"] = json!({"token": "bGVhc3Q="});
                workspace.update(secret).or_fail();
            }
            terminal.run(&block).await;
        }
        Some(Self {
            server,
            terminal,
            left,
        })
    }

    /// Types the next block, and returns what it prints.
    pub(crate) async fn next(&mut self) -> String {
        let block = self.left.remove(0);
        self.terminal.run(&block).await
    }

    /// Starts the example with the kubeconfig that the page has made. `folders`: a flag, and the file that it names.
    pub(crate) fn start(&self, example: Example, folders: &[(&str, &str)]) -> Program {
        let mut args = vec![
            "--hub-kubeconfig".into(),
            self.terminal.file(".kcp/controller.kubeconfig"),
        ];
        for (flag, name) in folders {
            args.extend([PathBuf::from(flag), self.terminal.file(name)]);
        }
        Program::start(example.0, args)
    }
}
