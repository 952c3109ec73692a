//! The fields of objects, as a scanner reads them: two levels deep, without reading the values.

use std::{borrow::Cow, ops::Range};

use super::{
    field::{Field, WellKnownField},
    scalar::{Scalar, ScalarRange, Scalars},
    scan::{FieldText, Scanner},
};

/// Most objects have at most this many fields.
pub(super) const TYPICAL_FIELDS: usize = 16;

/// The field of the metadata that is never stored.
pub(super) const MANAGED_FIELDS: &str = "managedFields";

/// The largest number of objects that memory is reserved for.
pub(super) const MAX_RESERVED: usize = 4096;

/// The fields and scalars of one object, or of all objects of a list in sequence. With one allocation for all, no
/// object of a list needs its own.
#[derive(Default)]
pub(super) struct ParsedFields<'a> {
    /// The text that was scanned.
    pub(super) text: &'a str,
    pub(super) fields: Vec<Field<'a>>,
    pub(super) scalars: Scalars,
}

impl<'a> ParsedFields<'a> {
    /// No fields yet, without reserved memory. `None` if the positions in the text do not fit into a [`Scalar`].
    pub(super) fn new(text: &'a str) -> Option<Self> {
        Scalar::positions_fit(text).then(|| Self {
            text,
            ..Self::default()
        })
    }

    /// No fields yet, with memory reserved for one object.
    pub(super) fn for_one_object(text: &'a str) -> Option<Self> {
        Some(Self {
            fields: Vec::with_capacity(TYPICAL_FIELDS),
            scalars: Scalars::with_capacity(TYPICAL_FIELDS),
            ..Self::new(text)?
        })
    }

    /// Reads the value of a field whose name was just read.
    #[inline(always)]
    fn read_value(&mut self, json: &mut Scanner<'a>, name: Cow<'a, str>) -> Option<()> {
        let first = self.scalars.mark().scalars;
        let FieldText { value, start } = json.field(&name, &mut self.scalars)?;
        self.fields.push(Field {
            known: WellKnownField::of(&name),
            name,
            value,
            start: start.and_then(|start| u32::try_from(start).ok()),
            scalars: ScalarRange::new(first..self.scalars.mark().scalars)?,
        });
        Some(())
    }

    /// Reserves memory for `objects` more objects of the size of the first one.
    pub(super) fn reserve(&mut self, objects: usize) {
        let objects = objects.min(MAX_RESERVED);
        self.fields.reserve_exact(self.fields.len() * objects);
        self.scalars.reserve(objects);
    }
}

/// The fields of one object, as ranges of [`ParsedFields`].
pub(super) struct ObjectFields {
    /// The fields of the object and of its metadata, without the field `metadata` itself.
    pub(super) all: Range<usize>,
    /// The fields of the metadata.
    pub(super) metadata: Range<usize>,
    /// The escapes in the object.
    pub(super) escapes: Range<usize>,
    /// The number of the list template that the object matches.
    pub(super) list_template: Option<usize>,
}

impl ObjectFields {
    /// Scans an object and adds its fields to `parsed`. `None` if the JSON is not an object with exactly one metadata.
    pub(super) fn scan<'a>(json: &mut Scanner<'a>, parsed: &mut ParsedFields<'a>) -> Option<Self> {
        let start = parsed.fields.len();
        let first = parsed.scalars.mark().escapes;
        let mut metadata = None;
        json.object(|value, name| {
            if name != "metadata" {
                return parsed.read_value(value, name);
            }
            let from = parsed.fields.len();
            value.object(|value, name| {
                if name == MANAGED_FIELDS {
                    value.value()?;
                    return Some(());
                }
                parsed.read_value(value, name)
            })?;
            // The scanner declines several `metadata` fields. The fallback decides which of them counts.
            let is_repeated = metadata.replace(from..parsed.fields.len()).is_some();
            (!is_repeated).then_some(())
        })?;
        Some(Self {
            all: start..parsed.fields.len(),
            metadata: metadata?,
            escapes: first..parsed.scalars.mark().escapes,
            list_template: None,
        })
    }
}
