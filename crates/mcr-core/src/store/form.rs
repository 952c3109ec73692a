//! What all objects of a kind have in common, held once for them.

use std::sync::Arc;

use super::packing::Dictionary;

/// How objects of a kind are held: the group, version and kind that list items come without, and the dictionary that
/// those of this form are packed with.
#[derive(Debug, Clone)]
pub(crate) struct Form(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The beginning of the JSON.
    prefix: Box<[u8]>,
    dictionary: Option<Dictionary>,
}

impl Form {
    pub(crate) fn new(api_version: &str, kind: &str) -> Self {
        let quoted = |s: &str| serde_json::Value::from(s).to_string();
        let prefix = format!(
            "{{\"apiVersion\":{},\"kind\":{},",
            quoted(api_version),
            quoted(kind)
        );
        Self(Arc::new(Shared {
            prefix: prefix.into_bytes().into(),
            dictionary: None,
        }))
    }

    pub(super) fn prefix(&self) -> &[u8] {
        &self.0.prefix
    }

    /// None for objects that are held as they are.
    pub(super) fn dictionary(&self) -> Option<&Dictionary> {
        self.0.dictionary.as_ref()
    }

    /// The same with a dictionary.
    #[cfg(feature = "packed")]
    pub(super) fn packed(&self, dictionary: Dictionary) -> Self {
        Self(Arc::new(Shared {
            prefix: self.0.prefix.clone(),
            dictionary: Some(dictionary),
        }))
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
