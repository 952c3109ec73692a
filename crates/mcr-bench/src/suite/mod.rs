//! The suites: what is measured, one file each.

pub mod fleet;
mod round;

pub use round::{Options, Session};
