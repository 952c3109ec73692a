//! What all objects of a kind have in common.

use std::sync::Arc;

/// The group, version and kind that a stored object is given back when it is decoded. List items carry none, and holding
/// the same two strings once per object would be a waste.
#[derive(Debug, Clone)]
pub(crate) struct Form(Arc<Box<[u8]>>);

impl Form {
    pub(crate) fn new(api_version: &str, kind: &str) -> Self {
        let quoted = |s: &str| serde_json::Value::from(s).to_string();
        let prefix = format!(
            "{{\"apiVersion\":{},\"kind\":{},",
            quoted(api_version),
            quoted(kind)
        );
        Self(Arc::new(prefix.into_bytes().into()))
    }

    pub(super) fn prefix(&self) -> &[u8] {
        &self.0
    }
}
