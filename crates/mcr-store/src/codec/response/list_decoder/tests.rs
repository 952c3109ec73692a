use proptest::{prelude::*, sample::Index};

use super::{reader::MAX_VALUE, *};
use crate::codec::response::{
    list_page::parse_list_by_item,
    tests::{Encoded, bodies, encoded},
};

/// All that a list has, or its error.
type Announced = Result<(Vec<Encoded>, String, Option<String>), ListError>;

fn all_of(page: Result<ListPage<'_>, ListError>) -> Announced {
    let page = page?;
    let items = page.items.iter().map(encoded).collect();
    Ok((items, page.resource_version, page.continue_token))
}

/// The list at once. Checks that serde_json reads the same.
fn at_once(body: &[u8]) -> Announced {
    let read = all_of(parse_list(body));
    if let Ok(text) = str::from_utf8(body) {
        assert_eq!(read, all_of(parse_list_by_item(text)), "{text}");
    }
    read
}

fn in_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Announced {
    let mut list = ListDecoder::default();
    let mut items = Vec::new();
    for part in parts {
        list.buffer().extend_from_slice(part);
        items.extend(list.read()?.iter().map(encoded));
    }
    let end = list.finish()?;
    Ok((items, end.resource_version, end.continue_token))
}

/// Reads a body, and each beginning of it, in parts that end at every byte.
fn assert_same(body: &[u8]) {
    for end in 0..=body.len() {
        let body = &body[..end];
        let expected = at_once(body);
        let shown = String::from_utf8_lossy(body);
        assert_eq!(in_parts([body]), expected, "in one part: {shown}");
        assert_eq!(in_parts(body.chunks(1)), expected, "byte by byte: {shown}");
    }
    let expected = at_once(body);
    for cut in 0..=body.len() {
        let (first, last) = body.split_at(cut);
        assert_eq!(
            in_parts([first, last]),
            expected,
            "cut at {cut}: {}",
            String::from_utf8_lossy(body)
        );
    }
}

#[test]
fn a_list_reads_the_same_wherever_it_is_cut() {
    for body in [
        r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9","continue":"next"},"items":[{"metadata":{"name":"a"},"data":{"k":"1"}},{"metadata":{"name":"b"},"data":{"k":"2"}}]}
"#,
        r#"{"apiVersion":"v1","items":[{"metadata":{"name":"a"}}],"kind":"List","metadata":{"resourceVersion":"9"}}"#,
        "\n{\n\t\"metadata\" : {\r\n \"resourceVersion\" : \"9\" } ,\n \"items\" : [\n {\"metadata\" : {\"name\" : \"a\"}}\n , 7 ,\n null ] }\n ",
        r#"{"metadata":{"resourceVersion":"1"},"items":null}"#,
        r#"{"items":null,"metadata":{"resourceVersion":"1"}}"#,
        r#"{"items":[],"metadata":{"resourceVersion":"1"}}"#,
        r#"{"metadata":{"resourceVersion":"1"}}"#,
        r#"{"metadata":null,"items":[]}"#,
        "",
        " \n ",
        r#"{"zero":-0.5e-7,"metadata":{"resourceVersion":"1"},"one":[1,{"a":"]}"}],"items":[-1.5e+10,12,true,false,null,"a\"]b",[[]],{},{"metadata":{"name":"a"},"n":-1e5}],"last":12}"#,
        r#"{"m\u0065tadata":{"resourceVersion":"\u0031","continue":"\ud83d\ude00"},"it\u0065ms":[{"metadata":{"name":"\u00fc\n\\\"","labels":{"ü":"😀€"}}}]}"#,
        r#"{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"},"metadata":{"name":"c"}},{"metadata":7},{"a":1},{"metadata":{"name":"d"}}]}"#,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","reason":"Expired","code":410}"#,
        "<html>\n<body>502 Bad Gateway</body></html>",
        r#"{"metadata":{"resourceVersion":"1"},"items":[]} x"#,
        r#"{"metadata":{"resourceVersion":1},"items":[]}"#,
        r#"{"metadata":{"resourceVersion":"1"},"items":{}}"#,
        r#"{"metadata":{"resourceVersion":"1"},"metadata":{},"items":[]}"#,
        "{\"metadata\":null,\n\"items\":[\n1],\"metadata\":{}}",
        r#"{"items":[{"metadata":{"name":"a"}}],"items":null}"#,
        r#"{"items":[1,2,],"metadata":{"resourceVersion":"1"}}"#,
        "{\"items\":[1\n 2]}",
        r#"{"items":[{"a":[}]}"#,
        r#"{"a":"\ud800","items":[{"\ud800":1,"metadata":{"name":"a"}}],"metadata":{"resourceVersion":"1"}}"#,
        // Backslashes before a quote, before a letter, and before another one, each at the end of a string and within.
        r#"{"a":["\\","\"","\n","\\\"x","x\n"],"items":["\\",{"metadata":{"name":"a"},"data":{"k":"\n","l":"\\\"","m":"\"\\"}}],"metadata":{"resourceVersion":"1"}}"#,
        // Characters that would continue a number.
        r#"{"type":"ADDED"."items":[]}"#,
        r#"{"type":"ADDED","items":[{"metadata":{"name":"a"}}e1]}"#,
        r#"[{"resourceVersion":"1"},[]]"#,
        "\"list\"",
        "\u{feff}{}",
        "{\"a\":\"\u{1}\"}",
    ] {
        assert_same(body.as_bytes());
    }
}

#[test]
fn bytes_that_are_no_text_fail_the_list_wherever_it_is_cut() {
    let body = b"{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[{\"metadata\":{\"name\":\"a\"},\"b\":\"\xf0\x9f\x98\"}]}";
    for cut in 0..=body.len() {
        let (first, last) = body.split_at(cut);
        assert_eq!(in_parts([first, last]), Err(ListError::Json("not UTF-8".into())));
    }
    assert_eq!(in_parts(body.chunks(1)), at_once(body));
}

fn object(name: usize, data: usize) -> Vec<u8> {
    let data = "x".repeat(data);
    format!(r#"{{"metadata":{{"name":"{name}"}},"data":"{data}"}}"#).into_bytes()
}

fn list_of(objects: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let objects: Vec<_> = objects.into_iter().collect();
    let mut body = br#"{"metadata":{"resourceVersion":"1"},"items":["#.to_vec();
    body.extend(objects.join(&b','));
    body.extend(b"]}");
    body
}

#[test]
fn a_list_may_be_longer_than_an_object() {
    let body = list_of((0..17).map(|name| object(name, 1 << 20)));
    let mut list = ListDecoder::default();
    let mut items = 0;
    for part in body.chunks(1 << 20) {
        let buffer = list.buffer();
        assert!(
            buffer.len() < (1 << 20) + 100,
            "what was read stays in the buffer"
        );
        buffer.extend(part);
        items += list.read().unwrap().iter().count();
    }
    list.finish().unwrap();
    assert_eq!(items, 17);
}

#[test]
fn a_single_value_longer_than_16_mib_is_refused() {
    let longest = MAX_VALUE - object(0, 0).len();
    let of_length = |data: usize| list_of([object(0, data)]);
    let in_mib = |body: &[u8]| in_parts(body.chunks(1 << 20)).map(|(items, ..)| items.len());
    assert_eq!(in_mib(&of_length(longest)), Ok(1));
    let too_long = of_length(longest + 1);
    assert_eq!(in_parts([&too_long[..]]).err(), Some(ListError::TooLong));
    let endless = |before: &str, byte: u8| {
        let mib = vec![byte; 1 << 20];
        in_parts(std::iter::once(before.as_bytes()).chain([&mib[..]; 17])).err()
    };
    for (before, byte) in [
        (r#"{"items":[{"metadata":{"name":""#, b'x'),
        (r#"{"items":["#, b'1'),
        (r#"{"items":["#, b'['),
        (r#"{""#, b'x'),
        (r#"{"metadata":""#, b'x'),
        (r#"{"other":{"a":""#, b'x'),
        ("\"", b'x'),
    ] {
        assert_eq!(endless(before, byte), Some(ListError::TooLong), "{before}");
    }
    assert_eq!(in_mib(&too_long), Err(ListError::TooLong));
    // As long as a value may be, and one byte more, whether the first part or a later one makes it so long.
    let opening = list_of([]).len() - 2;
    let longer = of_length(longest + 100);
    for (len, error) in [(MAX_VALUE, None), (MAX_VALUE + 1, Some(ListError::TooLong))] {
        for first in [opening + 1, opening + len] {
            let mut list = ListDecoder::default();
            list.buffer().extend(&longer[..first]);
            let begun = list.read().err();
            list.buffer().extend(&longer[first..opening + len]);
            assert_eq!(begun.or(list.read().err()), error, "{len} bytes, {first} first");
        }
    }
}

#[test]
fn small_parts_are_not_scanned_again_and_again() {
    // The third item is none that the scanner reads.
    let body = list_of([
        object(0, 1 << 13),
        object(1, 9),
        br#"{"metadata":7}"#.to_vec(),
        object(2, 1 << 13),
    ]);
    for size in [1, 2, 1000, body.len()] {
        let mut list = ListDecoder::default();
        for part in body.chunks(size) {
            list.buffer().extend(part);
            list.read().unwrap();
        }
        assert!(list.reader.scanned <= 3 * body.len(), "in parts of {size} bytes");
        list.finish().unwrap();
    }
}

#[test]
fn all_parts_have_the_list_templates_in_common() {
    let body = list_of((0..9).map(|name| object(name, 9)));
    let mut list = ListDecoder::default();
    let mut hits = 0;
    for part in body.split_inclusive(|byte| *byte == b',') {
        list.buffer().extend(part);
        hits = hits.max(list.read().unwrap().hits());
    }
    assert_eq!(hits, 8);
}

#[test]
fn items_that_were_not_read_are_an_error() {
    let mut list = ListDecoder::default();
    list.buffer().extend(list_of([object(0, 9)]));
    assert_eq!(list.finish(), Err(ListError::Unread));
}

#[test]
fn an_error_stays() {
    let mut list = ListDecoder::default();
    list.buffer()
        .extend(b"{\"items\":[{\"metadata\":{\"name\":\"a\"}},]");
    let error = list.read().err().unwrap();
    assert_eq!(
        error.to_string(),
        "the list can't be read: not valid JSON (line 1, column 37)"
    );
    list.buffer()
        .extend(b"1],\"metadata\":{\"resourceVersion\":\"1\"}}");
    assert_eq!(list.read().err().unwrap(), error);
    assert_eq!(list.finish(), Err(error));
}

proptest! {
    #[test]
    fn any_parts_give_the_same_list(
        [body, _] in bodies(),
        end in prop::option::of(any::<Index>()),
        cuts in prop::collection::vec(any::<Index>(), 0..6),
    ) {
        let end = end.map_or(body.len(), |end| end.index(body.len()));
        let body = &body.as_bytes()[..end];
        let expected = at_once(body);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
        cuts.sort_unstable();
        cuts.push(body.len());
        let mut start = 0;
        let parts = cuts.iter().map(|end| &body[std::mem::replace(&mut start, *end)..*end]);
        prop_assert_eq!(&in_parts(parts), &expected);
        prop_assert_eq!(&in_parts(body.chunks(1)), &expected);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), size in 1..50_usize) {
        let _ = in_parts(bytes.chunks(size));
    }
}
