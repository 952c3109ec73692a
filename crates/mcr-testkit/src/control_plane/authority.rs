use std::fmt;
use std::sync::Arc;

use super::ControlPlaneError;
use super::pki::{self, Authority, Pair};

/// A certificate authority for the server and the users of a control plane. kubeadm sets up clusters with such a
/// single authority. Cheap to clone.
///
/// ```no_run
/// use mcr_testkit::control_plane::{CertificateAuthority, ControlPlane};
///
/// # async fn test() -> Result<(), mcr_testkit::control_plane::ControlPlaneError> {
/// let authority = CertificateAuthority::new("kubernetes")?;
/// let plane = ControlPlane::builder().authority(&authority).start().await?;
/// assert_eq!(plane.ca_pem(), authority.certificate_pem());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CertificateAuthority {
    inner: Arc<Authority>,
}

impl CertificateAuthority {
    /// Makes an authority with this common name and a new key (ECDSA P-256).
    ///
    /// # Errors
    ///
    /// If the key or the certificate can't be made.
    pub fn new(name: &str) -> Result<Self, ControlPlaneError> {
        Ok(Self {
            inner: Arc::new(pki::authority(name)?),
        })
    }

    /// The certificate, PEM.
    pub fn certificate_pem(&self) -> String {
        self.inner.pem()
    }

    /// The private key, PKCS#8 PEM.
    pub fn key_pem(&self) -> String {
        self.inner.0.key().serialize_pem()
    }

    /// The certificate and the private key of a server on 127.0.0.1, PEM.
    ///
    /// # Errors
    ///
    /// If the key or the certificate can't be made.
    pub fn server(&self) -> Result<(String, String), ControlPlaneError> {
        let Pair { certificate, key } = pki::server(&self.inner)?;
        Ok((certificate, key))
    }

    /// The certificate and the private key of a client with this name, PEM.
    ///
    /// # Errors
    ///
    /// If the key or the certificate can't be made.
    pub fn client(&self, name: &str) -> Result<(String, String), ControlPlaneError> {
        let pair = self.inner.client(name, |_| {});
        let Pair { certificate, key } = pair.map_err(ControlPlaneError::certificate(name))?.into();
        Ok((certificate, key))
    }

    pub(super) fn inner(&self) -> Arc<Authority> {
        self.inner.clone()
    }
}

/// Does not show the key, so that a failing test may print a struct with an authority.
impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateAuthority").finish_non_exhaustive()
    }
}
