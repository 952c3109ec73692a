//! Clusters in scopes, and the scope endpoints that they share.

mod endpoint;
mod endpoints;
mod member;
mod placement;

pub(crate) use endpoint::ScopeEndpoint;
pub(crate) use endpoints::ScopeEndpoints;
pub(crate) use member::{MemberContext, Next, ScopeMember};
