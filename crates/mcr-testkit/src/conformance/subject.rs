use std::{future::Future, sync::Arc, time::Duration};

use mcr_core::{ClusterName, Provider};
use serde_json::json;

use super::fail::fail;

/// Stands in every secret of the suite, and so must never be seen in what a provider shows.
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

/// The description of a cluster, to be written down in whatever form the provider under test reads.
///
/// Take from it what the provider can express; what it has no place for is left out.
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

    /// A name for it: `cluster-3`.
    pub fn name(&self) -> String {
        format!("cluster-{}", self.number)
    }

    /// What makes it this cluster, for providers that declare identities.
    pub fn uid(&self) -> String {
        format!("uid-{}-{}", self.number, self.incarnation)
    }

    /// The value of a label or property, for providers that have them.
    pub fn label(&self) -> String {
        format!("v{}", self.facts)
    }

    /// Its address. Nobody answers there.
    pub fn server(&self) -> String {
        format!("https://127.0.0.1:1/{}", self.label())
    }

    /// Its bearer token, with the [`CANARY`] in it.
    pub fn token(&self) -> String {
        format!("{CANARY}-{}-{}", self.number, self.credentials)
    }

    /// A kubeconfig of it, with one context named like it.
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

/// A provider under test and the world it looks at.
///
/// `start` and `provider` are all that every provider has; the other methods belong to what
/// [`CAN`](Self::CAN) declares. Methods that change the world return once it is changed; what the provider
/// makes of it is waited for by the suite. Write them as `async fn`.
pub trait Subject: Sized + 'static {
    /// What can happen to this provider's clusters.
    const CAN: &'static [Ability];

    /// A new world, without clusters but the [fixed](Self::fixed) ones.
    fn start() -> impl Future<Output = Self>;

    /// The provider over this world. Called several times: as if the process had been started anew, or for the same
    /// provider again, as is natural for it.
    fn provider(&self) -> Arc<dyn Provider>;

    /// The clusters that are there from the beginning and can't be changed.
    fn fixed(&self) -> Vec<ClusterName> {
        Vec::new()
    }

    /// How long a change may take to be announced. Default: a minute, for a busy machine.
    fn patience(&self) -> Duration {
        Duration::from_secs(60)
    }

    /// How long to listen for what must not be said, at the least. Longer than the provider usually takes to say
    /// something. A subject that can [`add`](Self::add) clusters adds one more then, and is listened to until that is
    /// announced. Default: 400 milliseconds.
    fn quiet(&self) -> Duration {
        Duration::from_millis(400)
    }

    /// Adds a cluster; returns the name that it must be announced by.
    fn add(&mut self, draft: &Draft) -> impl Future<Output = ClusterName> {
        let _ = draft;
        async { undeclared("add") }
    }

    /// Changes the address, labels or properties of a cluster to what the draft now says.
    fn change(&mut self, draft: &Draft) -> impl Future<Output = ()> {
        let _ = draft;
        async { undeclared("change") }
    }

    /// Changes the credentials of a cluster to what the draft now says, and nothing else.
    fn rotate(&mut self, draft: &Draft) -> impl Future<Output = ()> {
        let _ = draft;
        async { undeclared("rotate") }
    }

    /// Puts another cluster in the place of the one of this name.
    fn replace(&mut self, draft: &Draft) -> impl Future<Output = ()> {
        let _ = draft;
        async { undeclared("replace") }
    }

    /// Makes a cluster's description unusable, with the draft's token still in it; adds a cluster with such a
    /// description if there is none of this number. Returns its name.
    fn break_it(&mut self, draft: &Draft) -> impl Future<Output = ClusterName> {
        let _ = draft;
        async { undeclared("break_it") }
    }

    /// Makes the description of a broken cluster usable.
    fn repair(&mut self, draft: &Draft) -> impl Future<Output = ()> {
        let _ = draft;
        async { undeclared("repair") }
    }

    /// Makes a cluster one that is not expected to answer.
    fn suspend(&mut self, draft: &Draft) -> impl Future<Output = ()> {
        let _ = draft;
        async { undeclared("suspend") }
    }

    /// Ends that.
    fn resume(&mut self, draft: &Draft) -> impl Future<Output = ()> {
        let _ = draft;
        async { undeclared("resume") }
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
