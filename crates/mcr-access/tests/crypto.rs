//! Which cryptography is used. One test, in a process of its own, because a provider is installed once in a process.
#![allow(clippy::unwrap_used)]

use mcr_access::{KubeconfigAccess, Trust, crypto};
use rustls::{
    Error,
    crypto::{CryptoProvider, GetRandomFailed, KeyProvider, SecureRandom, WebPkiSupportedAlgorithms},
    pki_types::PrivateKeyDer,
    sign::SigningKey,
};

/// A provider of the program's own, which can do nothing.
#[derive(Debug)]
struct Own;

impl SecureRandom for Own {
    fn fill(&self, _: &mut [u8]) -> Result<(), GetRandomFailed> {
        Err(GetRandomFailed)
    }
}

impl KeyProvider for Own {
    fn load_private_key(&self, _: PrivateKeyDer<'static>) -> Result<std::sync::Arc<dyn SigningKey>, Error> {
        Err(Error::General("own".to_owned()))
    }
}

fn own() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: Vec::new(),
        kx_groups: Vec::new(),
        signature_verification_algorithms: WebPkiSupportedAlgorithms {
            all: &[],
            mapping: &[],
        },
        secure_random: &Own,
        key_provider: &Own,
    }
}

/// The name of the provider in use.
fn used() -> Option<String> {
    let provider = crypto::provider().ok()?;
    Some(format!("{:?}", provider.key_provider))
}

/// Reads a kubeconfig with a client certificate, whose key the provider has to load.
fn read() -> Result<(), String> {
    let key = rcgen::KeyPair::generate().unwrap();
    let chain = rcgen::CertificateParams::default().self_signed(&key).unwrap();
    let base64 = |text: String| {
        use base64::Engine;
        base64::engine::general_purpose::STANDARD.encode(text)
    };
    let kubeconfig = format!(
        "{{current-context: c, contexts: [{{name: c, context: {{cluster: k, user: u}}}}], \
         clusters: [{{name: k, cluster: {{server: 'https://h'}}}}], \
         users: [{{name: u, user: {{client-certificate-data: {}, client-key-data: {}}}}}]}}",
        base64(chain.pem()),
        base64(key.serialize_pem())
    );
    let parsed = KubeconfigAccess::new(kubeconfig, Trust::Trusted).parse();
    parsed.map(drop).map_err(|error| error.to_string())
}

#[test]
fn an_installed_provider_is_used_else_ring_else_aws_lc_rs_else_none() {
    assert!(CryptoProvider::get_default().is_none());
    let compiled_in = if cfg!(feature = "ring") {
        Some("Ring")
    } else if cfg!(feature = "aws-lc-rs") {
        Some("AwsLcRs")
    } else {
        None
    };
    assert_eq!(used().as_deref(), compiled_in);
    if compiled_in.is_some() {
        read().unwrap();
    } else {
        let text = crypto::install_default().unwrap_err().to_string();
        for advice in [
            "feature ring or aws-lc-rs of mcr",
            "CryptoProvider::install_default",
        ] {
            assert!(text.contains(advice), "{text}");
        }
        let read = read().unwrap_err();
        assert!(read.contains("client-key-data") && read.contains(&text), "{read}");
        assert!(CryptoProvider::get_default().is_none(), "nothing was installed");
    }

    own().install_default().unwrap();
    assert_eq!(used().as_deref(), Some("Own"));
    // What is installed stays.
    crypto::install_default().unwrap();
    assert_eq!(used().as_deref(), Some("Own"));
    assert!(read().unwrap_err().contains("can't be used here"));
}
