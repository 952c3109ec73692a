//! The description of a cluster by an object of a hub, in little memory.

use std::{collections::BTreeMap, fmt, sync::Arc};

use kube::Resource;
use serde::de::DeserializeOwned;

use crate::{access::Access, spec::ClusterSpec};
use mcr_access::ClusterName;
use mcr_store::Object;

/// Names and values, such as labels. A map would take at least 544 bytes.
pub type Pairs = Box<[(Box<str>, Box<str>)]>;

/// The facts that a provider keeps of an object.
pub trait Described {
    /// The description of the cluster.
    fn description(&self) -> &Description;

    /// The spec of the cluster. Default: that of the [description](Self::description). What another implementation adds must not
    /// change while the object is in the [`Inventory`](super::Inventory).
    fn spec(&self, name: ClusterName, access: Access) -> ClusterSpec {
        self.description().spec(name, access)
    }
}

/// The facts of an object, or why the object can't be decoded.
pub type Decoded<F> = Result<Arc<F>, Arc<str>>;

/// The description of a cluster by an object, but for the way to reach it. Providers embed it in the facts that they keep of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Description {
    /// The declared identity of the cluster: usually the UID of the object. None if there is none.
    pub uid: Option<Arc<str>>,
    /// The labels of the cluster.
    pub labels: Pairs,
    /// The properties of the cluster.
    pub properties: Pairs,
}

impl Description {
    /// The UID and the labels of an object. Without properties.
    pub fn of<K: Resource>(object: &K) -> Self {
        let metadata = object.meta();
        let uid = metadata.uid.as_deref().filter(|uid| !uid.is_empty());
        Self {
            uid: uid.map(Arc::from),
            labels: pairs(metadata.labels.iter().flatten()),
            properties: Pairs::default(),
        }
    }

    /// Sets the properties. Leaves out those without a value.
    #[must_use]
    pub fn with_properties<'a>(
        mut self,
        properties: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
    ) -> Self {
        let has_value = |(name, value): (&'a str, Option<&'a str>)| {
            Some((name, value.filter(|value| !value.is_empty())?))
        };
        self.properties = pairs(properties.into_iter().filter_map(has_value));
        self
    }

    /// The spec of the cluster.
    pub fn spec(&self, name: ClusterName, access: Access) -> ClusterSpec {
        let mut spec = ClusterSpec::new(name, access);
        spec.identity.clone_from(&self.uid);
        spec.labels = map(&self.labels);
        spec.properties = map(&self.properties);
        spec
    }
}

/// Collects names and values.
pub fn pairs<N: AsRef<str>, V: AsRef<str>>(of: impl IntoIterator<Item = (N, V)>) -> Pairs {
    of.into_iter()
        .map(|(name, value)| (name.as_ref().into(), value.as_ref().into()))
        .collect()
}

fn map(pairs: &Pairs) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(name, value)| (String::from(&**name), String::from(&**value)))
        .collect()
}

/// Projects an object of a [`HubWatch`](crate::HubWatch) to its facts. `facts` returns None for an object that is not selected.
pub fn decoded<K: DeserializeOwned, F>(
    object: &Object,
    facts: impl FnOnce(K) -> Option<F>,
) -> Option<Decoded<F>> {
    match object.decode() {
        Ok(typed) => facts(typed).map(|facts| Ok(Arc::new(facts))),
        Err(error) => Some(Err(error.to_string().into())),
    }
}

/// A closure that a user of a provider sets, on objects of the kind `K`: by default a predicate.
pub struct Closure<K, R = bool>(Arc<dyn Fn(&K) -> R + Send + Sync>);

impl<K, R> Closure<K, R> {
    /// Wraps a closure.
    pub fn new(closure: impl Fn(&K) -> R + Send + Sync + 'static) -> Self {
        Self(Arc::new(closure))
    }

    /// Calls the closure.
    pub fn call(&self, object: &K) -> R {
        (self.0)(object)
    }
}

impl<K, R> Clone for Closure<K, R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K, R> fmt::Debug for Closure<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closure")
    }
}

/// Whether a list of wanted values, of which an empty one stands for all, has this value.
pub fn is_wanted(wanted: &[String], value: Option<&str>) -> bool {
    wanted.is_empty() || value.is_some_and(|value| wanted.iter().any(|wanted| wanted == value))
}

/// What a provider selects beside the selectors of its watch, for people: `, with infrastructure A or B, chosen by a predicate`.
/// Empty lists are left out.
pub fn selection_in_words(lists: &[(&str, &[String])], by_predicate: bool) -> String {
    let mut words = String::new();
    for (what, wanted) in lists.iter().filter(|(_, wanted)| !wanted.is_empty()) {
        words.push_str(&format!(", {what} {}", wanted.join(" or ")));
    }
    if by_predicate {
        words.push_str(", chosen by `select`");
    }
    words
}
