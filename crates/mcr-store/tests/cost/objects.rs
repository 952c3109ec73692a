//! Objects as clusters have them: what is the same in all of a kind, what is the same in all of an application, and what
//! is like nothing else (UIDs, digests, addresses, times).

use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Value, json};

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    SmallConfigMap,
    ConfigMap,
    Pod,
    Deployment,
    Certificate,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [
        Self::SmallConfigMap,
        Self::ConfigMap,
        Self::Pod,
        Self::Deployment,
        Self::Certificate,
    ];

    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Self::SmallConfigMap | Self::ConfigMap | Self::Pod => "v1",
            Self::Deployment => "apps/v1",
            Self::Certificate => "cert-manager.io/v1",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SmallConfigMap | Self::ConfigMap => "ConfigMap",
            Self::Pod => "Pod",
            Self::Deployment => "Deployment",
            Self::Certificate => "Certificate",
        }
    }

    /// The object of this number in a cluster, whole, with its `managedFields`.
    pub(crate) fn object(self, cluster: usize, number: usize) -> Value {
        let seed = (cluster * 1_000 + number) as u64;
        let mut one = One {
            random: StdRng::seed_from_u64(seed),
            cluster,
            number,
        };
        let mut object = match self {
            Self::SmallConfigMap => one.small_config_map(),
            Self::ConfigMap => one.config_map(),
            Self::Pod => one.pod(),
            Self::Deployment => one.deployment(),
            Self::Certificate => one.certificate(),
        };
        object["apiVersion"] = self.api_version().into();
        object["kind"] = self.name().into();
        object
    }
}

const APPS: [&str; 12] = [
    "checkout",
    "cart",
    "payments",
    "search",
    "catalog",
    "ledger",
    "mailer",
    "gateway",
    "profiles",
    "reports",
    "inventory",
    "sessions",
];
const TEAMS: [&str; 4] = ["storefront", "platform", "finance", "data"];
const REGIONS: [&str; 5] = [
    "eu-central-1",
    "eu-west-1",
    "us-east-1",
    "us-west-2",
    "ap-south-1",
];

struct One {
    random: StdRng,
    cluster: usize,
    number: usize,
}

impl One {
    fn hex(&mut self, digits: usize) -> String {
        (0..digits)
            .map(|_| char::from(*b"0123456789abcdef".choose(&mut self.random).unwrap_or(&b'0')))
            .collect()
    }

    /// As generated names end.
    fn suffix(&mut self, letters: usize) -> String {
        (0..letters)
            .map(|_| {
                char::from(
                    *b"bcdfghjklmnpqrstvwxz2456789"
                        .choose(&mut self.random)
                        .unwrap_or(&b'x'),
                )
            })
            .collect()
    }

    fn uid(&mut self) -> String {
        let parts = [8, 4, 4, 4, 12].map(|digits| self.hex(digits));
        parts.join("-")
    }

    fn time(&mut self) -> String {
        let mut between = |range: std::ops::Range<u32>| self.random.random_range(range);
        let (month, day, hour) = (between(1..13), between(1..29), between(0..24));
        format!(
            "2026-{month:02}-{day:02}T{hour:02}:{:02}:{:02}Z",
            between(0..60),
            between(0..60)
        )
    }

    fn ip(&mut self) -> String {
        format!(
            "10.{}.{}.{}",
            self.cluster % 256,
            self.random.random_range(0..256),
            self.random.random_range(1..255)
        )
    }

    fn app(&self) -> &'static str {
        APPS[self.number % APPS.len()]
    }

    fn team(&self) -> &'static str {
        TEAMS[self.number % TEAMS.len()]
    }

    fn region(&self) -> &'static str {
        REGIONS[self.cluster % REGIONS.len()]
    }

    fn version(&mut self) -> String {
        format!(
            "{}.{}.{}",
            self.number % 4 + 1,
            self.random.random_range(0..20),
            self.random.random_range(0..10)
        )
    }

    fn labels(&mut self) -> Value {
        json!({
            "app.kubernetes.io/name": self.app(), "app.kubernetes.io/instance": format!("{}-{}", self.app(), self.region()),
            "app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/version": self.version(), "team": self.team(),
        })
    }

    fn metadata(&mut self, name: String, labels: Value, manager: &str, fields: Value) -> Value {
        let time = self.time();
        json!({
            "name": name, "namespace": self.team(), "uid": self.uid(),
            "resourceVersion": self.random.random_range(100_000..90_000_000_u32).to_string(),
            "creationTimestamp": time, "labels": labels,
            "managedFields": [{"manager": manager, "operation": "Update", "apiVersion": "v1", "time": time,
                "fieldsType": "FieldsV1", "fieldsV1": fields}],
        })
    }

    fn small_config_map(&mut self) -> Value {
        let name = format!("{}-flags-{}", self.app(), self.number);
        let fields = json!({"f:data": {".": {}, "f:mode": {}, "f:sampling": {}}});
        let mut metadata = self.metadata(name, Value::Null, "kubectl-create", fields);
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.remove("labels");
        }
        json!({"metadata": metadata, "data": {"mode": "canary", "sampling": format!("0.{}", self.random.random_range(10..99))}})
    }

    fn config_map(&mut self) -> Value {
        let name = format!("{}-config-{}", self.app(), self.suffix(5));
        let labels = self.labels();
        let fields = json!({"f:data": {".": {}, "f:application.yaml": {}, "f:log4j.properties": {}},
            "f:metadata": {"f:labels": {".": {}, "f:app.kubernetes.io/name": {}, "f:app.kubernetes.io/instance": {}, "f:team": {}}}});
        let metadata = self.metadata(name, labels, "argocd-controller", fields);
        let (app, team, region) = (self.app(), self.team(), self.region());
        let (port, pool, budget) = (
            self.random.random_range(1_024..49_000),
            self.random.random_range(4..64),
            self.random.random_range(100..9_000),
        );
        let application = format!(
            "server:\n  port: {port}\n  shutdown: graceful\nspring:\n  datasource:\n    url: jdbc:postgresql://{app}-db.{team}.svc:5432/{app}\n    \
             hikari:\n      maximum-pool-size: {pool}\n      connection-timeout: {budget}\n  kafka:\n    bootstrap-servers: kafka-{}.{region}.internal:9092\n\
             tracing:\n  endpoint: https://otel.{region}.internal:4317\n  sampling: 0.{}\ncache:\n  key: {}\n",
            self.random.random_range(0..9),
            self.random.random_range(1..99),
            self.hex(16)
        );
        let log = format!(
            "rootLogger.level = {}\nappender.console.type = Console\nappender.console.layout.pattern = %d{{ISO8601}} %-5p [%t] %c - %m%n\n",
            ["info", "warn", "debug"][self.number % 3]
        );
        json!({"metadata": metadata, "data": {"application.yaml": application, "log4j.properties": log}})
    }

    fn container(&mut self) -> Value {
        let (app, region) = (self.app(), self.region());
        let image = format!(
            "registry.{region}.internal/{}/{app}:{}",
            self.team(),
            self.version()
        );
        let probe = |path: &str, period: u32| {
            json!({"httpGet": {"path": path, "port": "http", "scheme": "HTTP"},
            "timeoutSeconds": 2, "periodSeconds": period, "successThreshold": 1, "failureThreshold": 3})
        };
        let memory = format!("{}Mi", self.random.random_range(2..32) * 64);
        json!({
            "name": app, "image": image, "imagePullPolicy": "IfNotPresent",
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}, {"name": "metrics", "containerPort": 9090, "protocol": "TCP"}],
            "env": [
                {"name": "REGION", "value": region}, {"name": "LOG_LEVEL", "value": "info"},
                {"name": "DATABASE_HOST", "value": format!("{app}-db.{}.svc", self.team())},
                {"name": "BUILD", "value": self.hex(12)},
                {"name": "DATABASE_PASSWORD", "valueFrom": {"secretKeyRef": {"name": format!("{app}-db"), "key": "password"}}},
                {"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}},
            ],
            "resources": {"limits": {"memory": memory}, "requests": {"cpu": format!("{}m", self.random.random_range(1..20) * 50), "memory": memory}},
            "livenessProbe": probe("/livez", 10), "readinessProbe": probe("/readyz", 5),
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}},
        })
    }

    fn pod_spec(&mut self) -> Value {
        json!({
            "containers": [self.container()],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "serviceAccountName": self.app(), "serviceAccount": self.app(), "schedulerName": "default-scheduler",
            "securityContext": {"runAsNonRoot": true, "runAsUser": 10_001, "seccompProfile": {"type": "RuntimeDefault"}},
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
        })
    }

    fn pod(&mut self) -> Value {
        let set = format!("{}-{}", self.app(), self.hex(9));
        let name = format!("{set}-{}", self.suffix(5));
        let mut labels = self.labels();
        labels["pod-template-hash"] = self.hex(9).into();
        let fields = json!({
            "f:metadata": {"f:generateName": {}, "f:labels": {".": {}, "f:app.kubernetes.io/name": {}, "f:team": {}, "f:pod-template-hash": {}}, "f:ownerReferences": {".": {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"app\"}": {".": {}, "f:env": {".": {}}, "f:image": {}, "f:imagePullPolicy": {}, "f:livenessProbe": {".": {}},
                "f:name": {}, "f:ports": {".": {}}, "f:readinessProbe": {".": {}}, "f:resources": {".": {}, "f:limits": {".": {}, "f:memory": {}}},
                "f:securityContext": {".": {}}, "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {}}}, "f:dnsPolicy": {}, "f:restartPolicy": {},
                "f:schedulerName": {}, "f:securityContext": {".": {}}, "f:serviceAccount": {}, "f:serviceAccountName": {}},
            "f:status": {"f:conditions": {}, "f:containerStatuses": {}, "f:hostIP": {}, "f:phase": {}, "f:podIP": {}, "f:podIPs": {}, "f:startTime": {}}});
        let mut metadata = self.metadata(name, labels, "kube-controller-manager", fields);
        metadata["generateName"] = format!("{set}-").into();
        metadata["generation"] = 1.into();
        metadata["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": self.uid(), "controller": true, "blockOwnerDeletion": true}]);
        let mut spec = self.pod_spec();
        let token = format!("kube-api-access-{}", self.suffix(5));
        let node = format!(
            "ip-10-{}-{}.{}.compute.internal",
            self.cluster,
            self.random.random_range(0..12),
            self.region()
        );
        spec["nodeName"] = node.into();
        spec["containers"][0]["volumeMounts"] = json!([
            {"name": "tmp", "mountPath": "/tmp"}, {"name": token, "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]);
        spec["volumes"] = json!([{"name": "tmp", "emptyDir": {}}, {"name": token, "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}}]}}]);
        let (started, image) = (
            self.time(),
            spec["containers"][0]["image"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        );
        let digest = self.hex(64);
        let conditions: Vec<Value> = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
            .map(|kind| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": self.time()}))
            .into();
        let (host, ip) = (self.ip(), self.ip());
        json!({"metadata": metadata, "spec": spec, "status": {
            "phase": "Running", "conditions": conditions, "hostIP": host, "hostIPs": [{"ip": host}], "podIP": ip, "podIPs": [{"ip": ip}],
            "startTime": started, "qosClass": "Burstable",
            "containerStatuses": [{"name": self.app(), "state": {"running": {"startedAt": started}}, "lastState": {}, "ready": true,
                "restartCount": self.random.random_range(0..3), "image": image, "imageID": format!("{image}@sha256:{digest}"),
                "containerID": format!("containerd://{}", self.hex(64)), "started": true}]}})
    }

    fn deployment(&mut self) -> Value {
        let name = format!("{}-{}", self.app(), self.number);
        let labels = self.labels();
        let fields = json!({"f:spec": {"f:replicas": {}, "f:selector": {}, "f:strategy": {}, "f:template": {"f:metadata": {}, "f:spec": {"f:containers": {}}}},
            "f:status": {"f:availableReplicas": {}, "f:conditions": {".": {}}, "f:observedGeneration": {}, "f:readyReplicas": {}, "f:replicas": {}}});
        let mut metadata = self.metadata(name, labels.clone(), "helm", fields);
        let generation = self.random.random_range(1..40);
        metadata["generation"] = generation.into();
        metadata["annotations"] = json!({"deployment.kubernetes.io/revision": generation.to_string(),
            "meta.helm.sh/release-name": self.app(), "meta.helm.sh/release-namespace": self.team()});
        let replicas = self.random.random_range(1..12);
        let (changed, created, set) = (self.time(), self.time(), self.hex(9));
        json!({"metadata": metadata, "spec": {
            "replicas": replicas, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
            "selector": {"matchLabels": {"app.kubernetes.io/name": self.app(), "app.kubernetes.io/instance": format!("{}-{}", self.app(), self.region())}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
            "template": {"metadata": {"labels": labels, "annotations": {"checksum/config": self.hex(64)}}, "spec": self.pod_spec()}},
            "status": {"observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas,
                "conditions": [
                    {"type": "Available", "status": "True", "lastUpdateTime": changed, "lastTransitionTime": changed,
                        "reason": "MinimumReplicasAvailable", "message": "Deployment has minimum availability."},
                    {"type": "Progressing", "status": "True", "lastUpdateTime": changed, "lastTransitionTime": created,
                        "reason": "NewReplicaSetAvailable", "message": format!("ReplicaSet \"{}-{set}\" has successfully progressed.", self.app())}]}})
    }

    fn certificate(&mut self) -> Value {
        let name = format!("{}-tls-{}", self.app(), self.number);
        let labels = self.labels();
        let fields = json!({"f:spec": {".": {}, "f:dnsNames": {}, "f:issuerRef": {}, "f:secretName": {}}, "f:status": {".": {}, "f:conditions": {}, "f:notAfter": {}, "f:revision": {}}});
        let mut metadata = self.metadata(
            name.clone(),
            labels,
            "cert-manager-certificates-readiness",
            fields,
        );
        metadata["generation"] = 1.into();
        metadata["ownerReferences"] = json!([{"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": self.app(), "uid": self.uid(), "controller": true, "blockOwnerDeletion": true}]);
        let zone = format!("{}.example.com", self.region());
        let ready = self.time();
        json!({"metadata": metadata,
            "spec": {"secretName": name, "dnsNames": [format!("{}.{zone}", self.app()), format!("{}-{}.{zone}", self.app(), self.number)],
                "issuerRef": {"group": "cert-manager.io", "kind": "ClusterIssuer", "name": "letsencrypt"}, "usages": ["digital signature", "key encipherment"]},
            "status": {"conditions": [{"type": "Ready", "status": "True", "observedGeneration": 1, "lastTransitionTime": ready, "reason": "Ready",
                "message": "Certificate is up to date and has not expired"}],
                "notBefore": ready, "notAfter": self.time(), "renewalTime": self.time(), "revision": self.random.random_range(1..20)}})
    }
}
