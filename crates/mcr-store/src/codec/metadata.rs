//! The metadata of raw objects.

use std::{borrow::Cow, fmt};

use super::{
    field::{Field, last_value},
    scan::Scanner,
    text::Text,
};

/// The metadata of an object. Each method reads its field from the JSON when it is called.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let body = br#"{"metadata":{"resourceVersion":"9"},"items":[
///     {"metadata":{"name":"a","namespace":"default","labels":{"app":"web"}}}
/// ]}"#;
/// for item in mcr_store::parse_list(body)?.items.iter() {
///     let object = item?;
///     let metadata = object.metadata();
///     assert_eq!(metadata.name().as_deref(), Some("a"));
///     assert_eq!(metadata.label("app").as_deref(), Some("web"));
///     assert_eq!(metadata.annotation("note"), None);
/// }
/// # Ok(())
/// # }
/// ```
pub struct ObjectMetadata<'a>(pub(super) &'a [Field<'a>]);

impl<'a> ObjectMetadata<'a> {
    /// `metadata.name`. `None` if it is missing or not a string.
    pub fn name(&self) -> Option<Cow<'a, str>> {
        self.text("name")
    }

    /// `metadata.namespace`. `None` for objects of cluster-scoped kinds.
    pub fn namespace(&self) -> Option<Cow<'a, str>> {
        self.text("namespace").filter(|namespace| !namespace.is_empty())
    }

    /// The value of one annotation.
    pub fn annotation(&self, key: &str) -> Option<Cow<'a, str>> {
        self.entry("annotations", key)
    }

    /// The value of one label.
    pub fn label(&self, key: &str) -> Option<Cow<'a, str>> {
        self.entry("labels", key)
    }

    /// `metadata.resourceVersion`. `None` if it is missing or empty.
    pub fn resource_version(&self) -> Option<Cow<'a, str>> {
        self.text("resourceVersion").filter(|version| !version.is_empty())
    }

    fn entry(&self, map: &str, key: &str) -> Option<Cow<'a, str>> {
        let mut entry = None;
        Scanner::new(last_value(self.0, map)?).object(|value, name| {
            let value = value.value()?;
            if name == key {
                entry = Some(value);
            }
            Some(())
        })?;
        Text::of(entry?)
    }

    fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        Text::of(last_value(self.0, name)?)
    }
}

// Does not show annotations, which may contain secrets.
impl fmt::Debug for ObjectMetadata<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectMetadata")
            .field("name", &self.name())
            .field("namespace", &self.namespace())
            .finish_non_exhaustive()
    }
}
