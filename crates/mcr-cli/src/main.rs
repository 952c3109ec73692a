//! The command `mcr`, with the providers it was compiled with.
#![forbid(unsafe_code)]

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    mcr_cli::Mcr::new().run().await
}
