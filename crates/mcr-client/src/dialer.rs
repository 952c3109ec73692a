//! Makes channels from endpoints, ready clients and routes.

use std::sync::Arc;

use http::Uri;
use mcr_access::{
    AccessError, AccessPolicy, AddressPolicy, Credential, Endpoint, Trust,
    internal::{literal_ip, redacted_uri},
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
    /// A dialer whose channels follow this policy and have the default time limits.
    pub fn new(policy: &AccessPolicy) -> Self {
        Self::with_settings(policy, Settings::default().into())
    }

    /// A dialer whose channels follow this policy and have these settings.
    pub fn with_settings(policy: &AccessPolicy, settings: Arc<Settings>) -> Self {
        Self(Arc::new(DialerInner {
            policy: policy.clone(),
            settings,
            tls: TlsCache::default(),
        }))
    }

    /// Makes a channel to an API server. The channel connects when it sends its first request.
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
        let allowed = match trust {
            Trust::Trusted => AddressPolicy::any(),
            Trust::Untrusted => policy.address_policy(),
        };
        let host = endpoint.server.host().unwrap_or_default();
        // The resolver checks the addresses of host names. It never gets a host that is an IP address already.
        if let Some(address) = literal_ip(&endpoint.server) {
            allowed
                .check(address)
                .map_err(|error| AccessError::refused("server", error.to_string()))?;
        }
        if host.is_empty() || !matches!(endpoint.server.scheme_str(), Some("http" | "https")) {
            return Err(AccessError::invalid(
                "server",
                "is not an address; write https://host:port",
            ));
        }
        let proxy = endpoint.proxy.as_ref();
        let of_environment = || settings.proxies.as_ref()?.proxy_to(&endpoint.server);
        let proxy = proxy.or_else(|| of_environment().filter(|_| !endpoint.direct));
        if endpoint.proxy.is_none()
            && trust == Trust::Untrusted
            && let Some(proxy) = proxy
            && !policy.allows_proxy(proxy)
        {
            return Err(AccessError::refused(
                "server",
                format!(
                    "would be reached through the proxy of the environment, {}, which untrusted kubeconfigs may not \
                     use; allow the proxy with AccessPolicy::allow_proxy, or add the server to NO_PROXY",
                    redacted_uri(proxy)
                ),
            ));
        }
        let config = tls.config(endpoint, credential.certificate.as_ref())?;
        let proxy_tls = || tls.config(&Endpoint::new(Uri::default()), None);
        let connector = Connector::new(endpoint, proxy, config, proxy_tls, allowed, settings)?;
        let pool = Pool::new(connector, &endpoint.server, settings).map_err(|_| {
            AccessError::invalid("server", "has a host that does not fit into a header; correct it")
        })?;
        let backend = PooledBackend {
            pool,
            base_path: endpoint.server.path().trim_end_matches('/').into(),
            headers: headers(credential)?.into(),
            lacks_credential: credential.is_empty(),
            accepts_gzip: endpoint.gzip_lists.unwrap_or(settings.gzip_lists),
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
