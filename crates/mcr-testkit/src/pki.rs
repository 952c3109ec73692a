//! Certificate authorities for servers on this machine, and the certificates that they sign.

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DnType, Error,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};

/// The names of a server on this machine.
pub(crate) const LOCAL: [&str; 3] = ["127.0.0.1", "localhost", "kubernetes.default.svc"];

/// A certificate authority.
#[derive(Debug)]
pub(crate) struct Authority(pub(crate) CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
pub(crate) struct Pair {
    pub(crate) certificate: Certificate,
    pub(crate) key: KeyPair,
}

impl Authority {
    /// An authority with a new key.
    pub(crate) fn new(name: &str) -> Result<Self, Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        CertifiedIssuer::self_signed(params, KeyPair::generate()?).map(Self)
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for a server with these names. `edit` may change it.
    pub(crate) fn server(
        &self,
        names: &[&str],
        edit: impl FnOnce(&mut CertificateParams),
    ) -> Result<Pair, Error> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        params
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        edit(&mut params);
        self.sign(params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A certificate for a client. `edit` may change it.
    #[cfg(any(feature = "sim", all(unix, feature = "control-plane")))]
    pub(crate) fn client(
        &self,
        name: &str,
        edit: impl FnOnce(&mut CertificateParams),
    ) -> Result<Pair, Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, name);
        edit(&mut params);
        self.sign(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn sign(&self, mut params: CertificateParams, usage: ExtendedKeyUsagePurpose) -> Result<Pair, Error> {
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.0)?;
        Ok(Pair { certificate, key })
    }
}
