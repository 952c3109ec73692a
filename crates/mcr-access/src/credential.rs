//! Credentials, and the trait of their sources.

use std::{
    collections::BTreeMap,
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::future::BoxFuture;
use rustls::sign::CertifiedKey;
use secrecy::{ExposeSecret, SecretString};

use crate::{error::BoxError, fingerprint::Fingerprint, pem};

/// The credentials of a request. Debug output shows which kinds are set, but no secret.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Credential {
    /// A bearer token.
    pub token: Option<SecretString>,
    /// A user name and password. Requests use them only if there is no token.
    pub basic: Option<Basic>,
    /// A client certificate with its key.
    pub certificate: Option<ClientCertificate>,
    /// The user to impersonate.
    pub impersonate: Option<Impersonation>,
    /// The time at which the token or the certificate expires, if known.
    pub expires_at: Option<SystemTime>,
}

/// A user name and password.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Basic {
    /// The name of the user.
    pub username: String,
    /// The password.
    pub password: SecretString,
}

/// A client certificate with its private key. [`Credential::certificate`] makes one.
#[derive(Clone)]
pub struct ClientCertificate(CertificateForm);

#[derive(Clone)]
enum CertificateForm {
    /// PEM from [`Credential::certificate`]. It is parsed, and can turn out to be unusable, when a connection needs it.
    Unparsed { chain: Arc<[u8]>, key: SecretString },
    /// A certificate from a kubeconfig, a file or a plugin. Its PEM is dropped: a fleet can have one for each cluster.
    Parsed {
        identity: Arc<CertifiedKey>,
        pem: Fingerprint,
    },
}

impl ClientCertificate {
    /// Parses a certificate and its key, and checks that they belong together.
    pub(crate) fn parse(chain: &[u8], key: &str) -> Result<Self, pem::IdentityProblem> {
        Ok(Self(CertificateForm::Parsed {
            identity: pem::identity(chain, key)?,
            pem: Self::fingerprint_of_pem(chain, key),
        }))
    }

    fn fingerprint_of_pem(chain: &[u8], key: &str) -> Fingerprint {
        Fingerprint::of(&(chain, key))
    }

    /// Returns the fingerprint of the PEM of certificate and key.
    #[doc(hidden)]
    pub fn fingerprint(&self) -> Fingerprint {
        match &self.0 {
            CertificateForm::Unparsed { chain, key } => Self::fingerprint_of_pem(chain, key.expose_secret()),
            CertificateForm::Parsed { pem, .. } => *pem,
        }
    }

    /// Returns the certificate and key in the form that rustls needs. Equal certificates share one object.
    #[doc(hidden)]
    pub fn identity(&self) -> Result<Arc<CertifiedKey>, pem::IdentityProblem> {
        match &self.0 {
            CertificateForm::Unparsed { chain, key } => pem::identity(chain, key.expose_secret()),
            CertificateForm::Parsed { identity, .. } => Ok(identity.clone()),
        }
    }
}

/// The user to impersonate: the fields `as`, `as-uid`, `as-groups` and `as-user-extra` of a kubeconfig's user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Impersonation {
    /// The name of the user.
    pub user: String,
    /// The user's UID.
    pub uid: Option<String>,
    /// The user's groups.
    pub groups: Vec<String>,
    /// Further attributes of the user, for authorizers.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Credential {
    /// A credential for anonymous requests: it is empty.
    pub fn anonymous() -> Self {
        Self::default()
    }

    /// A bearer token without a known expiry.
    pub fn token(token: impl Into<String>) -> Self {
        Self {
            token: Some(SecretString::from(token.into())),
            ..Self::default()
        }
    }

    /// A client certificate chain and its private key, in PEM. The first connection that uses them parses them, so a
    /// wrong one is an error of that connection.
    pub fn certificate(chain: impl AsRef<[u8]>, key: impl Into<String>) -> Self {
        let certificate = ClientCertificate(CertificateForm::Unparsed {
            chain: Arc::from(chain.as_ref()),
            key: SecretString::from(key.into()),
        });
        Self {
            certificate: Some(certificate),
            ..Self::default()
        }
    }

    /// Sets the time at which the credential expires.
    #[must_use]
    pub fn expires_at(mut self, at: SystemTime) -> Self {
        self.expires_at = Some(at);
        self
    }

    /// Whether there is nothing that proves a user: no certificate, no login and no token, or an empty one.
    pub fn is_empty(&self) -> bool {
        let token = self.token.as_ref();
        self.basic.is_none()
            && self.certificate.is_none()
            && token.is_none_or(|token| token.expose_secret().trim().is_empty())
    }

    /// Returns the [`Fingerprint`] of everything but the expiry.
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

/// Why a caller asks for a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refresh {
    /// The caller connects to the cluster. A cached credential is sufficient.
    First,
    /// The last credential expires soon. The caller needs one that is valid longer.
    Expiring,
    /// The API server refused the last credential with 401. The caller needs another one.
    Unauthorized,
}

/// A source of credentials for a cluster: the first one, and a new one when the last one expires or is refused.
///
/// The fleet calls [`credential`](Self::credential) in the task of the cluster, with a deadline. A source that hangs
/// delays only its own cluster. The fleet drops the future when the deadline passes, so it must be cancel safe. A panic
/// counts as a failure. Several clusters can share one source.
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
    /// Identifies the source. If a provider announces a cluster again with a source of another fingerprint, the fleet
    /// replaces the credentials of the cluster.
    fn fingerprint(&self) -> Fingerprint;

    /// Returns a credential.
    ///
    /// # Errors
    /// [`CredentialError`] if there is no credential now. The fleet calls again, with back-off.
    fn credential(&self, why: Refresh) -> BoxFuture<'_, Result<Credential, CredentialError>>;

    /// The interval at which the fleet asks for a new credential although the last one has not expired. For credentials
    /// that change without notice: token files are read again every minute. `None`: the fleet asks only before expiry
    /// and after a 401.
    fn renew_every(&self) -> Option<Duration> {
        None
    }

    /// What is known of the credential without a call: all of a credential that never changes.
    #[doc(hidden)]
    fn known(&self) -> Option<&Credential> {
        None
    }

    /// Whether this is a credential plugin as a kubeconfig asks for it. A policy puts the one that it admits in its place.
    #[doc(hidden)]
    fn is_plugin(&self) -> bool {
        false
    }

    /// When the work for the last call began, if that had to wait for its turn. The deadline of a call begins then.
    #[doc(hidden)]
    fn work_began(&self) -> Option<tokio::time::Instant> {
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
    fn known(&self) -> Option<&Credential> {
        (**self).known()
    }
    fn is_plugin(&self) -> bool {
        (**self).is_plugin()
    }
    fn work_began(&self) -> Option<tokio::time::Instant> {
        (**self).work_began()
    }
}

/// Why a source has no credential. The text never contains a secret or the output of a plugin.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct CredentialError {
    message: String,
    #[source]
    source: Option<BoxError>,
    permanent: bool,
}

impl CredentialError {
    /// A failure that can pass without a change, for example a timeout.
    pub fn temporary(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            source: None,
            permanent: false,
        }
    }

    /// A failure that lasts until somebody changes the cluster's configuration. The fleet tries
    /// again all the same, with back-off, since it can't see that change.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            source: None,
            permanent: true,
        }
    }

    /// Sets the cause of the failure.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Returns whether another attempt without a change is pointless.
    pub fn is_permanent(&self) -> bool {
        self.permanent
    }
}

/// A source that always returns the same credential.
#[derive(Debug, Clone)]
pub struct StaticCredential(Credential);

impl StaticCredential {
    /// A source of this credential.
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
    fn known(&self) -> Option<&Credential> {
        Some(&self.0)
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
    fn fingerprints_distinguish_credentials() {
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
