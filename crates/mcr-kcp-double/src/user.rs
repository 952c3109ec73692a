use std::collections::HashMap;
use std::sync::Arc;

use mcr_testkit::sim::SimError;
use mcr_testkit::sim::SimRule;
use mcr_testkit::sim::auth::{Attributes, SimUser};

/// A user of the double, with rules for each workspace.
///
/// ```
/// use mcr_kcp_double::{Kcp, KcpUser};
///
/// # fn main() -> Result<(), mcr_testkit::sim::SimError> {
/// let kcp = Kcp::new();
/// let provider = kcp.create_workspace("root:provider")?;
/// kcp.set_user("a-token", KcpUser::new("reader").provider(provider.id(), "widgets"));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct KcpUser {
    pub(super) name: String,
    groups: Vec<String>,
    rules: HashMap<Arc<str>, Vec<SimRule>>,
}

/// The group of the user who may do everything in every workspace.
pub(super) const ADMINS: &str = "system:kcp:admin";

impl KcpUser {
    /// A user without rights.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            groups: Vec::new(),
            rules: HashMap::new(),
        }
    }

    /// Adds a group. Members of `system:kcp:admin` may do everything in every workspace.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.groups.push(group.into());
        self
    }

    /// Adds a rule in the workspace of this id.
    #[must_use]
    pub fn rule(mut self, workspace: &str, rule: SimRule) -> Self {
        self.rules.entry(workspace.into()).or_default().push(rule);
        self
    }

    /// Adds the minimal rights of the provider of an export: to read endpoint slices, and all rights on the contents
    /// of the export. `workspace` is the id of the workspace that contains the slices and the export.
    #[must_use]
    pub fn provider(self, workspace: &str, export: &str) -> Self {
        let reads = ["get", "list", "watch"];
        let slices = SimRule::new(["apis.kcp.io"], ["apiexportendpointslices"], reads);
        let content = SimRule::new(["apis.kcp.io"], ["apiexports/content"], ["*"]).names([export]);
        self.rule(workspace, slices).rule(workspace, content)
    }

    fn has_group(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// The user within one logical cluster.
    pub(super) fn within(&self, cluster: &str) -> SimUser {
        let mut user = SimUser::new(self.name.clone());
        user.groups.clone_from(&self.groups);
        if self.has_group(ADMINS) {
            return user.rule(SimRule::all());
        }
        user.rules = self.rules.get(cluster).cloned().unwrap_or_default();
        user
    }

    /// Fails with 403 if the user has no access to the workspace at all.
    pub(super) fn may_enter(&self, cluster: &str) -> Result<(), SimError> {
        if self.has_group(ADMINS) || self.rules.contains_key(cluster) {
            return Ok(());
        }
        let message = format!(
            "workspace access not permitted: user {:?} has no rule in {cluster}: access denied",
            self.name
        );
        Err(SimError::new(403, "Forbidden", message))
    }

    /// Fails with 403 if the user lacks the right to this verb on the contents of the export.
    pub(super) fn may_use(&self, export_cluster: &str, export: &str, verb: &str) -> Result<(), SimError> {
        let wanted = Attributes {
            verb,
            group: "apis.kcp.io",
            resource: "apiexports",
            subresource: "content",
            name: export,
            ..Attributes::default()
        };
        self.may_in(export_cluster, &wanted)
    }

    /// Fails with 403 if the user lacks a right in a logical cluster.
    pub(super) fn may_in(&self, cluster: &str, wanted: &Attributes<'_>) -> Result<(), SimError> {
        let user = self.within(cluster);
        if user.may(wanted) {
            return Ok(());
        }
        Err(wanted.forbidden(&user))
    }
}
