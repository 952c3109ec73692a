use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Mutex;

use super::ControlPlaneError;
use crate::lock::lock;

/// Below the range from which systems give ports to outgoing connections: a stopped server's port
/// stays free until its restart, whatever else connects meanwhile.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// Ports this process has handed out. Never handed out twice, so parallel tests of one process can
/// not clash; another process can still be quicker, which starting a server retries.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port of 127.0.0.1 that nobody listens on.
pub(super) fn free_port() -> Result<u16, ControlPlaneError> {
    let span = u64::from(RANGE.end - RANGE.start);
    let mut given = lock(&GIVEN);
    for _ in 0..span {
        // The standard library's only source of randomness. Random, so that processes spread.
        let offset = RandomState::new().hash_one(()) % span;
        let port = RANGE.start + u16::try_from(offset).unwrap_or(0);
        if given.contains(&port) || TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_err() {
            continue;
        }
        given.insert(port);
        return Ok(port);
    }
    Err(ControlPlaneError::Unsupported(format!(
        "no free port on 127.0.0.1 in {RANGE:?}"
    )))
}
