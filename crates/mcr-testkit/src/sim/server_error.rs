use std::net::SocketAddr;

/// Why a simulated cluster could not be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimServerError {
    /// The operating system refused to listen.
    #[error("listening on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The refusal.
        source: std::io::Error,
    },
    /// A key or certificate could not be made.
    #[error("making certificates: {0}")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
}
