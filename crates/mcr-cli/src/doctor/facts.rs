//! Facts: what probes have seen. The diagnosis turns facts into findings.

use std::{
    net::IpAddr,
    time::{Duration, SystemTime},
};

use super::target::Credential;

/// What is known of a cluster.
#[derive(Debug, Clone)]
pub(super) struct ClusterFacts {
    /// As the fleet names it.
    pub(super) name: String,
    pub(super) provider: String,
    pub(super) origin: Origin,
    /// As [`mcr_core::ClusterStatus::state`].
    pub(super) state: String,
    pub(super) reason: Option<String>,
    pub(super) warnings: Vec<String>,
    /// None if the access does not show an address.
    pub(super) connection: Option<Connection>,
    pub(super) api: Option<Api>,
    pub(super) now: SystemTime,
}

/// What describes a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    Secret {
        namespace: String,
        name: String,
    },
    File {
        path: String,
        context: String,
    },
    /// With the program of its engine.
    KindCluster {
        name: String,
        engine: String,
    },
    Other,
}

/// The facts about the way to an API server.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) address: String,
    pub(super) host: String,
    pub(super) credential: Credential,
    /// Behind a proxy, which nobody can look through.
    pub(super) proxied: bool,
    pub(super) insecure: bool,
    pub(super) reach: Option<Reach>,
}

/// How far a connection came. Each step is none if the one before it failed.
#[derive(Debug, Clone, Default)]
pub(super) struct Reach {
    pub(super) resolved: Option<Result<Vec<IpAddr>, Failure>>,
    /// The policy's words on an address that it does not allow.
    pub(super) forbidden: Option<String>,
    pub(super) connected: Option<Result<Duration, Failure>>,
    pub(super) greeted: Option<Result<Tls, Failure>>,
    pub(super) answered: Option<Result<Answer, Failure>>,
}

/// What a server showed in the TLS greeting.
#[derive(Debug, Clone)]
pub(super) struct Tls {
    /// None if there is no authority to hold it against.
    pub(super) verdict: Option<Verdict>,
    pub(super) expires: Option<SystemTime>,
    pub(super) valid_from: Option<SystemTime>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Good,
    Bad { why: Bad, text: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bad {
    UnknownIssuer,
    Expired,
    NotYetValid,
    OtherName,
    Other,
}

/// An answer to somebody who showed no credentials.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) took: Duration,
    /// By how much the server's clock is ahead of ours, in seconds; behind if negative.
    pub(super) ahead: Option<i64>,
}

/// Why a step failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) kind: FailureKind,
    pub(super) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureKind {
    UnknownHost,
    Refused,
    TimedOut,
    Unroutable,
    Other,
}

/// What an API server said to the cluster's own credentials.
#[derive(Debug, Clone)]
pub(super) struct Api {
    pub(super) version: Result<Version, String>,
    pub(super) rights: Vec<Right>,
    /// Of which namespace; none for all.
    pub(super) namespace: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) shown: String,
    pub(super) minor: Option<u32>,
    pub(super) took: Duration,
}

/// What may be done with a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Right {
    pub(super) resource: String,
    pub(super) verbs: Vec<String>,
    /// The verbs that are refused, or why nobody knows.
    pub(super) denied: Result<Vec<String>, String>,
}

/// What is known of a provider.
#[derive(Debug, Clone)]
pub(super) struct ProviderFacts {
    pub(super) name: String,
    /// Why it could not be made, or why its discovery fails.
    pub(super) error: Option<String>,
    pub(super) synced: bool,
    pub(super) clusters: usize,
    pub(super) of: Source,
}

/// What a provider reads.
#[derive(Debug, Clone)]
pub(super) enum Source {
    Secrets(Box<Hub>),
    /// A hub that can't be asked.
    NoHub,
    Files(Vec<FileFact>),
    Engine,
    Other,
}

/// A hub that has Secrets.
#[derive(Debug, Clone)]
pub(super) struct Hub {
    /// None for all.
    pub(super) namespace: Option<String>,
    /// Who asks, if the hub says.
    pub(super) user: Option<String>,
    /// On Secrets, and on events.
    pub(super) rights: Vec<Right>,
    pub(super) version: Option<Version>,
}

#[derive(Debug, Clone)]
pub(super) struct FileFact {
    pub(super) path: String,
    pub(super) is: FileIs,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileIs {
    There,
    Missing,
    Unreadable(String),
}

/// What is known of a name that no provider says.
#[derive(Debug, Clone)]
pub(super) struct MissingFacts {
    pub(super) name: String,
    pub(super) known: Vec<String>,
    pub(super) secrets: Vec<SecretFact>,
}

/// A Secret of that name, as far as it concerns a provider.
#[derive(Debug, Clone)]
pub(super) struct SecretFact {
    pub(super) provider: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) label: String,
    pub(super) labelled: Option<String>,
    /// The namespace that the provider looks in; none for all.
    pub(super) looks_in: Option<String>,
}
