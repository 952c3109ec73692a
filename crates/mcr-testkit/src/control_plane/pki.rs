use std::time::{Duration, SystemTime};

use rcgen::{DnType, KeyPair};

use super::{ControlPlaneError, Credentials};
pub(super) use crate::pki::Authority;
use crate::pki::LOCAL;

/// A certificate and its key, PEM.
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl From<crate::pki::Pair> for Pair {
    fn from(pair: crate::pki::Pair) -> Self {
        Self {
            certificate: pair.certificate.pem(),
            key: pair.key.serialize_pem(),
        }
    }
}

pub(super) fn authority(name: &str) -> Result<Authority, ControlPlaneError> {
    Authority::new(name).map_err(ControlPlaneError::certificate(name))
}

/// A certificate for a server on this machine.
pub(super) fn server(authority: &Authority) -> Result<Pair, ControlPlaneError> {
    let pair = authority.server(&LOCAL, |_| {});
    let pair = pair.map_err(ControlPlaneError::certificate("the serving certificate"))?;
    Ok(pair.into())
}

/// A certificate that Kubernetes reads as a user and its groups.
pub(super) fn client(
    authority: &Authority,
    user: &str,
    groups: &[String],
    valid_for: Option<Duration>,
) -> Result<Credentials, ControlPlaneError> {
    // rcgen stores one value for each attribute type. The type of the organisation can be expressed in two ways, so
    // there can be two groups, but no third one.
    if groups.len() > 2 {
        return Err(ControlPlaneError::Unsupported(format!(
            "user {user} has {} groups; a certificate made here holds at most 2",
            groups.len(),
        )));
    }
    let organisation = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
    let pair = authority.client(user, |params| {
        for (kind, group) in organisation.into_iter().zip(groups) {
            params.distinguished_name.push(kind, group.as_str());
        }
        if let Some(end) = valid_for.and_then(|valid_for| SystemTime::now().checked_add(valid_for)) {
            params.not_after = end.into();
        }
    });
    let Pair { certificate, key } = pair
        .map_err(ControlPlaneError::certificate(format!(
            "the certificate of {user}"
        )))?
        .into();
    Ok(Credentials::ClientCertificate { certificate, key })
}

/// The key pair with which tokens of service accounts are signed and verified, PEM.
#[derive(Debug)]
pub(super) struct SigningKey {
    key: KeyPair,
}

impl SigningKey {
    pub(super) fn new() -> Result<Self, ControlPlaneError> {
        let key = KeyPair::generate().map_err(ControlPlaneError::certificate("the service account key"))?;
        Ok(Self { key })
    }

    pub(super) fn private_pem(&self) -> String {
        self.key.serialize_pem()
    }

    pub(super) fn public_pem(&self) -> String {
        self.key.public_key_pem()
    }
}
