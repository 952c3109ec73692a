//! A single object, as a raw object.

use serde_json::value::RawValue;

use super::{
    encoder::Encoder,
    error::NotAnObject,
    fallback,
    fields::{ObjectFields, ParsedFields},
    object::Object,
    raw_object::RawObject,
    scan::Scanner,
};

/// One object that is not an item of a list. Borrows the JSON, and lends a [`RawObject`].
///
/// ```
/// use mcr_store::ParsedObject;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let parsed = ParsedObject::read(serde_json::from_str(r#"{"metadata":{"name":"a"}}"#)?)?;
/// assert_eq!(parsed.object().metadata().name().as_deref(), Some("a"));
/// # Ok(())
/// # }
/// ```
pub struct ParsedObject<'a> {
    parsed: ParsedFields<'a>,
    object: ObjectFields,
}

impl<'a> ParsedObject<'a> {
    /// Scans an object. `None` if it is declined; then [`read_by_part`](Self::read_by_part) has the reason.
    pub(super) fn scan(json: &mut Scanner<'a>) -> Option<Self> {
        let mut parsed = ParsedFields::for_one_object(json.text())?;
        let object = ObjectFields::scan(json, &mut parsed)?;
        Some(Self { parsed, object })
    }

    /// Reads an object.
    ///
    /// # Errors
    /// [`NotAnObject`] if the JSON is not an object, or if its metadata is missing or not an object.
    pub fn read(json: &'a RawValue) -> Result<Self, NotAnObject> {
        let mut scanner = Scanner::new(json.get());
        match Self::scan(&mut scanner) {
            Some(object) if scanner.end().is_some() => Ok(object),
            _ => Self::read_by_part(json),
        }
    }

    /// Reads an object with serde_json. If serde_json declines the object, the error is the reason.
    pub(super) fn read_by_part(json: &'a RawValue) -> Result<Self, NotAnObject> {
        let mut parsed = ParsedFields::default();
        let object = fallback::read_fields(json, &mut parsed.fields)?;
        Ok(Self { parsed, object })
    }

    /// The raw object.
    pub fn object(&self) -> RawObject<'_> {
        RawObject::new(&self.object, &self.parsed, None)
    }
}

impl Object {
    /// Encodes an object from its JSON.
    ///
    /// The items of a list are encoded faster with [`parse_list`](crate::parse_list) and [`RawObject::encode`].
    ///
    /// ```
    /// use mcr_store::{Encoder, Encoding, Object};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut encoder = Encoder::plain(Encoding::new("v1", "Node"));
    /// let object = Object::parse(serde_json::from_str(r#"{"metadata":{"name":"a"}}"#)?, &mut encoder)?;
    /// assert_eq!(object.key().to_string(), "a");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`NotAnObject`] if the JSON is not an object, or if its metadata can't be read.
    pub fn parse(json: &RawValue, encoder: &mut Encoder) -> Result<Self, NotAnObject> {
        ParsedObject::read(json)?.object().encode(None, encoder)
    }
}
