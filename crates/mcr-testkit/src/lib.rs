#![cfg_attr(
    any(not(doctest), all(feature = "sim", feature = "control-plane")),
    doc = include_str!("../README.md")
)]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[cfg(all(
    any(feature = "control-plane", feature = "faults", feature = "sim"),
    not(any(feature = "ring", feature = "aws-lc-rs", feature = "ring-certificates"))
))]
compile_error!(
    "mcr-testkit makes certificates: turn on its feature `ring`, `aws-lc-rs` or `ring-certificates`"
);

#[cfg(any(feature = "sim", all(unix, feature = "control-plane")))]
mod audit;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(all(unix, feature = "control-plane"))]
pub mod control_plane;
#[cfg(feature = "conformance")]
pub mod discovery;
#[cfg(feature = "e2e")]
pub mod e2e;
#[cfg(all(unix, feature = "faults"))]
pub mod faults;
#[cfg(feature = "log")]
pub mod log;
#[cfg(any(
    feature = "sim",
    all(unix, any(feature = "control-plane", feature = "faults"))
))]
mod pki;
#[cfg(any(feature = "e2e", all(unix, feature = "control-plane")))]
mod request;
#[cfg(feature = "conformance")]
pub mod schema;
#[cfg(feature = "sim")]
pub mod sim;
#[cfg(feature = "steps")]
pub mod steps;
#[cfg(feature = "conformance")]
mod suite;
#[cfg(feature = "waiting")]
pub mod waiting;
