use proptest::prelude::*;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::{
    Scanner,
    blocks::{BLOCK, special_at},
    recorder::{BoundedRecorder, MAX_RECORDED, Recorder},
    strategies::{broken, json, space},
};
use crate::codec::scalar::{Scalar, Scalars};

fn whole(text: &str) -> Option<&str> {
    let mut json = Scanner::new(text);
    let value = json.value()?;
    json.end()?;
    Some(value)
}

/// The names and values of an object.
fn fields(text: &str) -> Option<Vec<(String, &str)>> {
    let mut fields = Vec::new();
    let mut json = Scanner::new(text);
    json.object(|value, name| {
        fields.push((name.into_owned(), value.value()?));
        Some(())
    })?;
    json.end()?;
    Some(fields)
}

#[test]
fn depth_is_bounded() {
    let nested = |depth: usize| {
        let pairs = "[{\"a\":".repeat(depth / 2) + "1" + &"}]".repeat(depth / 2);
        if depth.is_multiple_of(2) {
            pairs
        } else {
            format!("[{pairs}]")
        }
    };
    for depth in [0, 1, 2, 126, 127] {
        assert!(whole(&nested(depth)).is_some(), "{depth}");
    }
    for depth in [128, 129, 100_000] {
        assert!(whole(&nested(depth)).is_none(), "{depth}");
    }
    assert!(whole(&"[".repeat(127)).is_none());
    assert!(whole(&("[".repeat(127) + &"]".repeat(126) + "}")).is_none());
}

#[test]
fn recording_stops_at_its_limit() {
    // The first capacity has room for more escapes than the limit, the second one has not.
    for (capacity, max_escapes) in [(MAX_RECORDED, 2 * MAX_RECORDED), (1, MAX_RECORDED)] {
        let mut scalars = Scalars::with_capacity(capacity);
        let mut recorder = BoundedRecorder::new(&mut scalars);
        for at in 0..4 * MAX_RECORDED {
            recorder.escape(at);
            recorder.scalar(Scalar::new(at, at, false));
            assert_eq!(recorder.is_complete(), 2 * (at + 1) < MAX_RECORDED, "{at}");
        }
        let mark = scalars.mark();
        assert_eq!(mark.scalars, MAX_RECORDED / 2);
        assert!(mark.escapes <= max_escapes, "{}", mark.escapes);
    }
}

proptest! {
    #[test]
    fn values_are_passed_over(before in " {0,70}", values in prop::collection::vec((space(), json(), space()), 1..4)) {
        let array: Vec<String> = values.iter().map(|(before, value, after)| format!("{before}{value}{after}")).collect();
        let array = format!("{before}[{}] ", array.join(","));
        let mut found = Vec::new();
        let mut json = Scanner::new(&array);
        let read = json.array(|item| {
            found.push(item.value()?);
            Some(())
        });
        prop_assert!(read.and_then(|()| json.end()).is_some(), "{array}");
        prop_assert_eq!(found, values.iter().map(|(_, value, _)| value.as_str()).collect::<Vec<_>>());
    }

    #[test]
    fn broken_json_is_declined_as_by_serde_json(text in broken(json())) {
        let raw = serde_json::from_str::<&RawValue>(&text).ok();
        prop_assert_eq!(whole(&text), raw.map(RawValue::get), "{}", text);
        prop_assert_eq!(fields(&text), read_by_serde_json(&text), "{}", text);
    }

    #[test]
    fn any_text_is_declined_as_by_serde_json(text in prop_oneof![
        r#"[ "\\/{}\[\]:,0-9.+eEntrufalsnü\n\x00-]{0,12}"#,
        // Texts that are nearly numbers, and texts that are nearly strings.
        "-?[01]{0,2}[.]?[0-9]{0,2}[eE+-]{0,2}[0-9]?",
        r#""(\\[ -~]|\\[u"\\/bfnrtUx][0-9a-gA-G]{3,5}|[ -~\x1f]){0,3}"?"#,
        "(nul|tru|fals|nulx|True)[el]?",
        r#"[\[{](("a"|1|[}\]]) ?[:,]? ?){0,5}[}\]]{0,2}"#,
    ]) {
        prop_assert_eq!(whole(&text).is_some(), serde_json::from_str::<IgnoredAny>(&text).is_ok());
    }

    #[test]
    fn special_bytes_are_found_where_they_are(block in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(br#""\ !#[]"#.to_vec())], 0..200), start in 0_usize..200) {
        let is = |at: usize| block.get(start + at).is_some_and(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f));
        let found = special_at(&block, start).unwrap_or_default();
        prop_assert_eq!((0..BLOCK).map(|at| found >> at & 1 == 1).collect::<Vec<_>>(), (0..BLOCK).map(is).collect::<Vec<_>>());
    }
}

fn read_by_serde_json(text: &str) -> Option<Vec<(String, &str)>> {
    struct Fields<'a>(Vec<(String, &'a str)>);
    impl<'de: 'a, 'a> serde::Deserialize<'de> for Fields<'a> {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Visitor;
            impl<'de> serde::de::Visitor<'de> for Visitor {
                type Value = Fields<'de>;
                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("an object")
                }
                fn visit_map<A: serde::de::MapAccess<'de>>(
                    self,
                    mut map: A,
                ) -> Result<Self::Value, A::Error> {
                    let mut fields = Vec::new();
                    while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                        fields.push((name, value.get()));
                    }
                    Ok(Fields(fields))
                }
            }
            deserializer.deserialize_map(Visitor)
        }
    }
    serde_json::from_str::<Fields<'_>>(text)
        .ok()
        .map(|fields| fields.0)
}
