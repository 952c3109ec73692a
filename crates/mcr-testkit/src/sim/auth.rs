use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::error::SimError;

/// A rule of a user's rights: some verbs on some resources, as in RBAC. `*` stands for all.
///
/// ```
/// # #[cfg(feature = "sim")] {
/// use mcr_testkit::sim::SimRule;
///
/// let rule = SimRule::new([""], ["configmaps", "pods/status"], ["get", "list", "watch"]).in_namespace("apps");
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimRule {
    groups: Vec<String>,
    resources: Vec<String>,
    verbs: Vec<String>,
    names: Vec<String>,
    namespace: Option<String>,
    paths: Vec<String>,
}

fn strings<T: Into<String>>(values: impl IntoIterator<Item = T>) -> Vec<String> {
    values.into_iter().map(Into::into).collect()
}

impl SimRule {
    /// These verbs on these resources of these API groups (`""` is the core group), everywhere.
    pub fn new<G, R, V>(
        groups: impl IntoIterator<Item = G>,
        resources: impl IntoIterator<Item = R>,
        verbs: impl IntoIterator<Item = V>,
    ) -> Self
    where
        G: Into<String>,
        R: Into<String>,
        V: Into<String>,
    {
        Self {
            groups: strings(groups),
            resources: strings(resources),
            verbs: strings(verbs),
            ..Self::default()
        }
    }

    /// Everything.
    pub fn all() -> Self {
        Self {
            paths: vec!["*".to_owned()],
            ..Self::new(["*"], ["*"], ["*"])
        }
    }

    /// The rules of a Role or ClusterRole in YAML.
    ///
    /// # Errors
    ///
    /// If the text is not a role.
    pub fn of_role(role: &str) -> Result<Vec<Self>, String> {
        let role: Value = serde_saphyr::from_str(role).map_err(|error| error.to_string())?;
        let rules = role["rules"].as_array().ok_or("it has no rules")?;
        Ok(rules.iter().map(Self::of_rule).collect())
    }

    #[doc(hidden)]
    pub fn of_rule(rule: &Value) -> Self {
        let texts = |of: &str| {
            strings(
                rule[of]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str),
            )
        };
        Self {
            groups: texts("apiGroups"),
            resources: texts("resources"),
            verbs: texts("verbs"),
            names: texts("resourceNames"),
            namespace: None,
            paths: texts("nonResourceURLs"),
        }
    }

    /// Limits the rule to this namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Limits the rule to objects with these names.
    #[must_use]
    pub fn names<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.names = strings(names);
        self
    }

    fn allows(&self, request: &Attributes<'_>) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|word| word == "*" || word == wanted);
        if !has(&self.verbs, request.verb) {
            return false;
        }
        if let Some(path) = request.path {
            return self.paths.iter().any(|pattern| match pattern.strip_suffix('*') {
                Some(prefix) => path.starts_with(prefix),
                None => pattern == path,
            });
        }
        let full = match request.subresource {
            "" => request.resource.to_owned(),
            subresource => format!("{}/{subresource}", request.resource),
        };
        let any_sub = format!("*/{}", request.subresource);
        has(&self.groups, request.group)
            && (has(&self.resources, &full) || self.resources.contains(&any_sub))
            && (self.names.is_empty() || self.names.iter().any(|name| name == request.name))
            && self
                .namespace
                .as_deref()
                .is_none_or(|namespace| namespace == request.namespace)
    }
}

/// A user of a simulated cluster, with its groups and rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimUser {
    pub(super) name: String,
    #[doc(hidden)]
    pub groups: Vec<String>,
    #[doc(hidden)]
    pub rules: Vec<SimRule>,
}

impl SimUser {
    /// A user without rules, who may only use discovery and reviews of itself.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            groups: Vec::new(),
            rules: Vec::new(),
        }
    }

    /// Adds a group. Members of `system:masters` may do everything.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.groups.push(group.into());
        self
    }

    /// Adds a rule.
    #[must_use]
    pub fn rule(mut self, rule: SimRule) -> Self {
        self.rules.push(rule);
        self
    }

    /// The user's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn anonymous() -> Self {
        Self::new("system:anonymous").group("system:unauthenticated")
    }

    fn is_anonymous(&self) -> bool {
        self.name == "system:anonymous"
    }

    /// All groups, including `system:authenticated`.
    pub(super) fn all_groups(&self) -> Vec<String> {
        let mut groups = self.groups.clone();
        let authenticated = "system:authenticated";
        if !self.is_anonymous() && !groups.iter().any(|group| group == authenticated) {
            groups.push(authenticated.to_owned());
        }
        groups
    }

    #[doc(hidden)]
    pub fn may(&self, request: &Attributes<'_>) -> bool {
        if self.groups.iter().any(|group| group == "system:masters") {
            return true;
        }
        if let Some(path) = request.path {
            let public = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
            let discovery = ["/api", "/apis", "/openapi"];
            let below = |base: &&str| {
                path.strip_prefix(*base)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            if request.verb == "get"
                && (public.contains(&path) || (!self.is_anonymous() && discovery.iter().any(below)))
            {
                return true;
            }
        }
        let about_itself = [
            "selfsubjectreviews",
            "selfsubjectaccessreviews",
            "selfsubjectrulesreviews",
        ];
        if request.verb == "create" && about_itself.contains(&request.resource) && !self.is_anonymous() {
            return true;
        }
        self.rules.iter().any(|rule| rule.allows(request))
    }
}

/// The attributes of a request for its authorisation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attributes<'a> {
    pub verb: &'a str,
    pub group: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    /// The path of a non-resource request.
    pub path: Option<&'a str>,
}

impl Attributes<'_> {
    pub fn forbidden(&self, user: &SimUser) -> SimError {
        let user = &user.name;
        let verb = self.verb;
        if let Some(path) = self.path {
            let message = format!("forbidden: User \"{user}\" cannot {verb} path \"{path}\"");
            return SimError::new(403, "Forbidden", message).with(serde_json::json!({}));
        }
        let qualified = match self.group {
            "" => self.resource.to_owned(),
            group => format!("{}.{group}", self.resource),
        };
        let object = match self.name {
            "" => qualified,
            name => format!("{qualified} \"{name}\""),
        };
        let resource = match self.subresource {
            "" => self.resource.to_owned(),
            subresource => format!("{}/{subresource}", self.resource),
        };
        let place = match self.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace \"{namespace}\""),
        };
        let group = self.group;
        let message = format!(
            "{object} is forbidden: User \"{user}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {place}"
        );
        let mut details = serde_json::json!({ "kind": self.resource });
        if !group.is_empty() {
            details["group"] = group.into();
        }
        if !self.name.is_empty() {
            details["name"] = self.name.into();
        }
        SimError::new(403, "Forbidden", message).with(details)
    }
}

/// The users of a cluster, by their credentials.
#[derive(Clone, Debug, Default)]
pub struct Users {
    pub tokens: HashMap<String, Arc<SimUser>>,
    /// By the certificate, in DER. Contains only certificates of `SimTls::client_certificate`.
    pub certificates: HashMap<Vec<u8>, Arc<SimUser>>,
}

impl Users {
    pub fn token_of(&self, name: &str) -> Option<String> {
        let found = self.tokens.iter().find(|(_, user)| user.name == name);
        found.map(|(token, _)| token.clone())
    }

    pub fn authenticate(
        &self,
        authorization: Option<&str>,
        certificate: Option<&[u8]>,
    ) -> Result<Arc<SimUser>, SimError> {
        if let Some(user) = certificate.and_then(|der| self.certificates.get(der)) {
            return Ok(user.clone());
        }
        let token = authorization
            .and_then(|header| header.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim());
        match token {
            Some(token) => self.tokens.get(token).cloned().ok_or_else(SimError::unauthorized),
            None if certificate.is_some() => Err(SimError::unauthorized()),
            None => Ok(Arc::new(SimUser::anonymous())),
        }
    }
}
