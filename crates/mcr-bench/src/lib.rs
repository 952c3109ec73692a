//! Measures mcr beside kube-rs and Go's controller-runtime: `cargo xtask bench`.
//!
//! Each subject runs in a process of its own, so that memory and CPU time are its alone; the driver starts the API
//! server, the simulator and the subjects, and reads what the kernel says of them.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod alone;
pub mod cli;
pub mod driver;
pub mod figures;
pub mod objects;
pub mod proc;
pub mod report;
pub mod row;
pub mod simulator;
pub mod stats;
pub mod subject;
pub mod suite;
