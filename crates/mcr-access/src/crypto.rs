//! The cryptography of TLS: which provider of rustls is used.
//!
//! A provider that is installed as the default of the process is used. Without one, the features of this crate decide:
//! `ring`, which is on by default, or else `aws-lc-rs`. With neither, nothing can be used until a provider is installed.

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;

/// The program has no cryptography for TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "this program has no cryptography for TLS: turn on the feature ring or aws-lc-rs of mcr, or install a provider at the start of \
     main, with rustls::crypto::CryptoProvider::install_default"
)]
#[non_exhaustive]
pub struct NoCryptoProvider;

/// Makes the provider that mcr uses the default of this process, if there is none.
///
/// `kube::Client::try_from` and others use the default, and panic if there is none and the features of rustls do not name
/// exactly one. A library calls this before it makes such a client. A program calls it in `main`, or installs a provider of its own.
///
/// # Errors
/// [`NoCryptoProvider`] if there is no default, and neither feature is on.
pub fn install_default() -> Result<(), NoCryptoProvider> {
    let provider = CryptoProvider::clone(provider()?);
    // Fails if there is a default already, which then is the one.
    let _ = provider.install_default();
    Ok(())
}

/// The provider of all TLS configurations. Not part of the API.
#[doc(hidden)]
pub fn provider() -> Result<&'static Arc<CryptoProvider>, NoCryptoProvider> {
    CryptoProvider::get_default()
        .or_else(compiled_in)
        .ok_or(NoCryptoProvider)
}

fn compiled_in() -> Option<&'static Arc<CryptoProvider>> {
    #[cfg(feature = "ring")]
    use rustls::crypto::ring as chosen;

    #[cfg(all(feature = "aws-lc-rs", not(feature = "ring")))]
    use rustls::crypto::aws_lc_rs as chosen;

    #[cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]
    mod chosen {
        pub(super) fn default_provider() -> Option<rustls::crypto::CryptoProvider> {
            None
        }
    }

    static COMPILED_IN: LazyLock<Option<Arc<CryptoProvider>>> = LazyLock::new(|| {
        let provider: Option<CryptoProvider> = chosen::default_provider().into();
        provider.map(Arc::new)
    });
    COMPILED_IN.as_ref()
}
