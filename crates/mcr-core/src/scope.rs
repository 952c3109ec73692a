//! Scopes: endpoints that each serve many clusters.
//!
//! A kcp virtual workspace serves thousands of workspaces at one address. Likewise, each namespace of one API server can
//! stand for a cluster. Watching every such cluster on its own would cost a connection, a watch and a task for each cluster
//! and kind. In a scope, one watch for each kind serves all clusters behind an endpoint. A function of the object's metadata
//! decides which cluster an event belongs to. A cluster in a scope has no task and no socket.
//!
//! - [`ScopeLayout`] describes how clusters are laid out behind an endpoint. Implement it to support a new kind of scope.
//! - [`Scope`] is a layout with its endpoints. Endpoints can be added and removed at any time.
//! - [`Scope::place`] creates the [`Access`](crate::Access) of one cluster in the scope.

pub use crate::{
    access::{Scope, ScopedAccess},
    layout::{Capabilities, ScopeLayout, ScopeRefusal},
    upstream::Upstream,
};
pub use mcr_watch::Placement;
