#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// Decisions, without I/O: from the request to a Secret, and from the Secret to a credential.
mod answer;
mod request;

// Reading the Secret.
mod hub;

use std::{
    io::Write,
    process::ExitCode,
    time::{Duration, SystemTime},
};

use anyhow::{Context, anyhow};

use crate::{answer::Answer, request::Request};

/// Shorter than the 30 s that mcr gives a plugin, so that the error text is that of this program.
const LIMIT: Duration = Duration::from_secs(20);

/// Runs the program: reads `KUBERNETES_EXEC_INFO`, reads the Secret, and prints an `ExecCredential` to stdout.
///
/// Without a credential it prints nothing to stdout, prints one line with the reason to stderr, and returns 1. That line never
/// contains a secret. Ends within 20 seconds. Dropping the future cancels the request to the hub.
pub async fn run() -> ExitCode {
    let printed = match credential().await {
        Ok(json) => writeln!(std::io::stdout().lock(), "{json}").map_err(Into::into),
        Err(error) => Err(error),
    };
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to tell if stderr is closed.
            writeln!(std::io::stderr().lock(), "mcr-exec-secretreader: {error:#}").ok();
            ExitCode::FAILURE
        }
    }
}

async fn credential() -> anyhow::Result<String> {
    let info = std::env::var("KUBERNETES_EXEC_INFO").ok();
    let request = Request::parse(info.as_deref())?;
    let read = tokio::time::timeout(LIMIT, hub::read(&request))
        .await
        .map_err(|_| anyhow!("the hub did not answer within {} s; check the network between this program and the hub, and the hub's load", LIMIT.as_secs()))??;
    let answer =
        Answer::find(&request.content, &read.data, SystemTime::now()).with_context(|| read.place.clone())?;
    answer
        .to_json(request.version)
        .context("the credential can't be written as JSON")
}
