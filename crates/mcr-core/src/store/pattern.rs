//! Objects of a list that are written like one before, read by what they differ in.
//!
//! Those of a list mostly have the same fields in the same order. Once one was taken apart, another is known to be JSON,
//! and to have its fields at the same places, if all of it but its strings and its numbers is the same. Comparing that
//! takes about two thirds of what it takes to take an object apart.

use std::{borrow::Cow, ops::Range, sync::OnceLock};

use super::{
    Form, Scanner,
    open::{Field, Found, Known, Pieces},
    scalar::{Noted, Own},
    scan::Bounded,
    shape::Rest,
};

/// How an object was written.
pub(super) struct Pattern<'a> {
    /// What stands before each of its strings and numbers, and then that.
    pieces: Vec<Piece<'a>>,
    /// What stands behind the last.
    end: &'a str,
    fields: Vec<FieldPlace<'a>>,
    /// Which of the fields are those of the metadata.
    metadata: Range<usize>,
    /// The form that the first of them got that is held in a shape, and what of its facts it says itself. A list is read
    /// for one watch, so it is good for the others too.
    pub(super) form: OnceLock<(Rest, Form)>,
}

#[derive(PartialEq)]
struct Piece<'a> {
    before: &'a str,
    quoted: bool,
}

/// Where in an object a place is: so many bytes behind so many strings and numbers.
struct Place {
    scalars: usize,
    bytes: usize,
}

struct FieldPlace<'a> {
    start: Place,
    end: Place,
    name: &'a str,
    known: Known,
    scalars: Range<usize>,
}

impl<'a> Pattern<'a> {
    /// Of an object that was read. None if a field of it is not written in one piece.
    fn of(object: Range<usize>, read: &Pieces<'a>, found: &Found) -> Option<Self> {
        let text = read.text;
        let scalars = Scanner::at(text, object.start).scalars()?;
        let scalars = scalars.from(0);
        if scalars.len() > PIECES {
            return None;
        }
        let mut pieces = Vec::with_capacity(scalars.len());
        let mut from = object.start;
        for scalar in scalars {
            let before = text.get(from..scalar.start())?;
            let quoted = before.ends_with('"');
            pieces.push(Piece { before, quoted });
            from = scalar.end() + usize::from(quoted);
        }
        let place = |at: usize| {
            let before = scalars.partition_point(|scalar| scalar.end() <= at);
            let last = before
                .checked_sub(1)
                .and_then(|last| scalars.get(last).zip(pieces.get(last)));
            let from = last.map_or(object.start, |(scalar, piece)| {
                scalar.end() + usize::from(piece.quoted)
            });
            Some(Place {
                scalars: before,
                bytes: at.checked_sub(from)?,
            })
        };
        let all = read.fields.get(found.all.clone())?;
        let fields = all.iter().map(|field| {
            let start = field.at? as usize;
            let end = start + field.whole(text)?.len();
            let Cow::Borrowed(name) = field.name else {
                return None;
            };
            let before = |at| scalars.partition_point(|scalar| scalar.start() < at);
            Some(FieldPlace {
                start: place(start)?,
                end: place(end)?,
                name,
                known: field.known,
                scalars: before(start)..before(end),
            })
        });
        Some(Self {
            fields: fields.collect::<Option<_>>()?,
            metadata: found.metadata.start - found.all.start..found.metadata.end - found.all.start,
            end: text.get(from..object.end)?,
            pieces,
            form: OnceLock::new(),
        })
    }

    /// How many pieces stand at the beginning of both.
    fn in_common(&self, other: &Self) -> usize {
        let pairs = self.pieces.iter().zip(&other.pieces);
        pairs.take_while(|(own, other)| own == other).count()
    }

    /// Goes on comparing, and notes strings and numbers. False if the object is not written so.
    fn compare(&self, begun: &mut Begun<'a>, notes: &mut Bounded<'_>) -> bool {
        // Copies of one's own are what compilers hold in registers.
        let mut json = begun.json.clone();
        let left = self.pieces.get(begun.pieces..).unwrap_or_default();
        let mut passed = left.iter();
        let fits = passed.all(|piece| json.scalar_upon(piece.before, piece.quoted, notes).is_some());
        begun.pieces = self.pieces.len() - passed.len() - usize::from(!fits);
        let fits = fits && json.literal(self.end).is_some();
        begun.json = json;
        fits
    }

    /// The fields of an object that starts there and is written so. What is noted since is its own.
    fn fields(&self, start: usize, read: &mut Pieces<'a>, since: Noted) -> Option<Found> {
        let first = since.scalars;
        let own = read.scalars.from(first);
        let at = |place: &Place| {
            let last = place.scalars.checked_sub(1);
            let last = last.and_then(|last| own.get(last).zip(self.pieces.get(last)));
            last.map_or(start, |(scalar, piece)| scalar.end() + usize::from(piece.quoted)) + place.bytes
        };
        let all = read.fields.len();
        for place in &self.fields {
            let start = at(&place.start);
            let value = start + place.name.len() + Scanner::NAMED;
            let Range { start: from, end: to } = place.scalars;
            read.fields.push(Field {
                name: Cow::Borrowed(place.name),
                value: read.text.get(value..at(&place.end))?,
                at: Some(u32::try_from(start).ok()?),
                own: Own::new(first + from..first + to)?,
                known: place.known,
            });
        }
        Some(Found {
            all: all..all + self.fields.len(),
            metadata: all + self.metadata.start..all + self.metadata.end,
            escapes: since.escapes..read.scalars.noted().escapes,
            pattern: None,
        })
    }
}

/// An object as far as it is like a pattern.
struct Begun<'a> {
    json: Scanner<'a>,
    pieces: usize,
}

/// An object of more strings and numbers makes no pattern.
const PIECES: usize = 4096;

/// More patterns are not compared with.
const MOST: usize = 4;

/// So many objects may fit no pattern, beyond those that fit one.
const IN_VAIN: usize = 8;

/// The patterns of a list.
#[derive(Default)]
pub(super) struct Patterns<'a> {
    known: Vec<Pattern<'a>>,
    /// With how many pieces each begins as each other does.
    common: [[usize; MOST]; MOST],
    /// The one that fitted last.
    last: usize,
    pub(super) fitted: usize,
    in_vain: usize,
}

impl<'a> Patterns<'a> {
    pub(super) fn get(&self, pattern: Option<usize>) -> Option<&Pattern<'a>> {
        self.known.get(pattern?)
    }

    /// Reads an object if it fits a pattern; otherwise nothing is read.
    pub(super) fn read(&mut self, json: &mut Scanner<'a>, read: &mut Pieces<'a>) -> Option<Found> {
        if self.is_in_vain() || self.known.is_empty() {
            return None;
        }
        let start = json.next_place()?;
        let (fields, noted) = (read.fields.len(), read.scalars.noted());
        let mut begun = Begun {
            json: json.clone(),
            pieces: 0,
        };
        let mut notes = Bounded::new(&mut read.scalars);
        let fits = self.find(&mut begun, &mut notes);
        let fits = fits.filter(|_| notes.are_all());
        let found = fits.and_then(|at| self.known.get(at)?.fields(start, read, noted));
        let Some(found) = found else {
            read.fields.truncate(fields);
            read.scalars.truncate(noted);
            return None;
        };
        *json = begun.json;
        self.last = fits.unwrap_or_default();
        self.fitted += 1;
        Some(Found {
            pattern: fits,
            ..found
        })
    }

    /// The pattern that an object fits.
    fn find(&self, begun: &mut Begun<'a>, notes: &mut Bounded<'_>) -> Option<usize> {
        let count = self.known.len();
        let mut before = None;
        for at in (0..count).map(|offset| (self.last + offset) % count) {
            // What has fitted so far fits another pattern too if it begins so, and cannot if it does not: there is one place
            // where the next string or number begins.
            if before.is_some_and(|before: usize| self.common[at][before] < begun.pieces) {
                continue;
            }
            if self.known.get(at)?.compare(begun, notes) {
                return Some(at);
            }
            before = Some(at);
        }
        None
    }

    /// An object that fits none was read.
    pub(super) fn learn(&mut self, object: Range<usize>, read: &Pieces<'a>, found: &mut Found) {
        if self.is_in_vain() {
            return;
        }
        self.in_vain += 1;
        if self.known.len() < MOST
            && let Some(pattern) = Pattern::of(object, read, found)
        {
            let new = self.known.len();
            for (at, known) in self.known.iter().enumerate() {
                let common = pattern.in_common(known);
                self.common[at][new] = common;
                self.common[new][at] = common;
            }
            self.known.push(pattern);
            found.pattern = Some(new);
        }
    }

    fn is_in_vain(&self) -> bool {
        self.in_vain > self.fitted + IN_VAIN
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;
    use crate::store::{Interner, OpenObjects, Shapes, scan::tests};

    /// The same with other strings and numbers, in their order and over and over.
    fn with(object: &str, strings: &[String], numbers: &[String]) -> String {
        let mut varied = String::new();
        let (mut strings, mut numbers) = (strings.iter().cycle(), numbers.iter().cycle());
        let mut from = 0;
        for scalar in Scanner::new(object).scalars().unwrap().from(0) {
            let (start, end) = (scalar.start(), scalar.end());
            varied.push_str(&object[from..start]);
            let quoted = object[..start].ends_with('"');
            let string = |text: &String| text[1..text.len() - 1].to_owned();
            let other = if quoted {
                strings.next().map(string)
            } else {
                numbers.next().cloned()
            };
            varied.push_str(other.as_deref().unwrap_or(&object[start..end]));
            from = end;
        }
        varied + &object[from..]
    }

    /// All that is read of an object, and what is held of it.
    #[derive(Debug, PartialEq)]
    struct Read {
        json: Vec<u8>,
        fields: Vec<(String, String)>,
        held: Option<Vec<u8>>,
    }

    fn read<'a>(objects: &'a OpenObjects<'a>) -> Vec<Read> {
        let form = || Form::new("v1", "ConfigMap");
        let shapes = std::sync::Arc::new(Shapes::new(form()));
        let mut interner = Interner::shaping(shapes);
        let mut namespace = None;
        let one = |item: crate::store::Item<'_>| {
            let object = item.unwrap();
            let all = object.before.iter().chain(object.after).chain(object.metadata.0);
            let fields = all.map(|field| {
                if let Some(whole) = field.whole(object.text) {
                    assert_eq!(whole, format!("\"{}\":{}", field.name, field.value));
                }
                (field.name.clone().into_owned(), field.value.to_owned())
            });
            // In a scope the namespace may be another for each of them.
            namespace = if namespace.is_none() { Some("n") } else { None };
            let held = object.close(namespace, &mut interner).ok().map(|object| {
                let json = object.to_json();
                assert_eq!(form().prefix().len() + object.bytes(), json.len());
                json
            });
            Read {
                json: object.json(),
                fields: fields.collect(),
                held,
            }
        };
        objects.iter().map(one).collect()
    }

    fn same(list: &str) -> Result<usize, TestCaseError> {
        let scanned = OpenObjects::scan(&mut Scanner::new(list));
        let items: Vec<&RawValue> = serde_json::from_str(list).unwrap();
        let one_by_one = OpenObjects::one_by_one(&items);
        let Some(scanned) = scanned else {
            let is_declined =
                one_by_one.iter().any(|item| item.is_err()) || list.contains("metadata\":{\"metadata");
            prop_assert!(is_declined, "{}", list);
            return Ok(0);
        };
        prop_assert_eq!(read(&scanned), read(&one_by_one), "{}", list);
        Ok(scanned.fitted())
    }

    fn object() -> impl Strategy<Value = String> {
        let known = [
            r#""name""#,
            r#""namespace""#,
            r#""uid""#,
            r#""generation""#,
            r#""apiVersion""#,
            r#""kind""#,
        ];
        let name = prop_oneof![
            4 => "\"[a-z]{1,3}\"",
            1 => prop::sample::select(known.to_vec()).prop_map(str::to_owned),
        ]
        .boxed();
        let fields = || prop::collection::vec((name.clone(), tests::json()), 0..4);
        let text = |fields: Vec<(String, String)>| {
            fields
                .iter()
                .map(|(name, value)| format!("{name}:{value},"))
                .collect::<String>()
        };
        let facts = prop::sample::select(vec![
            "",
            r#""uid":"u","resourceVersion":"","#,
            r#""namespace":"n","uid":"6e0c7b4e-0b7c-4b58-9d3e-000000000001","resourceVersion":"7","#,
            r#""namespace":"","uid":null,"resourceVersion":null,"#,
        ]);
        (fields(), fields(), facts, tests::string(), tests::number(), tests::json()).prop_map(
            move |(before, metadata, facts, name, number, last)| {
                format!(
                    r#"{{{}"metadata":{{{}"name":{name},{facts}"managedFields":[{{"time":"x","f:a":{{}}}}],"generation":{number}}},"last":{last}}}"#,
                    text(before),
                    text(metadata)
                )
            },
        )
    }

    /// Strings as they stand where facts are: some are whole UIDs.
    fn strings() -> impl Strategy<Value = Vec<String>> {
        let uid = "\"6e0c7b4e-0b7c-4b58-9d3e-00000000000[0-9]\"";
        prop::collection::vec(
            prop_oneof![2 => tests::string(), 1 => uid, 1 => Just("\"\"".to_owned())],
            1..9,
        )
    }

    proptest! {
        #[test]
        fn objects_alike_read_as_if_each_were_the_first(
            first in object(),
            others in prop::collection::vec((strings(), prop::collection::vec(tests::number(), 1..9)), 1..5),
        ) {
            let others: Vec<String> = others.iter().map(|(strings, numbers)| with(&first, strings, numbers)).collect();
            let list = format!("[{first},{}]", others.join(","));
            same(&list)?;
            // With so much behind it the first is never the last, however short the others are.
            let fitted = same(&(list + &" ".repeat(first.len())))?;
            prop_assert_eq!(fitted, others.len());
        }

        #[test]
        fn objects_that_are_nearly_alike_read_as_if_each_were_the_first(
            (first, other) in object().prop_flat_map(|first| (Just(first.clone()), tests::broken(Just(first)))),
            third in object(),
        ) {
            if serde_json::from_str::<&RawValue>(&other).is_ok() {
                same(&format!("[{first},{other},{third},{other} , {first}]"))?;
            }
        }
    }

    #[test]
    fn what_seems_to_be_the_last_makes_no_pattern() {
        let item = |text: &str| format!(r#"{{"metadata":{{"name":"a"}},"data":"{text}"}}"#);
        let (long, short) = (item(&"x".repeat(199)), item(""));
        let list = |first: &str, other: &str, count: usize| {
            let others = [",", other].concat().repeat(count);
            same(&format!("[{first}{others}]")).unwrap()
        };
        assert_eq!(list(&long, &short, 1), 0);
        assert_eq!(list(&short, &long, 1), 1);
        // Here the second makes one, which the third fits.
        assert_eq!(list(&long, &short, 2), 1);
        assert_eq!(list(&long, &short, 4), 4);
    }

    #[test]
    fn with_more_escapes_than_are_noted_objects_read_the_same() {
        let item = |escapes: usize| {
            let text = r"\n".repeat(escapes);
            format!(r#"{{"metadata":{{"name":"a\"{escapes}"}},"data":{{"a":"{text}","b":"\t"}}}}"#)
        };
        for most in [16_380, 16_381, 16_382, 16_383, 16_384, 40_000] {
            for counts in [[1, most, 2, most], [most, 1, most, 2], [most, most, 1, most]] {
                same(&format!("[{}]", counts.map(item).join(","))).unwrap();
            }
        }
    }

    #[test]
    fn what_is_never_alike_is_soon_not_compared() {
        let item = |number: usize| format!(r#"{{"metadata":{{"name":"a","f{number}":1}}}}"#);
        let list = |numbers: Vec<usize>| {
            format!(
                "[{}]",
                numbers.into_iter().map(item).collect::<Vec<_>>().join(",")
            )
        };
        assert_eq!(same(&list((0..100).collect())).unwrap(), 0);
        let list = list((0..20).chain([1; 10]).collect());
        assert_eq!(same(&list).unwrap(), 0);
        // Objects of two kinds, one after the other, are all compared.
        let pairs: Vec<String> = (0..200).map(|number| item(number % 2)).collect();
        assert_eq!(same(&format!("[{}]", pairs.join(","))).unwrap(), 198);
    }
}
