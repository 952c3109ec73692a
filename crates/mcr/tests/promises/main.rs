//! The promises of the architecture document that need a whole fleet, on simulated API servers.

mod fleet;
mod promise_1_isolation;
