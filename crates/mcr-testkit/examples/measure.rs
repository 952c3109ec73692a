//! Measures the cost of control planes on this machine: `cargo run -p mcr-testkit --all-features --example measure
//! [count]`.

use std::time::Instant;

use mcr_testkit::control_plane::{ControlPlane, Etcd};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count = std::env::args().nth(1).map_or(Ok(4), |count| count.parse())?;
    let started = Instant::now();
    let etcd = Etcd::start().await?;
    println!("etcd ready after {:.2?}", started.elapsed());

    let started = Instant::now();
    let starts = (0..count).map(|number| {
        let builder = ControlPlane::builder()
            .name(format!("cluster-{number}"))
            .etcd(&etcd);
        tokio::spawn(builder.start())
    });
    let mut planes = Vec::new();
    for start in starts.collect::<Vec<_>>() {
        planes.push(start.await??);
    }
    println!("{count} API servers ready after {:.2?}", started.elapsed());
    for plane in &planes {
        println!("{}: {}", plane.name(), memory(plane.pid()));
    }
    println!("etcd: {}", memory(Some(etcd.pid())));

    let started = Instant::now();
    let managed = ControlPlane::builder()
        .etcd(&etcd)
        .with_controller_manager()
        .start()
        .await?;
    println!(
        "API server and controller manager ready after {:.2?}",
        started.elapsed()
    );
    let started = Instant::now();
    managed.restart().await?;
    println!("API server restarted after {:.2?}", started.elapsed());
    let started = Instant::now();
    drop((planes, managed, etcd));
    println!("all ended after {:.2?}", started.elapsed());
    Ok(())
}

/// Resident memory, where `/proc` has it.
fn memory(pid: Option<u32>) -> String {
    let status = pid
        .and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/status")).ok())
        .unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    resident.map_or_else(|| "unknown".to_owned(), |resident| resident.trim().to_owned())
}
