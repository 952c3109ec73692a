use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};

use super::builtin::ROWS;
use super::schema::Schema;

type Text = Cow<'static, str>;

/// One version of a resource. All clusters of the process share the built-in kinds. A copy of a cluster shares the
/// kinds of the CRDs that existed when it was made.
#[derive(Debug)]
pub struct Kind {
    pub group: Text,
    pub version: Text,
    pub plural: Text,
    pub singular: Text,
    pub kind: Text,
    pub list_kind: Text,
    pub short_names: Vec<Text>,
    pub categories: Vec<Text>,
    pub namespaced: bool,
    pub has_status: bool,
    pub has_generation: bool,
    pub create_on_update: bool,
    pub update_needs_version: bool,
    pub delete_answers_object: bool,
    pub create_only: bool,
    pub has_collection_delete: bool,
    /// The name in messages: `widgets.example.com`.
    pub resource: Arc<str>,
    /// The name of the table with the objects. All versions of the resource share it. It is the name of the resource,
    /// unless one server has different resources of the same name.
    pub table: Arc<str>,
    pub custom: Option<Custom>,
}

/// The properties of resources of a CRD.
#[derive(Debug)]
pub struct Custom {
    pub schema: Option<Schema>,
    /// The columns of the table form: name, type, JSON path and priority.
    pub columns: Vec<(String, String, String, i64)>,
    pub selectable: Vec<String>,
    pub storage: bool,
}

impl Kind {
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The schema of a custom resource.
    pub fn schema(&self) -> Option<&Schema> {
        self.custom.as_ref()?.schema.as_ref()
    }

    /// The name of an object in messages: `widgets.example.com "w"`.
    pub fn quoted(&self, name: &str) -> String {
        format!("{} \"{name}\"", self.resource)
    }

    pub fn details(&self, name: &str) -> Value {
        let mut details = json!({ "name": name, "kind": self.plural });
        if !self.group.is_empty() {
            details["group"] = (*self.group).into();
        }
        details
    }

    pub fn verbs(&self) -> Vec<&'static str> {
        if self.create_only {
            return vec!["create"];
        }
        let mut verbs = vec!["create", "delete"];
        if self.has_collection_delete {
            verbs.push("deletecollection");
        }
        verbs.extend(["get", "list", "patch", "update", "watch"]);
        verbs
    }

    /// The name of the kind in messages about conflicts of deletions.
    pub fn kind_in_conflicts(&self) -> String {
        if self.group.is_empty() {
            self.kind.to_string()
        } else {
            format!("{}.{}", self.kind, self.group)
        }
    }

    pub fn is_namespaces(&self) -> bool {
        self.group.is_empty() && self.plural == "namespaces"
    }

    pub fn is_crds(&self) -> bool {
        &*self.resource == CRDS
    }
}

pub const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";
pub const NAMESPACES: &str = "namespaces";

pub type Versions = BTreeMap<(Text, Text), Vec<Arc<Kind>>>;

/// The built-in kinds, made once.
pub fn builtins() -> &'static Versions {
    static BUILTINS: OnceLock<Versions> = OnceLock::new();
    BUILTINS.get_or_init(|| {
        let mut versions = Versions::new();
        for (group, version, [plural, singular, kind], short, category, flags) in ROWS.iter().copied() {
            let has = |flag: char| flags.contains(flag);
            let words =
                |list: &'static str| list.split(',').filter(|word| !word.is_empty()).map(Cow::Borrowed);
            let at = (Cow::Borrowed(group), Cow::Borrowed(version));
            let kind = Kind {
                group: group.into(),
                version: version.into(),
                plural: plural.into(),
                singular: singular.into(),
                kind: kind.into(),
                list_kind: format!("{kind}List").into(),
                short_names: words(short).collect(),
                categories: words(category).collect(),
                namespaced: has('N'),
                has_status: has('S'),
                has_generation: has('G'),
                create_on_update: has('U'),
                update_needs_version: has('V'),
                delete_answers_object: has('R'),
                create_only: has('-'),
                has_collection_delete: !has('X'),
                resource: resource_id(group, plural),
                table: resource_id(group, plural),
                custom: None,
            };
            versions.entry(at).or_default().push(Arc::new(kind));
        }
        versions
    })
}

/// `widgets.example.com`, `configmaps`.
pub fn resource_id(group: &str, plural: &str) -> Arc<str> {
    if group.is_empty() {
        plural.into()
    } else {
        format!("{plural}.{group}").into()
    }
}

/// The kinds of one cluster: the built-in ones and those of its CRDs.
#[derive(Clone, Debug)]
pub struct Kinds {
    /// The kinds that do not come from CRDs.
    base: &'static Versions,
    /// By group and version. The versions of a group are in the order of its CRD.
    custom: Arc<Versions>,
    /// The kinds of each CRD.
    crds: Arc<HashMap<String, Vec<Arc<Kind>>>>,
}

impl Default for Kinds {
    fn default() -> Self {
        Self::over(builtins())
    }
}

impl Kinds {
    /// These built-in kinds, without CRDs.
    pub fn over(base: &'static Versions) -> Self {
        Self {
            base,
            custom: Arc::default(),
            crds: Arc::default(),
        }
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Kind>> {
        self.in_version(group, version)
            .find(|kind| kind.plural == plural)
            .cloned()
    }

    pub fn of_object(&self, api_version: &str, name: &str) -> Option<Arc<Kind>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.in_version(group, version)
            .find(|kind| kind.kind == name && !kind.create_only)
            .cloned()
    }

    /// The storage version of a resource, by a name such as `configmaps` or `widgets.example.com`.
    pub fn of_resource(&self, resource: &str) -> Option<Arc<Kind>> {
        let all = self.base.values().chain(self.custom.values()).flatten();
        let mut found = all.filter(|kind| &*kind.resource == resource);
        let first = found.next()?;
        let stored = std::iter::once(first)
            .chain(found)
            .find(|kind| kind.custom.as_ref().is_some_and(|custom| custom.storage));
        Some(stored.unwrap_or(first).clone())
    }

    /// A kind whose objects are in this table.
    pub fn of_table(&self, table: &str) -> Option<Arc<Kind>> {
        let mut all = self.base.values().chain(self.custom.values()).flatten();
        all.find(|kind| &*kind.table == table).cloned()
    }

    pub fn in_version(&self, group: &str, version: &str) -> impl Iterator<Item = &Arc<Kind>> {
        // The lookup does not need static strings, but the type of the key requires them.
        let at = (Cow::Owned(group.to_owned()), Cow::Owned(version.to_owned()));
        let built_in = self.base.get(&at).into_iter().flatten();
        built_in.chain(self.custom.get(&at).into_iter().flatten())
    }

    /// All groups except the core group, with their versions. The preferred version is first.
    pub fn groups(&self) -> Vec<(String, Vec<String>)> {
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

    pub fn set_crd(&mut self, name: &str, kinds: Vec<Arc<Kind>>) {
        Arc::make_mut(&mut self.crds).insert(name.to_owned(), kinds);
        self.rebuild();
    }

    pub fn remove_crd(&mut self, name: &str) -> Vec<Arc<Kind>> {
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

/// Sorts versions as Kubernetes does: v2 before v1 before v1beta1 before v1alpha1.
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
