#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod action;
#[cfg(feature = "args")]
pub mod args;
mod confirm;
mod controller;
mod error;
mod failure;
mod leader;
mod manager;
mod mapper;
#[cfg(feature = "metrics")]
pub mod metrics;
mod predicate;
pub mod queue;
mod reconciler;
mod report;
mod request;
mod selector;
#[cfg(feature = "server")]
pub mod server;
mod signals;
mod tasks;
mod terminal;
mod unlogged;

pub use action::{Action, IntoAction};
pub use confirm::ConfirmError;
pub use controller::{
    BuiltController, ClusterEnqueue, Controller, ControllerClusterStatus, ControllerCounts, ControllerHandle,
    ControllerStatus, Enqueue, FailingRequest, GateStatus, GatingWatch, OwnsOptions, PrimaryKind,
    QueueStatus, RunningRequest, WaitingKind, WatchOptions,
};
pub use error::{BuildError, ControllerError, ManagerError};
pub use leader::LeaderElection;
pub use manager::{IntoController, Manager, ManagerBuilder};
pub use mapper::{IntoTargets, Watched};
pub use predicate::Predicate;
pub use queue::Backoff;
pub use reconciler::Reconciler;
pub use report::{ClusterReport, ControllerReport, FleetReport};
pub use request::{Request, RequestKey, RequestObject, Target};
pub use selector::ClusterSelector;
pub use terminal::TerminalError;

/// Whether this process leads: [`Manager::leadership`].
pub use mcr_lease::{Leadership, LeaseGuard, LeaseStatus, Role};

/// The crate `mcr-core`, which providers depend on.
pub use mcr_core as core;
// How to reach a cluster.
pub use mcr_core::{
    Access, AccessPolicy, AddressPolicy, AllowedPlugin, Credential, CredentialError, CredentialPluginPolicy,
    CredentialSource, Endpoint, EndpointAccess, KubeconfigAccess, StaticCredential, Trust,
};
pub use mcr_core::{
    BoxError, Cluster, ClusterName, ClusterNotFound, ClusterSpec, ClusterState, DISPLAY_NAME, Epoch, Fleet,
    FleetBuilder, FleetEvent, FleetEvents, FleetObjects, FleetSettings, FleetSnapshot, HUB,
    InvalidClusterName, InvalidUserAgent, MissingCluster, ObjectChange, ObjectKey, ObjectPath, Provider,
    ReadyCheck, SINGLE_CLUSTER, Store, StoreError, UserAgent, WatchRequest, crypto, layer,
};

/// The `kube` crate that this release of mcr is built on.
pub use kube;
