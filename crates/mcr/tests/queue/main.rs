//! The fair queue: its bounds on waiting, a comparison with a naive model, and its async form.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod fairness;
mod model;
mod waiting;
