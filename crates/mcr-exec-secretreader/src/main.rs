//! The exec credential plugin `mcr-exec-secretreader`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    mcr_exec_secretreader::run().await
}
