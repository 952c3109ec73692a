//! The serving certificates of proxies. They are made once per process, and all proxies share them.

use std::sync::Arc;

use parking_lot::Mutex;
use rcgen::date_time_ymd;
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};

use super::FaultError;
use crate::pki::{Authority, LOCAL, Pair};

/// The certificate that a proxy presents in the TLS handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Face {
    #[default]
    Good,
    /// Signed by a certificate authority that clients don't trust.
    WrongCa,
    Expired,
    WrongHost,
}

pub(super) struct Certificates {
    pub(super) ca_pem: String,
    /// One configuration for each [`Face`], in the order of its variants.
    configs: [Arc<ServerConfig>; 4],
}

impl Certificates {
    pub(super) fn shared() -> Result<Arc<Self>, FaultError> {
        static SHARED: Mutex<Option<Arc<Certificates>>> = Mutex::new(None);
        let mut shared = SHARED.lock();
        if let Some(made) = &*shared {
            return Ok(made.clone());
        }
        let made = Arc::new(Self::new()?);
        *shared = Some(made.clone());
        Ok(made)
    }

    fn new() -> Result<Self, FaultError> {
        let ca = Authority::new("fault proxy CA").map_err(failed)?;
        let other = Authority::new("another fault proxy CA").map_err(failed)?;
        Ok(Self {
            configs: [
                server(&ca, &LOCAL, false)?,
                server(&other, &LOCAL, false)?,
                server(&ca, &LOCAL, true)?,
                server(&ca, &["elsewhere.invalid"], false)?,
            ],
            ca_pem: ca.pem(),
        })
    }

    pub(super) fn config(&self, face: Face) -> Arc<ServerConfig> {
        self.configs[face as usize].clone()
    }
}

fn failed(error: impl std::fmt::Display) -> FaultError {
    FaultError::Certificate(error.to_string())
}

fn server(authority: &Authority, names: &[&str], expired: bool) -> Result<Arc<ServerConfig>, FaultError> {
    let edit = |params: &mut rcgen::CertificateParams| {
        if expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
    };
    let Pair { certificate, key } = authority.server(names, edit).map_err(failed)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = mcr_access::crypto::provider().map_err(failed)?.clone();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .map_err(failed)?;
    Ok(Arc::new(config))
}
