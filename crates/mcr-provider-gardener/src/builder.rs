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

/// Gardener issues no kubeconfig for a shorter time.
const SHORTEST: Duration = Duration::from_secs(600);
const VALID_FOR: Duration = Duration::from_secs(3600);

/// Builds a [`GardenerProvider`]. [`GardenerProvider::builder`] creates it.
///
/// The closures run in the task that watches the garden, so they must be quick and must not block. If a closure
/// panics, the panic is logged, and the cluster stays as it is until its Shoot changes.
#[must_use]
#[derive(Debug, Clone)]
pub struct GardenerProviderBuilder {
    hub: HubOptions,
    selection: Selection,
    topology: Topology,
    rights: Rights,
    valid_for: Option<Duration>,
    at_once: usize,
    /// How long the first request for a Shoot may take. It is short, so that a few requests without an answer delay no
    /// others.
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

    /// Sets the client of the garden's API server (the virtual garden), which has the Shoots. With
    /// [`topology`](Self::topology) it may be the client of a seed.
    pub fn client(mut self, client: Client) -> Self {
        self.hub.client = Some(client);
        self
    }

    /// Sets where the Shoots are found: in a garden, or in a seed. Default: in a garden.
    ///
    /// A seed has the Shoots of all Projects whose control planes it runs. Names, properties and options are the same,
    /// except for [`viewer`](Self::viewer) and [`valid_for`](Self::valid_for), which have no effect in a seed.
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

    /// Sets the namespace of the Shoots, which belongs to one Project. Default: the default namespace of the client;
    /// in a seed, all namespaces.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.hub.namespaces = Namespaces::One(namespace.into());
        self
    }

    /// Uses the Shoots of all Projects. Only an operator of the garden may list them.
    pub fn all_namespaces(mut self) -> Self {
        self.hub.namespaces = Namespaces::All;
        self
    }

    /// Selects Shoots by their labels, such as `region=eu,tier!=test`. The garden applies the selector, and sends no
    /// other Shoots. A Shoot that no longer matches leaves the fleet.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.hub.labels = Some(selector.into());
        self
    }

    /// Selects Shoots of one of these Projects. Default: all.
    pub fn projects<P: Into<String>>(mut self, projects: impl IntoIterator<Item = P>) -> Self {
        self.selection.projects = projects.into_iter().map(Into::into).collect();
        self
    }

    /// Selects Shoots with one of these purposes, such as `production`. Default: all, including those without a
    /// purpose.
    pub fn purposes<P: Into<String>>(mut self, purposes: impl IntoIterator<Item = P>) -> Self {
        self.selection.purposes = purposes.into_iter().map(Into::into).collect();
        self
    }

    /// Selects Shoots whose control planes run on one of these seeds. Default: all. A Shoot that moves to another seed
    /// leaves the fleet.
    pub fn seeds<S: Into<String>>(mut self, seeds: impl IntoIterator<Item = S>) -> Self {
        self.selection.seeds = seeds.into_iter().map(Into::into).collect();
        self
    }

    /// Selects Shoots with one of these cloud profiles, by name. Default: all.
    pub fn cloud_profiles<C: Into<String>>(mut self, profiles: impl IntoIterator<Item = C>) -> Self {
        self.selection.cloud_profiles = profiles.into_iter().map(Into::into).collect();
        self
    }

    /// Selects Shoots by a predicate, which is called at each change of a Shoot. A Shoot that is no longer selected
    /// leaves the fleet.
    pub fn select(mut self, select: impl Fn(&Shoot) -> bool + Send + Sync + 'static) -> Self {
        self.selection.select = Some(Closure::new(select));
        self
    }

    /// Keeps the cluster of a Shoot that is being deleted while the predicate is true. Default: such a cluster leaves
    /// at once.
    ///
    /// Use this if controllers must release finalizers in the cluster before it disappears. The predicate is called at
    /// each change of a Shoot that has a `deletionTimestamp`.
    pub fn keep_while(mut self, keep: impl Fn(&Shoot) -> bool + Send + Sync + 'static) -> Self {
        self.selection.keep_while = Some(Closure::new(keep));
        self
    }

    /// Requests read-only kubeconfigs, from the subresource `viewerkubeconfig`. Default: kubeconfigs of a
    /// cluster-admin, from `adminkubeconfig`.
    ///
    /// A viewer can't read Secrets.
    pub fn viewer(mut self) -> Self {
        self.rights = Rights::Viewer;
        self
    }

    /// Sets how long a kubeconfig shall be valid. Default: 1 hour. Gardener grants at least 10 minutes, and may grant
    /// less than requested.
    pub fn valid_for(mut self, life: Duration) -> Self {
        self.valid_for = Some(life);
        self
    }

    /// Sets how many kubeconfigs are requested at once (in a seed: read), and how many Projects are looked up at once.
    /// Default: 10. 0 counts as 1.
    pub fn requests_at_once(mut self, requests: usize) -> Self {
        self.at_once = requests;
        self
    }

    /// Sets what the kubeconfigs of this provider may use. Default: the policy of the fleet,
    /// `FleetSettings::access_policy`.
    ///
    /// The provider announces a kubeconfig that the policy forbids as broken. The fleet checks its own policy in any
    /// case before it connects. So this option can only forbid more than the fleet does.
    pub fn access_policy(mut self, policy: AccessPolicy) -> Self {
        self.hub.access_policy = Some(policy);
        self
    }

    /// Times that tests shorten: those of the watch; how long the garden may forbid the watch before that is logged as
    /// permanent; how long a first and a further request may take; and the first pause after a failed request. Not
    /// part of the API.
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
    /// [`GardenerError`] if there is no client, if the namespace, the label selector or the life of the kubeconfigs is
    /// invalid, or if a seed does not have an option.
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
            // In a garden, the API server checks the selector. In a seed, this process applies it.
            let parse = |labels: String| label_selector::parse(&labels).ok_or(OptionError::Labels(labels));
            selection.in_seed = InSeed {
                namespace: hub.namespaces.pop(),
                labels: hub.labels.take().map(parse).transpose()?,
            };
        }
        let valid_for = self.valid_for.unwrap_or(VALID_FOR);
        // Gardener stores seconds in 32 bits.
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
