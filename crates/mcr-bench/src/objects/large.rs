//! Pods as large clusters have them: 4 to 8 kB each, and half as much again of `managedFields`.
//!
//! Pods of one workload share its template, as replicas do. Names, nodes, addresses, times, hashes of containers and
//! the states of containers differ from Pod to Pod.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::similar::{Sequence, WORDS, ZONES};

/// The replicas of one workload after the other; then they begin again.
const REPLICAS: [usize; 5] = [1, 2, 3, 6, 12];
/// 2026-01-01, in seconds since 1970.
const BEGIN: i64 = 1_767_225_600;
const DAY: usize = 86_400;

/// A Pod as an API server stores it, with its UID, its status, its owner and its `managedFields`. Pods of equal numbers are
/// equal; those of different numbers differ in their name.
pub fn large_pod(number: usize) -> Value {
    let workload = Workload::of(number);
    let mut words = Sequence::new(40_000_000 + number as u64);
    let name = format!("{}-{}-{}", workload.name, workload.hash, suffix(&mut words));
    let created = BEGIN + seconds(&mut words, 300 * DAY);
    let node = words.below(400);
    let place = format!(
        "ip-10-{}-{}.{}.compute.internal",
        node / 100,
        node % 100,
        workload.zone
    );
    let mut metadata = json!({
        "name": name, "generateName": format!("{}-{}-", workload.name, workload.hash), "namespace": workload.namespace,
        "uid": uid(&mut words), "creationTimestamp": time(created), "generation": 1,
        "labels": workload.labels, "annotations": workload.annotations,
        "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{}-{}", workload.name, workload.hash),
            "uid": workload.owner, "controller": true, "blockOwnerDeletion": true,
        }],
    });
    let mut spec = workload.spec;
    let managed = managed_spec(&metadata, &spec);
    // The admission plugin of service accounts names this volume anew for each Pod.
    let token = format!("kube-api-access-{}", suffix(&mut words));
    add_token(&mut spec, &token);
    spec["nodeName"] = place.into();
    let address = format!("10.{}.{}.{}", 64 + node / 100, node % 100, words.below(256));
    let status = status(
        &spec,
        created,
        &format!("10.0.{}.{}", node / 100, node % 100),
        &address,
        &mut words,
    );
    metadata["managedFields"] = json!([
        {
            "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "time": time(created),
            "fieldsType": "FieldsV1", "fieldsV1": managed,
        },
        {
            "manager": "kubelet", "operation": "Update", "apiVersion": "v1", "time": time(created + 7 + seconds(&mut words, 9 * DAY)),
            "fieldsType": "FieldsV1", "fieldsV1": { "f:status": fields(&status) }, "subresource": "status",
        },
    ]);
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status })
}

/// What all Pods of a ReplicaSet share.
struct Workload {
    name: String,
    hash: String,
    namespace: String,
    zone: &'static str,
    owner: String,
    labels: Value,
    annotations: Value,
    spec: Value,
}

impl Workload {
    fn of(pod: usize) -> Self {
        let (round, mut left) = (
            pod / REPLICAS.iter().sum::<usize>(),
            pod % REPLICAS.iter().sum::<usize>(),
        );
        let mut within = 0;
        for replicas in REPLICAS {
            if left < replicas {
                break;
            }
            left -= replicas;
            within += 1;
        }
        Self::new(round * REPLICAS.len() + within)
    }

    fn new(number: usize) -> Self {
        let words = &mut Sequence::new(20_000_000 + number as u64);
        let (app, part) = (words.of(&WORDS), words.of(&WORDS));
        let name = format!("{app}-{part}-{}", words.below(1000));
        let hash = format!("{:08x}{:02x}", words.below(0xffff_ffff), words.below(0xff));
        let version = format!("{}.{}.{}", words.below(9), words.below(40), words.below(20));
        let labels = json!({
            "app.kubernetes.io/name": app, "app.kubernetes.io/instance": name, "app.kubernetes.io/component": part,
            "app.kubernetes.io/version": version, "team": words.of(&WORDS), "pod-template-hash": hash,
        });
        let mut annotations = json!({
            "checksum/config": hexadecimal(words, 4),
            "prometheus.io/scrape": "true", "prometheus.io/port": (1024 + words.below(60_000)).to_string(),
        });
        if number.is_multiple_of(3) {
            let restarted = BEGIN + seconds(words, 300 * DAY);
            annotations["kubectl.kubernetes.io/restartedAt"] = time(restarted).into();
        }
        Self {
            namespace: format!("{}-{}", words.of(&WORDS), words.below(4)),
            zone: words.of(&ZONES),
            owner: uid(words),
            spec: spec(words, app, number),
            name,
            hash,
            labels,
            annotations,
        }
    }
}

fn spec(words: &mut Sequence, app: &str, number: usize) -> Value {
    let count = [1, 1, 1, 2, 2, 3].get(words.below(6)).copied().unwrap_or(1);
    let mut containers: Vec<Value> = vec![container(words, app, 3)];
    containers.extend(
        ["proxy", "metrics"]
            .iter()
            .take(count - 1)
            .map(|name| container(words, name, 0)),
    );
    let mut spec = json!({
        "containers": containers,
        "volumes": [
            { "name": "config", "configMap": { "name": format!("{app}-config"), "defaultMode": 420 } },
            { "name": "tls", "secret": { "secretName": format!("{app}-{}-tls", words.of(&WORDS)), "defaultMode": 288 } },
        ],
        "restartPolicy": "Always", "terminationGracePeriodSeconds": 30 + words.below(90), "dnsPolicy": "ClusterFirst",
        "serviceAccountName": app, "serviceAccount": app, "schedulerName": "default-scheduler", "priority": 0, "enableServiceLinks": true,
        "preemptionPolicy": "PreemptLowerPriority", "imagePullSecrets": [{ "name": "registry" }],
        "securityContext": { "runAsNonRoot": true, "runAsUser": 1000 + words.below(9000), "fsGroup": 2000 },
        "tolerations": [
            { "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
            { "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
        ],
    });
    if number.is_multiple_of(4) {
        spec["topologySpreadConstraints"] = json!([{
            "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": { "matchLabels": { "app.kubernetes.io/name": app } },
        }]);
    }
    spec
}

fn container(words: &mut Sequence, name: &str, least: usize) -> Value {
    let mut env = Map::new();
    for _ in 0..least + words.below(4) {
        let name = format!("{}_{}", words.of(&WORDS), words.of(&WORDS)).to_uppercase();
        let content = match words.below(4) {
            0 => {
                json!({ "valueFrom": { "secretKeyRef": { "name": format!("{}-credentials", words.of(&WORDS)), "key": words.of(&WORDS) } } })
            }
            1 => {
                json!({ "value": format!("https://{}.{}.svc.cluster.local:{}", words.of(&WORDS), words.of(&WORDS), 1024 + words.below(60_000)) })
            }
            _ => json!({ "value": format!("{}-{}", words.of(&WORDS), words.below(10_000)) }),
        };
        env.insert(name, content);
    }
    let env: Vec<Value> = env
        .into_iter()
        .map(|(name, mut content)| {
            content["name"] = name.into();
            content
        })
        .collect();
    let port = 1024 + words.below(60_000);
    let probe = |path: &str, period: usize| {
        json!({
            "httpGet": { "path": path, "port": port, "scheme": "HTTP" }, "periodSeconds": period, "timeoutSeconds": 1,
            "successThreshold": 1, "failureThreshold": 3,
        })
    };
    let mut container = json!({
        "name": name,
        "image": format!("registry.example.com/{}/{name}:v{}.{}.{}", words.of(&WORDS), words.below(9), words.below(40), words.below(20)),
        "args": [format!("--{}={}", words.of(&WORDS), words.below(1000)), format!("--listen=:{port}")],
        "env": env,
        "ports": [{ "containerPort": port, "name": "http", "protocol": "TCP" }],
        "resources": {
            "limits": { "cpu": format!("{}m", 100 * (1 + words.below(20))), "memory": format!("{}Mi", 128 * (1 + words.below(16))) },
            "requests": { "cpu": "50m", "memory": "64Mi" },
        },
        "readinessProbe": probe("/readyz", 10),
        "volumeMounts": [{ "name": "config", "mountPath": format!("/etc/{name}"), "readOnly": true }],
        "imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    });
    if words.below(3) == 0 {
        container["livenessProbe"] = probe("/healthz", 20);
    }
    if words.below(3) == 0 {
        container["securityContext"] =
            json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } });
    }
    container
}

fn add_token(spec: &mut Value, name: &str) {
    let volume = json!({
        "name": name,
        "projected": { "defaultMode": 420, "sources": [
            { "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } },
            { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
            { "downwardAPI": { "items": [{ "path": "namespace", "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" } }] } },
        ] },
    });
    let mount = json!({ "name": name, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true });
    let add = |list: &mut Value, item: Value| {
        if let Some(list) = list.as_array_mut() {
            list.push(item);
        }
    };
    add(&mut spec["volumes"], volume);
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        add(&mut container["volumeMounts"], mount.clone());
    }
}

/// As a kubelet reports it. One container in sixteen has been restarted.
fn status(spec: &Value, created: i64, host: &str, address: &str, words: &mut Sequence) -> Value {
    let ready = created + 3 + seconds(words, 90);
    let condition = |kind: &str, at: i64| json!({ "type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": time(at) });
    let conditions = [
        condition("PodReadyToStartContainers", created + 2),
        condition("Initialized", created),
        condition("Ready", ready),
        condition("ContainersReady", ready),
        condition("PodScheduled", created),
    ];
    let containers = spec["containers"].as_array().into_iter().flatten();
    let statuses: Vec<Value> = containers
        .map(|container| container_status(container, created, words))
        .collect();
    json!({
        "phase": "Running", "qosClass": "Burstable", "startTime": time(created), "observedGeneration": 1, "conditions": conditions,
        "hostIP": host, "hostIPs": [{ "ip": host }], "podIP": address, "podIPs": [{ "ip": address }], "containerStatuses": statuses,
    })
}

fn container_status(container: &Value, created: i64, words: &mut Sequence) -> Value {
    let restarts = if words.below(16) == 0 {
        1 + words.below(40)
    } else {
        0
    };
    let id = |words: &mut Sequence| format!("containerd://{}", hexadecimal(words, 4));
    let (mut last, mut started) = (json!({}), created + 2 + seconds(words, 20));
    if restarts > 0 {
        let ended = started + seconds(words, 30 * DAY);
        last = json!({ "terminated": {
            "containerID": id(words), "exitCode": 137, "reason": "OOMKilled", "startedAt": time(started), "finishedAt": time(ended),
        } });
        started = ended + 10;
    }
    // The same image has the same hash in all Pods.
    let image = container["image"].as_str().unwrap_or_default();
    let seed = image
        .bytes()
        .fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let repository = image.rsplit_once(':').map_or(image, |(repository, _)| repository);
    json!({
        "name": container["name"], "image": image, "imageID": format!("{repository}@sha256:{}", hexadecimal(&mut Sequence::new(seed), 4)),
        "containerID": id(words), "ready": true, "started": true, "restartCount": restarts, "lastState": last,
        "state": { "running": { "startedAt": time(started) } },
    })
}

/// What the controller of a ReplicaSet manages, as an API server tracks it.
fn managed_spec(metadata: &Value, spec: &Value) -> Value {
    json!({
        "f:metadata": {
            "f:annotations": fields(&metadata["annotations"]), "f:generateName": {}, "f:labels": fields(&metadata["labels"]),
            "f:ownerReferences": { ".": {}, format!("k:{{\"uid\":{}}}", metadata["ownerReferences"][0]["uid"]): {} },
        },
        "f:spec": fields(spec),
    })
}

/// The set of fields of a value, as in `fieldsV1`. Items of lists are distinguished by their key.
fn fields(of: &Value) -> Value {
    let mut set = Map::new();
    match of {
        Value::Object(map) => {
            for (name, value) in map {
                set.insert(format!("f:{name}"), fields(value));
            }
        }
        Value::Array(items) => {
            for item in items {
                let key = ["mountPath", "containerPort", "name", "type", "ip"]
                    .into_iter()
                    .find(|key| !item[*key].is_null());
                // Statuses of containers, arguments and tolerations are written as a whole.
                let Some(key) = key.filter(|_| item["imageID"].is_null()) else {
                    return json!({});
                };
                let mut below = fields(item);
                below["."] = json!({});
                set.insert(format!("k:{{\"{key}\":{}}}", item[key]), below);
            }
        }
        _ => {}
    }
    Value::Object(set)
}

fn time(seconds: i64) -> String {
    Timestamp::from_second(seconds).unwrap_or_default().to_string()
}

fn seconds(words: &mut Sequence, end: usize) -> i64 {
    i64::try_from(words.below(end)).unwrap_or_default()
}

fn hexadecimal(words: &mut Sequence, times: usize) -> String {
    (0..times).map(|_| format!("{:016x}", words.next())).collect()
}

fn uid(words: &mut Sequence) -> String {
    let (a, b) = (words.next(), words.next());
    format!(
        "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
        a >> 32,
        (a >> 16) & 0xffff,
        a & 0xfff,
        b >> 52,
        b & 0xffff_ffff_ffff
    )
}

/// Five letters, as the API server generates them.
fn suffix(words: &mut Sequence) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let letter = |words: &mut Sequence| LETTERS.get(words.below(27)).copied().map_or('b', char::from);
    (0..5).map(|_| letter(words)).collect()
}
