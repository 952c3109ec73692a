use std::{future::Future, sync::Arc, time::Duration};

use mcr_core::{ClusterName, Provider};
use serde_json::json;

use crate::suite::fail;

/// A text that every secret of the suite contains. A provider must never show it in an announcement, an error or a log
/// line.
pub const CANARY: &str = "canary-5e5a11fb";

/// Something that can happen to a [`Subject`]'s clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ability {
    /// [`Subject::add`].
    Add,
    /// [`Subject::change`].
    Change,
    /// [`Subject::rotate`].
    Rotate,
    /// [`Subject::replace`].
    Replace,
    /// [`Subject::break_it`] and [`Subject::repair`].
    Break,
    /// [`Subject::suspend`] and [`Subject::resume`].
    Suspend,
    /// [`Subject::begin_deletion`] and [`Subject::finish_deletion`].
    Delete,
    /// [`Subject::remove`].
    Remove,
}

/// The description of a cluster. The subject writes it in the form that its provider reads.
///
/// Use the parts that the provider supports, and ignore the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    number: usize,
    facts: u32,
    credentials: u32,
    incarnation: u32,
}

impl Draft {
    /// The first description of the cluster of this number.
    pub fn new(number: usize) -> Self {
        Self {
            number,
            facts: 0,
            credentials: 0,
            incarnation: 0,
        }
    }

    /// The same cluster with another [label](Self::label) and [address](Self::server).
    #[must_use]
    pub fn changed(mut self) -> Self {
        self.facts += 1;
        self
    }

    /// The same cluster with another [token](Self::token).
    #[must_use]
    pub fn rotated(mut self) -> Self {
        self.credentials += 1;
        self
    }

    /// Another cluster of the same name: another [uid](Self::uid), address and token.
    #[must_use]
    pub fn replaced(mut self) -> Self {
        self.incarnation += 1;
        self.rotated().changed()
    }

    /// The cluster's number, which stays the same.
    pub fn number(&self) -> usize {
        self.number
    }

    /// A name for the cluster: `cluster-3`.
    pub fn name(&self) -> String {
        format!("cluster-{}", self.number)
    }

    /// The identity of the cluster, for providers that declare identities.
    pub fn uid(&self) -> String {
        format!("uid-{}-{}", self.number, self.incarnation)
    }

    /// The value of a label or property, for providers that have them.
    pub fn label(&self) -> String {
        format!("v{}", self.facts)
    }

    /// The address of the cluster. Nothing answers there.
    pub fn server(&self) -> String {
        format!("https://127.0.0.1:1/{}", self.label())
    }

    /// The bearer token, which contains the [`CANARY`].
    pub fn token(&self) -> String {
        format!("{CANARY}-{}-{}", self.number, self.credentials)
    }

    /// A kubeconfig of the cluster. Its only context has the [name](Self::name) of the cluster.
    pub fn kubeconfig(&self) -> String {
        let name = self.name();
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": name, "cluster": { "server": self.server() } }],
            "users": [{ "name": name, "user": { "token": self.token() } }],
            "contexts": [{ "name": name, "context": { "cluster": name, "user": name } }],
            "current-context": name,
        })
        .to_string()
    }

    /// The same kubeconfig, cut off after the token, as if it was still being written.
    pub fn kubeconfig_cut_short(&self) -> String {
        let (kubeconfig, token) = (self.kubeconfig(), self.token());
        let end = kubeconfig.find(&token).map_or(0, |at| at + token.len());
        kubeconfig[..end].to_owned()
    }
}

/// A provider under test and the world that it watches.
///
/// Every subject has `start` and `provider`. The other methods belong to the abilities in [`CAN`](Self::CAN). A method
/// that changes the world returns when the world has changed. The suite then waits for the announcement. Write these
/// methods as `async fn`.
pub trait Subject: Sized + 'static {
    /// The abilities of this subject: the changes that can happen to its clusters.
    const CAN: &'static [Ability];

    /// Makes a new world that has only the [fixed](Self::fixed) clusters.
    fn start() -> impl Future<Output = Self>;

    /// The provider that watches this world. The suite calls this several times. It may return the same provider each
    /// time, or a new one, as after a restart of the process.
    fn provider(&self) -> Arc<dyn Provider>;

    /// The clusters that exist from the beginning and can't be changed.
    fn fixed(&self) -> Vec<ClusterName> {
        Vec::new()
    }

    /// How long a change may take to be announced. Default: a minute, for a busy machine.
    fn patience(&self) -> Duration {
        Duration::from_secs(60)
    }

    /// How long the suite waits for an announcement that must not be made. Must be longer than the provider usually
    /// takes to announce a change. If the subject can [`add`](Self::add) clusters, the suite then adds one, and waits
    /// until it is announced. Default: 400 milliseconds.
    fn quiet(&self) -> Duration {
        Duration::from_millis(400)
    }

    /// Adds a cluster. Returns the name under which the provider must announce it.
    fn add(&mut self, draft: &Draft) -> impl Future<Output = ClusterName> {
        let _ = draft;
        async { undeclared("add") }
    }

    /// Sets the description of a cluster to the draft, even if the cluster exists already. By default, `change`,
    /// `rotate`, `repair` and `resume` only call this.
    fn put(&mut self, draft: &Draft) -> impl Future<Output = ()> {
        let _ = draft;
        async { undeclared("put") }
    }

    /// Changes the address, labels or properties of a cluster to those of the draft.
    fn change(&mut self, draft: &Draft) -> impl Future<Output = ()> {
        self.put(draft)
    }

    /// Changes the credentials of a cluster to those of the draft, and nothing else.
    fn rotate(&mut self, draft: &Draft) -> impl Future<Output = ()> {
        self.put(draft)
    }

    /// Replaces a cluster by another one of the same name.
    fn replace(&mut self, draft: &Draft) -> impl Future<Output = ()> {
        let _ = draft;
        async { undeclared("replace") }
    }

    /// Makes a cluster's description unusable. The description still contains the draft's token. If there is no
    /// cluster of this number, adds one with such a description. Returns its name.
    fn break_it(&mut self, draft: &Draft) -> impl Future<Output = ClusterName> {
        let _ = draft;
        async { undeclared("break_it") }
    }

    /// Makes the description of a broken cluster usable.
    fn repair(&mut self, draft: &Draft) -> impl Future<Output = ()> {
        self.put(draft)
    }

    /// Makes a cluster one that is not expected to answer.
    fn suspend(&mut self, draft: &Draft) -> impl Future<Output = ()> {
        let _ = draft;
        async { undeclared("suspend") }
    }

    /// Ends the suspension of a cluster.
    fn resume(&mut self, draft: &Draft) -> impl Future<Output = ()> {
        self.put(draft)
    }

    /// Starts the deletion of the object that describes a cluster, while a finalizer keeps the object.
    fn begin_deletion(&mut self, draft: &Draft) -> impl Future<Output = ()> {
        let _ = draft;
        async { undeclared("begin_deletion") }
    }

    /// Removes the finalizer, so that the object disappears.
    fn finish_deletion(&mut self, draft: &Draft) -> impl Future<Output = ()> {
        let _ = draft;
        async { undeclared("finish_deletion") }
    }

    /// Removes a cluster.
    fn remove(&mut self, draft: &Draft) -> impl Future<Output = ()> {
        let _ = draft;
        async { undeclared("remove") }
    }
}

#[track_caller]
fn undeclared(method: &str) -> ! {
    fail(format!(
        "the subject declares in CAN what needs `{method}`, but does not have that method"
    ))
}
