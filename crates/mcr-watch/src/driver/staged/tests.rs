use mcr_store::{Encoder, Encoding, Object};
use serde_json::{json, value::to_raw_value};

use super::*;

/// An object of about so many kilobytes.
fn object(place: &str, name: usize, kilobytes: usize) -> PlacedObject {
    let text = "x".repeat(kilobytes * 1_000);
    let json = to_raw_value(&json!({"metadata": {"name": name.to_string()}, "data": {"a": text}})).unwrap();
    let mut encoder = Encoder::plain(Encoding::new("v1", "ConfigMap"));
    PlacedObject {
        place: Some(place.into()),
        object: Arc::new(Object::parse(&json, &mut encoder).unwrap()),
    }
}

/// Lists objects of the places, of 10 kB each, and makes room as a page does that is being read. Returns the places that are left
/// out, those that should be, and how many objects are staged.
fn listed(
    limit: usize,
    left_out: &str,
    held: Option<usize>,
    objects: &str,
) -> (String, Option<String>, usize) {
    let names = |places: BTreeSet<Arc<str>>| places.iter().map(|place| &**place).collect::<String>();
    let left_out = left_out.chars().map(|place| place.to_string().into()).collect();
    let mut staged = Staged::new(limit * 1_000, held.map(|held| held * 1_000), left_out);
    for (name, place) in objects.chars().enumerate() {
        if place == '|' {
            staged.end_page();
            continue;
        }
        let known = staged.left_out.contains(&*place.to_string());
        staged.objects.reserve(1_000);
        staged.add(object(&place.to_string(), name, 10)).unwrap();
        let searched = staged.objects.capacity() < 1_000;
        assert!(
            !known || !searched,
            "each object of a place costs a look at all others"
        );
        if let Some(over) = staged.bytes.checked_sub(limit * 1_000 + 1) {
            staged.make_room(over);
        }
        let bytes = staged.objects.iter();
        let bytes = bytes.map(|object| size_of::<PlacedObject>() + object.object.held_bytes());
        assert_eq!(bytes.sum::<usize>(), staged.bytes);
        assert!(staged.bytes <= limit * 1_000);
    }
    staged.end_page();
    let others = staged.others_to_leave_out().map(names);
    (names(staged.left_out.clone()), others, staged.objects.len())
}

#[test]
fn the_largest_places_are_left_out_of_a_list_that_takes_too_much() {
    for (limit, before, held, objects, left_out, others, staged) in [
        (100, "", None, "aabbcc", "", None, 6),
        // One place has much, in one page or several, at the end or at the beginning.
        (100, "", None, "aabbxxxxxxxxxxcc", "x", None, 6),
        (100, "", None, "xxxx|xxxx|xxxx|aabb|cc", "x", None, 6),
        // What was the largest when there was no more room may not be it in the end.
        (100, "", None, "aaaaabbxxxxxxxxxxxxxx", "ax", Some("x"), 2),
        (100, "x", None, "aaaaabbxxxxxxxxxxxxxx", "x", None, 7),
        // It has shrunk, also if only a little is missing to the limit.
        (100, "x", None, "aabbxx", "x", Some(""), 4),
        (100, "x", None, "aaabbbxxx", "x", None, 6),
        (100, "x", None, "aabb", "x", Some(""), 4),
        // What one place may hold is less.
        (100, "", Some(45), "aabbxxxxxxx", "x", None, 4),
        (100, "x", Some(45), "aabbxxx", "x", Some(""), 4),
        // Many of the same size: as few as possible.
        (50, "", None, "abcdef", "ab", None, 4),
    ] {
        let expected = (left_out.to_owned(), others.map(str::to_owned), staged);
        assert_eq!(
            listed(limit, before, held, objects),
            expected,
            "{objects} in {limit} kB"
        );
    }
}

#[test]
fn nothing_of_a_page_that_failed_counts_whatever_was_left_out_of_it() {
    let mut staged = Staged::new(100_000, None, BTreeSet::new());
    for (name, place) in ["a", "x", "b"].into_iter().enumerate() {
        staged.add(object(place, name, 10)).unwrap();
    }
    staged.end_page();
    let before = staged.bytes;
    for name in 10..14 {
        staged.add(object("x", name, 10)).unwrap();
    }
    staged.add(object("a", 14, 10)).unwrap();
    staged.drop_page();
    assert_eq!(
        (staged.bytes, staged.objects.len(), staged.taken("x") < 15_000),
        (before, 3, true)
    );
    for name in 10..14 {
        staged.add(object("x", name, 10)).unwrap();
    }
    staged.make_room(20_000);
    staged.drop_page();
    let places = staged
        .objects
        .iter()
        .map(|object| object.place.as_deref().unwrap());
    assert_eq!(places.collect::<String>(), "ab");
    assert!(staged.bytes < before && staged.taken("x") < 15_000);
}
