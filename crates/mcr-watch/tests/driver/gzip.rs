//! Lists that the server compresses.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use k8s_openapi::api::core::v1::ConfigMap;
use mcr_doubles::scripted::{Answer, Asked, Server};
use serde_json::json;

use crate::harness::*;

const MIB: usize = 1 << 20;

fn packed(text: impl AsRef<[u8]>) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(text.as_ref()).unwrap();
    packer.finish().unwrap()
}

fn answer(status: u16, bytes: impl AsRef<[u8]>) -> Answer {
    encoded("gzip", status, bytes)
}

fn encoded(encoding: &str, status: u16, bytes: impl AsRef<[u8]>) -> Answer {
    let headers = [
        ("content-type", "application/json"),
        ("content-encoding", encoding),
    ];
    Answer::with_headers(status, &headers, bytes)
}

/// Hexadecimal numbers without an order.
fn noise(numbers: u64) -> String {
    let number = |i: u64| format!("{:x}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (1..=numbers).map(number).collect()
}

#[tokio::test(start_paused = true)]
async fn a_compressed_list_is_unpacked_and_watches_are_not_compressed() {
    let maps = |number: u32| map(&number.to_string(), 1);
    let mut large = map("large", 1);
    large["data"] = json!({ "k": noise(20_000) });
    let list = list_object(10, (0..2_000).map(maps).chain([large])).to_string();
    // In two members, in the middle of an object.
    let (one, other) = list.split_at(list.len() / 2);
    let list = [packed(one), packed(other)].concat();
    let server = Server::in_memory(lists(move |_| answer(200, &list)));
    let one = One::in_cluster(Cluster::accepting_gzip(&server, |_| {}));
    synced(&one.watch).await;
    assert_eq!(one.log.problems(), [""; 0]);
    let store = one.cluster.store::<ConfigMap>().unwrap();
    assert_eq!(store.len().unwrap(), 2_001);
    eventually("it is watched", || server.watches(MAPS).len() == 1).await;
    let encoding = |asked: Vec<Asked>| asked[0].header("accept-encoding").unwrap().to_owned();
    assert_eq!(encoding(server.lists(MAPS)), "gzip");
    assert_eq!(encoding(server.watches(MAPS)), "identity");
}

/// What a hostile server could send, one that breaks, and one with objects that compress well.
#[tokio::test(start_paused = true)]
async fn after_a_list_that_can_not_be_unpacked_the_others_are_not_compressed() {
    let good = packed(list_object(10, [map("a", 1)]).to_string());
    let mut damaged = good.clone();
    *damaged.iter_mut().rev().nth(5).unwrap() ^= 1;
    let bomb = packed([br#"{"items":["#.to_vec(), vec![b' '; 32 * MIB]].concat());
    let letters = list_object(10, (0..3).map(|i| large_map(&i.to_string(), 1, MIB)));
    let cut_off = packed(r#"{"items":["#);
    // The name of a file, without an end.
    let empty = [&[0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 3][..], &vec![b'n'; 5 * MIB]].concat();
    for (encoding, bad, problem) in [
        ("gzip", good[..good.len() - 3].to_vec(), "can't be unpacked"),
        ("gzip", damaged, "can't be unpacked"),
        ("gzip", b"{\"items\": []}".to_vec(), "can't be unpacked"),
        ("deflate", b"x\x9c".to_vec(), "can't be unpacked"),
        ("gzip", empty, "next to nothing in it"),
        ("gzip", bomb, "grows more than 128 times"),
        ("gzip", packed(letters.to_string()), "grows more than 128 times"),
        ("gzip", cut_off, "ends in the middle"),
    ] {
        let server = Server::in_memory(move |asked| {
            match (asked.is_watch(), asked.header("accept-encoding"), asked.nth) {
                (false, Some("gzip"), _) => encoded(encoding, 200, &bad),
                (false, ..) => list(20, [map("b", 2)]),
                (true, _, 0) => too_old(),
                (true, ..) => quiet(),
            }
        });
        let one = One::in_cluster(Cluster::accepting_gzip(&server, |_| {}));
        one.log.becomes(&["+b"]).await;
        let problems = one.log.problems();
        let helps = problem == "ends in the middle" || problems[0].contains("disable-compression");
        assert!(problems[0].contains(problem) && helps, "{problem}: {problems:?}");
        one.listed(2).await;
        let asked = server.lists(MAPS);
        let encodings: Vec<_> = asked
            .iter()
            .map(|asked| asked.header("accept-encoding"))
            .collect();
        assert_eq!(encodings, ["gzip", "identity", "identity"].map(Some), "{problem}");
    }
}

/// The second is of something in front of the API server.
#[tokio::test(start_paused = true)]
async fn the_limit_of_a_list_counts_what_is_unpacked_and_a_compressed_refusal_is_understood() {
    let (mut large, line) = (map("a", 1), noise(40));
    // Of which nothing is kept.
    large["metadata"]["managedFields"] = json!([{ "manager": line.repeat(3 * MIB / line.len()) }]);
    let large = packed(list_object(10, [large]).to_string());
    assert!((3 * MIB / 128..MIB / 4).contains(&large.len()), "{}", large.len());
    let refusal = packed(mcr_doubles::status_object(403, "Forbidden", "not you").to_string());
    for (status, bytes, words) in [
        (200, large, "WatchSettings::list_bytes"),
        (403, refusal, "forbidden: not you"),
    ] {
        let server = Server::in_memory(lists(move |_| answer(status, &bytes)));
        let cluster = Cluster::accepting_gzip(&server, |settings| settings.list_bytes = 2 * MIB);
        let problem = problem(&One::in_cluster(cluster).log).await;
        assert!(problem.contains(words), "{problem}");
    }
}
