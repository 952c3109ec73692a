//! Deserializes JSON, or a template with its values, as a Rust type.
//!
//! The deserializer reads the same JSON as serde_json, with the same result. This holds unless a crate of the program
//! enables serde_json's feature `arbitrary_precision`, which changes how numbers are read. Rare values, such as
//! floats, are read by serde_json. Other rare JSON, and JSON that does not fit the type, is declined. Then the caller
//! uses serde_json, which gives the reason.

mod access;
mod declined;
mod deserializer;
mod reader;

use std::marker::PhantomData;

use serde::de::{DeserializeOwned, DeserializeSeed};

use self::{declined::WAS_SHOWN, reader::Reader};
use super::values::TemplateValues;

/// Deserializes a JSON document. `buffer` may have any content. `None` if the document is declined.
pub(super) fn from_json<T: DeserializeOwned>(json: &str, buffer: &mut String) -> Option<T> {
    run(PhantomData, json, None, buffer)
}

/// Deserializes a template and its values. `buffer` may have any content. `None` if they are declined.
pub(super) fn from_template<'de, T: DeserializeOwned>(
    text: &'de str,
    values: TemplateValues<'de>,
    buffer: &mut String,
) -> Option<T> {
    run(PhantomData, text, Some(values), buffer)
}

fn run<'de, T: DeserializeSeed<'de>>(
    seed: T,
    json: &'de str,
    values: Option<TemplateValues<'de>>,
    buffer: &mut String,
) -> Option<T::Value> {
    let mut reader = Reader::new(json, values, buffer);
    let shown_before = WAS_SHOWN.replace(false);
    let value = seed.deserialize(&mut reader);
    // Restored afterwards, because this decoding may be nested within another decoding.
    let shown = WAS_SHOWN.replace(shown_before);
    reader.end()?;
    value.ok().filter(|_| !shown)
}

#[cfg(test)]
mod tests;
