//! The JSON that many objects have in common, and what each of them says in it.

use std::{array, fmt};

use super::{
    moment::Moment,
    numbers,
    object::{BEFORE_FACTS, Fact},
    open::Field,
    quoted,
    scalar::{NotedOf, Scalar},
    uid::Uid,
};

/// Which facts are in the rest of an object's JSON, as the fleet does not hold them, or not as they were written.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Rest {
    pub(super) namespace: bool,
    pub(super) uid: bool,
    pub(super) resource_version: bool,
    pub(super) generation: bool,
}

/// What makes two objects alike.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Alike<'a> {
    pub(super) rest: Rest,
    /// The rest of their JSON, with holes.
    pub(super) json: &'a str,
}

/// Takes the place of each string and each number in what objects have in common. In JSON it stands only in strings.
pub(super) const HOLE: u8 = b'\x7f';
pub(super) const A_HOLE: &str = "\x7f";
pub(super) const QUOTED_HOLE: &str = "\"\x7f\"";

/// All of the JSON of some objects but what its strings and its numbers say.
pub(super) struct Shape {
    text: Box<str>,
    /// Where the holes of the rest are.
    holes: Box<[u32]>,
    rest: Rest,
    /// Where the rest begins.
    rest_at: usize,
}

impl Shape {
    /// Of objects that begin with `prefix`, have the facts that are not in the rest, and so many `holes` in that. None if
    /// it is larger than 4 GiB, or if a name in it has what stands for a hole.
    pub(super) fn new(prefix: &str, alike: Alike<'_>, holes: usize) -> Option<Self> {
        let Alike { rest, json } = alike;
        // Numbers have no quotes.
        let facts = [
            (true, "\""),
            (!rest.namespace, "\""),
            (!rest.uid, "\""),
            (!rest.resource_version, "\""),
            (!rest.generation, ""),
        ];
        let mut text = prefix.to_owned();
        for (before, (_, quote)) in BEFORE_FACTS.iter().zip(facts).filter(|(_, (has, _))| *has) {
            text.extend([before, quote, A_HOLE, quote]);
        }
        let rest_at = text.len();
        text.push_str(json);
        let at = |(at, _): (usize, &str)| u32::try_from(at).ok();
        let all: Vec<u32> = text.match_indices(A_HOLE).map(at).collect::<Option<_>>()?;
        let facts = facts.iter().filter(|(has, _)| *has).count();
        (all.len() == facts + holes).then_some(())?;
        Some(Self {
            text: text.into(),
            holes: all.get(facts..)?.into(),
            rest,
            rest_at,
        })
    }

    pub(super) fn alike(&self) -> Alike<'_> {
        Alike {
            rest: self.rest,
            json: self.text.get(self.rest_at..).unwrap_or_default(),
        }
    }

    /// The whole JSON, with a hole for each string and each number of an object and for nothing else.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// How many bytes of memory it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.text.len() + size_of_val(&*self.holes)
    }

    /// Puts the rest of an object's JSON together of which [`Cutter`] has made `said`.
    pub(super) fn write(&self, said: &str, out: &mut Vec<u8>) {
        let text = self.text.as_bytes();
        let mut fillings = Fillings::of_rest(said);
        let mut from = self.rest_at;
        for hole in &self.holes {
            let hole = *hole as usize;
            out.extend_from_slice(text.get(from..hole).unwrap_or_default());
            if let Some(filling) = fillings.next() {
                filling.write(out);
            }
            from = hole + 1;
        }
        out.extend_from_slice(text.get(from..).unwrap_or_default());
    }
}

// Names may be secrets, as those of the fields of a Secret.
impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shape")
            .field("bytes", &self.text.len())
            .field("holes", &self.holes.len())
            .finish()
    }
}

/// Parts what an object says from what it says it in. Keeps its memory from one to the next.
pub(super) struct Cutter {
    common: String,
    holes: usize,
    said: Vec<u8>,
}

impl Cutter {
    pub(super) const fn new() -> Self {
        Self {
            common: String::new(),
            holes: 0,
            said: Vec::new(),
        }
    }

    /// The rest of the JSON of a [`Shape`].
    pub(super) fn common(&self) -> &str {
        &self.common
    }

    /// How many holes it has.
    pub(super) fn holes(&self) -> usize {
        self.holes
    }

    /// What fills its holes, for [`Fillings`].
    pub(super) fn said(&self) -> &[u8] {
        &self.said
    }

    /// How much memory it keeps.
    pub(super) fn capacity(&self) -> usize {
        self.common.capacity() + self.said.capacity()
    }

    pub(super) fn clear(&mut self) {
        self.common.clear();
        self.holes = 0;
        self.said.clear();
    }

    /// Parts what is left of an object: the last fields of each of the objects that end with it, the innermost first.
    /// What is `noted` of the `text` is of these fields and of others. None if a field is not written in one piece.
    pub(super) fn part<'a>(
        &mut self,
        objects: [&mut dyn Iterator<Item = &'a Field<'a>>; 2],
        text: &'a str,
        noted: &NotedOf<'_>,
    ) -> Option<()> {
        self.clear();
        for fields in objects {
            for field in fields {
                self.common.push(',');
                let start = field.at? as usize;
                let end = start + field.whole(text)?.len();
                self.cut(text.get(..end)?, start, noted.own(&field.own)?, noted.escapes)?;
            }
            self.common.push('}');
        }
        Some(())
    }

    /// Parts what begins there. There may be more escapes than those of its strings.
    pub(super) fn cut(
        &mut self,
        text: &str,
        start: usize,
        scalars: &[Scalar],
        escapes: &[u32],
    ) -> Option<()> {
        let mut from = start;
        for scalar in scalars {
            self.common.push_str(text.get(from..scalar.start())?);
            self.common.push_str(A_HOLE);
            self.say(*scalar, text, escapes)?;
            from = scalar.end();
        }
        self.holes += scalars.len();
        self.common.push_str(text.get(from..)?);
        Some(())
    }

    /// The same for an object whose shape is known.
    pub(super) fn part_alike<'a>(
        &mut self,
        fields: impl Iterator<Item = &'a Field<'a>>,
        text: &str,
        noted: &NotedOf<'_>,
    ) -> Option<()> {
        self.said.clear();
        for field in fields {
            for scalar in noted.own(&field.own)? {
                self.say(*scalar, text, noted.escapes)?;
            }
        }
        Some(())
    }

    fn say(&mut self, scalar: Scalar, text: &str, escapes: &[u32]) -> Option<()> {
        let said = &mut self.said;
        let written = scalar.of(text)?;
        if scalar.escapes() {
            let before = said.len();
            if say_without_escapes(said, scalar, text, scalar.escapes_from(escapes)).is_none() {
                said.truncate(before);
                said.push(AS_JSON);
                say(said, text.get(scalar.start() - 1..scalar.end() + 1)?);
            }
        } else if let Some(moment) = Moment::read(written.as_bytes()) {
            said.push(A_MOMENT);
            said.extend_from_slice(moment.held().as_bytes());
        } else {
            say(said, written);
        }
        Some(())
    }
}

/// What stands before the length of something, if it is not held as it is written: a time, which has no length;
const A_MOMENT: u8 = 0;
/// a string without the escapes that it is written with;
const WITHOUT_ESCAPES: u8 = 1;
/// and one with them and with its quotes, as it has escapes that others would write otherwise.
const AS_JSON: u8 = 2;
/// What lengths are counted from.
const SHORTEST: usize = 3;

fn say(said: &mut Vec<u8>, text: &str) {
    numbers::write(said, text.len() + SHORTEST);
    said.extend_from_slice(text.as_bytes());
}

/// None if [`quoted::write`] would not write the escapes again as they are. The first of `escapes` are those of the
/// string.
fn say_without_escapes(said: &mut Vec<u8>, scalar: Scalar, text: &str, escapes: &[u32]) -> Option<()> {
    let (mut from, end) = (scalar.start(), scalar.end());
    said.push(WITHOUT_ESCAPES);
    // Its bytes are as many as those of the longer length that is known by now.
    let len_at = said.len();
    numbers::write(said, end - from + SHORTEST);
    let text_at = said.len();
    let room = end - from + LINE;
    said.resize(text_at + room, 0);
    let mut to = said.get_mut(text_at..)?;
    let mut text = text.as_bytes().get(from..)?;
    for at in escapes {
        let at = *at as usize;
        if at >= end {
            break;
        }
        let line = at.checked_sub(from)?;
        copy(to, text, line)?;
        let stands_for = WRITTEN[usize::from(*text.get(line + 1)?)];
        if stands_for == 0 {
            return None;
        }
        *to.get_mut(line)? = stands_for;
        (_, to) = to.split_at_mut_checked(line + 1)?;
        text = text.get(line + 2..)?;
        from = at + 2;
    }
    let line = end.checked_sub(from)?;
    copy(to, text, line)?;
    let mut len = room - to.len() + line;
    said.truncate(text_at + len);
    len += SHORTEST;
    for byte in said.get_mut(len_at..text_at)? {
        *byte = *byte & numbers::MORE | (len & numbers::MOST_IN_A_BYTE) as u8;
        len >>= numbers::BITS;
    }
    Some(())
}

/// So many bytes most lines have at most.
const LINE: usize = 64;

/// Copies so many bytes, which are mostly a line. What is behind them may become anything.
#[inline(always)]
fn copy(to: &mut [u8], from: &[u8], len: usize) -> Option<()> {
    match (to.first_chunk_mut::<LINE>(), from.first_chunk::<LINE>()) {
        // Without a call, as compilers know how much it is.
        (Some(to), Some(from)) if len <= LINE => *to = *from,
        _ => copy_exactly(to.get_mut(..len)?, from.get(..len)?),
    }
    Some(())
}

#[inline(never)]
fn copy_exactly(to: &mut [u8], from: &[u8]) {
    to.copy_from_slice(from);
}

/// What a byte stands for upon a backslash, where that is how it is written; zero for others.
const WRITTEN: [u8; 256] = {
    let mut written = [0; 256];
    written[b'n' as usize] = b'\n';
    written[b'r' as usize] = b'\r';
    written[b't' as usize] = b'\t';
    written[b'"' as usize] = b'"';
    written[b'\\' as usize] = b'\\';
    written
};

/// What fills a hole.
#[derive(Clone, Copy)]
pub(super) enum Filling<'a> {
    /// A string that is written as it is, a number, or a fact.
    Plain(&'a str),
    /// A string that has escapes when it is written.
    WithoutEscapes(&'a str),
    /// A string as it is written, with its quotes.
    Json(&'a str),
    Moment(Moment),
    Uid(Uid),
}

impl Filling<'_> {
    fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Plain(text) => out.extend_from_slice(text.as_bytes()),
            Self::WithoutEscapes(text) => {
                // With the quotes that the shape has before and behind it.
                out.pop();
                quoted::write(out, text);
                out.pop();
            }
            Self::Json(json) => {
                let inner = json.get(1..json.len().saturating_sub(1));
                out.extend_from_slice(inner.unwrap_or_default().as_bytes());
            }
            Self::Moment(moment) => out.extend_from_slice(&moment.text()),
            Self::Uid(uid) => out.extend_from_slice(&uid.text()),
        }
    }
}

/// What an object says, in the order of the holes of its shape.
pub(super) struct Fillings<'a> {
    facts: array::IntoIter<Option<Fact<'a>>, { BEFORE_FACTS.len() }>,
    said: &'a str,
}

impl<'a> Fillings<'a> {
    pub(super) fn new(facts: [Option<Fact<'a>>; BEFORE_FACTS.len()], said: &'a str) -> Self {
        Self {
            facts: facts.into_iter(),
            said,
        }
    }

    /// Of the holes that stand behind those of facts.
    pub(super) fn of_rest(said: &'a str) -> Self {
        Self::new([const { None }; BEFORE_FACTS.len()], said)
    }

    /// Reads what stands before the text that is next; how long that is.
    #[inline(always)]
    fn len(&mut self) -> Option<usize> {
        let (len, bytes) = numbers::read(self.said.as_bytes())?;
        self.said = self.said.get(bytes..)?;
        Some(len)
    }

    #[inline(always)]
    fn text(&mut self, len: usize) -> Option<&'a str> {
        let (text, rest) = self.said.split_at_checked(len)?;
        self.said = rest;
        Some(text)
    }

    #[inline(always)]
    fn said(&mut self) -> Option<Filling<'a>> {
        let len = self.len()?;
        if let Some(len) = len.checked_sub(SHORTEST) {
            return self.text(len).map(Filling::Plain);
        }
        self.marked(len)
    }

    fn marked(&mut self, mark: usize) -> Option<Filling<'a>> {
        if mark == usize::from(A_MOMENT) {
            return Moment::of(self.text(Moment::BYTES)?).map(Filling::Moment);
        }
        let len = self.len()?.checked_sub(SHORTEST)?;
        let text = self.text(len)?;
        Some(match mark == usize::from(WITHOUT_ESCAPES) {
            true => Filling::WithoutEscapes(text),
            false => Filling::Json(text),
        })
    }
}

impl<'a> Iterator for Fillings<'a> {
    type Item = Filling<'a>;

    #[inline]
    fn next(&mut self) -> Option<Filling<'a>> {
        for fact in self.facts.by_ref() {
            return Some(match fact {
                None => continue,
                Some(Fact::Text(text)) => Filling::Plain(text),
                Some(Fact::Number(text)) => Filling::Plain(text),
                Some(Fact::Uid(uid)) => Filling::Uid(uid),
            });
        }
        self.said()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;
    use crate::store::{Form, Interner, Object, Scanner, Shapes, scan::tests};

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
        let facts = r#""metadata":{"name":"@","uid":"@","resourceVersion":"@""#;
        let common = r#","creationTimestamp":"@","labels":{"app":"@"}},"data":{"a.properties":"@"},"immutable":false,"n":[@,@,{},[]]}"#;
        let shape = object.form().shape().unwrap();
        assert_eq!(shape.alike().json, common.replace('@', A_HOLE));
        let whole = [form().prefix(), facts, common].concat();
        assert_eq!(shape.text(), whole.replace('@', A_HOLE));
        // A longer number of how long all is, and no facts; six bytes of a time after its mark, the others with a length
        // before each, and a mark where an escape was.
        let said = object.held_bytes() - parse(r#"{"metadata":{"name":"a"}}"#, &mut plain()).held_bytes();
        assert_eq!(
            said + "}}".len(),
            1 + "7".len() + 7 + "_web".len() + "__x = 1\n".len() + "_1.5e3".len() + "_-2".len()
        );
        assert_eq!(object.to_json(), parse(&json(&uid(2)), &mut plain()).to_json());
    }

    #[test]
    fn long_strings_come_back_whole() {
        let lens = [0, 60, 61, 62, 4_092, 4_093, 4_094, 262_140, 262_141];
        let plain_and_not = lens
            .into_iter()
            .flat_map(|len| [(len, ""), (len, r"\n"), (len, r"\/")]);
        for (len, escape) in plain_and_not.chain([(17_000_000, "")]) {
            let json = |uid: &str| {
                format!(
                    r#"{{"metadata":{{"name":"a","uid":"{uid}"}},"data":{{"a":"{escape}{}","b":"c"}}}}"#,
                    "x".repeat(len)
                )
            };
            let object = shaped(json);
            let shape = object.form().shape().unwrap();
            let value: serde_json::Value = object.decode_shaped(shape, &mut String::new()).unwrap();
            assert_eq!(
                value,
                serde_json::from_slice::<serde_json::Value>(&object.to_json()).unwrap()
            );
            assert_eq!(object.to_json(), parse(&json(&uid(2)), &mut plain()).to_json());
        }
    }

    #[test]
    fn a_name_like_a_hole_makes_no_shape() {
        let json = |name: &str, value: &str, uid: &str| {
            format!(r#"{{"metadata":{{"name":"a","uid":"{uid}"}},"data":{{"{name}":"{value}"}}}}"#)
        };
        let mut interner = Interner::shaping(Arc::new(Shapes::new(form())));
        for (number, name, value, is_shaped) in [
            (1, "k", "\x7f", false),
            (2, "k", "\x7f\x7f", true),
            (3, "\x7f", "v", false),
            (4, "\x7f", "w", false),
            (5, "\x7f", "\x7f", false),
        ] {
            let object = parse(&json(name, value, &uid(number)), &mut interner);
            assert_eq!(object.form().shape().is_some(), is_shaped, "{number}");
            let map: std::collections::BTreeMap<String, serde_json::Value> = object.decode().unwrap();
            assert_eq!(map["data"][name], value);
        }
    }

    #[test]
    fn strings_lose_only_escapes_that_come_back_the_same() {
        for (written, is_held) in [
            (r#"x\n\t\r\"\\y"#, "\u{1}\nx\n\t\r\"\\y"),
            (r"a < b\n", "\u{1}\u{9}a < b\n"),
            (r"a \u003c b", "\u{2}\u{f}\"a \\u003c b\""),
            (r"\n\/", "\u{2}\u{9}\"\\n\\/\""),
            (r"\b", "\u{2}\u{7}\"\\b\""),
            (r"\u000a", "\u{2}\u{b}\"\\u000a\""),
            (r"\ud83e\udd80", "\u{2}\u{11}\"\\ud83e\\udd80\""),
            ("ü\u{2028}", "\u{8}ü\u{2028}"),
        ] {
            let json = |uid: &str| {
                format!(r#"{{"metadata":{{"name":"a","uid":"{uid}"}},"data":{{"a":"{written}"}}}}"#)
            };
            let object = shaped(json);
            let expected = parse(&json(&uid(2)), &mut plain());
            let mut cutter = Cutter::new();
            let text = format!("\"{written}\"");
            let scalars = Scanner::new(&text).scalars().unwrap();
            cutter
                .cut(&text, 0, scalars.from(0), scalars.escapes_from(0))
                .unwrap();
            assert_eq!(str::from_utf8(cutter.said()), Ok(is_held));
            assert_eq!(object.to_json(), expected.to_json());
            assert_eq!(
                object.decode::<serde_json::Value>().unwrap(),
                expected.decode::<serde_json::Value>().unwrap()
            );
        }
    }

    #[test]
    fn lines_of_every_length_come_back_wherever_the_text_ends() {
        let line = |len: usize| format!("{}\\n", "x".repeat(len));
        let lens = (0..3 * LINE).chain((0..3 * LINE).rev());
        let lines: String = lens.map(line).collect();
        let expected: String = serde_json::from_str(&format!("\"{lines}\"")).unwrap();
        for behind in (0..2 * LINE).step_by(7) {
            let text = format!("\"{lines}\"{}", " ".repeat(behind));
            let scalars = Scanner::new(&text).scalars().unwrap();
            let mut cutter = Cutter::new();
            cutter
                .cut(&text, 0, scalars.from(0), scalars.escapes_from(0))
                .unwrap();
            let said = str::from_utf8(cutter.said()).unwrap();
            match Fillings::of_rest(said).next() {
                Some(Filling::WithoutEscapes(text)) => assert_eq!(text, expected),
                _ => panic!("it has escapes that are not written otherwise"),
            }
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

    fn value() -> impl Strategy<Value = String> {
        prop_oneof![4 => tests::json(), 1 => Just("\"2026-11-22T09:27:48Z\"".to_owned())]
    }

    proptest! {
        #[test]
        fn an_object_reads_the_same_in_a_shape(
            before in prop::collection::vec((name(), value()), 0..3),
            metadata in prop::collection::vec((name(), value()), 0..4),
            after in prop::collection::vec((name(), value()), 0..3),
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
            // And one may have in its name what stands for a hole.
            if !json("").contains(A_HOLE) {
                prop_assert_eq!(object.form().shape().is_none(), escapes);
            }
            prop_assert_eq!(object.bytes(), expected.bytes());
            prop_assert_eq!(form().prefix().len() + object.bytes(), expected.to_json().len());
            prop_assert_eq!(object.to_json(), expected.to_json());
            let decoded = expected.decode::<serde_json::Value>().ok();
            prop_assert_eq!(&object.decode::<serde_json::Value>().ok(), &decoded);
            if let Some(shape) = object.form().shape() {
                prop_assert_eq!(object.decode_shaped::<serde_json::Value>(shape, &mut String::new()), decoded);
            }
        }
    }
}
