//! The fleet: which clusters there are, and the life of each.
//!
//! Each module uses only modules before it in this list:
//!
//! - `silence` decides when a cluster is probed. `settings`, `state`, `description`, `spec_change`, `epoch` and `identity` are plain data.
//!   `desired` is the table of claims. `life` decides what a cluster does at each event.
//! - `counts`, `identities` and `observers` are shared by all clusters. `resources` contains them.
//! - `cluster` is the handle of one cluster. `registry` has all clusters. `snapshot` is their status.
//! - `context` is resources and registry together, and has the steps of draining. `events` are for subscribers.
//! - `readiness` runs the checks of the program in each cluster.
//! - `scoped` has the clusters in scopes, and the scope endpoints.
//! - `connection` reaches a cluster. `known` is which cluster answers. `under_way` has the actions that take time. `engagement`
//!   gathers events and acts.
//! - `supervisor` supervises each announced name, by a task or as a member of a scope.
//! - `discovery` runs the providers of a set, which may be added and removed at any time. `announced` engages what they announce.
//! - `handle`, `builder` and `objects` are the public `Fleet`.

mod announced;
mod builder;
mod cluster;
mod connection;
mod context;
mod counts;
mod description;
mod desired;
mod discovery;
mod engagement;
mod epoch;
mod events;
mod handle;
mod identities;
mod identity;
mod known;
mod life;
mod objects;
mod observers;
mod readiness;
mod registry;
mod resources;
mod scoped;
mod settings;
mod silence;
mod snapshot;
mod spec_change;
mod state;
mod supervisor;
mod under_way;

pub use builder::{FleetBuilder, SINGLE_CLUSTER};
pub use cluster::Cluster;
pub use connection::OneOffClients;
pub use counts::{CredentialCounts, FleetCounts};
pub use desired::{KnownCluster, ProviderId};
pub use discovery::{ClusterSink, Discovering, ProviderSet};
pub use epoch::Epoch;
pub use events::{FleetEvent, FleetEvents};
pub use handle::{ClusterNotFound, Fleet};
pub use identities::HUB;
pub use objects::{FleetObjects, MissingCluster};
pub use readiness::ReadyCheck;
pub use settings::{FleetSettings, LayeredCluster};
pub use snapshot::{ClusterStatus, FleetSnapshot, ProviderStatus, ScopeStatus, ScopeWatchStatus};
pub use state::ClusterState;
