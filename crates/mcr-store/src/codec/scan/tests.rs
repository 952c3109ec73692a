use proptest::prelude::*;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::{
    Scanner,
    blocks::{BLOCK, special_at},
    recorder::{BoundedRecorder, MAX_RECORDED, Recorder},
    strategies::{broken, json},
};
use crate::codec::scalar::{Scalar, Scalars};

fn whole(text: &str) -> Option<&str> {
    let mut json = Scanner::new(text);
    let value = json.value()?;
    json.end()?;
    Some(value)
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
    fn broken_json_is_declined_as_by_serde_json(text in broken(json())) {
        let raw = serde_json::from_str::<&RawValue>(&text).ok();
        prop_assert_eq!(whole(&text), raw.map(RawValue::get), "{}", text);
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
