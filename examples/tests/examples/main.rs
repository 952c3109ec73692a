//! Runs the examples as a user would: as programs, on real API servers.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[cfg(feature = "cluster-api")]
mod cluster_api;
#[cfg(feature = "cluster-inventory")]
mod cluster_inventory;
mod clusters;
mod command_line;
#[path = "../common/mod.rs"]
mod common;
mod configmaps;
#[cfg(feature = "demo")]
mod demo;
#[cfg(feature = "kubeconfig")]
mod deploy;
#[cfg(feature = "kcp")]
mod kcp;
#[cfg(feature = "kcp")]
mod kcp_apiexport;
#[cfg(feature = "kcp")]
mod kcp_fleet;
#[cfg(feature = "kcp")]
mod kcp_lifecycle;
#[cfg(feature = "kcp")]
mod kcp_mongodb;
#[cfg(feature = "kcp")]
mod kcp_path_aware;
#[cfg(feature = "demo")]
mod local_clusters;
#[cfg(feature = "namespace")]
mod namespace;
#[cfg(any(feature = "cluster-inventory", feature = "kcp"))]
mod page;
mod registry;
mod stories;

use common::program;
