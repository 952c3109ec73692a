//! The JSON that many objects have in common, and what each of them says in it.

use std::fmt;

use super::{moment::Moment, open::Field};

/// From where to where a string reaches in some JSON, without its quotes, or a number.
#[derive(Clone, Copy)]
pub(super) struct Scalar {
    start: u32,
    end: u32,
}

impl Scalar {
    /// In a text of 4 GiB at most.
    #[inline(always)]
    pub(super) fn new(start: usize, end: usize) -> Self {
        Self {
            start: start as u32,
            end: end as u32,
        }
    }

    #[inline(always)]
    pub(super) fn start(self) -> usize {
        self.start as usize
    }

    #[inline(always)]
    pub(super) fn end(self) -> usize {
        self.end as usize
    }
}

/// Takes the place of each string and each number in what objects have in common. Stands nowhere else in JSON.
const HOLE: u8 = 0;

/// All of some JSON but what its strings and its numbers say.
pub(super) struct Shape {
    common: Box<[u8]>,
    /// Where the holes are.
    holes: Box<[u32]>,
}

impl Shape {
    /// None if it is larger than 4 GiB.
    pub(super) fn new(common: &[u8]) -> Option<Self> {
        let at = |(at, byte): (usize, &u8)| (*byte == HOLE).then(|| u32::try_from(at).ok());
        Some(Self {
            holes: common.iter().enumerate().filter_map(at).collect::<Option<_>>()?,
            common: common.into(),
        })
    }

    pub(super) fn common(&self) -> &[u8] {
        &self.common
    }

    /// How many bytes of memory it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.common.len() + size_of_val(&*self.holes)
    }

    /// Puts the JSON together of which [`Cutter`] has made `said`.
    pub(super) fn write(&self, mut said: &[u8], out: &mut Vec<u8>) {
        let mut from = 0;
        for hole in &self.holes {
            let hole = *hole as usize;
            out.extend_from_slice(self.common.get(from..hole).unwrap_or_default());
            said = write_next(said, out);
            from = hole + 1;
        }
        out.extend_from_slice(self.common.get(from..).unwrap_or_default());
    }
}

// Names may be secrets, as those of the fields of a Secret.
impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shape")
            .field("bytes", &self.common.len())
            .field("holes", &self.holes.len())
            .finish()
    }
}

/// Parts what an object says from what it says it in. Keeps its memory from one to the next.
pub(super) struct Cutter {
    common: Vec<u8>,
    said: Vec<u8>,
}

impl Cutter {
    pub(super) const fn new() -> Self {
        Self {
            common: Vec::new(),
            said: Vec::new(),
        }
    }

    /// What makes a [`Shape`].
    pub(super) fn common(&self) -> &[u8] {
        &self.common
    }

    /// What fills its holes, each with its length before it.
    pub(super) fn said(&self) -> &[u8] {
        &self.said
    }

    /// How much memory it keeps.
    pub(super) fn capacity(&self) -> usize {
        self.common.capacity() + self.said.capacity()
    }

    /// Parts what is left of an object: the last fields of each of the objects that end with it, the innermost first.
    /// `scalars` of the `text` are of these fields and of others. None if a field is not written in one piece.
    pub(super) fn part<'a>(
        &mut self,
        objects: [&mut dyn Iterator<Item = &'a Field<'a>>; 2],
        text: &'a str,
        scalars: &[Scalar],
    ) -> Option<()> {
        self.common.clear();
        self.said.clear();
        for fields in objects {
            for field in fields {
                self.common.push(b',');
                let mut from = field.at? as usize;
                let end = from + field.whole(text)?.len();
                for scalar in field.own(scalars)? {
                    self.common
                        .extend_from_slice(text.as_bytes().get(from..scalar.start())?);
                    self.common.push(HOLE);
                    self.say(text.as_bytes().get(scalar.start()..scalar.end())?);
                    from = scalar.end();
                }
                self.common.extend_from_slice(text.as_bytes().get(from..end)?);
            }
            self.common.push(b'}');
        }
        Some(())
    }

    /// The same for an object whose shape is known.
    pub(super) fn part_alike<'a>(
        &mut self,
        fields: impl Iterator<Item = &'a Field<'a>>,
        text: &str,
        scalars: &[Scalar],
    ) -> Option<()> {
        self.said.clear();
        for field in fields {
            for scalar in field.own(scalars)? {
                self.say(text.as_bytes().get(scalar.start()..scalar.end())?);
            }
        }
        Some(())
    }

    fn say(&mut self, scalar: &[u8]) {
        if let Some(moment) = Moment::read(scalar) {
            self.said.push(A_MOMENT);
            self.said.extend_from_slice(&moment.0);
            return;
        }
        let mut len = scalar.len() + SHORTEST;
        while len > MOST_IN_A_BYTE {
            self.said.push((len & MOST_IN_A_BYTE) as u8 | MORE);
            len >>= 7;
        }
        self.said.push(len as u8);
        self.said.extend_from_slice(scalar);
    }
}

/// In the place of a length: a time follows.
const A_MOMENT: u8 = 0;
/// What lengths are counted from.
const SHORTEST: usize = 1;
/// Of lengths there are seven bits in a byte, the lowest first; the eighth says that there are more.
const MOST_IN_A_BYTE: usize = 0x7f;
const MORE: u8 = 0x80;

/// Writes what fills the next hole; returns what follows upon it.
fn write_next<'a>(said: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
    if let Some((&A_MOMENT, rest)) = said.split_first() {
        let (moment, rest) = rest.split_at_checked(Moment::BYTES).unwrap_or_default();
        out.extend_from_slice(&Moment::of(moment).text());
        return rest;
    }
    let (mut len, mut shift, mut rest) = (0, 0, said);
    while let Some((byte, after)) = rest.split_first() {
        len |= (usize::from(*byte) & MOST_IN_A_BYTE) << shift;
        rest = after;
        if byte & MORE == 0 {
            break;
        }
        shift += 7;
    }
    let (scalar, rest) = rest
        .split_at_checked(len.saturating_sub(SHORTEST))
        .unwrap_or_default();
    out.extend_from_slice(scalar);
    rest
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use crate::store::{Form, Interner, Object, Shapes, scan::tests};

    fn plain() -> Interner {
        Interner::plain(form())
    }

    fn form() -> Form {
        Form::new("v1", "ConfigMap")
    }

    fn parse(json: &str, interner: &mut Interner) -> Object {
        let raw: &RawValue = serde_json::from_str(json).unwrap();
        Object::parse(raw, interner).unwrap()
    }

    fn uid(number: u32) -> String {
        format!("6e0c7b4e-0b7c-4b58-9d3e-{number:012}")
    }

    /// The same object in a shape, of which another object has been seen before.
    fn shaped(json: impl Fn(&str) -> String) -> Object {
        let mut interner = Interner::shaping(Arc::new(Shapes::new(form())));
        assert!(parse(&json(&uid(1)), &mut interner).form().shape().is_none());
        parse(&json(&uid(2)), &mut interner)
    }

    #[test]
    fn an_object_holds_only_what_it_says_itself() {
        let json = |uid: &str| {
            format!(
                r#"{{"metadata":{{"name":"a","uid":"{uid}","resourceVersion":"7","creationTimestamp":"2026-11-22T09:27:48Z","labels":{{"app":"web"}}}},"data":{{"a.properties":"x = 1\n"}},"immutable":false,"n":[1.5e3,-2,{{}},[]]}}"#
            )
        };
        let object = shaped(json);
        let common = r#","creationTimestamp":"@","labels":{"app":"@"}},"data":{"a.properties":"@"},"immutable":false,"n":[@,@,{},[]]}"#;
        let shape = object.form().shape().unwrap();
        assert_eq!(shape.common(), common.replace('@', "\0").as_bytes());
        // Without facts: five bytes of a time after its mark, and the others with a length before each.
        let said = object.held_bytes() - parse(r#"{"metadata":{"name":"a"}}"#, &mut plain()).held_bytes();
        assert_eq!(
            said + "}}".len(),
            "7".len() + 6 + "_web".len() + "_x = 1\\n".len() + "_1.5e3".len() + "_-2".len()
        );
        assert_eq!(
            object.to_json().unwrap(),
            parse(&json(&uid(2)), &mut plain()).to_json().unwrap()
        );
    }

    #[test]
    fn long_strings_come_back_whole() {
        for len in [0, 125, 126, 127, 128, 16_382, 16_383, 16_384, 3_000_000] {
            let json = |uid: &str| {
                format!(
                    r#"{{"metadata":{{"name":"a","uid":"{uid}"}},"data":{{"a":"{}","b":"c"}}}}"#,
                    "x".repeat(len)
                )
            };
            let object = shaped(json);
            assert!(object.form().shape().is_some());
            assert_eq!(
                object.to_json().unwrap(),
                parse(&json(&uid(2)), &mut plain()).to_json().unwrap()
            );
        }
    }

    #[test]
    fn what_a_shape_is_of_is_not_shown() {
        let object =
            shaped(|uid| format!(r#"{{"metadata":{{"name":"a","uid":"{uid}"}},"canary":"canary"}}"#));
        assert!(object.form().shape().is_some());
        assert!(!format!("{:?} {object:?}", object.form()).contains("canary"));
    }

    const ESCAPES: &str = r#""\u00e4\"\n""#;

    fn name() -> impl Strategy<Value = String> {
        prop_oneof![
            "\"[a-z]{1,6}\"",
            Just(ESCAPES.to_owned()),
            Just("\"\"".to_owned())
        ]
    }

    proptest! {
        #[test]
        fn an_object_reads_the_same_in_a_shape(
            before in prop::collection::vec((name(), tests::json()), 0..3),
            metadata in prop::collection::vec((name(), tests::json()), 0..4),
            after in prop::collection::vec((name(), tests::json()), 0..3),
        ) {
            let fields = |fields: &[(String, String)]| {
                fields.iter().map(|(name, value)| format!("{name}:{value},")).collect::<String>()
            };
            let (before, metadata, after) = (fields(&before), fields(&metadata), fields(&after));
            let json = |uid: &str| {
                format!(r#"{{{before}"metadata":{{{metadata}"uid":"{uid}","name":"a"}},{after}"end":null}}"#)
            };
            let object = shaped(json);
            let expected = parse(&json(&uid(2)), &mut plain());
            // Names with escapes are not written as they were.
            let escapes = [&before, &metadata, &after].iter().any(|fields| fields.contains(ESCAPES));
            prop_assert_eq!(object.form().shape().is_none(), escapes);
            prop_assert_eq!(object.bytes(), expected.bytes());
            prop_assert_eq!(object.to_json().unwrap(), expected.to_json().unwrap());
            prop_assert_eq!(object.rest_json().unwrap(), expected.rest_json().unwrap());
            prop_assert_eq!(
                object.decode::<serde_json::Value>().ok(),
                expected.decode::<serde_json::Value>().ok()
            );
        }
    }
}
