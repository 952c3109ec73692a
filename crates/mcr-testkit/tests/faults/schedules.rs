//! Schedules run, and run again.

use std::time::Duration;

use mcr_testkit::faults::{Fault, Schedule};

use crate::{LIST, Raw, soon, stand};

#[test]
fn a_schedule_is_written_down_with_its_seed() {
    let schedule = Schedule::seeded(0xabc)
        .proxies(3)
        .steps(3)
        .length(Duration::from_secs(10))
        .faults([Fault::BlackHole, Fault::Reset])
        .build();
    // Fixed for ever: a seed in a bug report must go on meaning the same run.
    let text = "MCR_FAULT_SEED=0xabc (3 steps in 7.564 s)
    1.527 s for   4.624 s  proxy 2    BlackHole
    3.297 s for   4.267 s  proxy 2    Reset
    4.780 s for   1.474 s  proxy 2    BlackHole";
    assert_eq!(schedule.to_string(), text);
}

#[tokio::test]
async fn a_schedule_sets_its_faults_and_ends_them() {
    let (_server, proxy, _) = stand().await;
    let (_other_server, other, _) = stand().await;
    let proxies = [proxy, other];
    let schedule = Schedule::seeded(5)
        .proxies(3)
        .steps(30)
        .length(Duration::from_secs(2))
        .lasting(Duration::from_millis(200), Duration::from_millis(800))
        .build();
    println!("{schedule}");
    let seen = tokio::spawn({
        let proxies = proxies.clone();
        async move {
            let mut most = [0, 0];
            loop {
                for (most, proxy) in most.iter_mut().zip(&proxies) {
                    *most = proxy.rules().len().max(*most);
                }
                if most.iter().all(|most| *most > 1) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    });
    soon(schedule.run(&proxies)).await;
    soon(seen).await.unwrap();
    for proxy in &proxies {
        assert!(proxy.rules().is_empty());
        assert_eq!(proxy.trouble(), None);
        let answer = soon(Raw::new(proxy).get(proxy, LIST)).await.unwrap();
        assert_eq!(answer.status, 200);
    }
    // Every fault by itself is overcome too.
    for fault in Fault::catalogue() {
        proxies[0].set(fault).await;
        proxies[0].clear().await;
        assert_eq!(
            soon(Raw::new(&proxies[0]).get(&proxies[0], LIST))
                .await
                .unwrap()
                .status,
            200
        );
    }
}
