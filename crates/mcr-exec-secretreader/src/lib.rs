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
    fmt,
    io::Write,
    process::ExitCode,
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::{Duration, SystemTime},
};

use anyhow::Context;
use kube::Client;
use mcr_access::{BoxError, PluginService};

use crate::{
    answer::{Answer, AnswerError},
    request::Request,
};

/// Shorter than the 30 s that mcr gives a plugin, so that the error text is that of this program.
const LIMIT: Duration = Duration::from_secs(20);

/// Runs the program: reads `KUBERNETES_EXEC_INFO`, reads the Secret, and prints an `ExecCredential` to stdout.
///
/// Without a credential it prints nothing to stdout, prints one line with the reason to stderr, and returns 1. That line never
/// contains a secret. After 20 seconds it ends the process in this way. Dropping the future cancels the request to the hub.
pub async fn run() -> ExitCode {
    let (_runs, ended) = channel::<()>();
    // A thread, because the runtime stands still while the hub's kubeconfig is read and while its login program runs.
    thread::spawn(move || {
        if ended.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
            print(format_args!(
                "the hub did not answer within {} s; check the network between this program and the hub, the hub's load, and the hub's \
                 kubeconfig with its login program",
                LIMIT.as_secs()
            ));
            std::process::exit(1);
        }
    });
    let printed = match credential(std::env::var("KUBERNETES_EXEC_INFO").ok(), hub::client()).await {
        Ok(json) => writeln!(std::io::stdout().lock(), "{json}").map_err(Into::into),
        Err(error) => Err(error),
    };
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print(format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn print(why: fmt::Arguments<'_>) {
    // Nobody reads it if stderr is closed.
    writeln!(std::io::stderr().lock(), "mcr-exec-secretreader: {why}").ok();
}

/// The plugin in the process of its caller, which reads the Secrets with this client of the hub. No program runs.
///
/// Tie the name of the plugin to it: with `AllowedPlugin::service` for kubeconfigs, with `AccessProviderConfig::service` for
/// ClusterProfiles, or with [`ExecPlugin::service`](mcr_access::ExecPlugin::service) for a source of credentials by itself. A Secret
/// without a namespace is in the default namespace of the client. Whoever describes a cluster chooses the Secret and its namespace, so the
/// client should have the rights of the plugin, and no more: it is no client for the other work of the program. Errors are shown, and have
/// nothing of the content of a Secret.
///
/// ```
/// use mcr_access::{Endpoint, EndpointAccess, ExecPlugin};
///
/// # fn example(secrets_only: kube::Client) -> Result<(), http::uri::InvalidUri> {
/// let endpoint = Endpoint::new("https://eu-1.example.com:6443".parse()?);
/// let secret = serde_json::json!({"name": "eu-1-kubeconfig", "key": "value", "namespace": "fleet"});
/// let source = ExecPlugin::new("mcr-exec-secretreader")
///     .service(mcr_exec_secretreader::service(secrets_only))
///     .cluster_info(&endpoint, Some(secret), false);
/// let access = EndpointAccess::new(endpoint, source);
/// # Ok(())
/// # }
/// ```
pub fn service(hub: Client) -> PluginService {
    PluginService::new(move |info| {
        let hub = hub.clone();
        async move {
            let answer = credential(Some(info), async { Ok(hub) }).await;
            // Whoever describes the cluster may choose the Secret and read this error, and may have no right to the Secret.
            let why = |error: anyhow::Error| match error.downcast_ref::<AnswerError>() {
                Some(unusable) => format!("{error}: {}", unusable.without_content()),
                None => format!("{error:#}"),
            };
            answer
                .map(String::into_bytes)
                .map_err(|error| BoxError::from(why(error)))
        }
    })
}

/// The answer to the content of `KUBERNETES_EXEC_INFO`.
async fn credential(
    info: Option<String>,
    hub: impl Future<Output = anyhow::Result<Client>>,
) -> anyhow::Result<String> {
    let request = Request::parse(info.as_deref())?;
    let read = hub::read(&hub.await?, &request).await?;
    let answer =
        Answer::find(&request.content, &read.data, SystemTime::now()).with_context(|| read.place.clone())?;
    answer
        .to_json(request.version)
        .context("the credential can't be written as JSON")
}
