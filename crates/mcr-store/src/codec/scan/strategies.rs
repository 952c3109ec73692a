//! Strategies for valid and broken JSON, for the tests of several modules.

use proptest::{prelude::*, sample::Index};

/// White space, mostly none.
pub(in crate::codec) fn space() -> impl Strategy<Value = &'static str> {
    prop_oneof![8 => Just(""), 1 => Just(" "), 1 => Just("\n \t\r")]
}

/// A string as JSON text. Some are long enough to extend over several blocks.
pub(in crate::codec) fn string() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-z :{}\\[\\],]{0,30}",
        1 => "[ü€😀\u{7f}]{1,3}",
        2 => prop::sample::select(vec![r#"\""#, r"\\", r"\/", r"\b", r"\f", r"\n", r"\r", r"\t", r"\u00e4", r"\uD83D\uDE00", r"\ud800"])
            .prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

pub(in crate::codec) fn number() -> impl Strategy<Value = String> {
    let fraction = prop::option::of("[0-9]{1,20}")
        .prop_map(|digits| digits.map_or(String::new(), |digits| format!(".{digits}")));
    ("-?(0|[1-9][0-9]{0,20})", fraction, "([eE][+-]?[0-9]{1,4})?")
        .prop_map(|(whole, fraction, exponent)| whole + &fraction + &exponent)
}

pub(in crate::codec) fn json() -> impl Strategy<Value = String> {
    let literal = prop::sample::select(vec!["null", "true", "false", "{}", "[]", "{ }", "[ ]"]);
    let leaf = prop_oneof![string(), number(), literal.prop_map(str::to_owned)];
    leaf.prop_recursive(6, 40, 5, |inner| {
        let inner = (space(), inner, space())
            .prop_map(|(before, value, after)| format!("{before}{value}{after}"))
            .boxed();
        let field = (space(), string(), space(), inner.clone())
            .prop_map(|(before, name, after, value)| format!("{before}{name}{after}:{value}"));
        prop_oneof![
            prop::collection::vec(inner, 1..5).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(field, 1..5).prop_map(|fields| format!("{{{}}}", fields.join(","))),
        ]
    })
}

/// The text with one byte added, removed or replaced, or without its end.
pub(in crate::codec) fn broken(text: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let byte = prop_oneof![
        any::<u8>(),
        prop::sample::select(br#""\/{}[]:,0123456789.-+eEntfu"#.to_vec())
    ];
    (text, any::<Index>(), byte, 0..4).prop_filter_map("not UTF-8", |(text, at, byte, how)| {
        let mut bytes = text.into_bytes();
        let at = at.index(bytes.len());
        match how {
            0 => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            2 => drop(bytes.remove(at)),
            _ => bytes.truncate(at),
        }
        String::from_utf8(bytes).ok()
    })
}
