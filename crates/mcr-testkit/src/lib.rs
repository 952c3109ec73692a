#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

/// Real API servers: etcd and kube-apiserver as child processes.
#[cfg(all(unix, feature = "control-plane"))]
pub mod control_plane;
