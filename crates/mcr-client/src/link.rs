//! The link of a cluster: whether its client and its watches may use the connection.

use std::{fmt, sync::Arc};

use crate::observable::Observable;

/// Numbers the targets at which a cluster has answered: a resource version of one is of no use at the next.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct EndpointNumber(pub u64);

/// Whether a cluster can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkState {
    /// Requests fail at once, and watches send nothing.
    Down {
        /// Why, as text for people.
        reason: Arc<str>,
        /// Whether requests that wait for an answer end, too, with [`Lost`](crate::TransportErrorKind::Lost).
        ends_requests: bool,
    },
    /// Requests and watches use the current channel, at this endpoint.
    Up(EndpointNumber),
}

impl LinkState {
    /// Requests that have begun may end by themselves.
    pub fn down(reason: impl Into<Arc<str>>) -> Self {
        Self::Down {
            reason: reason.into(),
            ends_requests: false,
        }
    }

    /// Requests that wait for an answer end at once.
    pub fn lost(reason: impl Into<Arc<str>>) -> Self {
        Self::Down {
            reason: reason.into(),
            ends_requests: true,
        }
    }

    fn endpoint(&self) -> Option<EndpointNumber> {
        match self {
            Self::Up(endpoint) => Some(*endpoint),
            Self::Down { .. } => None,
        }
    }
}

/// A state, and how often the link has gone up or down, or to another endpoint: down and up again is a change, too.
#[derive(Debug, Clone)]
struct Numbered {
    state: LinkState,
    number: u64,
}

/// The link of a transport.
#[derive(Clone)]
pub struct Link(Arc<Observable<Numbered>>);

impl Default for Link {
    /// Up: a transport that nobody supervises is used as soon as it has a channel.
    fn default() -> Self {
        let state = LinkState::Up(EndpointNumber::default());
        Self(Arc::new(Observable::new(Numbered { state, number: 0 })))
    }
}

impl Link {
    /// Another reason is no change for those who wait.
    pub(crate) fn set(&self, state: LinkState) {
        self.0.change_if(|now| {
            let changed = now.state.endpoint() != state.endpoint();
            now.state = state;
            now.number += u64::from(changed);
            changed
        });
    }

    /// Why requests fail at once, if they do.
    pub(crate) fn reason(&self) -> Option<Arc<str>> {
        self.0.read(|now| match &now.state {
            LinkState::Down { reason, .. } => Some(reason.clone()),
            LinkState::Up(_) => None,
        })
    }

    /// The number of the endpoint, if the link is up.
    pub fn endpoint(&self) -> Option<EndpointNumber> {
        self.0.read(|now| now.state.endpoint())
    }

    /// The number of changes before. A reason is none.
    pub fn number(&self) -> u64 {
        self.0.read(|now| now.number)
    }

    /// Waits until the link is up. Returns the number of its endpoint.
    pub fn up(&self) -> impl Future<Output = EndpointNumber> {
        self.0.wait(|now| now.state.endpoint())
    }

    /// Waits until the link is not up at this endpoint any more.
    pub fn left(&self, endpoint: EndpointNumber) -> impl Future<Output = ()> {
        self.0
            .wait(move |now| (now.state.endpoint() != Some(endpoint)).then_some(()))
    }

    /// Waits until the number of changes is another one.
    pub fn changed(&self, number: u64) -> impl Future<Output = ()> {
        self.0.wait(move |now| (now.number != number).then_some(()))
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.read(|now| now.state.fmt(f))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;
    use http::Request;
    use kube::client::Body;
    use mcr_access::{AccessPolicy, BoxError, ClusterName};
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::{
        answer_body::AnswerBody, channel::Route, dialer::Dialer, error::TransportErrorKind,
        transport::Transport,
    };

    fn up(endpoint: u64) -> LinkState {
        LinkState::Up(EndpointNumber(endpoint))
    }

    fn transport() -> Transport {
        Transport::new(ClusterName::unchecked("a"))
    }

    fn request() -> Request<Body> {
        Request::get("/version").body(Body::empty()).unwrap()
    }

    /// A server that is never reached: it gives no answer.
    struct Silent;

    impl Route for Silent {
        fn send(
            &self,
            _: Request<Body>,
        ) -> futures::future::BoxFuture<'static, Result<http::Response<AnswerBody>, BoxError>> {
            std::future::pending().boxed()
        }
    }

    /// What becomes of a request that waits for an answer while the link changes.
    async fn under(change: LinkState) -> Option<TransportErrorKind> {
        let transport = transport();
        transport.swap(Dialer::new(&AccessPolicy::default()).route_channel(Arc::new(Silent)));
        let sent = transport.send(request());
        tokio::pin!(sent);
        assert!(sent.as_mut().now_or_never().is_none());
        transport.set_link(change);
        let ended = timeout(Duration::from_millis(1), sent).await.ok()?;
        Some(ended.err()?.kind().clone())
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_lost_link_ends_requests_that_wait_for_an_answer() {
        let lost = under(LinkState::lost("it is gone")).await;
        let reason = "it is gone".into();
        assert_eq!(lost, Some(TransportErrorKind::Lost { reason }));
        assert_eq!(under(LinkState::down("it sleeps")).await, None);
        assert_eq!(under(up(2)).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_link_is_down_a_new_request_fails_at_once_with_the_newest_reason() {
        let transport = transport();
        transport.set_link(LinkState::down("it sleeps"));
        transport.set_link(LinkState::lost("it is gone"));
        let sent = transport.send(request()).now_or_never().unwrap();
        let reason = "it is gone".into();
        assert_eq!(
            *sent.unwrap_err().kind(),
            TransportErrorKind::NotConnected { reason }
        );
    }

    #[tokio::test(start_paused = true)]
    async fn down_and_up_again_is_a_change_also_for_whoever_comes_late_and_a_reason_is_none() {
        let transport = transport();
        let link = transport.link();
        transport.set_link(LinkState::down("one"));
        let number = link.number();
        transport.set_link(LinkState::lost("another"));
        assert!(
            link.changed(number).now_or_never().is_none(),
            "only the reason is new"
        );
        transport.set_link(up(1));
        transport.set_link(LinkState::down("one"));
        link.changed(number).now_or_never().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_for_the_link_learns_its_endpoint_and_when_it_is_down_or_another_one() {
        for (next, then) in [
            (up(2), Some(EndpointNumber(2))),
            (LinkState::down("it sleeps"), None),
        ] {
            let transport = transport();
            transport.set_link(LinkState::down("not yet"));
            let link = transport.link();
            let waits = tokio::spawn(async move {
                let endpoint = link.up().await;
                link.left(endpoint).await;
                (endpoint, link.endpoint())
            });
            for _ in 0..2 {
                sleep(Duration::from_millis(1)).await;
                transport.set_link(up(1));
            }
            sleep(Duration::from_millis(1)).await;
            assert!(!waits.is_finished(), "the same endpoint again is no change");
            transport.set_link(next);
            let waits = timeout(Duration::from_secs(1), waits).await;
            assert_eq!(waits.unwrap().unwrap(), (EndpointNumber(1), then));
        }
    }
}
