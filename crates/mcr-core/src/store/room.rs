//! Memory that is used again by whatever is read or decoded on a thread.

use std::cell::Cell;

use super::shape::Cutter;

/// More than this is not kept: few objects are so large, and every thread would come to keep it.
const KEPT: usize = 64 << 10;

/// What reading or decoding an object needs until it is done. May hold anything.
pub(super) struct Room {
    /// The object as a JSON document.
    pub(super) document: Vec<u8>,
    /// A string of it.
    pub(super) text: String,
    /// An object in its parts.
    pub(super) cutter: Cutter,
}

thread_local! {
    static ROOM: Cell<Room> = const { Cell::new(Room::new()) };
}

impl Default for Room {
    fn default() -> Self {
        Self::new()
    }
}

impl Room {
    const fn new() -> Self {
        Self {
            document: Vec::new(),
            text: String::new(),
            cutter: Cutter::new(),
        }
    }

    /// Takes the thread's. Whoever decodes something while another does begins with an empty one.
    pub(super) fn take() -> Self {
        ROOM.try_with(Cell::take).unwrap_or_default()
    }

    /// Leaves it to the next one.
    pub(super) fn give_back(mut self) {
        if self.document.capacity() > KEPT {
            self.document = Vec::new();
        }
        if self.text.capacity() > KEPT {
            self.text = String::new();
        }
        if self.cutter.capacity() > KEPT {
            self.cutter = Cutter::new();
        }
        // A thread that ends keeps nothing.
        let _ = ROOM.try_with(|room| room.set(self));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer};
    use serde_json::{Value, value::RawValue};

    use super::*;
    use crate::store::{Form, Interner, Object, Shapes};

    fn kept() -> (usize, usize) {
        let room = Room::take();
        let kept = (room.document.capacity(), room.text.capacity());
        room.give_back();
        kept
    }

    fn kept_of_parts() -> usize {
        let room = Room::take();
        let kept = room.cutter.capacity();
        room.give_back();
        kept
    }

    fn object(text: &str) -> Object {
        let json = serde_json::json!({"metadata": {"name": "a"}, "data": {"text": text}}).to_string();
        let raw: &RawValue = serde_json::from_str(&json).unwrap();
        Object::parse(raw, &mut Interner::plain(Form::new("v1", "ConfigMap"))).unwrap()
    }

    #[test]
    fn what_is_used_again_never_shows() {
        let texts = ["a\n", "much longer than the first\t", "", "\u{1}", "plain"];
        for text in texts.iter().cycle().take(15) {
            let value: Value = object(text).decode().unwrap();
            assert_eq!(value["data"]["text"], **text);
        }
        let (document, text) = kept();
        assert!(document > 0 && text > 0);
    }

    #[test]
    fn what_is_large_is_not_kept() {
        let value: Value = object(&"\n".repeat(KEPT)).decode().unwrap();
        assert_eq!(value["data"]["text"].as_str().map(str::len), Some(KEPT));
        assert_eq!(kept(), (0, KEPT));
        assert!(object(&"\n".repeat(KEPT + 1)).decode::<Value>().is_ok());
        assert_eq!(kept(), (0, 0));
    }

    #[test]
    fn of_objects_that_are_large_no_parts_are_kept() {
        let mut interner = Interner::shaping(Arc::new(Shapes::new(Form::new("v1", "ConfigMap"))));
        let mut take = |len: usize| {
            let json =
                serde_json::json!({"metadata": {"name": "a"}, "data": {"text": "x".repeat(len)}}).to_string();
            let raw: &RawValue = serde_json::from_str(&json).unwrap();
            Object::parse(raw, &mut interner).unwrap();
        };
        take(KEPT / 4);
        assert!(kept_of_parts() > KEPT / 4);
        take(KEPT + 1);
        assert_eq!(kept_of_parts(), 0);
    }

    #[test]
    fn a_type_may_decode_while_it_is_decoded() {
        struct Within(Value);
        impl<'de> Deserialize<'de> for Within {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let inner: Value = object("inner\n").decode().unwrap();
                assert_eq!(inner["data"]["text"], "inner\n");
                Value::deserialize(deserializer).map(Within)
            }
        }
        for _ in 0..2 {
            let Within(outer) = object("outer\n").decode().unwrap();
            assert_eq!(outer["data"]["text"], "outer\n");
        }
    }
}
