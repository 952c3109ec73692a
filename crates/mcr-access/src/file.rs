//! Credentials in files that someone else renews.

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use secrecy::{ExposeSecret, SecretString};

use crate::{
    ClientCertificate, Credential, CredentialError, CredentialSource, Fingerprint, Refresh, sync::lock,
};

/// How often files are read again.
const EVERY: Duration = Duration::from_secs(60);
/// More than any token, certificate or bundle needs.
const MOST: u64 = 4 << 20;

/// Reads a file, but no device or pipe, which could block for ever, and not more than a credential needs.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Before it is opened, for that alone blocks on a pipe.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?
        .take(MOST + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// One part of a credential.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    File(PathBuf),
    Inline(Arc<[u8]>),
}

/// A credential some parts of which are in files. They are read again on every call.
pub(crate) struct FileSource {
    pub(crate) base: Credential,
    pub(crate) token: Option<PathBuf>,
    pub(crate) certificate: Option<(Part, Part)>,
    pub(crate) last: Mutex<Option<Credential>>,
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
            let key = std::str::from_utf8(&key).unwrap_or_default();
            // The two files can't be replaced at one instant: what does not fit together is read again.
            let checked = ClientCertificate::checked(&chain, key).map_err(|(_, problem)| {
                CredentialError::temporary(format!("the client certificate's file {problem}"))
            })?;
            credential.certificate = Some(checked);
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
                    *lock(&self.last) = Some(credential.clone());
                    Ok(credential)
                }
                // A file that is just being replaced is no reason to lose a working cluster, unless what it held is refused.
                Err(error) if why != Refresh::Unauthorized => {
                    let last = lock(&self.last).clone();
                    let inline = self
                        .base
                        .token
                        .as_ref()
                        .filter(|token| !token.expose_secret().is_empty());
                    let inline = inline
                        .filter(|_| self.certificate.is_none())
                        .map(|_| self.base.clone());
                    last.or(inline).ok_or(error)
                }
                Err(error) => Err(error),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AccessPolicy, KubeconfigAccess, Trust, resolve};

    fn source(dir: &Path, user: &str) -> Arc<dyn CredentialSource> {
        let yaml = format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u, namespace: n}}}}]\n\
             clusters: [{{name: k, cluster: {{server: 'https://h'}}}}]\nusers: [{{name: u, user: {{{user}}}}}]"
        );
        let access = KubeconfigAccess::new(yaml, Trust::Trusted).base_dir(dir);
        let resolved = resolve(&access, &AccessPolicy::default()).unwrap();
        assert_eq!(&*resolved.default_namespace, "n");
        resolved.credentials
    }

    fn signed() -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::default().self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    #[tokio::test]
    async fn token_files_are_read_again_and_a_missing_one_does_no_harm() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, "one\n").unwrap();
        let source = source(dir.path(), "tokenFile: token, token: inline, as: jane");
        assert_eq!(source.renew_every(), Some(Duration::from_secs(60)));
        let token = |credential: Credential| credential.token.unwrap().expose_secret().to_owned();
        let first = source.credential(Refresh::First).await.unwrap();
        assert_eq!(first.impersonate.as_ref().unwrap().user, "jane");
        assert_eq!(token(first), "one");
        std::fs::write(&file, "two").unwrap();
        assert_eq!(token(source.credential(Refresh::Expiring).await.unwrap()), "two");
        std::fs::write(&file, " \n").unwrap();
        assert_eq!(token(source.credential(Refresh::Expiring).await.unwrap()), "two");
        let error = source.credential(Refresh::Unauthorized).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "the token file {} is empty or not text; check what writes it",
                file.display()
            )
        );
        std::fs::remove_file(&file).unwrap();
        let error = source.credential(Refresh::Unauthorized).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "can't read {}: entity not found; check that the file exists and may be read",
                file.display()
            )
        );
    }

    #[tokio::test]
    async fn certificate_files_are_taken_only_when_they_fit_together() {
        let dir = tempfile::tempdir().unwrap();
        let (certificate, key) = signed();
        std::fs::write(dir.path().join("crt"), &certificate).unwrap();
        std::fs::write(dir.path().join("key"), &key).unwrap();
        let source = source(dir.path(), "client-certificate: crt, client-key: key");
        let print = |credential: Credential| credential.certificate.unwrap().fingerprint();
        let first = print(Credential::certificate(&certificate, key));
        assert_eq!(print(source.credential(Refresh::First).await.unwrap()), first);
        let (newer, key) = signed();
        std::fs::write(dir.path().join("crt"), &newer).unwrap();
        assert_eq!(print(source.credential(Refresh::Expiring).await.unwrap()), first);
        std::fs::write(dir.path().join("key"), &key).unwrap();
        assert_eq!(
            print(source.credential(Refresh::Expiring).await.unwrap()),
            print(Credential::certificate(newer, key))
        );
    }

    #[test]
    fn pipes_and_devices_are_not_read() {
        assert_eq!(
            read(Path::new("/dev/zero")).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        assert_eq!(
            read(Path::new("/")).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    }
}
