//! The part of the JSON that objects share.

use std::sync::Arc;

use super::template::Template;

/// How objects of a kind are encoded: their `apiVersion` and `kind`, which the items of a list lack, and their common
/// template, if they have one.
///
/// [`new`](Self::new) makes an encoding without a template. A [`TemplateRegistry`](crate::TemplateRegistry) makes the
/// encodings with templates.
///
/// ```
/// use mcr_store::{Encoder, Encoding, Object};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut encoder = Encoder::plain(Encoding::new("apps/v1", "Deployment"));
/// let object = Object::parse(serde_json::from_str(r#"{"metadata":{"name":"web"}}"#)?, &mut encoder)?;
/// assert_eq!(
///     object.to_json(),
///     br#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"}}"#
/// );
/// # Ok(())
/// # }
/// ```
//
// Each object holds a reference to its encoding. If all watches shared one reference count, threads that create and
// drop objects of several watches would contend for its cache line. So each watch has its own count, the outer `Arc`:
// see `with_own_count`.
#[derive(Debug, Clone)]
#[expect(
    clippy::redundant_allocation,
    reason = "each outer allocation has a count of its own"
)]
pub struct Encoding(Arc<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    /// The beginning of the JSON: `apiVersion` and `kind`.
    prefix: Box<str>,
    /// `None` if the objects are held without a template.
    template: Option<Template>,
}

impl Encoding {
    /// The encoding of objects that are held without a template.
    pub fn new(api_version: &str, kind: &str) -> Self {
        let quoted = |s: &str| serde_json::Value::from(s).to_string();
        let prefix = format!(
            "{{\"apiVersion\":{},\"kind\":{},",
            quoted(api_version),
            quoted(kind)
        );
        Self::from_shared(Shared {
            prefix: prefix.into(),
            template: None,
        })
    }

    fn from_shared(shared: Shared) -> Self {
        Self(Arc::new(Arc::new(shared)))
    }

    /// The same encoding with a reference count of its own.
    pub(super) fn with_own_count(&self) -> Self {
        Self(Arc::new(Arc::clone(&*self.0)))
    }

    /// Whether both share one prefix and template.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&*self.0, &*other.0)
    }

    pub(super) fn prefix(&self) -> &str {
        &self.0.prefix
    }

    pub(super) fn template(&self) -> Option<&Template> {
        self.0.template.as_ref()
    }

    /// The encoding of the same kind with a template.
    pub(super) fn with_template(&self, template: Template) -> Self {
        Self::from_shared(Shared {
            prefix: self.0.prefix.clone(),
            template: Some(template),
        })
    }

    /// Whether there are other references.
    pub(super) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1 || Arc::strong_count(&*self.0) > 1
    }
}
