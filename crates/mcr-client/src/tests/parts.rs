//! Bodies that are read in parts.

use std::sync::Arc;

use futures::FutureExt;
use mcr_access::ClusterName;
use tokio::{io::AsyncWriteExt, sync::Semaphore};

use super::{
    Transport, dialer, get,
    server::{Server, begin, chunk},
    settings, transport,
};

const MANY: usize = 1 << 20;

/// A server that writes each chunk of its response when it gets a permit, and ends the response properly only for a `whole` one.
async fn gated() -> (Server, Arc<Semaphore>) {
    Server::gated(|seen, mut stream, gate| async move {
        begin(&mut stream).await;
        for part in ["one", "two", "three"] {
            gate.pass().await;
            chunk(&mut stream, part).await;
        }
        gate.pass().await;
        if seen.line().contains("whole") {
            stream.write_all(b"0\r\n\r\n").await.unwrap();
            return Some(stream);
        }
        None
    })
    .await
}

#[tokio::test]
async fn a_body_comes_in_parts_and_a_cancelled_read_loses_nothing() {
    let (server, go_on) = gated().await;
    let direct = transport(&server);
    let through_client = Transport::with_settings(ClusterName::new("c2").unwrap(), settings().into());
    through_client.swap(dialer().client_channel(direct.client("default")));
    for transport in [direct, through_client] {
        // The guard of the client reads no log.
        for is_whole in [true, false] {
            let name = if is_whole { "whole" } else { "cut" };
            let log = get(&format!("/api/v1/namespaces/a/pods/{name}/log?follow=true"));
            let mut body = transport.send(log).await.unwrap().into_body();
            let mut buffer = Vec::new();
            assert!(body.read_part(&mut buffer, 1).now_or_never().is_none());
            assert_eq!(
                buffer.capacity(),
                0,
                "a body that has sent nothing takes no memory"
            );
            go_on.add_permits(1);
            assert!(!body.read_part(&mut buffer, 1).await.unwrap());
            assert_eq!(buffer, b"one");
            go_on.add_permits(1);
            // The read is cancelled after it has appended a part.
            while buffer.len() < 6 {
                assert!(body.read_part(&mut buffer, MANY).now_or_never().is_none());
                tokio::task::yield_now().await;
            }
            assert_eq!(buffer, b"onetwo");
            // The caller may take away what it has read.
            buffer.clear();
            go_on.add_permits(2);
            let ended = body.read_part(&mut buffer, MANY).await;
            assert_eq!(buffer, b"three");
            if is_whole {
                assert!(ended.unwrap());
            } else {
                assert!(ended.unwrap_err().to_string().contains("broke off"));
            }
            assert!(body.read_part(&mut buffer, MANY).await.unwrap(), "it is over");
            assert_eq!(buffer, b"three");
        }
    }
}
