//! How workspaces come, change and go.

use futures::StreamExt;
use mcr_core::{Change, Discovery, Provider};
use tokio_util::sync::CancellationToken;

use crate::world::*;

/// What a discovery has not announced when it is synced counts as gone. So only the first one goes on without a shard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_shard_that_is_down_holds_up_a_later_discovery_but_not_the_first() {
    let world = World::with_shards(2).await;
    let (a, b) = (world.consumer("a", "root"), world.consumer("b", "shard-1"));
    let provider = world.builder().build().or_fail();
    world.server.stop_shard("shard-1");
    let stop = CancellationToken::new();
    let mut first = provider.discover(stop.child_token());
    assert_eq!(until(&mut first, "synced").await, [format!("+{}", a.id())]);
    drop(first);

    let mut second = provider.discover(stop.child_token());
    let next = tokio::time::timeout(PATIENCE, second.next()).await.or_fail();
    assert!(matches!(next, Some(Ok(Change::Upsert(spec))) if spec.name == a.id()));
    world.server.start_shard("shard-1").await.or_fail();
    assert_eq!(until(&mut second, "synced").await, [format!("+{}", b.id())]);
    stop.cancel();
    assert!(second.next().await.is_none());
}

/// The changes until this one, in words.
async fn until(discovery: &mut Discovery, last: &str) -> Vec<String> {
    let mut seen = Vec::new();
    loop {
        let change = tokio::time::timeout(PATIENCE, discovery.next()).await.or_fail();
        let words = match change.expect("the discovery goes on").unwrap() {
            Change::Upsert(spec) => format!("+{}", spec.name),
            Change::Remove(name) => format!("-{name}"),
            Change::Synced => "synced".to_owned(),
            other => panic!("{other:?}"),
        };
        if words == last {
            return seen;
        }
        seen.push(words);
    }
}
