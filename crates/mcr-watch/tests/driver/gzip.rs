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
    let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
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

/// What a hostile server could send, and one that breaks.
#[tokio::test(start_paused = true)]
async fn what_can_not_be_unpacked_is_a_failed_list_with_a_remedy() {
    let good = packed(list_object(10, [map("a", 1)]).to_string());
    let mut damaged = good.clone();
    *damaged.iter_mut().rev().nth(5).unwrap() ^= 1;
    let bomb = packed([br#"{"items":["#.to_vec(), vec![b' '; 32 * MIB]].concat());
    for (bad, problem) in [
        (good[..good.len() - 3].to_vec(), "can't be unpacked"),
        (damaged, "can't be unpacked"),
        (b"{\"items\": []}".to_vec(), "can't be unpacked"),
        (bomb, "grows more than 128 times"),
    ] {
        let server = Server::in_memory(lists(move |asked| match asked.nth {
            0 => answer(200, &bad),
            _ => list(20, [map("b", 2)]),
        }));
        let one = One::in_cluster(Cluster::accepting_gzip(&server, |_| {}));
        one.log.becomes(&["+b"]).await;
        let problems = one.log.problems();
        assert!(
            problems[0].contains(problem) && problems[0].contains("disable-compression"),
            "{problem}: {problems:?}"
        );
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
