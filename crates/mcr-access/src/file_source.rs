//! Credentials in files that other programs renew.

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
    time::Duration,
};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use secrecy::SecretString;
use tokio::sync::Semaphore;

use crate::{
    credential::{ClientCertificate, Credential, CredentialError, CredentialSource, Refresh},
    fingerprint::Fingerprint,
    weak_cache::WeakCache,
};

/// The interval at which files are read again.
const RENEW_EVERY: Duration = Duration::from_secs(60);
/// The longest file that is read. No token, certificate or bundle is that long.
const MAX_BYTES: u64 = 4 << 20;

/// Reads a file. Refuses devices and pipes, which can block for ever, and files of more than 4 MiB.
pub(crate) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    // Before the file is opened: to open a pipe can block.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// The source of a certificate or key in PEM.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum PemSource {
    File(PathBuf),
    Inline(Arc<[u8]>),
}

/// A credential with a token or a certificate in files. Each call reads the files again.
pub(crate) struct FileSource {
    /// The inline fields of the credential.
    base: Credential,
    token: Option<PathBuf>,
    /// The certificate chain and its key.
    certificate: Option<(PemSource, PemSource)>,
    /// The result of the last call that succeeded.
    last: Mutex<Option<Credential>>,
}

impl FileSource {
    /// A source that adds the content of files to `base`.
    pub(crate) fn new(
        base: Credential,
        token: Option<PathBuf>,
        certificate: Option<(PemSource, PemSource)>,
    ) -> Self {
        Self {
            base,
            token,
            certificate,
            last: Mutex::new(None),
        }
    }

    async fn load(&self) -> Result<Credential, CredentialError> {
        let mut credential = self.base.clone();
        if let Some(path) = &self.token {
            let bytes = load_file(path).await?;
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
            let chain = load_pem(chain).await?;
            let key = load_pem(key).await?;
            let key = std::str::from_utf8(&key).unwrap_or_default();
            // Temporary: the two files are not replaced at the same instant, so for a moment they may not belong
            // together.
            let certificate = ClientCertificate::parse(&chain, key).map_err(|(_, problem)| {
                CredentialError::temporary(format!("the client certificate's file {problem}"))
            })?;
            credential.certificate = Some(certificate);
        }
        Ok(credential)
    }
}

async fn load_file(path: &Path) -> Result<Vec<u8>, CredentialError> {
    static READS: LazyLock<WeakCache<Semaphore, PathBuf>> = LazyLock::new(WeakCache::default);
    let (owned, turn) = (path.to_owned(), READS.turn(path.to_owned()).await);
    let read = tokio::task::spawn_blocking(move || (read_file(&owned), turn).0).await;
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

async fn load_pem(source: &PemSource) -> Result<Arc<[u8]>, CredentialError> {
    match source {
        PemSource::File(path) => Ok(load_file(path).await?.into()),
        PemSource::Inline(bytes) => Ok(bytes.clone()),
    }
}

impl CredentialSource for FileSource {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&(self.base.fingerprint(), &self.token, &self.certificate))
    }

    fn renew_every(&self) -> Option<Duration> {
        Some(RENEW_EVERY)
    }

    fn known(&self) -> Option<&Credential> {
        Some(&self.base)
    }

    fn credential(&self, why: Refresh) -> BoxFuture<'_, Result<Credential, CredentialError>> {
        Box::pin(async move {
            match self.load().await {
                Ok(credential) => {
                    *self.last.lock() = Some(credential.clone());
                    Ok(credential)
                }
                // While a file is being replaced, the last credential serves, or the inline token of the same user. After a 401
                // neither does, and a new connection does not begin with a credential that may be gone.
                Err(error) if why == Refresh::Expiring => {
                    let last = self.last.lock().clone();
                    let has_inline_token = self.base.token.is_some() && self.certificate.is_none();
                    last.or_else(|| has_inline_token.then(|| self.base.clone()))
                        .ok_or(error)
                }
                Err(error) => Err(error),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_and_devices_are_not_read() {
        assert_eq!(
            read_file(Path::new("/dev/zero")).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        assert_eq!(
            read_file(Path::new("/")).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    }
}
