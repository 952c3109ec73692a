//! `cargo xtask bench`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    mcr_bench::subject::ended(mcr_bench::cli::main())
}
