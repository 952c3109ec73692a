//! The manifests of `examples/deploy`, applied as a user would, and a program that runs with exactly the rights they give.

use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret, rbac::v1::ClusterRole};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use mcr_testkit::control_plane::CertificateAuthority;
use serde_json::{Value, json};

use super::{
    kubectl::{Kubectl, kustomization, with_token},
    member::{Member, delete, edit, eventually, unique},
    program::Program,
};

const LABEL: &str = "sigs.k8s.io/multicluster-runtime-kubeconfig";

/// The ClusterRoles of `base/server.yaml`: for the program, and for whoever reads.
const REVIEWS: &str = "controller-reviews";
const READER: &str = "controller-reader";

/// A group, a resource with its subresource, and a verb.
pub(crate) type Right = (String, String, String);

/// What was applied to a hub and a member.
pub(crate) struct Deployed<'a> {
    example: &'static str,
    /// On the hub; and the start of names in the member.
    pub(crate) namespace: String,
    pub(crate) hub: (&'a Member, Kubectl),
    pub(crate) member: (&'a Member, Kubectl),
    files: [tempfile::TempDir; 3],
    /// Has signed the certificate of the program's server.
    authority: CertificateAuthority,
}

impl<'a> Deployed<'a> {
    /// Applies the manifests for an example, and the kubeconfig of the member as a Secret. The manifests of the hub are an
    /// overlay, and `more` changes them.
    pub(crate) fn new(
        example: &'static str,
        overlay: &str,
        (hub, hub_kubectl): (&'a Member, Kubectl),
        (member, member_kubectl): (&'a Member, Kubectl),
        mut more: Value,
    ) -> Self {
        let namespace = unique(example);
        // A dry run makes no namespace for what is to be in it.
        hub_kubectl.run(&["create", "namespace", &namespace]);
        more["namespace"] = json!(namespace);
        // Of the whole hub, which other tests use too.
        more["patches"] = json!([{
            "target": {"kind": "ClusterRoleBinding", "name": REVIEWS},
            "options": {"allowNameChange": true},
            "patch": format!("- {{op: replace, path: /metadata/name, value: {namespace}-reviews}}"),
        }]);
        let on_hub = kustomization(&format!("overlays/{overlay}"), more);
        let prefix = format!("{namespace}-");
        let on_member = kustomization(&format!("member-rbac/{example}"), json!({"namePrefix": prefix}));
        for (kubectl, folder) in [(&hub_kubectl, &on_hub), (&member_kubectl, &on_member)] {
            let path = folder.path().to_str().unwrap();
            for way in [
                &["--validate=strict"][..],
                &["--server-side", "--field-manager=somebody"],
            ] {
                let apply = ["apply", "-k", path, "--dry-run=server"];
                let answer = kubectl.run(&[&apply[..], way].concat());
                assert!(
                    answer.lines().all(|line| line.ends_with("(server dry run)")),
                    "{answer}"
                );
            }
            kubectl.run(&["apply", "-k", path]);
        }
        let deployed = Self {
            example,
            namespace,
            hub: (hub, hub_kubectl),
            member: (member, member_kubectl),
            files: [on_hub, on_member, tempfile::tempdir().unwrap()],
            authority: CertificateAuthority::new("metrics").unwrap(),
        };
        deployed.prepare_server();
        deployed.add_secret("east", &deployed.member_kubeconfig());
        deployed
    }

    /// What the README has of the server: its certificate, and somebody who may read.
    fn prepare_server(&self) {
        let (certificate, key) = self.authority.server().unwrap();
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": "controller-tls", "namespace": self.namespace},
            "stringData": {"tls.crt": certificate, "tls.key": key},
        });
        let (_, kubectl) = &self.hub;
        kubectl.run_with(&["apply", "-f", "-"], &secret.to_string());
        kubectl.run(&["-n", &self.namespace, "create", "serviceaccount", "reader"]);
        let (binding, reader) = (
            self.reader(),
            format!("--serviceaccount={}:reader", self.namespace),
        );
        let role = format!("--clusterrole={READER}");
        kubectl.run(&["create", "clusterrolebinding", &binding, &role, &reader]);
    }

    fn reader(&self) -> String {
        format!("{}-reader", self.namespace)
    }

    /// kubectl for the program's server, as this ServiceAccount or as nobody.
    fn reads(&self, port: u16, account: Option<&str>) -> Kubectl {
        let user = match account {
            Some(account) => {
                let create = ["-n", &self.namespace, "create", "token", account];
                json!({"token": self.hub.1.run(&create).trim()})
            }
            // Without a user, kubectl would ask for one.
            None => json!({"token": "of-nobody"}),
        };
        let folder = self.files[2].path();
        fs::write(folder.join("ca.crt"), self.authority.certificate_pem()).unwrap();
        let cluster = json!({
            "server": format!("https://127.0.0.1:{port}"), "certificate-authority": folder.join("ca.crt"),
        });
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "clusters": [{"name": "a", "cluster": cluster}], "users": [{"name": "a", "user": user}],
        });
        Kubectl::new(&kubeconfig.to_string()).unwrap()
    }

    /// Who the program is to the hub.
    pub(crate) fn hub_user(&self) -> String {
        format!("system:serviceaccount:{}:controller", self.namespace)
    }

    /// Who it is to the member.
    pub(crate) fn member_user(&self) -> String {
        format!("system:serviceaccount:kube-system:{}", self.member_role())
    }

    fn member_role(&self) -> String {
        format!("{}-fleet-controller", self.namespace)
    }

    fn member_kubeconfig(&self) -> String {
        self.member_kubeconfig_of(&self.member.0.kubeconfig)
    }

    /// An administrator's kubeconfig of the member, with the user of the manifests in place of theirs.
    pub(crate) fn member_kubeconfig_of(&self, kubeconfig: &str) -> String {
        let account = self.member_role();
        let token = self
            .member
            .1
            .run(&["-n", "kube-system", "create", "token", &account]);
        with_token(kubeconfig, &token, "default")
    }

    /// Makes a kubeconfig a cluster.
    pub(crate) fn add_secret(&self, name: &str, kubeconfig: &str) {
        let metadata = json!({"name": name, "namespace": self.namespace, "labels": {LABEL: "true"}});
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"kubeconfig": kubeconfig},
        });
        self.hub.1.run_with(&["apply", "-f", "-"], &secret.to_string());
    }

    /// What the manifests allow, without what can only be tried: `escalate` and `bind`.
    pub(crate) fn granted(&self) -> [BTreeSet<Right>; 2] {
        let hub = self.hub.1.get(&["role", "-n", &self.namespace]);
        let roles = hub["items"].as_array().unwrap();
        assert!(!roles.is_empty());
        let mut on_hub: BTreeSet<Right> = roles.iter().flat_map(rights).collect();
        on_hub.extend(rights(&self.hub.1.get(&["clusterrole", REVIEWS])));
        if self.example == "progressive-rollout" {
            on_hub.extend(rights(&self.hub.1.get(&["clusterrole", self.example])));
        }
        let member = self.member.1.get(&["clusterrole", &self.member_role()]);
        [on_hub, rights(&member)]
    }

    /// Runs the program of the Deployment, with its arguments and its files, as its ServiceAccount.
    pub(crate) fn start(&self) -> Running<'_> {
        self.start_with(None)
    }

    /// As [`start`](Self::start), with another content of its file.
    pub(crate) fn start_with(&self, content: Option<&str>) -> Running<'_> {
        let (hub, kubectl) = &self.hub;
        let in_namespace = ["-n", &self.namespace];
        let deployment = kubectl.get(&[&in_namespace[..], &["deployment", "controller"]].concat());
        let pod = &deployment["spec"]["template"]["spec"];
        let account = pod["serviceAccountName"].as_str().unwrap();
        let token = kubectl.run(&["-n", &self.namespace, "create", "token", account]);
        let folder = self.files[2].path();
        let kubeconfig = folder.join("hub.kubeconfig");
        fs::write(&kubeconfig, with_token(&hub.kubeconfig, &token, &self.namespace)).unwrap();

        let container = &pod["containers"][0];
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let mut mounts = Vec::new();
        for mount in list(&container["volumeMounts"]) {
            let volumes = list(&pod["volumes"]);
            let volume = volumes
                .iter()
                .find(|volume| volume["name"] == mount["name"])
                .unwrap();
            let there = folder.join(mount["name"].as_str().unwrap());
            fs::create_dir_all(&there).unwrap();
            if let Some(map) = volume["configMap"]["name"].as_str() {
                let mounted = kubectl.get(&[&in_namespace[..], &["configmap", map]].concat());
                for (name, text) in mounted["data"].as_object().unwrap() {
                    fs::write(there.join(name), content.or(text.as_str()).unwrap()).unwrap();
                }
            }
            if let Some(secret) = volume["secret"]["secretName"].as_str() {
                let secret = [&in_namespace[..], &["secret", secret]].concat();
                let Secret { data, .. } = serde_json::from_value(kubectl.get(&secret)).unwrap();
                for (name, content) in data.unwrap() {
                    fs::write(there.join(name), content.0).unwrap();
                }
            }
            let path = mount["mountPath"].as_str().unwrap().to_owned();
            mounts.push((path, there.to_str().unwrap().to_owned()));
        }
        let free = || {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            (listener.local_addr().unwrap().port(), listener)
        };
        // Both are held until both are known.
        let ((port, _held), (probes, _held_too)) = (free(), free());
        let mut args = vec![
            "--allow-loopback".to_owned(),
            "--hub-kubeconfig".to_owned(),
            kubeconfig.display().to_string(),
        ];
        for arg in list(&container["args"]) {
            let arg = mounts
                .iter()
                .fold(arg.as_str().unwrap().to_owned(), |arg, (path, there)| {
                    arg.replace(&format!("={path}/"), &format!("={there}/"))
                });
            args.push(
                arg.replace("0.0.0.0:8443", &format!("127.0.0.1:{port}"))
                    .replace("0.0.0.0:8081", &format!("127.0.0.1:{probes}")),
            );
        }
        assert_eq!(container["ports"][0]["containerPort"], 8443);
        assert_eq!(container["ports"][1]["containerPort"], 8081);
        drop((_held, _held_too));
        let program = Program::start_text_with(self.example, &args, [("LANG", "C")]);
        Running {
            deployed: self,
            program,
            port,
            probes,
        }
    }
}

impl Drop for Deployed<'_> {
    /// Deletes everything again, also after a failure.
    fn drop(&mut self) {
        let (hub, member) = (&self.hub.1, &self.member.1);
        hub.try_run(&["delete", "namespace", &self.namespace, "--wait=false"]);
        let bindings = [self.reader(), format!("{}-reviews", self.namespace)];
        hub.try_run(&["delete", "clusterrolebinding", &bindings[0], &bindings[1]]);
        member.try_run(&["delete", "-k", self.files[1].path().to_str().unwrap_or_default()]);
        if self.example == "progressive-rollout" {
            hub.try_run(&["delete", "clusterrole,clusterrolebinding", self.example]);
            hub.try_run(&["delete", "crd", "rollouts.fleet.example.com", "--wait=false"]);
        }
        let ours = "example.io/baseline=baseline";
        if self.example == "baseline-rbac" {
            let wide = "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings";
            member.try_run(&["delete", wide, "-l", ours]);
            member.try_run(&["-n", "kube-system", "delete", "roles,rolebindings", "-l", ours]);
        }
    }
}

/// The rights in a role, without what can only be tried: `escalate` and `bind`.
pub(crate) fn rights(role: &Value) -> BTreeSet<Right> {
    let texts = |list: &Value| -> Vec<String> {
        list.as_array()
            .unwrap()
            .iter()
            .map(|text| text.as_str().unwrap().to_owned())
            .collect()
    };
    let mut rights = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    if verb != "escalate" && verb != "bind" {
                        rights.insert((group.clone(), resource.clone(), verb));
                    }
                }
            }
        }
    }
    rights
}

/// The program, as the Deployment would run it.
pub(crate) struct Running<'a> {
    deployed: &'a Deployed<'a>,
    program: Program,
    port: u16,
    probes: u16,
}

fn line<'a>(kind: &'a str, name: &'a str, event: &'a str) -> impl Fn(&Value) -> bool + 'a {
    move |line| {
        line["cluster"] == "east" && line["kind"] == kind && line["name"] == name && line["event"] == event
    }
}

impl Running<'_> {
    fn probe(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.probes)).ok()?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: 10.0.0.7\r\nConnection: close\r\n\r\n"
        )
        .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.starts_with("HTTP/1.1 200").then_some(answer)
    }

    /// Asks what the probes of the Deployment ask, and what Prometheus asks, over TLS: as the reader, as the controller, who may not
    /// read, and as nobody.
    pub(crate) fn answers(&self) {
        for (path, word) in [("/healthz", "ok"), ("/readyz", "\"ready\":true")] {
            let answers = || self.probe(path).filter(|answer| answer.contains(word));
            self.program.wait(path, answers);
        }
        let reads = |account| self.deployed.reads(self.port, account);
        let (reader, controller, nobody) = (reads(Some("reader")), reads(Some("controller")), reads(None));
        for (path, word) in [("/metrics", "mcr_"), ("/clusters", "east")] {
            let answers = || reader.raw(path).ok().filter(|answer| answer.contains(word));
            self.program.wait(path, answers);
            let refused = controller.raw(path).unwrap_err();
            assert!(refused.contains("orbidden"), "{refused}");
            let refused = nobody.raw(path).unwrap_err();
            assert!(
                refused.contains("must be logged in") || refused.contains("nauthorized"),
                "{refused}"
            );
        }
    }

    /// Reports on a Secret what is wrong with it, each time.
    pub(crate) fn reports_broken_secrets(&self) {
        let Deployed {
            namespace,
            hub: (_, kubectl),
            ..
        } = self.deployed;
        for (content, reason, again) in [
            ("contexts: 7", "KubeconfigBroken", false),
            (&self.deployed.member_kubeconfig(), "KubeconfigUsable", false),
            ("contexts: 7", "KubeconfigBroken", true),
        ] {
            self.deployed.add_secret("broken", content);
            self.program.wait(reason, || {
                let field = "--field-selector=regarding.name=broken";
                let list = kubectl.get(&["-n", namespace, "events.events.k8s.io", field]);
                let mut events = list["items"].as_array().unwrap().iter();
                let is = |event: &Value| event["reason"] == reason && (!again || !event["series"].is_null());
                events.any(is).then_some(())
            });
        }
        kubectl.run(&["-n", namespace, "delete", "secret", "broken"]);
    }

    /// `fleet-policy`: does all that it ever does.
    pub(crate) async fn keeps_the_policy(&self) {
        let (member, name) = (self.deployed.member.0, &unique("shop"));
        let map = |name: &'static str, event| line("ConfigMap", name, event);
        member.namespace(name, json!({"example.io/team": "shop"})).await;
        self.program.line("labels", line("Namespace", name, "labelled"));
        self.program.line("a ConfigMap", map("platform", "created"));
        edit(&member.maps(name), "platform", json!({"data": {"support": "me"}})).await;
        self.program.line("drift", map("platform", "repaired"));
        edit(
            &member.namespaces(),
            name,
            json!({"metadata": {"labels": {"example.io/team": null}}}),
        )
        .await;
        self.program
            .line("no team any more", line("Namespace", name, "unlabelled"));
        self.program.line("no team any more", map("platform", "deleted"));
        delete(&member.namespaces(), name).await;
    }

    /// `progressive-rollout`: gives a Deployment to the member, makes it healthy there, and deletes it with its Rollout.
    pub(crate) async fn rolls_out(&self) {
        let Deployed {
            hub: (hub, kubectl),
            member: (member, _),
            ..
        } = self.deployed;
        let name = &unique("shop");
        for cluster in [hub, member] {
            cluster.namespace(name, json!({})).await;
        }
        let in_namespace = ["-n", name];
        let wait = |condition: &str| {
            let wait = ["wait", condition, "--timeout=25s", "rollout/web"];
            kubectl.run(&[&in_namespace[..], &wait].concat())
        };
        let sample = include_str!("../../examples/progressive-rollout/rollout.yaml");
        let apply = ["apply", "--validate=strict", "-f", "-"];
        kubectl.run_with(&[&in_namespace[..], &apply].concat(), sample);
        let everywhere = json!({"spec": {"waves": [{"name": "all", "selector": {}}]}}).to_string();
        let patch = ["patch", "rollout", "web", "--type=merge", "-p", &everywhere];
        kubectl.run(&[&in_namespace[..], &patch].concat());

        let deployments = Api::<Deployment>::namespaced(member.client.clone(), name);
        eventually(&deployments, "web", "it is rolled out", |found| found.is_some()).await;
        // There is no Deployment controller here.
        let found = deployments.get("web").await.unwrap();
        let replicas = found.spec.unwrap().replicas;
        let status = json!({
            "observedGeneration": found.metadata.generation, "replicas": replicas,
            "updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas,
        });
        let patch = Patch::Merge(json!({"status": status}));
        deployments
            .patch_status("web", &PatchParams::default(), &patch)
            .await
            .unwrap();
        wait("--for=condition=Ready");
        let table = kubectl.run(&[&in_namespace[..], &["get", "rollouts"]].concat());
        assert!(
            table.contains("Complete   1 of 1 clusters are healthy"),
            "{table}"
        );

        kubectl.run(&[&in_namespace[..], &["delete", "rollout", "web", "--timeout=25s"]].concat());
        assert_eq!(deployments.get_opt("web").await.unwrap(), None);
        for cluster in [hub, member] {
            delete(&cluster.namespaces(), name).await;
        }
    }

    /// `baseline-rbac`: makes and repairs everything.
    pub(crate) async fn keeps_the_baseline(&self) {
        for (kind, name) in BASELINE {
            self.program.line("the baseline", line(kind, name, "created"));
        }
        let roles = Api::<ClusterRole>::all(self.deployed.member.0.client.clone());
        edit(&roles, "example-support", json!({"rules": []})).await;
        self.program
            .line("drift", line("ClusterRole", "example-support", "repaired"));
    }

    /// `baseline-rbac` with another, small baseline: deletes all of the first.
    pub(crate) async fn prunes(&self) {
        for (kind, name) in BASELINE {
            self.program
                .line("what has left the baseline", line(kind, name, "deleted"));
        }
    }

    /// Ends it. Nothing may have been forbidden, if nothing was taken away.
    pub(crate) fn end(self, allowed: bool) {
        let log = self.program.log();
        assert!(!allowed || !log.to_lowercase().contains("forbidden"), "{log}");
        self.program.interrupt();
    }
}

/// What `overlays/baseline-rbac` has.
const BASELINE: [(&str, &str); 6] = [
    ("ClusterRole", "example-support"),
    ("Role", "example-on-call"),
    ("ValidatingAdmissionPolicy", "example-load-balancers"),
    ("ClusterRoleBinding", "example-support"),
    ("RoleBinding", "example-on-call"),
    ("ValidatingAdmissionPolicyBinding", "example-load-balancers"),
];

/// A baseline that has nothing of the other one.
pub(crate) const OTHER_BASELINE: &str = r#"{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "example-other"}, "rules": []}"#;
