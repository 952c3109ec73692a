//! Selectors of clusters.

use std::{collections::BTreeSet, fmt, sync::Arc};

use kube::core::{Selector, SelectorExt};
use mcr_core::{Cluster, HUB};

/// Selects clusters by provider, name, labels, properties, or a function.
///
/// A controller evaluates its selector again when the labels, properties or the state of a cluster change, or the outcome of a
/// [check](mcr_core::ReadyCheck). A cluster that matches now
/// joins the controller; a cluster that no longer matches leaves it.
///
/// The default selects every cluster except the one named `hub` ([`mcr_core::HUB`]).
///
/// ```
/// use mcr::ClusterSelector;
///
/// let europe = ClusterSelector::label("env", "prod").and(ClusterSelector::label_in("region", ["eu-1", "eu-2"]));
/// assert_eq!(europe.to_string(), "(env=prod and region in (eu-1, eu-2))");
/// assert_eq!(ClusterSelector::default().to_string(), "not name=hub");
/// ```
#[derive(Clone)]
pub struct ClusterSelector(Arc<Node>);

/// The well-known property of KEP-2149: the ClusterSet that a cluster is a member of.
const CLUSTER_SET: &str = "clusterset.k8s.io";

enum Node {
    All,
    Provider(Arc<str>),
    Names(BTreeSet<Arc<str>>),
    Label(Arc<str>, Arc<str>),
    LabelIn(Arc<str>, BTreeSet<Arc<str>>),
    HasLabel(Arc<str>),
    Labels(Selector),
    Property(Arc<str>, Arc<str>),
    Ready(Arc<str>),
    Matching(Arc<dyn Fn(&Cluster) -> bool + Send + Sync>),
    And(ClusterSelector, ClusterSelector),
    Or(ClusterSelector, ClusterSelector),
    Not(ClusterSelector),
}

impl ClusterSelector {
    fn node(node: Node) -> Self {
        Self(Arc::new(node))
    }

    /// Selects every cluster, including the hub.
    pub fn all() -> Self {
        Self::node(Node::All)
    }

    /// Selects only the cluster named `hub`.
    ///
    /// A watch of a controller with this selector [gates all requests](crate::WatchOptions::gates_all) of the controller
    /// until it has listed for the first time.
    pub fn hub() -> Self {
        Self::name(HUB)
    }

    /// Selects the clusters that a provider of this name announces.
    pub fn provider(name: impl Into<Arc<str>>) -> Self {
        Self::node(Node::Provider(name.into()))
    }

    /// Selects the cluster of this name.
    pub fn name(name: impl Into<Arc<str>>) -> Self {
        Self::names([name])
    }

    /// Selects the clusters of these names.
    pub fn names<N: Into<Arc<str>>>(names: impl IntoIterator<Item = N>) -> Self {
        Self::node(Node::Names(names.into_iter().map(Into::into).collect()))
    }

    /// Selects the clusters that have this label with this value.
    pub fn label(key: impl Into<Arc<str>>, value: impl Into<Arc<str>>) -> Self {
        Self::node(Node::Label(key.into(), value.into()))
    }

    /// Selects the clusters that have this label with one of these values.
    pub fn label_in<V: Into<Arc<str>>>(
        key: impl Into<Arc<str>>,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        Self::node(Node::LabelIn(
            key.into(),
            values.into_iter().map(Into::into).collect(),
        ))
    }

    /// Selects the clusters that have this label, with any value.
    pub fn has_label(key: impl Into<Arc<str>>) -> Self {
        Self::node(Node::HasLabel(key.into()))
    }

    /// Selects the clusters whose labels match a Kubernetes label selector.
    pub fn labels(selector: impl Into<Selector>) -> Self {
        Self::node(Node::Labels(selector.into()))
    }

    /// Selects the clusters that have this [property](mcr_core::ClusterSpec::properties) with this value.
    ///
    /// ```
    /// use mcr::ClusterSelector;
    ///
    /// let staging = ClusterSelector::property("context", "staging");
    /// assert_eq!(staging.to_string(), "property context=staging");
    /// ```
    pub fn property(key: impl Into<Arc<str>>, value: impl Into<Arc<str>>) -> Self {
        Self::node(Node::Property(key.into(), value.into()))
    }

    /// Selects the clusters of a ClusterSet: those with the property `clusterset.k8s.io`, which KEP-2149 defines, of this
    /// value. The provider of the clusters has to announce the property.
    ///
    /// ```
    /// use mcr::ClusterSelector;
    ///
    /// let shop = ClusterSelector::cluster_set("shop");
    /// assert_eq!(shop.to_string(), "property clusterset.k8s.io=shop");
    /// ```
    pub fn cluster_set(name: impl Into<Arc<str>>) -> Self {
        Self::property(CLUSTER_SET, name)
    }

    /// Selects the clusters that pass the [check](mcr_core::ReadyCheck) of this name, and none if the fleet has no such check.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Secret;
    /// use mcr::{ClusterSelector, Controller, Manager, ReadyCheck};
    ///
    /// let manager = Manager::builder()
    ///     .ready_check("cert-manager", ReadyCheck::crds_established(["certificates.cert-manager.io"]));
    /// let controller = Controller::<Secret>::new("certificates").clusters(ClusterSelector::ready("cert-manager"));
    /// # let _ = (manager, controller);
    /// ```
    pub fn ready(check: impl Into<Arc<str>>) -> Self {
        Self::node(Node::Ready(check.into()))
    }

    /// Selects the clusters for which a function returns `true`.
    ///
    /// The function runs in a task of the controller and must return quickly. A panic in it counts as `false`. If it depends
    /// on anything but the labels, properties and state of the cluster, a change of that does not evaluate it again.
    ///
    /// Its result is never a reason for [`Controller::on_deselected`](crate::Controller::on_deselected) to delete: what it reads may
    /// not be known yet.
    pub fn matching(predicate: impl Fn(&Cluster) -> bool + Send + Sync + 'static) -> Self {
        Self::node(Node::Matching(Arc::new(predicate)))
    }

    /// Selects the clusters that both selectors select.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::node(Node::And(self, other))
    }

    /// Selects the clusters that at least one of the two selectors selects.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self::node(Node::Or(self, other))
    }

    /// Whether the selector selects this cluster now.
    ///
    /// # Panics
    /// If a function of [`matching`](Self::matching) panics.
    pub fn matches(&self, cluster: &Cluster) -> bool {
        let has = |found: Option<String>, value: &str| found.is_some_and(|found| found == value);
        match &*self.0 {
            Node::All => true,
            Node::Provider(name) => cluster.provider() == &**name,
            Node::Names(names) => names.contains(cluster.name().as_str()),
            Node::Label(key, value) => has(cluster.label(key), value),
            Node::LabelIn(key, values) => cluster
                .label(key)
                .is_some_and(|found| values.contains(found.as_str())),
            Node::HasLabel(key) => cluster.label(key).is_some(),
            Node::Labels(selector) => selector.matches(&cluster.labels()),
            Node::Property(key, value) => has(cluster.property(key), value),
            Node::Ready(check) => cluster.passes(check),
            Node::Matching(predicate) => predicate(cluster),
            Node::And(a, b) => a.matches(cluster) && b.matches(cluster),
            Node::Or(a, b) => a.matches(cluster) || b.matches(cluster),
            Node::Not(inner) => !inner.matches(cluster),
        }
    }

    /// Whether the selector can't select this cluster, however its checks and functions end, and whatever values the properties get
    /// that it has not: some providers announce properties later than the cluster. Calls no function.
    pub(crate) fn excludes(&self, cluster: &Cluster) -> bool {
        let known = |leaf: &Self| match &*leaf.0 {
            Node::Ready(_) | Node::Matching(_) => None,
            Node::Property(key, _) if cluster.property(key).is_none() => None,
            _ => Some(leaf.matches(cluster)),
        };
        self.certain(&known) == Some(false)
    }

    /// Whether the selector selects, if that follows from what is known of its parts.
    fn certain(&self, known: &impl Fn(&Self) -> Option<bool>) -> Option<bool> {
        let either = |a: &Self, b: &Self, decides| match a.certain(known) {
            a if a == Some(decides) => a,
            a => match b.certain(known) {
                b if b == Some(decides) => b,
                b => a.and(b),
            },
        };
        match &*self.0 {
            Node::And(a, b) => either(a, b, false),
            Node::Or(a, b) => either(a, b, true),
            Node::Not(inner) => inner.certain(known).map(|selects| !selects),
            _ => known(self),
        }
    }

    /// The name of the only cluster that the selector can select, if it is [`name`](Self::name) or [`hub`](Self::hub).
    pub(crate) fn only_name(&self) -> Option<&Arc<str>> {
        match &*self.0 {
            Node::Names(names) if names.len() == 1 => names.first(),
            _ => None,
        }
    }
}

impl std::ops::Not for ClusterSelector {
    type Output = Self;

    /// Selects the clusters that the selector does not select.
    fn not(self) -> Self {
        Self::node(Node::Not(self))
    }
}

impl Default for ClusterSelector {
    fn default() -> Self {
        !Self::hub()
    }
}

impl fmt::Display for ClusterSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |values: &BTreeSet<Arc<str>>| values.iter().map(|v| &**v).collect::<Vec<_>>().join(", ");
        match &*self.0 {
            Node::All => f.write_str("all"),
            Node::Provider(name) => write!(f, "provider={name}"),
            Node::Names(names) if names.len() == 1 => write!(f, "name={}", list(names)),
            Node::Names(names) => write!(f, "name in ({})", list(names)),
            Node::Label(key, value) => write!(f, "{key}={value}"),
            Node::LabelIn(key, values) => write!(f, "{key} in ({})", list(values)),
            Node::HasLabel(key) => f.write_str(key),
            Node::Labels(selector) => write!(f, "{selector}"),
            Node::Property(key, value) => write!(f, "property {key}={value}"),
            Node::Ready(check) => write!(f, "ready {check}"),
            Node::Matching(_) => f.write_str("a function"),
            Node::And(a, b) => write!(f, "({a} and {b})"),
            Node::Or(a, b) => write!(f, "({a} or {b})"),
            Node::Not(inner) => write!(f, "not {inner}"),
        }
    }
}

impl fmt::Debug for ClusterSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterSelector({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_excluded_only_by_what_is_known() {
        let [yes, no, open] = ["yes", "no", "open"].map(ClusterSelector::ready);
        let known = |leaf: &ClusterSelector| match leaf.to_string().as_str() {
            "ready open" => None,
            text => Some(text == "ready yes"),
        };
        let of = |selector: ClusterSelector| selector.certain(&known);
        let both = |a: &ClusterSelector, b: &ClusterSelector| {
            [a.clone().and(b.clone()), a.clone().or(b.clone())].map(of)
        };
        assert_eq!(both(&open, &no), [Some(false), None]);
        assert_eq!(both(&no, &open), [Some(false), None]);
        assert_eq!(both(&yes, &open), [None, Some(true)]);
        assert_eq!(both(&yes, &no), [Some(false), Some(true)]);
        assert_eq!([of(!open), of(!yes), of(!no)], [None, Some(false), Some(true)]);
    }
}
