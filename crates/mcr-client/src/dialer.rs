//! Makes channels from endpoints, ready clients and routes.

use std::sync::Arc;

use http::Uri;
use mcr_access::{
    AccessError, AccessPolicy, AddressPolicy, Credential, Endpoint, Trust, internal::literal_ip,
};

use crate::{
    channel::{Channel, PooledBackend, Route},
    connect::Connector,
    headers::headers,
    pool::Pool,
    settings::Settings,
    tls::TlsCache,
};

/// Makes [channels](Channel). One dialer serves many clusters: channels with equal TLS settings share a configuration.
#[derive(Clone)]
pub struct Dialer(Arc<DialerInner>);

struct DialerInner {
    policy: AccessPolicy,
    settings: Arc<Settings>,
    tls: TlsCache,
}

impl Dialer {
    /// Makes channels under this policy, with the default time limits.
    pub fn new(policy: &AccessPolicy) -> Self {
        Self::with_settings(policy, Settings::default().into())
    }

    /// Makes channels under this policy, with other time limits.
    pub fn with_settings(policy: &AccessPolicy, settings: Arc<Settings>) -> Self {
        Self(Arc::new(DialerInner {
            policy: policy.clone(),
            settings,
            tls: TlsCache::default(),
        }))
    }

    /// Makes a channel to an API server. It connects with its first request.
    ///
    /// # Errors
    ///
    /// Names the field of the endpoint or credential that is not usable, and how to correct it.
    pub fn channel(
        &self,
        endpoint: &Endpoint,
        credential: &Credential,
        trust: Trust,
    ) -> Result<Channel, AccessError> {
        let DialerInner {
            policy,
            settings,
            tls,
        } = &*self.0;
        let addresses = match trust {
            Trust::Trusted => AddressPolicy::any(),
            Trust::Untrusted => policy.address_policy(),
        };
        let host = endpoint.server.host().unwrap_or_default();
        // Checked here, because the resolver, which checks all other addresses, never sees an IP address.
        if let Some(address) = literal_ip(&endpoint.server) {
            addresses
                .check(address)
                .map_err(|error| AccessError::refused("server", error.to_string()))?;
        }
        if host.is_empty() || !matches!(endpoint.server.scheme_str(), Some("http" | "https")) {
            return Err(AccessError::invalid(
                "server",
                "is not an address; write https://host:port",
            ));
        }
        let config = tls.config(endpoint, credential.certificate.as_ref())?;
        let proxy_tls = || tls.config(&Endpoint::new(Uri::default()), None);
        let connector = Connector::new(endpoint, config, proxy_tls, addresses, settings)?;
        let pool = Pool::new(connector, &endpoint.server, settings).map_err(|_| {
            AccessError::invalid("server", "has a host that does not fit into a header; correct it")
        })?;
        let backend = PooledBackend {
            pool,
            base_path: endpoint.server.path().trim_end_matches('/').into(),
            headers: headers(credential)?.into(),
            lacks_credential: credential.is_empty(),
        };
        Ok(Channel::pooled(backend, settings.clone()))
    }

    /// Makes a channel that sends its requests through a ready client.
    pub fn client_channel(&self, client: kube::Client) -> Channel {
        Channel::client(client, self.0.settings.clone())
    }

    /// Makes a channel that sends its requests through the connection of another cluster.
    pub fn route_channel(&self, route: Arc<dyn Route>) -> Channel {
        Channel::route(route, self.0.settings.clone())
    }
}
