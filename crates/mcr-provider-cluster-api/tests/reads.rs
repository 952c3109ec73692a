//! Many Secrets that the hub refuses, and that it then gives.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures::StreamExt;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use mcr_testkit::{
    discovery::{Followed, line},
    sim::SimCluster,
};
use serde_json::json;
use support::{builder, hub, object};
use tokio::time::{sleep, timeout};

#[tokio::test(start_paused = true)]
async fn a_hub_that_refuses_all_secrets_is_asked_seldom_and_all_are_read_soon_after_it_allows_them() {
    let minute = Duration::from_secs(60);
    for (many, refusal, retry_after, at_first, each_minute) in
        [(5_000, 403, None, 5_000, 300), (300, 503, Some("240"), 32, 32)]
    {
        let hub = hub(SimCluster::builder().history(3 * many));
        for number in 0..many {
            hub.create(object(&format!("secret c{number}"), json!({})))
                .unwrap();
            hub.create(object(&format!("ready c{number}"), json!({})))
                .unwrap();
        }
        let (asked, allowed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (at_once, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let service = hub.service().with_token(&hub.admin_token());
        let counted = (asked.clone(), allowed.clone(), at_once, most.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (service, (asked, allowed, at_once, most)) = (service.clone(), counted.clone());
            async move {
                if request.uri().path().contains("/secrets/") {
                    asked.fetch_add(1, SeqCst);
                    most.fetch_max(at_once.fetch_add(1, SeqCst) + 1, SeqCst);
                    sleep(Duration::from_millis(1)).await;
                    at_once.fetch_sub(1, SeqCst);
                    if !allowed.load(SeqCst) {
                        let mut response = Response::builder().status(refusal);
                        if let Some(seconds) = retry_after {
                            response = response.header("retry-after", seconds);
                        }
                        return Ok::<_, Infallible>(response.body(Full::default().boxed()).unwrap());
                    }
                }
                Ok(service.answer(request).await.map(BodyExt::boxed))
            }
        });
        let provider = builder(kube::Client::new(service, "default")).events(false);
        let mut followed = Followed::of(&provider.build().unwrap());
        let follow = async |followed: &mut Followed, time: Duration| {
            let mut good = 0;
            let all = async {
                while good < many {
                    let change = followed.0.next().await.unwrap().unwrap();
                    good += usize::from(line(&change).starts_with('+'));
                }
            };
            _ = timeout(time, all).await;
            good
        };
        assert_eq!(follow(&mut followed, minute).await, 0);
        let first = asked.swap(0, SeqCst);
        assert!(first <= at_first + each_minute, "{refusal}: {first}");
        for _ in 0..5 {
            assert_eq!(follow(&mut followed, minute).await, 0);
            let again = asked.swap(0, SeqCst);
            assert!(again <= each_minute, "{refusal}: {again}");
        }
        allowed.store(true, SeqCst);
        let soon = minute + Duration::from_secs(retry_after.map_or(0, |seconds| seconds.parse().unwrap()));
        assert_eq!(follow(&mut followed, soon).await, many, "{refusal}");
        assert_eq!(most.load(SeqCst), 16, "reads at once");
    }
}
