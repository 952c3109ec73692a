//! A service in a few lines: each Database of a consumer's cluster becomes a Database of the service's cluster, where an operator
//! serves it, and the status comes back.
//!
//! The service's cluster is the hub. The clusters of the kubeconfig files are those of consumers: one or many. All need
//! `database-crd.yaml`.

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use mcr::{BoxError, BuiltController, ClusterName, ClusterSelector, HUB, args::Args};
use mcr_provider_file::FileProvider;
use mcr_sync::{ObjectSync, TargetNamespace};
use serde_json::json;

pub(crate) fn controller() -> Result<BuiltController, BoxError> {
    let database = ApiResource::from_gvk(&GroupVersionKind::gvk("example.io", "v1", "Database"));
    let sync = ObjectSync::<DynamicObject, DynamicObject>::with("databases", &database, &database)
        .from(!ClusterSelector::hub())
        .to(ClusterName::new(HUB)?)
        .namespace(TargetNamespace::Fixed("databases".into()))
        .project(move |source, _| {
            let spec = json!({"spec": source.data["spec"]});
            DynamicObject::new("", &database).data(spec)
        })
        .status(|_, targets| {
            let served = targets.first().map(|(_, target)| target.data["status"].clone());
            served.unwrap_or_default()
        });
    Ok(sync.build()?)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let args = Args::parse();
    args.init_log();
    let files = FileProvider::builder()
        .files(&args.clusters().kubeconfigs)
        .dirs(&args.clusters().kubeconfig_dirs)
        .globs(&args.clusters().globs)
        .build()?;
    let manager = args.manager().fleet(args.fleet(files)?.build());
    Ok(manager.controller(controller()?).build()?.run().await?)
}
