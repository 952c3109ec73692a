//! Simulated Kubernetes API servers, in memory.
//!
//! A [`SimCluster`] answers like a kube-apiserver, but without processes, sockets or tasks: its
//! [`client`](SimCluster::client) calls it as a tower service. [`serve`](SimCluster::serve) opens a port with TLS for
//! it. [`SimFleet::serve`] serves thousands of clusters behind one port. An empty cluster costs a few kilobytes.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use mcr_testkit::sim::{SimCluster, SimRule, SimUser};
//! use serde_json::json;
//!
//! let berlin = SimCluster::builder().name("berlin").build();
//! berlin.create(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } }))?;
//!
//! let reader = SimUser::new("reader").rule(SimRule::new([""], ["configmaps"], ["get", "list", "watch"]));
//! berlin.set_user("token-of-reader", reader);
//! let client = berlin.client_with_token("token-of-reader"); // hand it to the code under test
//! let list = client.request_text(http::Request::get("/api/v1/configmaps").body(Vec::new())?).await?;
//! assert!(list.contains("ConfigMapList"));
//!
//! assert_eq!(berlin.audit().count(|event| event.is_list("configmaps")), 1);
//! berlin.compact(berlin.resource_version()); // older watches get 410
//! # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! # What is the same as in a real server
//!
//! Lists with pages, selectors and every form of `resourceVersion`; watches with history, bookmarks, `timeoutSeconds`,
//! streaming lists and 410; create, update, JSON, merge, strategic and apply patches, deletion with finalizers and
//! preconditions, deletion of collections; optimistic concurrency; the status and finalize subresources; custom
//! resources with their versions, schema, defaults and columns; metadata-only and table forms; discovery; reviews of
//! the user itself; users by token or certificate, 401 and 403; an audit log; dry runs; `managedFields`. A test suite
//! runs scripts, handwritten and random, against the simulator and a real kube-apiserver 1.36. Their answers must be
//! the same. For malformed or invalid requests, only code and reason must be the same.
//!
//! # What differs from a real server
//!
//! - Built-in objects are stored as they are sent: no defaults and no validation beyond their metadata,
//!   except for namespaces and secrets. Fields that do not exist are kept. Their tables have name and age only.
//! - Schemas of CRDs: no `pattern`, `format`, `oneOf`, `anyOf`, `allOf` or `not`, no CEL rules, no conversion
//!   webhooks (all versions have the same fields); a CRD is served the moment it is created, and its objects are
//!   deleted with it at once.
//! - The name of a list in a built-in object decides whether the list is merged by key. Only the usual names are
//!   known. Apply and strategic patches replace any other list as a whole. `$setElementOrder` and
//!   `$retainKeys` are ignored.
//! - RBAC objects are stored, not evaluated: rights are those of [`SimUser`].
//! - Nothing acts on its own: no garbage collection, no policies and grace periods of deletions, no
//!   tokens of service accounts, a deleted namespace stays `Terminating` (but see
//!   [`finish_namespaces`](SimBuilder::finish_namespaces)).
//! - No protobuf except in the bodies that `kubectl create` sends for a ConfigMap, Secret, Namespace or ServiceAccount,
//!   no CBOR, no HTTP/2, no schemas in the OpenAPI documents (they have what `kubectl apply` reads), no admission,
//!   `fieldValidation` is ignored, no exec, log, proxy and other connections to pods, no `events.k8s.io` view of core
//!   events, no legacy `/watch/` paths.
//! - A resource version that does not exist yet is refused at once. A real server waits three seconds for it. Bookmarks
//!   come after each [`bookmark_interval`](SimBuilder::bookmark_interval) and at the end of a watch.

mod body;
mod builder;
mod builtin;
mod cluster;
mod defaults;
mod delete;
mod discovery;
mod error;
mod fields;
mod list;
mod managed;
mod merge_strategy;
mod openapi;
mod protobuf;
mod review;
mod server;
mod server_error;
mod service;
mod tls;
mod update;

// These modules are public only for the double of kcp. They are not part of the API of this crate.
#[doc(hidden)]
pub mod answer;
#[doc(hidden)]
pub mod apply;
#[doc(hidden)]
pub mod auth;
#[doc(hidden)]
pub mod cause;
#[doc(hidden)]
pub mod clock;
#[doc(hidden)]
pub mod crd;
#[doc(hidden)]
pub mod form;
#[doc(hidden)]
pub mod handle;
#[doc(hidden)]
pub mod kinds;
#[doc(hidden)]
pub mod kubeconfig;
#[doc(hidden)]
pub mod object;
#[doc(hidden)]
pub mod patch;
#[doc(hidden)]
pub mod query;
#[doc(hidden)]
pub mod read;
#[doc(hidden)]
pub mod request;
#[doc(hidden)]
pub mod route;
#[doc(hidden)]
pub mod schema;
#[doc(hidden)]
pub mod selector;
#[doc(hidden)]
pub mod state;
#[doc(hidden)]
pub mod store;
#[doc(hidden)]
pub mod table;
#[doc(hidden)]
pub mod watch;
#[doc(hidden)]
pub mod write;

pub use crate::audit::{AuditEvent as SimAuditEvent, AuditLog as SimAuditLog, AuditMark as SimAuditMark};
pub use auth::{SimRule, SimUser};
pub use body::SimBody;
pub use builder::SimBuilder;
pub use cluster::SimCluster;
pub use error::SimError;
#[doc(hidden)]
pub use server::{Answers, Listening, listen};
pub use server::{SimFleet, SimServer};
pub use server_error::SimServerError;
pub use service::SimService;
pub use tls::{SimCertificate, SimTls};
