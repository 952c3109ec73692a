//! The objects that most suites use, and their texts.

use serde_json::{Value, json};

/// The name of the ConfigMap that suites write, to measure the time until its reconcile.
pub const BEAT: &str = "beat";

/// A sequence that looks random and is the same for the same seed (SplitMix64).
pub(super) struct Sequence(u64);

impl Sequence {
    /// The sequence of a seed.
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap_or_default()
    }

    pub(super) fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words.get(self.below(words.len())).copied().unwrap_or_default()
    }
}

pub(super) const WORDS: [&str; 64] = [
    "account", "adapter", "address", "agent", "alert", "archive", "audit", "backend", "balance", "batch",
    "billing", "broker", "bucket", "cache", "catalog", "channel", "checkout", "cluster", "config", "cursor",
    "customer", "delivery", "digest", "endpoint", "event", "export", "fabric", "feature", "gateway",
    "health", "history", "image", "index", "ingest", "invoice", "journal", "ledger", "limit", "loader",
    "mailer", "mirror", "monitor", "network", "notify", "order", "partner", "payment", "pipeline", "policy",
    "profile", "quota", "region", "registry", "report", "router", "schedule", "search", "session", "shard",
    "storage", "stream", "tenant", "token", "worker",
];
pub(super) const ZONES: [&str; 6] = [
    "eu-central-1a",
    "eu-west-3b",
    "us-east-1c",
    "us-west-2a",
    "ap-south-1b",
    "sa-east-1a",
];
const LEVELS: [&str; 4] = ["debug", "info", "warn", "error"];
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A text of at least `length` bytes, similar to configuration files: properties, YAML, sentences.
pub(super) fn configuration(words: &mut Sequence, length: usize) -> String {
    let mut text = String::with_capacity(length + 64);
    while text.len() < length {
        let (a, b) = (words.of(&WORDS), words.of(&WORDS));
        let line = match words.below(5) {
            0 => format!("{a}.{b}.timeout={}ms\n", 50 * (1 + words.below(400))),
            1 => format!(
                "{a}_{b}_url: https://{b}.{}.svc.cluster.local:{}/v{}\n",
                words.of(&WORDS),
                1024 + words.below(60000),
                1 + words.below(4)
            ),
            2 => format!(
                "# {a} {b} {} {} {}\n",
                words.of(&WORDS),
                words.of(&WORDS),
                words.of(&WORDS)
            ),
            3 => format!(
                "  - {{name: {a}-{b}, zone: {}, weight: {}}}\n",
                words.of(&ZONES),
                words.below(100)
            ),
            _ => format!("log.level.{a}.{b}={}\n", words.of(&LEVELS)),
        };
        text.push_str(&line);
    }
    text
}

/// Random base64, which can't be compressed, like a certificate.
pub(super) fn certificate(words: &mut Sequence, length: usize) -> String {
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for at in 0..length {
        text.push(char::from(BASE64.get(words.below(64)).copied().unwrap_or(b'A')));
        if at % 64 == 63 {
            text.push('\n');
        }
    }
    text.push_str("\n-----END CERTIFICATE-----\n");
    text
}

pub(super) fn metadata(words: &mut Sequence, name: String, namespace: &str) -> Value {
    json!({
        "name": name,
        "namespace": namespace,
        "labels": {
            "app.kubernetes.io/name": words.of(&WORDS),
            "app.kubernetes.io/instance": format!("{}-{}", words.of(&WORDS), words.below(1000)),
            "app.kubernetes.io/managed-by": "Helm",
            "team": words.of(&WORDS),
        },
    })
}

/// A ConfigMap with about 1 kB of data: three quarters configuration, one in four of them a certificate.
pub fn config_map(number: usize) -> Value {
    let mut words = Sequence::new(number as u64);
    let metadata = metadata(&mut words, format!("map-{number:05}"), "default");
    let data = if number % 4 == 3 {
        json!({ "ca.crt": certificate(&mut words, 900) })
    } else {
        json!({
            "application.properties": configuration(&mut words, 600),
            "values.yaml": configuration(&mut words, 350),
        })
    };
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data })
}

/// The ConfigMap that is written to, with the number of the write in it.
pub fn beat(seq: u64) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": BEAT, "namespace": "default" },
        "data": { "seq": seq.to_string() },
    })
}

fn variable(words: &mut Sequence) -> Value {
    json!({
        "name": format!("{}_{}", words.of(&WORDS), words.of(&WORDS)).to_uppercase(),
        "value": format!("{}-{}", words.of(&WORDS), words.below(10_000)),
    })
}

fn containers(words: &mut Sequence) -> Value {
    let name = words.of(&WORDS);
    let env: Vec<Value> = (0..6).map(|_| variable(words)).collect();
    json!([{
        "name": name,
        "image": format!("registry.example.com/{}/{}:v{}.{}.{}", words.of(&WORDS), name, words.below(9), words.below(40), words.below(20)),
        "args": [format!("--{}={}", words.of(&WORDS), words.below(1000)), format!("--log-level={}", words.of(&LEVELS))],
        "env": env,
        "ports": [{ "containerPort": 1024 + words.below(60_000), "name": "http", "protocol": "TCP" }],
        "resources": { "limits": { "cpu": format!("{}m", 50 * (1 + words.below(40))), "memory": format!("{}Mi", 64 * (1 + words.below(32))) },
                       "requests": { "cpu": "50m", "memory": "64Mi" } },
        "readinessProbe": { "httpGet": { "path": "/readyz", "port": "http", "scheme": "HTTP" }, "periodSeconds": 10, "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3 },
        "volumeMounts": [{ "name": "config", "mountPath": "/etc/config", "readOnly": true }],
        "imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    }])
}

fn pod_spec(words: &mut Sequence) -> Value {
    json!({
        "containers": containers(words),
        "volumes": [{ "name": "config", "configMap": { "name": format!("{}-config", words.of(&WORDS)), "defaultMode": 420 } }],
        "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
        "serviceAccountName": words.of(&WORDS), "serviceAccount": "default", "securityContext": {}, "schedulerName": "default-scheduler",
        "tolerations": [{ "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 }],
    })
}

/// A Pod as a kubelet reports it.
pub fn pod(number: usize) -> Value {
    let mut words = Sequence::new(1_000_000 + number as u64);
    let suffix = words.below(0xf_ffff);
    let metadata = metadata(&mut words, format!("pod-{number:05}-{suffix:05x}"), "default");
    let mut spec = pod_spec(&mut words);
    spec["nodeName"] = format!("node-{:03}", words.below(200)).into();
    let started = format!(
        "2026-0{}-1{}T0{}:17:42Z",
        1 + words.below(9),
        words.below(9),
        words.below(9)
    );
    let conditions: Vec<Value> = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .iter()
        .map(|kind| json!({ "type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": started }))
        .collect();
    let image = &spec["containers"][0]["image"];
    let status = json!({
        "phase": "Running", "qosClass": "Burstable", "startTime": started, "conditions": conditions,
        "hostIP": format!("10.0.{}.{}", words.below(256), words.below(256)),
        "podIP": format!("10.{}.{}.{}", words.below(256), words.below(256), words.below(256)),
        "containerStatuses": [{
            "name": spec["containers"][0]["name"], "image": image, "ready": true, "started": true, "restartCount": words.below(5), "lastState": {},
            "imageID": format!("registry.example.com/image@sha256:{:016x}{:016x}{:016x}{:016x}", words.next(), words.next(), words.next(), words.next()),
            "containerID": format!("containerd://{:016x}{:016x}{:016x}{:016x}", words.next(), words.next(), words.next(), words.next()),
            "state": { "running": { "startedAt": started } },
        }],
    });
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status })
}

/// A Deployment with its status.
pub fn deployment(number: usize) -> Value {
    let mut words = Sequence::new(2_000_000 + number as u64);
    let metadata = metadata(&mut words, format!("deployment-{number:05}"), "default");
    let labels = metadata["labels"].clone();
    let replicas = 1 + words.below(9);
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": {
            "replicas": replicas, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
            "selector": { "matchLabels": labels },
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": "25%" } },
            "template": { "metadata": { "labels": labels }, "spec": pod_spec(&mut words) },
        },
        "status": {
            "observedGeneration": 1 + words.below(30), "replicas": replicas, "updatedReplicas": replicas, "readyReplicas": replicas,
            "conditions": [{ "type": "Available", "status": "True", "reason": "MinimumReplicasAvailable", "message": "Deployment has minimum availability.",
                             "lastUpdateTime": "2026-05-11T08:17:42Z", "lastTransitionTime": "2026-05-11T08:17:42Z" }],
        },
    })
}

/// A CustomResourceDefinition, as far as a provider notices.
pub fn definition(group: &str, version: &str, kind: &str, plural: &str) -> Value {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let singular = kind.to_lowercase();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": { "kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular },
            "versions": [{ "name": version, "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }],
        },
    })
}

/// A custom resource of a kind with small objects.
pub fn custom(number: usize) -> Value {
    let mut words = Sequence::new(3_000_000 + number as u64);
    let metadata = metadata(&mut words, format!("backup-{number:05}"), "default");
    json!({
        "apiVersion": "bench.mcr.rs/v1", "kind": "Backup", "metadata": metadata,
        "spec": {
            "source": { "claim": format!("{}-data", words.of(&WORDS)), "zone": words.of(&ZONES) },
            "target": format!("s3://{}-{}/{}", words.of(&WORDS), words.of(&WORDS), words.of(&WORDS)),
            "schedule": format!("{} {} * * *", words.below(60), words.below(24)), "keep": words.below(30),
        },
        "status": { "phase": "Succeeded", "lastRun": "2026-05-11T03:00:04Z", "bytes": words.below(1_000_000_000) },
    })
}
