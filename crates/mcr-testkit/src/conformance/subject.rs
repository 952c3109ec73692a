use std::{future::Future, sync::Arc, time::Duration};

use mcr_core::{ClusterName, Provider};
use serde_json::json;

use crate::suite::fail;

/// A text in every secret of the suite. A provider must never show it in an announcement, an error or a log line.
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
/// Use the parts that the provider can express, and leave out the others.
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

    /// The beginning of the [kubeconfig](Self::kubeconfig), up to the end of the token: it can't be read.
    pub fn torn_kubeconfig(&self) -> String {
        let mut content = self.kubeconfig();
        let token = self.token();
        if let Some(start) = content.find(&token) {
            content.truncate(start + token.len());
        }
        content
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
}

/// A provider under test and the world that it watches.
///
/// Every subject has `start` and `provider`. The other methods belong to the abilities in
/// [`CAN`](Self::CAN). A method that changes the world returns once the world is changed; the suite then
/// waits for the announcement. Write these methods as `async fn`.
pub trait Subject: Sized + 'static {
    /// The abilities of this subject: the changes that can happen to its clusters.
    const CAN: &'static [Ability];

    /// A new world, without clusters but the [fixed](Self::fixed) ones.
    fn start() -> impl Future<Output = Self>;

    /// The provider that watches this world. The suite calls it several times. It may return the same provider each
    /// time or a new one, as after a restart of the process.
    fn provider(&self) -> Arc<dyn Provider>;

    /// The clusters that are there from the beginning and can't be changed.
    fn fixed(&self) -> Vec<ClusterName> {
        Vec::new()
    }

    /// How long a change may take to be announced. Default: a minute, for a busy machine.
    fn patience(&self) -> Duration {
        Duration::from_secs(60)
    }

    /// How long the suite listens at least for an announcement that must not come: longer than the provider usually
    /// takes to announce a change. If the subject can [`add`](Self::add) clusters, the suite then adds one, and
    /// listens until it is announced. Default: 400 milliseconds.
    fn quiet(&self) -> Duration {
        Duration::from_millis(400)
    }

    /// Makes the description of a cluster that of the draft, whatever it was. If a subject has this method, it needs none of
    /// [`change`](Self::change), [`rotate`](Self::rotate), [`replace`](Self::replace), [`repair`](Self::repair) and
    /// [`resume`](Self::resume) that does the same.
    fn describe(&mut self, draft: &Draft) -> impl Future<Output = ()> {
        let _ = draft;
        async { undeclared("describe, or the method of the ability") }
    }

    /// Adds a cluster. Returns the name under which the provider must announce it.
    fn add(&mut self, draft: &Draft) -> impl Future<Output = ClusterName> {
        let _ = draft;
        async { undeclared("add") }
    }

    /// Changes the address, labels or properties of a cluster to those of the draft.
    fn change(&mut self, draft: &Draft) -> impl Future<Output = ()> {
        self.describe(draft)
    }

    /// Changes the credentials of a cluster to those of the draft, and nothing else.
    fn rotate(&mut self, draft: &Draft) -> impl Future<Output = ()> {
        self.describe(draft)
    }

    /// Puts another cluster in the place of the one of this name.
    fn replace(&mut self, draft: &Draft) -> impl Future<Output = ()> {
        self.describe(draft)
    }

    /// Makes a cluster's description unusable, with the draft's token still in it; adds a cluster with such a
    /// description if there is none of this number. Returns its name.
    fn break_it(&mut self, draft: &Draft) -> impl Future<Output = ClusterName> {
        let _ = draft;
        async { undeclared("break_it") }
    }

    /// Makes the description of a broken cluster usable.
    fn repair(&mut self, draft: &Draft) -> impl Future<Output = ()> {
        self.describe(draft)
    }

    /// Makes a cluster one that is not expected to answer.
    fn suspend(&mut self, draft: &Draft) -> impl Future<Output = ()> {
        let _ = draft;
        async { undeclared("suspend") }
    }

    /// Ends the suspension of a cluster.
    fn resume(&mut self, draft: &Draft) -> impl Future<Output = ()> {
        self.describe(draft)
    }

    /// Gives the object that describes a cluster a deletionTimestamp, while a finalizer keeps it.
    fn begin_deletion(&mut self, draft: &Draft) -> impl Future<Output = ()> {
        let _ = draft;
        async { undeclared("begin_deletion") }
    }

    /// Releases the finalizer, so that the object goes.
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
