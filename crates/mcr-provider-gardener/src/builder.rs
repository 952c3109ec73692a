use std::{sync::Arc, time::Duration};

use kube::Client;
use mcr_core::{
    AccessPolicy, WatchSettings,
    hub::{Closure, HubOptions, Namespaces, OptionError, Times},
};
use parking_lot::Mutex;

use crate::{
    config::{Config, Rights, Topology},
    error::GardenerError,
    label_selector,
    provider::GardenerProvider,
    selection::{InSeed, Selection},
    v1beta1::Shoot,
};

/// Gardener issues no kubeconfig for less.
const SHORTEST: Duration = Duration::from_secs(600);
const VALID_FOR: Duration = Duration::from_secs(3600);

/// Builds a [`GardenerProvider`]. [`GardenerProvider::builder`] creates it.
///
/// The closures run in the task that watches the garden: they must be quick and must not block. If one panics, the panic is
/// logged, and the cluster stays as it is until its Shoot changes.
#[must_use]
#[derive(Debug, Clone)]
pub struct GardenerProviderBuilder {
    hub: HubOptions,
    selection: Selection,
    topology: Topology,
    rights: Rights,
    valid_for: Option<Duration>,
    at_once: usize,
    /// How long a first request may take, which is short, so that a few requests that are never answered delay no others.
    first_deadline: Duration,
}

impl GardenerProvider {
    /// A builder. [`client`](GardenerProviderBuilder::client) is required; all other options have defaults.
    pub fn builder() -> GardenerProviderBuilder {
        let mut hub = HubOptions::new("gardener");
        hub.times.deadline = Duration::from_secs(30);
        GardenerProviderBuilder {
            hub,
            selection: Selection::default(),
            topology: Topology::default(),
            rights: Rights::Admin,
            valid_for: None,
            at_once: 10,
            first_deadline: Duration::from_secs(3),
        }
    }
}

impl GardenerProviderBuilder {
    /// Sets the provider's name. Default: `gardener`.
    pub fn provider_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.hub.name = name.into();
        self
    }

    /// Sets the client of the garden's API server (the virtual garden), where the Shoots are; or with
    /// [`topology`](Self::topology) that of a seed.
    pub fn client(mut self, client: Client) -> Self {
        self.hub.client = Some(client);
        self
    }

    /// Sets where the Shoots are found: in a garden, or in a seed. Default: in a garden.
    ///
    /// A seed has the Shoots whose control plane it runs, of all Projects. Names, properties and options are the same, but
    /// [`viewer`](Self::viewer) and [`valid_for`](Self::valid_for), which a seed does not have.
    ///
    /// ```no_run
    /// use mcr_provider_gardener::{GardenerProvider, Topology};
    ///
    /// # fn example(seed: kube::Client) -> Result<(), mcr_core::BoxError> {
    /// let clusters = GardenerProvider::builder().client(seed).topology(Topology::Seed).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn topology(mut self, topology: Topology) -> Self {
        self.topology = topology;
        self
    }

    /// Sets the namespace of the Shoots, which is that of one Project. Default: the default namespace of the client;
    /// in a seed all.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.hub.namespaces = Namespaces::One(namespace.into());
        self
    }

    /// Uses the Shoots of all Projects. Only an operator of the garden may list them.
    pub fn all_namespaces(mut self) -> Self {
        self.hub.namespaces = Namespaces::All;
        self
    }

    /// Selects Shoots by their labels, such as `region=eu,tier!=test`. The garden applies the selector and sends no other Shoots. A
    /// Shoot that does not match any more leaves the fleet.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.hub.labels = Some(selector.into());
        self
    }

    /// Selects Shoots of one of these Projects. Default: all.
    pub fn projects<P: Into<String>>(mut self, projects: impl IntoIterator<Item = P>) -> Self {
        self.selection.projects = projects.into_iter().map(Into::into).collect();
        self
    }

    /// Selects Shoots with one of these purposes, such as `production`. Default: all, also those without a purpose.
    pub fn purposes<P: Into<String>>(mut self, purposes: impl IntoIterator<Item = P>) -> Self {
        self.selection.purposes = purposes.into_iter().map(Into::into).collect();
        self
    }

    /// Selects Shoots whose control plane runs on one of these seeds. Default: all. A Shoot that moves to another seed leaves the
    /// fleet.
    pub fn seeds<S: Into<String>>(mut self, seeds: impl IntoIterator<Item = S>) -> Self {
        self.selection.seeds = seeds.into_iter().map(Into::into).collect();
        self
    }

    /// Selects Shoots with one of these cloud profiles, by name. Default: all.
    pub fn cloud_profiles<C: Into<String>>(mut self, profiles: impl IntoIterator<Item = C>) -> Self {
        self.selection.cloud_profiles = profiles.into_iter().map(Into::into).collect();
        self
    }

    /// Selects Shoots by a predicate. It is called at each change of a Shoot; one that it does not select any more leaves the fleet.
    pub fn select(mut self, select: impl Fn(&Shoot) -> bool + Send + Sync + 'static) -> Self {
        self.selection.select = Some(Closure::new(select));
        self
    }

    /// Keeps a cluster whose Shoot is being deleted, while the predicate is true. Default: such a cluster leaves at once.
    ///
    /// For controllers that release finalizers in the cluster before it goes. It is called at each change of a Shoot that has a
    /// `deletionTimestamp`.
    pub fn keep_while(mut self, keep: impl Fn(&Shoot) -> bool + Send + Sync + 'static) -> Self {
        self.selection.keep_while = Some(Closure::new(keep));
        self
    }

    /// Asks for kubeconfigs that only read, from the subresource `viewerkubeconfig`. Default: kubeconfigs of a cluster-admin, from
    /// `adminkubeconfig`.
    ///
    /// A viewer can't read Secrets.
    pub fn viewer(mut self) -> Self {
        self.rights = Rights::Viewer;
        self
    }

    /// Sets how long a kubeconfig shall be valid. Default: 1 hour. Gardener grants at least 10 minutes, and may grant less than asked.
    pub fn valid_for(mut self, life: Duration) -> Self {
        self.valid_for = Some(life);
        self
    }

    /// Sets how many kubeconfigs are asked for, or read in a seed, at once, and how many Projects are looked up at once. Default: 10.
    /// 0 counts as 1.
    pub fn requests_at_once(mut self, requests: usize) -> Self {
        self.at_once = requests;
        self
    }

    /// Sets what the kubeconfigs of this provider may use. Default: the policy of the fleet, `FleetSettings::access_policy`.
    ///
    /// The provider announces a kubeconfig that the policy forbids as broken. The fleet always checks its own policy before it
    /// connects, so this option can forbid more than the fleet does, but never allow more.
    pub fn access_policy(mut self, policy: AccessPolicy) -> Self {
        self.hub.access_policy = Some(policy);
        self
    }

    /// Times that tests shorten: those of the watch, how long the garden has to forbid it before this is logged as something
    /// that will not end by itself, how long a first and another request may take, and the first pause after one that failed. Not part of the
    /// API.
    #[doc(hidden)]
    pub fn times(
        mut self,
        watch: impl Into<Arc<WatchSettings>>,
        blocked_for: Duration,
        requests: (Duration, Duration),
        first_pause: Duration,
    ) -> Self {
        self.first_deadline = requests.0;
        self.hub.times = Times {
            watch: Some(watch.into()),
            blocked_for,
            deadline: requests.1,
            pauses: (first_pause, 8 * first_pause),
        };
        self
    }

    /// Builds the provider. Opens no connection yet.
    ///
    /// # Errors
    /// [`GardenerError`] if there is no client, if the namespace, the label selector or the life of the kubeconfigs is invalid, or
    /// if a seed does not have an option.
    pub fn build(self) -> Result<GardenerProvider, GardenerError> {
        let (mut options, mut selection) = (self.hub, self.selection);
        let in_seed = self.topology == Topology::Seed;
        if in_seed && options.namespaces == Namespaces::Default {
            options.namespaces = Namespaces::All;
        }
        let mut hub = options.check()?;
        if in_seed {
            if self.rights == Rights::Viewer {
                return Err(GardenerError::NotInSeed("viewer"));
            }
            if self.valid_for.is_some() {
                return Err(GardenerError::NotInSeed("valid_for"));
            }
            // The API server checks a selector, but this process applies this one.
            let parse = |labels: String| label_selector::parse(&labels).ok_or(OptionError::Labels(labels));
            selection.in_seed = InSeed {
                namespace: hub.namespaces.pop(),
                labels: hub.labels.take().map(parse).transpose()?,
            };
        }
        let valid_for = self.valid_for.unwrap_or(VALID_FOR);
        // Gardener takes seconds in 32 bits.
        if valid_for < SHORTEST || valid_for.as_secs() > u64::from(u32::MAX) {
            return Err(GardenerError::ValidFor(valid_for));
        }
        Ok(GardenerProvider(Arc::new(Config {
            hub,
            topology: self.topology,
            selection: Arc::new(selection),
            rights: self.rights,
            valid_for,
            at_once: self.at_once,
            first_deadline: self.first_deadline,
            memory: Arc::default(),
            projects: Mutex::default(),
            refusals: Arc::default(),
        })))
    }
}
