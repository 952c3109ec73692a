//! The bodies that a channel is receiving.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::source::BodySource;

/// The bodies that a channel is receiving.
///
/// It can close their connections even if no task reads the bodies.
#[derive(Default)]
pub(crate) struct RunningBodies(Mutex<State>);

#[derive(Default)]
struct State {
    bodies: Vec<Weak<Mutex<BodySource>>>,
    closed: bool,
}

impl RunningBodies {
    pub(crate) fn add(&self, body: &Arc<Mutex<BodySource>>) {
        let mut state = self.0.lock();
        if state.closed {
            *body.lock() = BodySource::Closed;
            return;
        }
        if state.bodies.len() == state.bodies.capacity() {
            state.bodies.retain(|body| body.strong_count() > 0);
        }
        state.bodies.push(Arc::downgrade(body));
    }

    /// Closes the connections of all bodies, and of each body that is added later.
    pub(crate) fn close(&self) {
        let bodies = {
            let mut state = self.0.lock();
            state.closed = true;
            std::mem::take(&mut state.bodies)
        };
        for body in bodies.iter().filter_map(Weak::upgrade) {
            *body.lock() = BodySource::Closed;
        }
    }
}
