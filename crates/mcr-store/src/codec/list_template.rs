//! List templates: the text of one object of a list, by which the following objects of the list are read.
//!
//! Most objects of a list have the same fields in the same order. An object matches a list template if it differs from
//! the template only in its scalars. Then it is valid JSON, and the positions of its fields follow from the positions
//! of its scalars. Matching an object takes about two thirds of the time that scanning it takes.
//!
//! This is not a [`Template`](super::template::Template), which all lists and watches of a kind share, and with which
//! objects are stored.

use std::{borrow::Cow, ops::Range, sync::OnceLock};

use super::{
    encoding::Encoding,
    facts::InlineFacts,
    field::{Field, WellKnownField},
    fields::{ObjectFields, ParsedFields},
    scalar::{Mark, ScalarRange},
    scan::{BoundedRecorder, Scanner},
};

/// The text and the fields of one object, without its scalars.
pub(super) struct ListTemplate {
    /// The text of the object without its scalars.
    text: String,
    segments: Vec<Segment>,
    /// Where the text after the last scalar begins.
    end: usize,
    fields: Vec<FieldSpan>,
    /// The range of the metadata's fields among `fields`.
    metadata: Range<usize>,
    /// The encoding of the first matching object that is held with a template, and its inline facts. Other matching
    /// objects with the same inline facts use it without a search. That is safe because a list is read for one watch,
    /// and so by one encoder.
    pub(super) encoding: OnceLock<(InlineFacts, Encoding)>,
}

/// A scalar and the text before it.
struct Segment {
    /// The text between the previous scalar and this one. Includes the first quote of a string.
    before: Range<u32>,
    quoted: bool,
}

/// A position in an object, relative to its scalars.
struct Offset {
    /// How many scalars end before the position.
    scalars: usize,
    /// How many bytes are between the last of these scalars, or the start of the object, and the position.
    bytes: usize,
}

struct FieldSpan {
    start: Offset,
    end: Offset,
    /// The length of the name.
    name: usize,
    known: WellKnownField,
    scalars: Range<usize>,
}

impl ListTemplate {
    /// Makes a list template from an object that was scanned. `None` if the object is too large, or if one of its
    /// fields is not contiguous.
    fn new(object: Range<usize>, parsed: &ParsedFields<'_>, object_fields: &ObjectFields) -> Option<Self> {
        let text = parsed.text;
        let scalars = Scanner::at(text, object.start).scalars()?;
        let scalars = scalars.from(0);
        if scalars.len() > MAX_SEGMENTS {
            return None;
        }
        let mut segments = Vec::with_capacity(scalars.len());
        let mut own = String::new();
        let mut from = object.start;
        for scalar in scalars {
            let before = text.get(from..scalar.start())?;
            if own.len() + before.len() > MAX_TEXT {
                return None;
            }
            let quoted = before.ends_with('"');
            let start = own.len() as u32;
            own.push_str(before);
            let before = start..own.len() as u32;
            segments.push(Segment { before, quoted });
            from = scalar.end() + usize::from(quoted);
        }
        let end = text.get(from..object.end)?;
        if own.len() + end.len() > MAX_TEXT {
            return None;
        }
        let before_end = own.len();
        own.push_str(end);
        let offset = |at: usize| {
            let before = scalars.partition_point(|scalar| scalar.end() <= at);
            let last = before
                .checked_sub(1)
                .and_then(|last| scalars.get(last).zip(segments.get(last)));
            let from = last.map_or(object.start, |(scalar, segment)| {
                scalar.end() + usize::from(segment.quoted)
            });
            Some(Offset {
                scalars: before,
                bytes: at.checked_sub(from)?,
            })
        };
        let all = parsed.fields.get(object_fields.all.clone())?;
        let fields = all.iter().map(|field| {
            let start = field.start? as usize;
            let end = start + field.written(text)?.len();
            let Cow::Borrowed(name) = field.name else {
                return None;
            };
            let before = |at| scalars.partition_point(|scalar| scalar.start() < at);
            Some(FieldSpan {
                start: offset(start)?,
                end: offset(end)?,
                name: name.len(),
                known: field.known,
                scalars: before(start)..before(end),
            })
        });
        Some(Self {
            fields: fields.collect::<Option<_>>()?,
            metadata: object_fields.metadata.start - object_fields.all.start
                ..object_fields.metadata.end - object_fields.all.start,
            text: own,
            end: before_end,
            segments,
            encoding: OnceLock::new(),
        })
    }

    /// How many segments at the beginning are equal in both templates.
    fn common_segments(&self, other: &Self) -> usize {
        let pairs = self.segments.iter().zip(&other.segments);
        let same = |(one, two): &(&Segment, &Segment)| {
            one.quoted == two.quoted && self.before(one) == other.before(two)
        };
        pairs.take_while(same).count()
    }

    /// The text before a scalar.
    #[inline(always)]
    fn before(&self, segment: &Segment) -> Option<&str> {
        let Range { start, end } = segment.before;
        self.text.get(start as usize..end as usize)
    }

    /// Continues a comparison and records scalars. False if the object does not match.
    fn compare(&self, comparison: &mut Comparison<'_>, recorder: &mut BoundedRecorder<'_>) -> bool {
        // A local copy, because the compiler keeps its fields in registers.
        let mut json = comparison.json.clone();
        let left = self.segments.get(comparison.segments..).unwrap_or_default();
        let mut passed = left.iter();
        let matches = passed.all(|segment| {
            self.before(segment)
                .and_then(|before| json.scalar_after(before, segment.quoted, recorder))
                .is_some()
        });
        comparison.segments = self.segments.len() - passed.len() - usize::from(!matches);
        let end = self.text.get(self.end..).unwrap_or_default();
        let matches = matches && json.literal(end).is_some();
        comparison.json = json;
        matches
    }

    /// Adds the fields of a matching object to `parsed`. The object starts at `start`, its scalars at `mark`.
    fn fields(&self, start: usize, parsed: &mut ParsedFields<'_>, mark: Mark) -> Option<ObjectFields> {
        let first = mark.scalars;
        let scalars = parsed.scalars.from(first);
        let position = |offset: &Offset| {
            let last = offset.scalars.checked_sub(1);
            let last = last.and_then(|last| scalars.get(last).zip(self.segments.get(last)));
            last.map_or(start, |(scalar, segment)| {
                scalar.end() + usize::from(segment.quoted)
            }) + offset.bytes
        };
        let all = parsed.fields.len();
        for span in &self.fields {
            let start = position(&span.start);
            let value = start + span.name + Scanner::NAME_OVERHEAD;
            let behind_quote = start + 1;
            let Range { start: from, end: to } = span.scalars;
            parsed.fields.push(Field {
                name: Cow::Borrowed(parsed.text.get(behind_quote..behind_quote + span.name)?),
                value: parsed.text.get(value..position(&span.end))?,
                start: Some(u32::try_from(start).ok()?),
                scalars: ScalarRange::new(first + from..first + to)?,
                known: span.known,
            });
        }
        Some(ObjectFields {
            all: all..all + self.fields.len(),
            metadata: all + self.metadata.start..all + self.metadata.end,
            escapes: mark.escapes..parsed.scalars.mark().escapes,
            list_template: None,
        })
    }
}

/// How far the comparison of an object with list templates has come.
struct Comparison<'a> {
    json: Scanner<'a>,
    /// How many segments match.
    segments: usize,
}

/// The most scalars of an object that becomes a list template.
const MAX_SEGMENTS: usize = 4096;

/// The most text beside its scalars, in bytes, of an object that becomes a list template.
const MAX_TEXT: usize = 64 << 10;

/// The most list templates of one list.
const MAX_TEMPLATES: usize = 4;

/// When misses exceed hits by this number, the list is read without list templates.
const MAX_EXCESS_MISSES: usize = 8;

/// The list templates of a list.
#[derive(Default)]
pub(super) struct ListTemplates {
    templates: Vec<ListTemplate>,
    /// [`ListTemplate::common_segments`] of each pair.
    common: [[usize; MAX_TEMPLATES]; MAX_TEMPLATES],
    /// The number of the template of the last hit.
    last: usize,
    /// How many objects matched a template.
    pub(super) hits: usize,
    /// How many objects matched none.
    misses: usize,
}

impl ListTemplates {
    pub(super) fn get(&self, list_template: Option<usize>) -> Option<&ListTemplate> {
        self.templates.get(list_template?)
    }

    /// Reads an object if it matches a list template. Otherwise reads nothing.
    pub(super) fn read<'a>(
        &mut self,
        json: &mut Scanner<'a>,
        parsed: &mut ParsedFields<'a>,
    ) -> Option<ObjectFields> {
        if self.has_given_up() || self.templates.is_empty() {
            return None;
        }
        let start = json.next_position()?;
        let (fields, mark) = (parsed.fields.len(), parsed.scalars.mark());
        let mut comparison = Comparison {
            json: json.clone(),
            segments: 0,
        };
        let mut recorder = BoundedRecorder::new(&mut parsed.scalars);
        let hit = self.find(&mut comparison, &mut recorder);
        let hit = hit.filter(|_| recorder.is_complete());
        let object = hit.and_then(|at| self.templates.get(at)?.fields(start, parsed, mark));
        let Some(object) = object else {
            parsed.fields.truncate(fields);
            parsed.scalars.truncate(mark);
            return None;
        };
        *json = comparison.json;
        self.last = hit.unwrap_or_default();
        self.hits += 1;
        Some(ObjectFields {
            list_template: hit,
            ..object
        })
    }

    /// The number of the list template that an object matches.
    fn find(&self, comparison: &mut Comparison<'_>, recorder: &mut BoundedRecorder<'_>) -> Option<usize> {
        let count = self.templates.len();
        let mut previous = None;
        for at in (0..count).map(|offset| (self.last + offset) % count) {
            // The comparison continues where it stopped, if the first segments of this template are the same up to
            // there. If they are not, the object can't match: a scalar that begins elsewhere has been read already.
            if previous.is_some_and(|previous: usize| self.common[at][previous] < comparison.segments) {
                continue;
            }
            if self.templates.get(at)?.compare(comparison, recorder) {
                return Some(at);
            }
            previous = Some(at);
        }
        None
    }

    /// Counts a miss, and makes a list template from the object, which was scanned instead.
    pub(super) fn learn(
        &mut self,
        object: Range<usize>,
        parsed: &ParsedFields<'_>,
        object_fields: &mut ObjectFields,
    ) {
        if self.has_given_up() {
            return;
        }
        self.misses += 1;
        if self.templates.len() < MAX_TEMPLATES
            && let Some(list_template) = ListTemplate::new(object, parsed, object_fields)
        {
            let new = self.templates.len();
            for (at, other) in self.templates.iter().enumerate() {
                let common = list_template.common_segments(other);
                self.common[at][new] = common;
                self.common[new][at] = common;
            }
            self.templates.push(list_template);
            object_fields.list_template = Some(new);
        }
    }

    fn has_given_up(&self) -> bool {
        self.misses > self.hits + MAX_EXCESS_MISSES
    }
}

#[cfg(test)]
mod tests;
