//! Measures mcr beside kube-rs and Go's controller-runtime: `cargo xtask bench`.
//!
//! Each subject runs in a process of its own, so that its memory and CPU time can be measured alone. The driver
//! starts the API server, the simulator and the subjects, and reads their usage from `/proc`.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod alone;
pub mod cli;
pub mod driver;
pub mod figures;
pub mod kind;
mod names;
pub mod objects;
pub mod plan;
pub mod proc;
pub mod report;
pub mod row;
pub mod run;
pub mod simulator;
pub mod stats;
pub mod subject;
pub mod suite;
mod sync_load;
