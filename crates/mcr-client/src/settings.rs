//! Limits of time and size.

use std::{sync::Arc, time::Duration};

use crate::agent::{Sender, UserAgent};

use crate::proxies::ProxyEnvironment;

/// Time limits of connections, requests and responses, and the size limit of a response.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Time limit for DNS, TCP, proxy and TLS together. 10 s by default.
    pub connect_timeout: Duration,
    /// Time limit from the start of a request to the head of its response, connecting included. 60 s by default, as API servers allow. Watches have
    /// [`watch_head_timeout`](Self::watch_head_timeout) instead.
    pub head_timeout: Duration,
    /// The same for watches. 300 s by default.
    ///
    /// Some aggregated API servers and proxies send the head of a watch only with its first event. So this limit has to be longer
    /// than the `timeoutSeconds` of watches, after which the server ends them. The watches of a fleet with a longer
    /// `WatchSettings::watch_timeout` get more time by themselves.
    pub watch_head_timeout: Duration,
    /// The longest pause between two parts of a body. It does not apply to watches, followed logs and upgraded connections.
    /// 30 s by default.
    pub read_timeout: Duration,
    /// Size limit in bytes of a response that the `kube::Client` of a cluster receives as a whole: an object or a list. A larger one
    /// fails with [`TooLarge`](crate::TransportErrorKind::TooLarge). 256 MiB by default.
    pub body_limit: usize,
    /// Whether lists of a fleet's watches may be compressed with gzip, in clusters whose endpoint does not decide it. API servers compress
    /// lists of more than 128 KiB. That costs both sides CPU time, and is faster where the network is slow. Watches and the requests of
    /// a cluster's `kube::Client` are not compressed, nor are the lists of a watch after one that could not be unpacked, or grew more
    /// than 128 times. A transport layer receives lists as the server has sent them. False by default.
    pub gzip_lists: bool,
    /// The proxies to API servers whose endpoint names none. Default: none, and the connections are direct.
    pub proxies: Option<Arc<ProxyEnvironment>>,
    /// How long an idle connection stays open. 60 s by default.
    pub idle_timeout: Duration,
    /// Each watch ends at a random time within this duration after the credentials were rotated. 18 s by default.
    pub rotation_spread: Duration,
    /// How long a watch then waits for the end of a line before it fails. 10 s by default.
    pub rotation_line_timeout: Duration,
    /// How long a request that got a 401 waits for newer credentials. 10 s by default.
    pub refresh_wait: Duration,
    /// For this long after a refresh that brought no newer credentials, a request that gets a 401 returns it without another
    /// refresh. 10 s by default.
    pub refresh_pause: Duration,
    /// Whether a probe accepts an API server that takes the user for `system:anonymous`, if there is no credential. False by
    /// default.
    pub allow_anonymous: bool,
    pub(crate) user_agent: UserAgent,
    /// Who sends all requests, where that is one part of a program.
    pub(crate) sender: Option<Sender>,
}

impl Settings {
    /// Sets the User-Agent of requests, and who sends all of them, where that is one part of a program. Not part of the API.
    #[doc(hidden)]
    pub fn set_user_agent(&mut self, agent: UserAgent, sender: Option<Sender>) {
        (self.user_agent, self.sender) = (agent, sender);
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(60),
            watch_head_timeout: Duration::from_secs(300),
            read_timeout: Duration::from_secs(30),
            body_limit: 256 << 20,
            gzip_lists: false,
            proxies: None,
            idle_timeout: Duration::from_secs(60),
            rotation_spread: Duration::from_secs(18),
            rotation_line_timeout: Duration::from_secs(10),
            refresh_wait: Duration::from_secs(10),
            refresh_pause: Duration::from_secs(10),
            allow_anonymous: false,
            user_agent: UserAgent::default(),
            sender: None,
        }
    }
}
