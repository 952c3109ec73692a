//! JSON strings, borrowed where they have no escapes.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Deserializer, de::Visitor};

/// The content of a JSON string, borrowed from the JSON if it has no escapes.
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl<'a> Text<'a> {
    /// The content of a JSON value. `None` if the value is not a string.
    pub(super) fn of(value: &'a str) -> Option<Cow<'a, str>> {
        let content = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        match content {
            Some(content) if !content.as_bytes().contains(&b'\\') => Some(Cow::Borrowed(content)),
            Some(_) => serde_json::from_str::<Text<'_>>(value).ok().map(|text| text.0),
            None => None,
        }
    }
}

impl<'a, 'de: 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
            fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text)))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}
