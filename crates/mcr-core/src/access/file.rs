//! Credentials in files that someone else renews.

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use secrecy::{ExposeSecret, SecretString};

use super::{
    credential::{ClientCertificate, Credential, CredentialError, CredentialSource, Fingerprint, Refresh},
    pem,
};

/// How often files are read again.
const EVERY: Duration = Duration::from_secs(60);
/// More than any token, certificate or bundle needs.
const MOST: u64 = 4 << 20;

/// Reads a file, but no device or pipe, which could block for ever, and not more than a credential needs.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = std::fs::File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    file.take(MOST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// One part of a credential.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Part {
    File(PathBuf),
    Inline(Arc<[u8]>),
}

/// A credential some parts of which are in files. They are read again on every call.
pub(super) struct FileSource {
    pub(super) base: Credential,
    pub(super) token: Option<PathBuf>,
    pub(super) certificate: Option<(Part, Part)>,
    pub(super) last: Mutex<Option<Credential>>,
}

impl FileSource {
    async fn load(&self) -> Result<Credential, CredentialError> {
        let mut credential = self.base.clone();
        if let Some(path) = &self.token {
            let bytes = load(path).await?;
            let token = std::str::from_utf8(&bytes).map(str::trim).unwrap_or_default();
            if token.is_empty() {
                return Err(CredentialError::temporary(format!(
                    "the token file {} is empty or not text; check what writes it",
                    path.display()
                )));
            }
            credential.token = Some(SecretString::from(token.to_owned()));
        }
        if let Some((chain, key)) = &self.certificate {
            let chain = part(chain).await?;
            let key = part(key).await?;
            let key = String::from_utf8(key.to_vec()).unwrap_or_default();
            // The two files can't be replaced at one instant: what does not fit together is read again.
            pem::identity(&chain, &key).map_err(|(_, problem)| {
                CredentialError::temporary(format!("the client certificate's file {problem}"))
            })?;
            credential.certificate = Some(ClientCertificate {
                chain,
                key: key.into(),
            });
        }
        Ok(credential)
    }
}

async fn load(path: &Path) -> Result<Vec<u8>, CredentialError> {
    let owned = path.to_owned();
    let read = tokio::task::spawn_blocking(move || read(&owned)).await;
    read.unwrap_or_else(|error| Err(io::Error::other(error)))
        .map_err(|error| {
            let text = format!(
                "can't read {}: {}; check that the file exists and may be read",
                path.display(),
                error.kind()
            );
            CredentialError::temporary(text).with_source(error)
        })
}

async fn part(part: &Part) -> Result<Arc<[u8]>, CredentialError> {
    match part {
        Part::File(path) => Ok(load(path).await?.into()),
        Part::Inline(bytes) => Ok(bytes.clone()),
    }
}

impl CredentialSource for FileSource {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&(self.base.fingerprint(), &self.token, &self.certificate))
    }

    fn renew_every(&self) -> Option<Duration> {
        Some(EVERY)
    }

    fn credential(&self, why: Refresh) -> BoxFuture<'_, Result<Credential, CredentialError>> {
        Box::pin(async move {
            match self.load().await {
                Ok(credential) => {
                    let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
                    *last = Some(credential.clone());
                    Ok(credential)
                }
                // A file that is just being replaced is no reason to lose a working cluster, unless what it held is refused.
                Err(error) if why != Refresh::Unauthorized => {
                    let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
                    let inline = self
                        .base
                        .token
                        .as_ref()
                        .filter(|token| !token.expose_secret().is_empty());
                    let inline = inline
                        .filter(|_| self.certificate.is_none())
                        .map(|_| self.base.clone());
                    last.clone().or(inline).ok_or(error)
                }
                Err(error) => Err(error),
            }
        })
    }
}
