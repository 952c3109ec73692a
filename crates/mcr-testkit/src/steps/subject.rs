//! The interface that the author of a provider implements.

use std::{cell::RefCell, collections::BTreeSet, sync::Arc};

use mcr_core::Provider;
use serde_json::Value;

use crate::{sim::SimCluster, suite::fail};

/// A provider under test, and what it needs in its hub.
pub trait HubProvider: Sized + 'static {
    /// The manifest of the provider's rights: Roles and ClusterRoles in YAML.
    fn roles() -> &'static str;

    /// Makes the state that a scenario starts with.
    fn start() -> Self;

    /// The provider with these options and this client of the hub.
    fn provider(&self, client: kube::Client, options: &Options) -> Arc<dyn Provider>;

    /// Runs an action that only this provider has.
    fn act(&self, hub: &SimCluster, action: &str, value: &Value) {
        let _ = (hub, value);
        fail(format!("there is no action {action}"))
    }

    /// The current value of a counter that only this provider has.
    fn count(&self, what: &str) -> Option<usize> {
        let _ = what;
        None
    }
}

/// The options of a provider in a step. An option that the provider does not read fails the test.
#[derive(Debug)]
pub struct Options {
    given: Value,
    asked: RefCell<BTreeSet<String>>,
}

impl Options {
    pub(super) fn of(given: &Value) -> Self {
        Self {
            given: given.clone(),
            asked: RefCell::default(),
        }
    }

    fn get(&self, name: &str) -> &Value {
        self.asked.borrow_mut().insert(name.to_owned());
        &self.given[name]
    }

    /// Whether an option is set.
    pub fn has(&self, name: &str) -> bool {
        !self.get(name).is_null()
    }

    /// The text of an option.
    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name).as_str().map(str::to_owned)
    }

    /// The texts of an option. Empty if the option is not set.
    pub fn texts(&self, name: &str) -> Vec<String> {
        let texts = self.get(name).as_array().into_iter().flatten();
        texts.filter_map(|text| Some(text.as_str()?.to_owned())).collect()
    }

    pub(super) fn must_be_used(&self) {
        let asked = self.asked.borrow();
        let mut given = self.given.as_object().into_iter().flatten();
        if let Some((name, _)) = given.find(|(name, _)| !asked.contains(*name)) {
            fail(format!("the provider has no option {name}"));
        }
    }
}
