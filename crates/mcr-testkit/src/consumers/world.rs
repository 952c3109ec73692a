//! The surroundings of a consumer: a hub, clusters, plugins, and what they notice.

use std::{
    collections::BTreeSet,
    fs,
    io::{Error, ErrorKind},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{process::Command, time::sleep};

use super::{
    Setup,
    scenario::{Run, Scenario},
};
use crate::sim::{SimAuditMark, SimCluster, SimFleet, SimRule, SimServer, SimUser};

/// The names of the clusters.
const MEMBERS: [&str; 4] = ["a", "b", "c", "d"];
/// The names of the access providers that there are plugins for.
const PLUGINS: [&str; 2] = ["p", "q"];
pub(super) const PROFILES: &str = "clusterprofiles.multicluster.x-k8s.io";
const NAMESPACES: [&str; 2] = ["fleet", "elsewhere"];
/// Variables of plugins with other names are not read.
const VARIABLES: &str = "CONFORMANCE_";

pub(super) type Failure = Box<dyn std::error::Error + Send + Sync>;

pub(super) struct World {
    pub(super) hub: SimCluster,
    server: SimServer,
    members: SimFleet,
    folder: TempDir,
}

impl World {
    pub(super) async fn new(scenario: &Scenario) -> Result<Self, Failure> {
        let hub = SimCluster::builder().name("hub").audit_limit(100_000).build();
        hub.create(definition(&scenario.served))?;
        for namespace in NAMESPACES {
            hub.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))?;
        }
        let member = |name| {
            let users = PLUGINS.map(|plugin| (token(plugin), SimUser::new(plugin).rule(SimRule::all())));
            let member = SimCluster::builder().name(name);
            users
                .into_iter()
                .fold(member, |member, (token, user)| member.user(token, user))
                .build()
        };
        let world = Self {
            server: hub.serve().await?,
            hub,
            members: SimFleet::serve(MEMBERS.map(member)).await?,
            folder: tempfile::tempdir()?,
        };
        fs::create_dir(world.folder.path().join("runs"))?;
        for plugin in PLUGINS {
            world.write_plugin(plugin).await?;
        }
        fs::write(world.folder.path().join("hub"), world.server.kubeconfig())?;
        let mut providers = scenario.providers.clone();
        for provider in providers.as_array_mut().into_iter().flatten() {
            let name = provider["name"].as_str().unwrap_or_default().to_owned();
            let plugin = world.plugin(&name).display().to_string();
            fill(provider, &|text| text.replace("$(plugin)", &plugin));
        }
        let file = json!({"providers": providers}).to_string();
        fs::write(world.folder.path().join("providers.json"), file)?;
        Ok(world)
    }

    pub(super) fn setup(&self, scenario: &Scenario) -> Setup {
        let options = &scenario.consumer;
        Setup {
            kubeconfig: self.folder.path().join("hub"),
            provider_file: self.folder.path().join("providers.json"),
            plugins: PLUGINS.map(|plugin| self.plugin(plugin)).to_vec(),
            namespace: (!options.all_namespaces).then(|| NAMESPACES[0].into()),
            labels: options.labels.clone(),
            managers: options.managers.clone(),
            ready: options.ready.clone(),
            hub: self.hub.clone(),
        }
    }

    fn plugin(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("plugin-{name}"))
    }

    /// A script that notes what it is run with, and prints a token that all clusters take.
    async fn write_plugin(&self, name: &str) -> Result<(), Failure> {
        let path = self.plugin(name);
        let (runs, token) = (self.folder.path().join("runs"), token(name));
        let runs = runs.display();
        let script = format!(
            "#!/bin/sh\n\
             [ \"$1\" = --are-you-there ] && exit 0\n\
             run=$(mktemp '{runs}/.run-XXXXXXXX') || exit 1\n\
             {{\n\
             for arg; do printf 'arg %s\\n' \"$arg\"; done\n\
             env | grep '^{VARIABLES}' | sed 's/^/env /'\n\
             printf 'info %s\\n' \"$KUBERNETES_EXEC_INFO\"\n\
             }} > \"$run\"\n\
             mv \"$run\" \"{runs}/{name}-${{run##*.run-}}\"\n\
             printf '{{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\
             \"status\":{{\"token\":\"{token}\"}}}}'\n"
        );
        fs::write(&path, script)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        for _ in 0..1_000 {
            match Command::new(&path).arg("--are-you-there").status().await {
                Ok(status) if status.success() => return Ok(()),
                // A program that another test starts at this moment holds the file open for writing, until it runs.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                    sleep(Duration::from_millis(5)).await;
                }
                Ok(status) => return Err(format!("the plugin {name} fails: {status}").into()),
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::from(ErrorKind::ExecutableFileBusy).into())
    }

    /// The runs of plugins that are finished, with those of the same kind once.
    pub(super) fn take_runs(&self, into: &mut Vec<Run>) -> Result<(), Failure> {
        for file in fs::read_dir(self.folder.path().join("runs"))? {
            let path = file?.path();
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            let Some((by, _)) = name.split_once('-').filter(|(by, _)| !by.starts_with('.')) else {
                continue;
            };
            let run = self.run(by, &path)?;
            if !into.contains(&run) {
                into.push(run);
            }
            fs::remove_file(path)?;
        }
        Ok(())
    }

    fn run(&self, by: &str, path: &Path) -> Result<Run, Failure> {
        let mut run = Run {
            by: by.into(),
            ..Run::default()
        };
        for line in fs::read_to_string(path)?.lines() {
            match line.split_once(' ').unwrap_or((line, "")) {
                ("arg", arg) => run.args.push(arg.into()),
                ("env", variable) => {
                    let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
                    run.env.insert(name.into(), value.into());
                }
                (_, "") => {}
                (_, info) => {
                    let info: Value = serde_json::from_str(info)?;
                    let cluster = &info["spec"]["cluster"];
                    run.member = cluster["server"].as_str().map(|url| self.member_at(url));
                    run.config = cluster.get("config").filter(|config| !config.is_null()).cloned();
                }
            }
        }
        Ok(run)
    }

    /// The name of the cluster at this address, or the address.
    fn member_at(&self, url: &str) -> String {
        let known = MEMBERS.iter().find(|name| self.members.url(name) == url);
        (*known.unwrap_or(&url)).to_owned()
    }

    /// The clusters that were reached, each with the access provider whose credentials were used.
    pub(super) fn reached(&self) -> BTreeSet<(String, String)> {
        let mut reached = BTreeSet::new();
        for name in MEMBERS {
            let log = self.members.get(name).map(|member| member.audit());
            for event in log.iter().flat_map(|log| log.events()) {
                reached.insert((name.to_owned(), event.user.clone()));
            }
        }
        reached
    }

    /// How often ClusterProfiles were listed since then.
    pub(super) fn lists_since(&self, mark: SimAuditMark) -> usize {
        let log = self.hub.audit().since(mark);
        log.count(|event| event.is_list("clusterprofiles"))
    }

    /// The requests for ClusterProfiles that were not for this version.
    pub(super) fn of_another_version(&self, version: &str) -> Vec<String> {
        let path = format!("/apis/multicluster.x-k8s.io/{version}/");
        let log = self.hub.audit();
        log.events()
            .filter(|event| event.resource == "clusterprofiles" && !event.uri.starts_with(&path))
            .map(|event| event.uri.clone())
            .collect()
    }

    /// A ClusterProfile: the one that each scenario starts from, with this merged into it.
    pub(super) fn profile(&self, version: &str, more: &Value) -> Value {
        let name = more["metadata"]["name"].as_str().unwrap_or_default();
        let mut profile = json!({
            "apiVersion": format!("multicluster.x-k8s.io/{version}"), "kind": "ClusterProfile",
            "metadata": {"namespace": NAMESPACES[0], "labels": {"x-k8s.io/cluster-manager": "manager", "region": "eu"}},
            "spec": {"displayName": name, "clusterManager": {"name": "manager"}},
            "status": {
                "conditions": [{
                    "type": "ControlPlaneHealthy", "status": "True", "reason": "Healthy", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
                "version": {"kubernetes": "v1.36.1"},
                "properties": [{"name": "region", "value": "eu", "lastObservedTime": "2026-01-01T00:00:00Z"}],
                "accessProviders": [
                    {"name": "p", "cluster": {"server": "$(server)", "certificate-authority-data": "$(ca)"}},
                ],
            },
        });
        json_patch::merge(&mut profile, more);
        self.fill_addresses(&mut profile, name);
        profile
    }

    /// Creates a ClusterProfile, now or at the time that it names.
    pub(super) fn create(&self, version: &str, more: &Value) -> Result<(), Failure> {
        let mut profile = self.profile(version, more);
        let metadata = &mut profile["metadata"];
        if metadata["creationTimestamp"].is_null() {
            self.hub.create(profile)?;
        } else {
            let uid = format!("{}-at-{}", metadata["name"], metadata["creationTimestamp"]);
            metadata["uid"] = uid.replace('"', "").into();
            self.hub.restore(profile)?;
        }
        Ok(())
    }

    /// Changes a ClusterProfile.
    pub(super) fn merge(&self, key: &str, patch: &Value) -> Result<(), Failure> {
        let mut profile = self.hub.get(PROFILES, key).ok_or("no such ClusterProfile")?;
        let mut patch = patch.clone();
        self.fill_addresses(&mut patch, key.split_once('/').unwrap_or(("", key)).1);
        json_patch::merge(&mut profile, &patch);
        self.hub.update(profile)?;
        Ok(())
    }

    fn fill_addresses(&self, object: &mut Value, name: &str) {
        let ca = STANDARD.encode(self.members.ca_pem());
        fill(object, &|text| {
            let mut text = text
                .replace("$(ca)", &ca)
                .replace("$(server)", &self.members.url(name));
            for member in MEMBERS {
                text = text.replace(&format!("$(server:{member})"), &self.members.url(member));
            }
            text
        });
    }
}

fn token(plugin: &str) -> String {
    format!("token-of-{plugin}")
}

/// Replaces all texts.
pub(super) fn fill(value: &mut Value, with: &impl Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = with(text),
        Value::Array(values) => values.iter_mut().for_each(|value| fill(value, with)),
        Value::Object(fields) => fields.values_mut().for_each(|value| fill(value, with)),
        _ => {}
    }
}

fn definition(versions: &[String]) -> Value {
    let version = |name: &String| {
        json!({
            "name": name, "served": true, "storage": name == &versions[0],
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": PROFILES},
        "spec": {
            "group": "multicluster.x-k8s.io", "scope": "Namespaced",
            "names": {
                "kind": "ClusterProfile", "listKind": "ClusterProfileList", "plural": "clusterprofiles",
                "singular": "clusterprofile",
            },
            "versions": versions.iter().map(version).collect::<Vec<_>>(),
        },
    })
}
