//! A double of kcp in memory, built on the [simulator](mcr_testkit::sim).
//!
//! A [`Kcp`] has a front proxy, one or more shards, logical clusters, the virtual workspaces of APIExports and
//! WorkspaceTypes, and a small control plane. [`Kcp::client`] calls it without sockets. [`KcpBuilder::serve`] serves
//! it with TLS: one port for the front proxy, and one for each shard.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use mcr_kcp_double::Kcp;
//! use serde_json::json;
//!
//! let kcp = Kcp::builder().shards(2).build();
//! let provider = kcp.create_workspace("root:provider")?;
//! let consumer = kcp.create_workspace_on("root:consumer", "shard-1")?;
//! provider.create(json!({
//!     "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
//!     "metadata": { "name": "v1.widgets.example.io" },
//!     "spec": {
//!         "group": "example.io", "scope": "Namespaced",
//!         "names": { "kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget" },
//!         "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "type": "object" } }],
//!     },
//! }))?;
//! provider.create(json!({
//!     "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": { "name": "widgets" },
//!     "spec": { "resources": [{ "name": "widgets", "group": "example.io", "schema": "v1.widgets.example.io" }] },
//! }))?;
//! consumer.create(json!({
//!     "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": { "name": "widgets" },
//!     "spec": { "reference": { "export": { "path": "root:provider", "name": "widgets" } } },
//! }))?;
//! consumer.create(json!({ "apiVersion": "example.io/v1", "kind": "Widget", "metadata": { "name": "w" } }))?;
//!
//! let slice = provider.get("apiexportendpointslices.apis.kcp.io", "widgets").unwrap();
//! let url = format!("{}/clusters/*", slice["status"]["endpoints"][0]["url"].as_str().unwrap());
//! let client = kcp.client_at(&url, kcp.admin_token()).unwrap();
//! let all = client.request_text(http::Request::get("/apis/example.io/v1/widgets").body(Vec::new())?).await?;
//! assert!(all.contains(consumer.id()));
//! # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! It is not published: it behaves like kcp only as far as the tests, examples and measurements of this workspace
//! need, and it is built on hidden parts of the simulator. Users test their controllers with `mcr-testkit`.
//!
//! `docs/design/kcp.md` lists the facts about kcp that the double reproduces, each with its test. The same tests run
//! against a real kcp if `MCR_KCP_KUBECONFIG` names a kubeconfig of its admin.
//!
//! # What differs from a real kcp
//!
//! - Everything in which the [simulator](mcr_testkit::sim#what-differs-from-a-real-server) differs from a real API
//!   server.
//! - RBAC objects in workspaces are stored, not evaluated: rights are those of [`KcpUser`].
//! - APIExports and APIBindings are only served in v1alpha2. There are no partitions, cached resources, mounts,
//!   maximal permission policies, virtual storage, or naming conflicts between bindings.
//! - There are no conflicts of server-side apply in virtual workspaces, and no annotation
//!   `kcp.io/original-api-version`.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod admission;
mod builder;
mod control;
mod delays;
mod directory;
mod export_workspace;
mod handle;
mod inner;
mod kinds;
mod lifecycle_workspace;
mod missing;
mod names;
mod path;
mod rewrite;
mod root;
mod server;
mod shard;
mod shard_handle;
mod state;
mod user;
mod workspace;

pub use builder::KcpBuilder;
pub use control::KcpMove;
pub use delays::KcpDelays;
pub use handle::Kcp;
pub use server::KcpServer;
pub use shard_handle::KcpShard;
pub use user::KcpUser;
pub use workspace::KcpWorkspace;
