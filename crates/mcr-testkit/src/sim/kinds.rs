use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};

use super::builtin::ROWS;
use super::schema::Schema;

type Text = Cow<'static, str>;

/// One version of a resource. All clusters of the process share the built-in kinds. A cluster and
/// its copies share the kinds of a CRD that was there at the time of the copy.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) group: Text,
    pub(crate) version: Text,
    pub(crate) plural: Text,
    pub(crate) singular: Text,
    pub(crate) kind: Text,
    pub(crate) list_kind: Text,
    pub(crate) short_names: Vec<Text>,
    pub(crate) categories: Vec<Text>,
    pub(crate) namespaced: bool,
    pub(crate) has_status: bool,
    pub(crate) has_generation: bool,
    pub(crate) has_scale: bool,
    pub(crate) create_on_update: bool,
    pub(crate) update_needs_version: bool,
    pub(crate) delete_answers_object: bool,
    pub(crate) create_only: bool,
    pub(crate) has_collection_delete: bool,
    /// As messages name it, `widgets.example.com`.
    pub(crate) resource: Arc<str>,
    /// The name of the table of its objects, which all versions of the resource share. It is the resource's name,
    /// unless one server has different resources of the same name.
    pub(crate) table: Arc<str>,
    pub(crate) custom: Option<Custom>,
}

/// The properties of resources of a CRD.
#[derive(Debug)]
pub(crate) struct Custom {
    pub(crate) schema: Option<Schema>,
    /// Name, type and JSON path of the columns of its table form.
    pub(crate) columns: Vec<(String, String, String, i64)>,
    pub(crate) selectable: Vec<String>,
    pub(crate) storage: bool,
    /// For a version whose fields are not those of the stored version.
    pub(crate) conversion: Option<Conversion>,
}

/// Converts objects between a version and the stored version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conversion {
    pub(crate) to_stored: fn(&mut Value),
    pub(crate) from_stored: fn(&mut Value),
}

impl Kind {
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `widgets.example.com "w"`, as messages name it.
    pub(crate) fn quoted(&self, name: &str) -> String {
        format!("{} \"{name}\"", self.resource)
    }

    pub(crate) fn details(&self, name: &str) -> Value {
        let mut details = json!({ "name": name, "kind": self.plural });
        if !self.group.is_empty() {
            details["group"] = (*self.group).into();
        }
        details
    }

    /// In the order in which discovery lists them.
    pub(crate) fn verbs(&self) -> Vec<&'static str> {
        if self.create_only {
            return vec!["create"];
        }
        if self.custom.is_some() {
            return vec![
                "delete",
                "deletecollection",
                "get",
                "list",
                "patch",
                "create",
                "update",
                "watch",
            ];
        }
        let mut verbs = vec!["create", "delete"];
        if self.has_collection_delete {
            verbs.push("deletecollection");
        }
        verbs.extend(["get", "list", "patch", "update", "watch"]);
        verbs
    }

    /// As the conflicts of deletions name it.
    pub(crate) fn kind_in_conflicts(&self) -> String {
        if self.group.is_empty() {
            self.kind.to_string()
        } else {
            format!("{}.{}", self.kind, self.group)
        }
    }

    pub(crate) fn is_converted(&self) -> bool {
        self.conversion().is_some()
    }

    pub(crate) fn to_stored(&self, object: &mut Value) {
        if let Some(conversion) = self.conversion() {
            (conversion.to_stored)(object);
        }
    }

    pub(crate) fn to_served(&self, object: &mut Value) {
        if let Some(conversion) = self.conversion() {
            (conversion.from_stored)(object);
        }
    }

    fn conversion(&self) -> Option<Conversion> {
        self.custom.as_ref().and_then(|custom| custom.conversion)
    }

    pub(crate) fn is_namespaces(&self) -> bool {
        self.group.is_empty() && self.plural == "namespaces"
    }

    pub(crate) fn is_crds(&self) -> bool {
        &*self.resource == CRDS
    }
}

pub(crate) const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";
pub(crate) const NAMESPACES: &str = "namespaces";

pub(crate) type Versions = BTreeMap<(Text, Text), Vec<Arc<Kind>>>;

/// The built-in kinds, made once.
pub(crate) fn builtins() -> &'static Versions {
    static BUILTINS: OnceLock<Versions> = OnceLock::new();
    BUILTINS.get_or_init(|| {
        let mut versions = Versions::new();
        for row in ROWS {
            let has = |flag: char| row.flags.contains(flag);
            let words =
                |list: &'static str| list.split(',').filter(|word| !word.is_empty()).map(Cow::Borrowed);
            let kind = Kind {
                group: row.group.into(),
                version: row.version.into(),
                plural: row.plural.into(),
                singular: row.singular.into(),
                kind: row.kind.into(),
                list_kind: format!("{}List", row.kind).into(),
                short_names: words(row.short).collect(),
                categories: words(row.category).collect(),
                namespaced: has('N'),
                has_status: has('S'),
                has_generation: has('G'),
                has_scale: has('C'),
                create_on_update: has('U'),
                update_needs_version: has('V'),
                delete_answers_object: has('R'),
                create_only: has('-'),
                has_collection_delete: !has('X'),
                resource: resource_id(row.group, row.plural),
                table: resource_id(row.group, row.plural),
                custom: None,
            };
            let at = (Cow::Borrowed(row.group), Cow::Borrowed(row.version));
            versions.entry(at).or_default().push(Arc::new(kind));
        }
        versions
    })
}

/// `widgets.example.com`, `configmaps`.
pub(crate) fn resource_id(group: &str, plural: &str) -> Arc<str> {
    if group.is_empty() {
        plural.into()
    } else {
        format!("{plural}.{group}").into()
    }
}

/// The kinds of one cluster: the built-in ones and those of its CRDs.
#[derive(Clone, Debug)]
pub(crate) struct Kinds {
    /// The kinds that are always there.
    base: &'static Versions,
    /// By group and version; a group's versions in the order of its CRD.
    custom: Arc<Versions>,
    /// Which CRD brought which kinds.
    crds: Arc<HashMap<String, Vec<Arc<Kind>>>>,
}

impl Default for Kinds {
    fn default() -> Self {
        Self::over(builtins())
    }
}

impl Kinds {
    /// These kinds, and no CRDs yet.
    pub(crate) fn over(base: &'static Versions) -> Self {
        Self {
            base,
            custom: Arc::default(),
            crds: Arc::default(),
        }
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Kind>> {
        self.in_version(group, version)
            .find(|kind| kind.plural == plural)
            .cloned()
    }

    pub(crate) fn of_object(&self, api_version: &str, name: &str) -> Option<Arc<Kind>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.in_version(group, version)
            .find(|kind| kind.kind == name && !kind.create_only)
            .cloned()
    }

    /// The storage version of a resource, by `configmaps` or `widgets.example.com`.
    pub(crate) fn of_resource(&self, resource: &str) -> Option<Arc<Kind>> {
        let all = self.base.values().chain(self.custom.values()).flatten();
        let mut found = all.filter(|kind| &*kind.resource == resource);
        let first = found.next()?;
        let stored = std::iter::once(first)
            .chain(found)
            .find(|kind| kind.custom.as_ref().is_some_and(|custom| custom.storage));
        Some(stored.unwrap_or(first).clone())
    }

    /// A kind whose objects are in this table.
    pub(crate) fn of_table(&self, table: &str) -> Option<Arc<Kind>> {
        let mut all = self.base.values().chain(self.custom.values()).flatten();
        all.find(|kind| &*kind.table == table).cloned()
    }

    pub(crate) fn in_version(&self, group: &str, version: &str) -> impl Iterator<Item = &Arc<Kind>> {
        // The key's strings need not be static to be looked up, but its type says so.
        let at = (Cow::Owned(group.to_owned()), Cow::Owned(version.to_owned()));
        let built_in = self.base.get(&at).into_iter().flatten();
        built_in.chain(self.custom.get(&at).into_iter().flatten())
    }

    /// Groups other than the core group, with their versions, the preferred one first.
    pub(crate) fn groups(&self) -> Vec<(String, Vec<String>)> {
        let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (group, version) in self.base.keys().chain(self.custom.keys()) {
            if !group.is_empty() {
                let versions = groups.entry(group.to_string()).or_default();
                if !versions.contains(&version.to_string()) {
                    versions.push(version.to_string());
                }
            }
        }
        for versions in groups.values_mut() {
            versions.sort_by_key(|version| std::cmp::Reverse(stability(version)));
        }
        groups.into_iter().collect()
    }

    pub(crate) fn set_crd(&mut self, name: &str, kinds: Vec<Arc<Kind>>) {
        Arc::make_mut(&mut self.crds).insert(name.to_owned(), kinds);
        self.rebuild();
    }

    pub(crate) fn remove_crd(&mut self, name: &str) -> Vec<Arc<Kind>> {
        let gone = Arc::make_mut(&mut self.crds).remove(name).unwrap_or_default();
        self.rebuild();
        gone
    }

    fn rebuild(&mut self) {
        let mut versions = Versions::new();
        for kind in self.crds.values().flatten() {
            let at = (kind.group.clone(), kind.version.clone());
            versions.entry(at).or_default().push(kind.clone());
        }
        for kinds in versions.values_mut() {
            kinds.sort_by(|a, b| a.plural.cmp(&b.plural));
        }
        self.custom = Arc::new(versions);
    }
}

/// Kubernetes' order of versions: v2 before v1 before v1beta1 before v1alpha1.
fn stability(version: &str) -> (u8, u32, u32) {
    let rest = version.strip_prefix('v').unwrap_or(version);
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (major, rest) = rest.split_at(digits);
    let major = major.parse().unwrap_or(0);
    let (level, minor) = match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
        (Some(minor), _) => (1, minor),
        (_, Some(minor)) => (0, minor),
        _ => (2, ""),
    };
    (level, major, minor.parse().unwrap_or(0))
}
