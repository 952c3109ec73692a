//! Gets the report of a running controller.

use std::{error::Error, io, time::Duration};

use anyhow::{Context, bail};
use http::{Request, Uri};
use kube::{Client, Config};
use tokio::time::timeout;

use super::report::Report;
use crate::{session::text_of, values::seconds};

/// The pause between two requests to a controller with `--watch`.
pub(crate) const PAUSE: Duration = Duration::from_secs(2);

/// The HTTP server of a controller.
pub(crate) struct Controller {
    client: Client,
    address: Uri,
    within: Duration,
}

impl Controller {
    pub(crate) fn new(address: Uri, within: Duration) -> anyhow::Result<Self> {
        if !matches!(address.scheme_str(), Some("http" | "https")) {
            bail!("--server {address}: write http://host:port, where the controller serves /clusters");
        }
        let config = Config::new(address.clone());
        mcr_core::crypto::install_default()?;
        let client = Client::try_from(config).with_context(|| format!("--server {address}"))?;
        Ok(Self {
            client,
            address,
            within,
        })
    }

    pub(crate) async fn report(&self) -> anyhow::Result<Report> {
        let request = Request::get("/clusters").body(Vec::new())?;
        let address = &self.address;
        let text = match timeout(self.within, self.client.request_text(request)).await {
            Ok(Ok(text)) => text,
            Ok(Err(error)) if is_refused(&error) => bail!(
                "{address}clusters: connection refused: no controller serves there; start it with --serve ADDRESS, or \
                 correct --server"
            ),
            Ok(Err(error)) => bail!("{address}clusters: {}", text_of(&error)),
            Err(_) => bail!("{address}clusters: no answer within {}", seconds(self.within)),
        };
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
