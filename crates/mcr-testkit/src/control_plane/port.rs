use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};

use super::ControlPlaneError;

/// Below the range of ephemeral ports, so that no outgoing connection takes the port of a stopped
/// server before its restart.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// The ports that this process has used. Each is used only once, so that parallel tests of one process can't clash. If
/// another process takes the port, the start of the server is tried again.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Returns a port of 127.0.0.1 on which no socket listens.
pub(super) fn free_port() -> Result<u16, ControlPlaneError> {
    let span = u64::from(RANGE.end - RANGE.start);
    let mut given = GIVEN.lock();
    for _ in 0..span {
        // A random offset, so that different processes try different ports. The standard library has no other source
        // of randomness.
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

/// Starts a server on a free port. Another process may take the port before the server binds it. Then the server is
/// started on another port.
pub(super) async fn on_free_port<T>(
    mut start: impl AsyncFnMut(u16) -> Result<T, ControlPlaneError>,
) -> Result<T, ControlPlaneError> {
    let mut attempts = 5;
    loop {
        attempts -= 1;
        match start(free_port()?).await {
            Err(ControlPlaneError::Exited { log, .. })
                if attempts > 0 && log.contains("address already in use") => {}
            result => return result,
        }
    }
}
