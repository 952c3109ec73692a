//! Templates: the JSON of an object, with a placeholder instead of each scalar.
//!
//! Objects have the same *layout* if they have the same fields in the same order and differ only in their scalars.
//! Such objects share a template.

use std::fmt;

use super::{
    facts::{BEFORE_FACTS, InlineFacts},
    placeholder::PLACEHOLDER_STR,
    values::TemplateValues,
};

/// The key of a template: objects of one kind that have the same key share a template.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TemplateKey<'a> {
    pub(super) inline: InlineFacts,
    /// The JSON of the tail, with placeholders.
    pub(super) json: &'a str,
}

/// The JSON that objects of the same layout share.
pub(super) struct Template {
    text: Box<str>,
    /// The positions of the tail's placeholders.
    placeholders: Box<[u32]>,
    inline: InlineFacts,
    /// The position of the tail.
    tail: usize,
}

impl Template {
    /// Makes a template for objects that begin with `prefix` and have this key. `placeholders` is the number in the
    /// tail. `None` if the template is larger than 4 GiB, or if the name of a field contains a placeholder.
    pub(super) fn new(prefix: &str, key: TemplateKey<'_>, placeholders: usize) -> Option<Self> {
        let TemplateKey { inline, json } = key;
        // The generation is a number, which has no quotes.
        let facts = [
            (true, "\""),
            (!inline.namespace, "\""),
            (!inline.uid, "\""),
            (!inline.resource_version, "\""),
            (!inline.generation, ""),
        ];
        let mut text = prefix.to_owned();
        for (before, (_, quote)) in BEFORE_FACTS.iter().zip(facts).filter(|(_, (has, _))| *has) {
            text.extend([before, quote, PLACEHOLDER_STR, quote]);
        }
        let tail = text.len();
        text.push_str(json);
        let at = |(at, _): (usize, &str)| u32::try_from(at).ok();
        let all: Vec<u32> = text
            .match_indices(PLACEHOLDER_STR)
            .map(at)
            .collect::<Option<_>>()?;
        let facts = facts.iter().filter(|(has, _)| *has).count();
        (all.len() == facts + placeholders).then_some(())?;
        Some(Self {
            text: text.into(),
            placeholders: all.get(facts..)?.into(),
            inline,
            tail,
        })
    }

    pub(super) fn key(&self) -> TemplateKey<'_> {
        TemplateKey {
            inline: self.inline,
            json: self.text.get(self.tail..).unwrap_or_default(),
        }
    }

    /// The whole JSON of an object, with a placeholder for each scalar. Nothing else in the text looks like a
    /// placeholder.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The memory that the template takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.text.len() + size_of_val(&*self.placeholders)
    }

    /// Writes the JSON of an object's tail. `values` are the encoded values of a
    /// [`TemplateSplitter`](super::splitter::TemplateSplitter).
    pub(super) fn write(&self, values: &str, out: &mut Vec<u8>) {
        let text = self.text.as_bytes();
        let mut values = TemplateValues::of_tail(values);
        let mut from = self.tail;
        for placeholder in &self.placeholders {
            let placeholder = *placeholder as usize;
            out.extend_from_slice(text.get(from..placeholder).unwrap_or_default());
            if let Some(value) = values.next() {
                value.write(out);
            }
            from = placeholder + 1;
        }
        out.extend_from_slice(text.get(from..).unwrap_or_default());
    }
}

// Does not show the JSON: the names of fields may be secrets, for example those in the data of a Secret.
impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template")
            .field("bytes", &self.text.len())
            .field("placeholders", &self.placeholders.len())
            .finish()
    }
}

#[cfg(test)]
mod tests;
