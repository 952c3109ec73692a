//! A proxy in front of an API server, with faults that a test can set and end while the proxy runs.
//!
//! A [`FaultProxy`] listens on 127.0.0.1 and forwards all requests to an [`Upstream`]: a real API server, a simulated
//! one, or plain HTTP. Give the kubeconfig of the proxy to the code under test, then set faults:
//!
//! ```no_run
//! # async fn test(upstream: mcr_testkit::faults::Upstream) -> Result<(), Box<dyn std::error::Error>> {
//! use mcr_testkit::faults::{Fault, FaultProxy, Match};
//!
//! let proxy = FaultProxy::start(upstream).await?;
//! let kubeconfig = proxy.kubeconfig_with_token("secret"); // hand it to the code under test
//!
//! proxy.set(Fault::BlackHole).await; // open connections fall silent, new ones get no answer to their SYN
//! proxy.set(Fault::Forbidden.on(Match::any().resource("secrets"))).await; // 403 on one kind
//! proxy.set(Fault::GoneEvent.on(Match::any().times(1))).await; // a 410 in one running watch
//! proxy.clear().await;
//! # Ok(()) }
//! ```
//!
//! [`Fault`] lists the faults. A [`Match`] limits a fault to some requests. A [`Schedule`] is a series of faults over
//! many proxies. It is made from a seed, so that a failing run can be repeated.
//!
//! # What a proxy can and can't do
//! TLS ends at the proxy. All proxies of a process have the same certificates: trust [`FaultProxy::ca_pem`]. Bearer
//! tokens are forwarded. Client certificates can't be forwarded: let the proxy authenticate itself with
//! [`Upstream::client_certificate`]. The proxy supports HTTP/1.1 without upgrades (`exec`, `port-forward`). Bodies are
//! changed only if they are JSON.
//!
//! A proxy needs a task and a socket. Each connection through it needs a task and two sockets. A process can run
//! hundreds of proxies.

mod body;
mod certificates;
mod error;
mod fault;
mod faulty_stream;
mod http_service;
mod listener;
mod proxy;
mod random;
mod request;
mod rules;
mod schedule;
mod shared;
mod stale;
mod upstream;
mod watch_body;

pub use error::FaultError;
pub use fault::Fault;
pub use proxy::{FaultProxy, FaultProxyBuilder, ProxyStats};
pub use request::Match;
pub use rules::{Rule, RuleId};
pub use schedule::{Schedule, ScheduleBuilder, Step};
pub use upstream::Upstream;
