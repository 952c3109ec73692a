use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use super::{ControlPlaneError, Credentials};

/// A certificate authority.
#[derive(Debug)]
pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, PEM.
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Authority {
    pub(super) fn new(name: &str) -> Result<Self, ControlPlaneError> {
        let make = || -> Result<_, rcgen::Error> {
            let mut params = CertificateParams::new(Vec::new())?;
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![
                KeyUsagePurpose::KeyCertSign,
                KeyUsagePurpose::CrlSign,
                KeyUsagePurpose::DigitalSignature,
            ];
            CertifiedIssuer::self_signed(params, KeyPair::generate()?)
        };
        let issuer = make().map_err(ControlPlaneError::certificate(name))?;
        Ok(Self { issuer })
    }

    pub(super) fn pem(&self) -> String {
        self.issuer.pem()
    }

    pub(super) fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// A certificate for a server on this machine.
    pub(super) fn server(&self) -> Result<Pair, ControlPlaneError> {
        let make = || -> Result<Pair, rcgen::Error> {
            let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"];
            let mut params = CertificateParams::new(names.map(str::to_owned))?;
            params
                .distinguished_name
                .push(DnType::CommonName, "kube-apiserver");
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            self.sign(params)
        };
        make().map_err(ControlPlaneError::certificate("the serving certificate"))
    }

    /// A certificate that Kubernetes reads as a user and its groups.
    pub(super) fn client(
        &self,
        user: &str,
        groups: &[String],
        valid_for: Option<Duration>,
    ) -> Result<Credentials, ControlPlaneError> {
        // rcgen keeps one value per attribute type. The type of the organisation can be written in
        // two ways, which allows two groups. A third group is not possible.
        if groups.len() > 2 {
            return Err(ControlPlaneError::Unsupported(format!(
                "user {user} has {} groups; a certificate made here holds at most 2",
                groups.len(),
            )));
        }
        let organisation = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
        let make = || -> Result<Pair, rcgen::Error> {
            let mut params = CertificateParams::new(Vec::new())?;
            params.distinguished_name.push(DnType::CommonName, user);
            for (kind, group) in organisation.into_iter().zip(groups) {
                params.distinguished_name.push(kind, group.as_str());
            }
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            if let Some(end) = valid_for.and_then(|valid_for| SystemTime::now().checked_add(valid_for)) {
                params.not_after = end.into();
            }
            self.sign(params)
        };
        let pair = make().map_err(ControlPlaneError::certificate(format!(
            "the certificate of {user}"
        )))?;
        Ok(Credentials::ClientCertificate {
            certificate: pair.certificate,
            key: pair.key,
        })
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Pair, rcgen::Error> {
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Pair {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

/// The key pair that signs and verifies the tokens of service accounts, PEM.
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
