//! Credentials and where they come from.

use std::{
    collections::BTreeMap,
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::future::BoxFuture;
use rustls::sign::CertifiedKey;
use secrecy::{ExposeSecret, SecretString};

use crate::{BoxError, Fingerprint, pem};

/// What one request authenticates with. Debug shows which kinds of credentials there are, never their content.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Credential {
    /// A bearer token.
    pub token: Option<SecretString>,
    /// A user name and password; used only where there is no token.
    pub basic: Option<Basic>,
    /// A client certificate with its key.
    pub certificate: Option<ClientCertificate>,
    /// Whom to act as.
    pub impersonate: Option<Impersonation>,
    /// When the token or certificate expires.
    pub expires_at: Option<SystemTime>,
}

/// A user name and password.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Basic {
    /// The user.
    pub username: String,
    /// The password.
    pub password: SecretString,
}

/// A client certificate with its private key; see [`Credential::certificate`].
#[derive(Clone)]
pub struct ClientCertificate(Held);

/// What a kubeconfig, a file or a plugin gave was checked, and its text is not held: there may be as many as clusters. What
/// was made by hand may be unusable, which shows when it is used.
#[derive(Clone)]
enum Held {
    Text {
        chain: Arc<[u8]>,
        key: SecretString,
    },
    Checked {
        identity: Arc<CertifiedKey>,
        text: Fingerprint,
    },
}

impl ClientCertificate {
    /// A certificate and a key that have been seen to be usable together.
    pub(crate) fn checked(chain: &[u8], key: &str) -> Result<Self, (pem::Half, &'static str)> {
        let identity = pem::identity(chain, key)?;
        let text = Self::print(chain, key);
        Ok(Self(Held::Checked { identity, text }))
    }

    fn print(chain: &[u8], key: &str) -> Fingerprint {
        Fingerprint::of(&(chain, key))
    }

    /// Stands for the text of certificate and key.
    #[doc(hidden)]
    pub fn fingerprint(&self) -> Fingerprint {
        match &self.0 {
            Held::Text { chain, key } => Self::print(chain, key.expose_secret()),
            Held::Checked { text, .. } => *text,
        }
    }

    /// What is shown to the API server, the same one for equal certificates.
    #[doc(hidden)]
    pub fn identity(&self) -> Result<Arc<CertifiedKey>, (pem::Half, &'static str)> {
        match &self.0 {
            Held::Text { chain, key } => pem::identity(chain, key.expose_secret()),
            Held::Checked { identity, .. } => Ok(identity.clone()),
        }
    }
}

/// Whom to act as (the `as*` fields of a kubeconfig's user).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Impersonation {
    /// The user.
    pub user: String,
    /// The user's UID.
    pub uid: Option<String>,
    /// The user's groups.
    pub groups: Vec<String>,
    /// Further attributes.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Credential {
    /// No credential: anonymous requests.
    pub fn anonymous() -> Self {
        Self::default()
    }

    /// A bearer token that does not expire as far as anyone knows.
    pub fn token(token: impl Into<String>) -> Self {
        Self {
            token: Some(SecretString::from(token.into())),
            ..Self::default()
        }
    }

    /// A client certificate chain and its private key, PEM.
    pub fn certificate(chain: impl AsRef<[u8]>, key: impl Into<String>) -> Self {
        let certificate = ClientCertificate(Held::Text {
            chain: Arc::from(chain.as_ref()),
            key: SecretString::from(key.into()),
        });
        Self {
            certificate: Some(certificate),
            ..Self::default()
        }
    }

    /// Sets when it expires.
    #[must_use]
    pub fn expires_at(mut self, at: SystemTime) -> Self {
        self.expires_at = Some(at);
        self
    }

    /// Stands for everything but the expiry; see [`Fingerprint`].
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&(
            self.token.as_ref().map(ExposeSecret::expose_secret),
            self.basic
                .as_ref()
                .map(|basic| (&basic.username, basic.password.expose_secret())),
            self.certificate.as_ref().map(ClientCertificate::fingerprint),
            &self.impersonate,
        ))
    }
}

impl Basic {
    /// A user name and password.
    pub fn new(username: impl Into<String>, password: impl Into<String>) -> Self {
        Self {
            username: username.into(),
            password: SecretString::from(password.into()),
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("token", &self.token.is_some())
            .field("basic", &self.basic.is_some())
            .field("certificate", &self.certificate.is_some())
            .field("impersonate", &self.impersonate.as_ref().map(|i| &i.user))
            .field("expires_at", &self.expires_at)
            .finish()
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate").finish_non_exhaustive()
    }
}

/// Why a credential is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refresh {
    /// The cluster is being connected; a cached credential will do.
    First,
    /// The last credential expires soon.
    Expiring,
    /// The API server refused the last credential with 401: a cached one will not do.
    Unauthorized,
}

/// Hands out credentials for one cluster, now and whenever they expire or are refused.
///
/// The fleet asks from the cluster's own task, with a deadline: a source that hangs delays only its own
/// cluster and is dropped when the deadline passes, so it must be cancel safe. A panic counts as a failure. Two clusters
/// can share one.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use futures::future::BoxFuture;
/// use mcr_access::{Credential, CredentialError, CredentialSource, Fingerprint, Refresh};
///
/// struct Issuer;
/// impl CredentialSource for Issuer {
///     fn fingerprint(&self) -> Fingerprint {
///         Fingerprint::of(&"issuer of team-a")
///     }
///     fn credential(&self, _: Refresh) -> BoxFuture<'_, Result<Credential, CredentialError>> {
///         Box::pin(async {
///             let soon = SystemTime::now() + Duration::from_secs(3600);
///             Ok(Credential::token("from the issuer").expires_at(soon))
///         })
///     }
/// }
/// ```
pub trait CredentialSource: Send + Sync + 'static {
    /// Tells sources apart: when a provider announces a cluster again with a source of another fingerprint,
    /// its credentials are swapped.
    fn fingerprint(&self) -> Fingerprint;

    /// Gets a credential.
    fn credential(&self, why: Refresh) -> BoxFuture<'_, Result<Credential, CredentialError>>;

    /// How often to ask again although nothing expires, for sources whose credentials are replaced behind
    /// their back (token files are read again every minute). `None`: only before expiry and on 401.
    fn renew_every(&self) -> Option<Duration> {
        None
    }
}

impl fmt::Debug for dyn CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CredentialSource")
            .field(&self.fingerprint())
            .finish()
    }
}

impl<S: CredentialSource + ?Sized> CredentialSource for Arc<S> {
    fn fingerprint(&self) -> Fingerprint {
        (**self).fingerprint()
    }
    fn credential(&self, why: Refresh) -> BoxFuture<'_, Result<Credential, CredentialError>> {
        (**self).credential(why)
    }
    fn renew_every(&self) -> Option<Duration> {
        (**self).renew_every()
    }
}

/// Why there is no credential. Its text never holds a secret or a plugin's output.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct CredentialError {
    message: String,
    #[source]
    source: Option<BoxError>,
    permanent: bool,
}

impl CredentialError {
    /// A failure that may pass: it is tried again, with back-off.
    pub fn temporary(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            source: None,
            permanent: false,
        }
    }

    /// A failure that stays until the cluster's description changes. It is still tried again, rarely.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            source: None,
            permanent: true,
        }
    }

    /// Adds what caused it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Whether trying again without a change can't help.
    pub fn is_permanent(&self) -> bool {
        self.permanent
    }
}

/// A credential that stays as it is.
#[derive(Debug, Clone)]
pub struct StaticCredential(Credential);

impl StaticCredential {
    /// Always hands out this credential.
    pub fn new(credential: Credential) -> Self {
        Self(credential)
    }
}

impl CredentialSource for StaticCredential {
    fn fingerprint(&self) -> Fingerprint {
        self.0.fingerprint()
    }
    fn credential(&self, _: Refresh) -> BoxFuture<'_, Result<Credential, CredentialError>> {
        Box::pin(std::future::ready(Ok(self.0.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secret() {
        let credential = Credential {
            token: Some("canary-token".to_owned().into()),
            basic: Some(Basic::new("me", "canary-password")),
            ..Credential::certificate("x", "canary-key")
        };
        let shown = format!(
            "{credential:?} {:?} {:?}",
            credential.basic, credential.certificate
        );
        assert!(!shown.contains("canary"), "{shown}");
    }

    #[test]
    fn fingerprints_tell_credentials_apart() {
        assert_eq!(
            Credential::token("a").fingerprint(),
            Credential::token("a").fingerprint()
        );
        assert_ne!(
            Credential::token("a").fingerprint(),
            Credential::token("b").fingerprint()
        );
        assert_ne!(
            Credential::token("a").fingerprint(),
            Credential::anonymous().fingerprint()
        );
    }
}
