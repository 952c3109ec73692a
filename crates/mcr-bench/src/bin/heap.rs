//! The subjects of `cargo xtask bench` with an allocator that counts what is allocated.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

fn main() -> ExitCode {
    mcr_bench::cli::ended(mcr_bench::cli::main(|| Some(HEAP.current_usage())))
}
