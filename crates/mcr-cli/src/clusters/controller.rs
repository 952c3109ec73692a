//! Gets the report of a running controller.

use std::{error::Error, io, net::IpAddr, path::PathBuf, time::Duration};

use anyhow::{Context, bail};
use http::{Request, Uri};
use kube::{Client, Config, client::Body};
use mcr_core::reason;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use secrecy::SecretString;
use tokio::time::timeout;

use super::report::Report;
use crate::{session::text_of, values::seconds};

/// The pause between two requests to a controller with `--watch`.
pub(crate) const PAUSE: Duration = Duration::from_secs(2);

/// The flags for a controller that authenticates its callers.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ServerFlags {
    /// A file with the bearer token for --server, as kubectl create token prints it
    #[arg(long, value_name = "PATH", requires = "server")]
    server_token_file: Option<PathBuf>,
    /// A file with the certificate authorities of --server, in PEM [default: those of this machine]
    #[arg(long, value_name = "PATH", requires = "server")]
    server_ca: Option<PathBuf>,
}

impl ServerFlags {
    fn config(&self, address: &Uri) -> anyhow::Result<Config> {
        let mut config = Config::new(address.clone());
        if let Some(path) = &self.server_token_file {
            let host = address.host().unwrap_or_default().trim_matches(['[', ']']);
            let is_local = host == "localhost" || host.parse().is_ok_and(|host: IpAddr| host.is_loopback());
            if address.scheme_str() != Some("https") && !is_local {
                bail!("--server {address}: a token is sent over https only, or to this machine");
            }
            let token = std::fs::read_to_string(path)
                .with_context(|| format!("--server-token-file {}", path.display()))?;
            config.auth_info.token = Some(SecretString::from(token.trim().to_owned()));
        }
        if let Some(path) = &self.server_ca {
            let flag = || format!("--server-ca {}", path.display());
            let pem = std::fs::read(path).with_context(flag)?;
            let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
            let certificates = certificates.ok().filter(|all| !all.is_empty());
            let certificates =
                certificates.with_context(|| format!("{}: holds no PEM certificate", flag()))?;
            config.root_cert = Some(
                certificates
                    .iter()
                    .map(|certificate| certificate.to_vec())
                    .collect(),
            );
        }
        Ok(config)
    }
}

/// The HTTP server of a controller.
pub(crate) struct Controller {
    client: Client,
    address: Uri,
    within: Duration,
}

impl Controller {
    pub(crate) fn new(address: Uri, flags: &ServerFlags, within: Duration) -> anyhow::Result<Self> {
        // Errors show the address.
        if address
            .authority()
            .is_some_and(|authority| authority.as_str().contains('@'))
        {
            bail!(
                "--server: write the address without a user and password; --server-token-file names a token"
            );
        }
        if !matches!(address.scheme_str(), Some("http" | "https")) {
            bail!("--server {address}: write http://host:port, where the controller serves /clusters");
        }
        let config = flags.config(&address)?;
        mcr_core::crypto::install_default()?;
        let client = Client::try_from(config).with_context(|| format!("--server {address}"))?;
        Ok(Self {
            client,
            address,
            within,
        })
    }

    pub(crate) async fn report(&self) -> anyhow::Result<Report> {
        let request = Request::get("/clusters").body(Body::empty())?;
        let address = &self.address;
        let answer = async {
            let response = self.client.send(request).await?;
            let status = response.status();
            Ok((status, response.into_body().collect_bytes().await?))
        };
        let (status, body) = match timeout(self.within, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) if is_refused(&error) => bail!(
                "{address}clusters: connection refused: no controller serves there; start it with --serve ADDRESS, or \
                 correct --server"
            ),
            Ok(Err(error)) => bail!("{address}clusters: {}", text_of(&error)),
            Err(_) => bail!("{address}clusters: no answer within {}", seconds(self.within)),
        };
        let text = String::from_utf8_lossy(&body);
        match status.as_u16() {
            401 | 403 => bail!(
                "{address}clusters: {status}: {}; give the token of somebody who may read it with --server-token-file",
                reason(&text)
            ),
            200 => {}
            _ => bail!("{address}clusters: {status}: {}", reason(&text)),
        }
        let document = serde_json::from_str(&text).ok();
        document.and_then(Report::of).with_context(|| {
            format!("{address}clusters: this is not the report of a controller; check the address")
        })
    }
}

/// Whether nothing listens at the address.
fn is_refused(error: &kube::Error) -> bool {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        let found = error.downcast_ref::<io::Error>();
        if found.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            return true;
        }
        next = error.source();
    }
    false
}
