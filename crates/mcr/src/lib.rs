//! mcr

pub mod queue;
