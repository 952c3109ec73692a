//! Facts about kcp, on the double, and on a real kcp when `MCR_KCP_KUBECONFIG` names a kubeconfig of its admin.
//! Facts that need faults or moves are tested on the double only. `docs/design/kcp.md` has what their names leave out.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy takes only functions marked as tests for tests.

mod apply;
mod binding;
mod claims;
mod double;
mod lifecycle;
mod urls;
mod wildcard;
mod workspaces;
#[allow(dead_code, reason = "the suite of mcr-provider-kcp uses the rest")]
mod world;
