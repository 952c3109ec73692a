//! Facts: the metadata fields of an object that are held apart from its other JSON.
//!
//! There are five: name, namespace, UID, resource version and generation. The JSON of an object is its prefix
//! (`apiVersion` and `kind`), its facts, and its tail, which is all other JSON.

use super::{escape, uid::Uid};

/// The JSON before the value of each fact, in the order in which facts are written.
pub(super) const BEFORE_FACTS: [&str; 5] = [
    "\"metadata\":{\"name\":",
    ",\"namespace\":",
    ",\"uid\":",
    ",\"resourceVersion\":",
    ",\"generation\":",
];

/// The value of a fact.
pub(super) enum Fact<'a> {
    Text(&'a str),
    Uid(Uid),
    /// A number as it is written in JSON.
    Number(&'a str),
}

impl Fact<'_> {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => escape::write(out, text),
            Self::Uid(uid) => {
                out.push(b'"');
                out.extend_from_slice(&uid.text());
                out.push(b'"');
            }
            Self::Number(text) => out.extend_from_slice(text.as_bytes()),
        }
    }
}

/// Which facts are in the tail of an object's JSON, not apart from it. The object lacks them, or the original text
/// could not be restored from the separate fact.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct InlineFacts {
    pub(super) namespace: bool,
    pub(super) uid: bool,
    pub(super) resource_version: bool,
    pub(super) generation: bool,
}
