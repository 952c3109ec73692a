//! What `mcr doctor` checks of a provider and of its clusters, as data.
//!
//! A provider brings a table of [`Advice`], and says which objects of a hub describe its clusters. The command has the engine that
//! examines, and the renderer. [`Provider::doctor`](crate::Provider::doctor) connects the two.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use futures::future::{BoxFuture, FutureExt, ready};
use kube::Client;
use serde_json::Value;

use crate::access::Access;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Level {
    Ok,
    Warning,
    Problem,
}

/// The result of one check: the name of the check, how bad the result is, a message for people, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "described above")]
pub struct Finding {
    pub check: &'static str,
    pub level: Level,
    pub message: String,
    pub fix: Option<Fix>,
}

/// What to do about a finding: an action for people, which begins with a verb, or commands for a shell, or both.
///
/// A placeholder such as `{name}` stands for a value. In a command the value is one word, in quotes if it needs them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "described above")]
pub struct Fix {
    pub action: Cow<'static, str>,
    pub command: Cow<'static, str>,
    pub values: Values,
}

/// The values of placeholders.
pub type Values = BTreeMap<&'static str, String>;

/// A fault on which a provider can give advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The discovery fails.
    Source,
    /// The hub does not serve the API.
    NotServed,
    /// The provider announces no clusters.
    NoClusters,
    /// The description of a cluster can't be used.
    Description,
    /// The access policy refuses an address of a cluster.
    Address,
    /// The certificate of the server is for another name.
    OtherName,
    /// The credentials are refused or have expired.
    Credentials,
    /// The credentials expire soon.
    Expiring,
    /// The user of the cluster lacks a right: `resource`, `verbs`.
    Rights,
    /// The cluster is Suspended.
    Suspended,
    /// The reason is the cause of an [`Obstacle`], or `deleting`.
    Obstacle,
    /// The server can't be connected to.
    Unreached,
    /// The server accepts a connection and does not answer as an API server does.
    Unanswered,
    /// No fault: the command that sends the `request`, a path, to the server.
    Request,
}

/// A row of the table of a provider. The first row counts that fits and whose placeholders have values.
#[derive(Debug, Clone, Copy)]
pub struct Advice {
    /// The fault.
    pub on: Fault,
    /// A part of the reason of the fault. Empty: any reason.
    pub when: &'static str,
    /// The action. If the command is empty, too, the fault is normal for this provider.
    pub action: &'static str,
    /// The commands.
    pub command: &'static str,
}

impl Right<'_> {
    /// The right to write events.
    pub const EVENTS: Right<'static> = Right {
        without: "the provider can't write events about faulty Secrets",
        ..Right::new("events.events.k8s.io", &["create", "patch"])
    };
}

impl<'a> Right<'a> {
    /// A right on all objects of a resource, which the provider can't do without.
    pub const fn new(resource: &'a str, verbs: &'a [&'a str]) -> Self {
        Self {
            resource,
            verbs,
            name: None,
            without: "",
        }
    }
}

impl Advice {
    /// A row.
    pub const fn new(on: Fault, when: &'static str, action: &'static str, command: &'static str) -> Self {
        Self {
            on,
            when,
            action,
            command,
        }
    }
}

/// A right that a provider needs: a resource as kubectl writes it, verbs, and the name of the only object that it is about.
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs, reason = "described above")]
pub struct Right<'a> {
    pub resource: &'a str,
    pub verbs: &'a [&'a str],
    pub name: Option<&'a str>,
    /// What does not work without the right, if all else does.
    pub without: &'static str,
}

/// The objects of a hub that describe clusters.
#[derive(Clone)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Hub {
    pub client: Client,
    pub kind: Kind,
    /// Empty: all.
    pub namespaces: Vec<String>,
    pub selector: Option<String>,
    pub rights: &'static [Right<'static>],
}

/// A kind of objects that describe clusters.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Kind {
    /// Empty: the core of Kubernetes, which every hub serves.
    pub group: &'static str,
    /// The version to read, if the hub serves it.
    pub version: &'static str,
    pub plural: &'static str,
    pub kind: &'static str,
    /// The name of the API for people.
    pub api: &'static str,
    /// A note for users if the object of a cluster is being deleted, such as an option that keeps the cluster longer: in
    /// parentheses, after a space. Empty: no note.
    pub deletion_note: &'static str,
}

impl Hub {
    /// The values for the object of a cluster.
    pub fn values(namespace: &str, name: &str) -> Values {
        Values::from([("namespace", namespace.to_owned()), ("name", name.to_owned())])
    }

    /// The values for a cluster whose name is `namespace/name`, or the name of an object in the first namespace.
    pub fn values_of_name(&self, cluster: &str) -> Values {
        match (cluster.split_once('/'), self.namespaces.first()) {
            (Some((namespace, name)), _) => Self::values(namespace, name),
            (None, Some(namespace)) => Self::values(namespace, cluster),
            (None, None) => Values::new(),
        }
    }
}

/// A cluster that a provider announces.
#[derive(Debug, Clone, Copy)]
pub struct Described<'a> {
    /// Its name, as the provider announces it.
    pub name: &'a str,
    /// Its identity, if it is known.
    pub identity: Option<&'a str>,
    /// Its properties.
    pub properties: &'a BTreeMap<String, String>,
    /// The reason of its state.
    pub reason: Option<&'a str>,
    /// The faulty object, if the last announcement was [`Broken`](crate::Change::Broken).
    pub broken: Option<&'a str>,
}

/// The object of a cluster in a hub, if it is there. With the reason of the cluster, if the provider announces it.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "described above")]
pub struct InHub<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub object: Option<&'a Value>,
    pub reason: Option<&'a str>,
}

/// Why an object is no usable cluster: how bad that is, the cause that selects the advice, and a message for people.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "described above")]
pub struct Obstacle {
    pub level: Level,
    pub cause: &'static str,
    pub message: String,
}

/// The knowledge of a provider.
pub trait Doctor: Send + Sync {
    /// What to do about faults. The command has advice of its own for the others.
    fn advice(&self) -> &'static [Advice];

    /// The name of the check of the source.
    fn check(&self) -> &'static str {
        "provider"
    }

    /// The values for the advice on a cluster, or on the source. With `namespace` and `name` of the object in the hub, if the
    /// cluster has one.
    fn values(&self, cluster: Option<&Described<'_>>) -> Values {
        let _ = cluster;
        Values::new()
    }

    /// What the display name of a cluster is.
    fn display_name(&self) -> &'static str {
        "a display name"
    }

    /// The findings about files. May block.
    fn files(&self) -> Vec<Finding> {
        Vec::new()
    }

    /// The objects that describe clusters.
    fn hub(&self) -> Option<&Hub> {
        None
    }

    /// Where the object of a missing cluster may be, as pairs of a namespace and a name. The namespace `None` stands for all
    /// namespaces.
    fn object_locations(&self, cluster: &str) -> Vec<(Option<String>, String)> {
        let home = || self.hub()?.namespaces.first().cloned();
        let (namespace, name) = match cluster.split_once('/') {
            Some((namespace, name)) => (Some(namespace.to_owned()), name),
            None => (home(), cluster),
        };
        vec![(namespace, name.to_owned()), (None, name.to_owned())]
    }

    /// Why the object of a Suspended or missing cluster is no usable cluster. `None`: nothing is known.
    fn obstacle<'a>(&'a self, of: InHub<'a>, ask: &'a dyn Examiner) -> BoxFuture<'a, Option<Obstacle>> {
        let _ = (of, ask);
        ready(None).boxed()
    }

    /// Other findings about the source.
    fn source<'a>(&'a self, ask: &'a dyn Examiner) -> BoxFuture<'a, Vec<Finding>> {
        let _ = ask;
        ready(Vec::new()).boxed()
    }

    /// The finding about a Ready cluster, in place of those about its version and its rights.
    fn ready(&self, cluster: &Described<'_>) -> Option<Finding> {
        let _ = cluster;
        None
    }
}

/// Selects the objects of a list. Empty: all of them.
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs, reason = "the names of the API")]
pub struct Selected<'a> {
    pub namespace: Option<&'a str>,
    pub fields: &'a str,
    pub labels: &'a str,
}

/// What the command does for a provider. Each request has a deadline. Dropping a future cancels its request.
pub trait Examiner: Send + Sync {
    /// The limit of one request.
    fn limit(&self) -> Duration;

    /// Lists the objects of a group, version and plural: all pages; of Secrets only the metadata.
    ///
    /// # Errors
    /// Text for people; a refusal of the server contains `forbidden`.
    fn list<'a>(
        &'a self,
        client: &'a Client,
        kind: [&'a str; 3],
        selected: Selected<'a>,
    ) -> BoxFuture<'a, Result<Vec<Value>, String>>;

    /// The user of a client, or `USER` if the server does not say.
    fn user<'a>(&'a self, client: &'a Client) -> BoxFuture<'a, String>;

    /// Asks for a right in a namespace or in all of them, which is `place` in words, after a space.
    fn right<'a>(
        &'a self,
        client: &'a Client,
        right: Right<'a>,
        namespace: Option<&'a str>,
        place: &'a str,
    ) -> BoxFuture<'a, Finding>;

    /// Connects to an address step by step, without credentials. `error`: why requests with credentials fail there. Findings
    /// have the advice of this provider.
    fn address<'a>(
        &'a self,
        doctor: &'a dyn Doctor,
        access: &'a Access,
        error: Option<&'a str>,
    ) -> BoxFuture<'a, Vec<Finding>>;
}
