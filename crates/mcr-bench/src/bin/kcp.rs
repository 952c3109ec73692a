//! The subject of suite `kcp` of `cargo xtask bench`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use mcr_bench::subject::{
    self,
    kcp::{self, KcpArgs},
};

fn main() -> ExitCode {
    subject::ended(kcp::run(KcpArgs::parse()))
}
