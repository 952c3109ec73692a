//! The management cluster: a real API server with kube-controller-manager, and the managers of Cluster API as plain processes.

use std::path::{Path, PathBuf};

use k8s_openapi::api::rbac::v1::PolicyRule;
use mcr_testkit::control_plane::{CertificateAuthority, ControlPlane, ControlPlaneError, Program, User};
use mcr_testkit::waiting::OrFail;
use serde_json::{Value, json};

use crate::objects::{Objects, base64};
use crate::{PATIENCE, manifests};

/// The management cluster.
pub(crate) struct Management {
    pub(crate) plane: ControlPlane,
    programs: Vec<(String, Program)>,
}

impl Management {
    /// Starts everything.
    pub(crate) async fn start(folder: &Path) -> Result<Self, ControlPlaneError> {
        let plane = ControlPlane::builder()
            .name("management")
            .audit(true)
            .with_controller_manager()
            .start()
            .await?;
        let authority = CertificateAuthority::new("webhooks")?;
        let webhooks = Program::free_port()?;
        let ca_bundle = base64(authority.certificate_pem());
        let core = manifests::read(folder, "core.yaml").into_iter();
        let core = core.map(|crd| manifests::with_conversion(crd, webhooks, &ca_bundle));
        let mut crds: Vec<Value> = core.chain(manifests::byo()).collect();
        for file in ["bootstrap.yaml", "control-plane.yaml"] {
            crds.extend(
                manifests::read(folder, file)
                    .into_iter()
                    .map(manifests::without_conversion),
            );
        }
        let kinds: Vec<String> = crds
            .iter()
            .map(|crd| crd["spec"]["names"]["kind"].to_string())
            .collect();
        futures::future::try_join_all(crds.into_iter().map(|crd| plane.install_crd(crd))).await?;
        discovery_has(&plane, &kinds).await;

        let mut started = Self {
            plane,
            programs: Vec::new(),
        };
        started.run(folder, "capi-core", webhooks, &authority).await?;
        started
            .run(folder, "capi-kcp", Program::free_port()?, &authority)
            .await?;
        Ok(started)
    }

    async fn run(
        &mut self,
        folder: &Path,
        name: &str,
        webhooks: u16,
        authority: &CertificateAuthority,
    ) -> Result<(), ControlPlaneError> {
        let (health, diagnostics) = (Program::free_port()?, Program::free_port()?);
        let (certificate, key) = authority.server()?;
        let args = [
            "--kubeconfig=kubeconfig".to_owned(),
            // The folder in which the program starts.
            "--webhook-cert-dir=.".to_owned(),
            format!("--webhook-port={webhooks}"),
            format!("--health-addr=127.0.0.1:{health}"),
            format!("--diagnostics-address=127.0.0.1:{diagnostics}"),
            "--insecure-diagnostics=true".to_owned(),
            "--feature-gates=ClusterTopology=true".to_owned(),
            // Nothing was ever stored in an older version here.
            "--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields".to_owned(),
        ];
        let kubeconfig = self.plane.kubeconfig();
        let files = [
            ("kubeconfig", &*kubeconfig),
            ("tls.crt", &certificate),
            ("tls.key", &key),
        ];
        let program = Program::start(name, &folder.join(name), &files, &args)?;
        program.wait_ready(health, "/readyz").await?;
        self.programs.push((name.to_owned(), program));
        Ok(())
    }

    /// A namespace of its own for a test, with a user who has the rights of the manifest there and no others.
    pub(crate) async fn hub(&self, namespace: &str) -> Hub {
        let plane = &self.plane;
        let namespaces = kube::Api::<k8s_openapi::api::core::v1::Namespace>::all(plane.client());
        let wanted = serde_json::from_value(json!({"metadata": {"name": namespace}})).or_fail();
        namespaces
            .create(&kube::api::PostParams::default(), &wanted)
            .await
            .or_fail();
        let robot = plane
            .user(format!("robot-{namespace}"))
            .rules_in(namespace, granted());
        Hub {
            robot: robot.create().await.or_fail(),
            objects: Objects {
                client: plane.client(),
                namespace: namespace.to_owned(),
            },
        }
    }

    /// The ends of the logs, for a test that fails.
    pub(crate) fn logs(&self) -> String {
        let programs = self.programs.iter();
        let logs =
            programs.map(|(name, program)| format!("The end of the log of {name}:\n{}", program.log_tail()));
        logs.collect::<Vec<_>>().join("\n\n")
    }
}

/// A namespace of the management cluster.
pub(crate) struct Hub {
    pub(crate) objects: Objects,
    /// The provider acts as this user.
    pub(crate) robot: User,
}

impl Hub {
    pub(crate) fn namespace(&self) -> &str {
        &self.objects.namespace
    }
}

/// Waits until the API server names the kinds in its discovery, which it does a moment after it serves them. A manager that does not
/// find them there does not start.
async fn discovery_has(plane: &ControlPlane, kinds: &[String]) {
    let started = tokio::time::Instant::now();
    loop {
        let request = http::Request::get("/apis")
            .header(
                "Accept",
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            )
            .body(Vec::new())
            .or_fail();
        let discovery = plane.client().request_text(request).await.or_fail();
        let missing: Vec<_> = kinds
            .iter()
            .filter(|kind| !discovery.contains(&format!("\"kind\":{kind}")))
            .collect();
        if missing.is_empty() {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "not in the discovery: {missing:?}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// The rules of the manifest that users apply.
pub(crate) fn granted() -> Vec<PolicyRule> {
    let role: Value = serde_saphyr::from_str(include_str!("../../deploy/rbac.yaml")).or_fail();
    assert_eq!(role["kind"], "ClusterRole");
    serde_json::from_value(role["rules"].clone()).or_fail()
}

/// The folder with Cluster API's managers, if the environment names one.
pub(crate) fn folder() -> Option<PathBuf> {
    std::env::var_os("MCR_CAPI").map(PathBuf::from)
}
