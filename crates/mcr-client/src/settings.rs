//! Limits in time of connections and requests.

use std::time::Duration;

use http::HeaderValue;

/// Times and sizes of connections.
#[derive(Debug, Clone)]
pub struct Settings {
    /// For DNS, TCP, proxy and TLS together.
    pub connect_timeout: Duration,
    /// From a request to the head of its answer, connecting included.
    pub head_timeout: Duration,
    /// For how long a body that is not a stream may be silent.
    pub silence: Duration,
    /// How long an idle connection is kept.
    pub idle_timeout: Duration,
    /// Over how long a time watches end after a swap of credentials.
    pub retire_spread: Duration,
    /// How long such a watch waits for the end of a line.
    pub retire_line: Duration,
    /// How long a request that was refused with 401 waits for newer credentials.
    pub refresh_wait: Duration,
    /// For how long after a refresh that brought nothing newer 401 is just passed on.
    pub refresh_pause: Duration,
    pub(crate) user_agent: HeaderValue,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(30),
            silence: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
            retire_spread: Duration::from_secs(18),
            retire_line: Duration::from_secs(10),
            refresh_wait: Duration::from_secs(10),
            refresh_pause: Duration::from_secs(10),
            user_agent: HeaderValue::from_static(concat!("mcr/", env!("CARGO_PKG_VERSION"))),
        }
    }
}
