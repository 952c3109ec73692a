//! The fields of JSON objects.

use std::borrow::Cow;

use super::{
    escape,
    scalar::{ObjectScalars, ScalarRange},
    scan::Scanner,
    text::Text,
};

/// A field of a JSON object. The value is the original JSON text.
pub(super) struct Field<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) value: &'a str,
    /// The position of the quote before the name, in the text that was scanned. `None` if name and value are not
    /// contiguous in that text.
    pub(super) start: Option<u32>,
    /// The scalars of the value.
    pub(super) scalars: ScalarRange,
    pub(super) known: WellKnownField,
}

/// The meaning of a field by its name.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum WellKnownField {
    /// `metadata.name`.
    Name,
    /// `metadata.namespace`.
    Namespace,
    /// `metadata.uid`.
    Uid,
    /// `metadata.resourceVersion`.
    ResourceVersion,
    /// `metadata.generation`.
    Generation,
    /// `apiVersion` or `kind`, beside the metadata.
    Type,
    Other,
}

impl WellKnownField {
    pub(super) fn of(name: &str) -> Self {
        match name {
            "name" => Self::Name,
            "namespace" => Self::Namespace,
            "uid" => Self::Uid,
            "resourceVersion" => Self::ResourceVersion,
            "generation" => Self::Generation,
            "apiVersion" | "kind" => Self::Type,
            _ => Self::Other,
        }
    }
}

impl<'a> Field<'a> {
    /// A field that was not scanned: its position and its scalars are not known.
    pub(super) fn unscanned(name: Cow<'a, str>, value: &'a str) -> Self {
        Self {
            known: WellKnownField::of(&name),
            name,
            value,
            start: None,
            scalars: ScalarRange::default(),
        }
    }

    /// The content of the value. `None` if the value is not a string.
    pub(super) fn text(&self, scalars: &ObjectScalars<'_>) -> Option<Cow<'a, str>> {
        match scalars.of_field(&self.scalars) {
            Some([only]) if !only.has_escapes() => {
                let text = self.value.strip_prefix('"')?.strip_suffix('"')?;
                Some(Cow::Borrowed(text))
            }
            _ => Text::of(self.value),
        }
    }

    /// Name and value in their original form, if they are contiguous in the text.
    pub(super) fn written<'t>(&self, text: &'t str) -> Option<&'t str> {
        let start = self.start? as usize;
        text.get(start..start + self.name.len() + Scanner::NAME_OVERHEAD + self.value.len())
    }

    /// How many bytes [`write`](Self::write) produces.
    pub(super) fn len(&self) -> usize {
        escape::len_of(&self.name) + self.value.len() + 2
    }

    /// Writes a comma and the field.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.push(b',');
        escape::write(out, &self.name);
        out.push(b':');
        out.extend_from_slice(self.value.as_bytes());
    }
}

/// The value of the last field of this name, as JSON text. `None` if it is null. Decoders also use the last of several
/// fields with one name.
pub(super) fn last_value<'a>(fields: &[Field<'a>], name: &str) -> Option<&'a str> {
    let field = fields.iter().rfind(|field| field.name == name)?;
    (field.value != "null").then_some(field.value)
}
