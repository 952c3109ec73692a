//! From the cluster entry of a kubeconfig to an endpoint.

use std::path::PathBuf;

use super::entry::{Entry, base64, filled};
use crate::{
    document::Cluster,
    endpoint::Endpoint,
    error::AccessError,
    fingerprint::Fingerprint,
    kubeconfig::{NUMBER, is_number},
    pem,
};

/// The longest name of the DNS, in bytes. Errors and the lookups that a client remembers contain the host.
const LONGEST_HOST: usize = 253;
const TOO_LONG: &str = "has a host of more than 253 characters, which no DNS name has; correct it";

/// The endpoint of a cluster entry, and the file with its certificate authorities, which is not read here.
pub(super) fn endpoint(
    entry: &Entry<'_>,
    cluster: &Cluster<'_>,
) -> Result<(Endpoint, Option<PathBuf>), AccessError> {
    let Some(server) = filled(cluster.server.clone()) else {
        return Err(entry.invalid(
            "server",
            "is missing; write the address of the API server, https://host:port",
        ));
    };
    let mut endpoint = Endpoint::new(server_url(entry, &server)?);
    endpoint.insecure_skip_tls_verify = cluster.insecure_skip_tls_verify == Some(true);
    let mut file = None;
    if let Some(data) = filled(cluster.certificate_authority_data.clone()) {
        let field = "certificate-authority-data";
        let problem = |problem| entry.invalid(field, problem);
        let pem = pem::shared_authorities(
            Fingerprint::of(&(field, &*data)),
            || base64(&data).map_err(problem),
            problem,
        )?;
        endpoint.certificate_authority = Some(pem);
    } else if let Some(path) = filled(cluster.certificate_authority.clone()) {
        file = Some(entry.access.absolute(&path));
    }
    if endpoint.insecure_skip_tls_verify && (endpoint.certificate_authority.is_some() || file.is_some()) {
        return Err(entry.invalid(
            "insecure-skip-tls-verify",
            "is set together with a certificate authority; remove one of the two",
        ));
    }
    if let Some(name) = filled(cluster.tls_server_name.clone()) {
        if rustls_pki_types::ServerName::try_from(name.as_str()).is_err() {
            return Err(entry.invalid(
                "tls-server-name",
                "is neither a DNS name nor an IP address; correct it",
            ));
        }
        endpoint.tls_server_name = Some(name.into());
    }
    endpoint.proxy = match filled(cluster.proxy_url.clone()) {
        Some(url) => Some(proxy_url(entry, &url)?),
        None => None,
    };
    // Only the operator may let a server send what grows when it is unpacked.
    endpoint.gzip_lists = (cluster.disable_compression == Some(true)).then_some(false);
    Ok((endpoint, file))
}

/// Parses the URL of the API server. Errors do not show the URL, since it can contain a password.
fn server_url(entry: &Entry<'_>, url: &str) -> Result<http::Uri, AccessError> {
    let problem = |problem: &str| entry.invalid("server", problem);
    let url = url.trim();
    let Ok(uri) = url.parse::<http::Uri>() else {
        return Err(problem("is not an address; write https://host:port"));
    };
    match uri.scheme_str() {
        Some("https" | "http") => {}
        Some(_) => {
            return Err(problem(
                "must begin with https:// (or http://); correct the scheme",
            ));
        }
        None => return Err(problem("has no scheme; write https://host:port")),
    }
    let authority = uri
        .authority()
        .ok_or_else(|| problem("has no host; write https://host:port"))?;
    if authority.as_str().contains('@') {
        return Err(problem(
            "holds a user name or password; put it into the user's username and password",
        ));
    }
    if authority.host().is_empty()
        || (authority.as_str() != authority.host() && authority.port_u16().is_none())
    {
        return Err(problem("has no host or a bad port; write https://host:port"));
    }
    if authority.host().len() > LONGEST_HOST {
        return Err(problem(TOO_LONG));
    }
    if is_number(&uri) {
        return Err(problem(NUMBER));
    }
    if uri.query().is_some() || url.contains('#') {
        return Err(problem(
            "has a query or fragment; write https://host:port and at most a path",
        ));
    }
    Ok(uri)
}

/// Parses the URL of a proxy. Errors do not show the URL, since it can contain a password.
fn proxy_url(entry: &Entry<'_>, url: &str) -> Result<http::Uri, AccessError> {
    let Ok(uri) = url.trim().parse::<http::Uri>() else {
        return Err(entry.invalid(
            "proxy-url",
            "is not an address; write http://host:port, https:// or socks5://",
        ));
    };
    let known = matches!(uri.scheme_str(), Some("http" | "https" | "socks5" | "socks5h"));
    if !known || uri.host().is_none_or(str::is_empty) {
        return Err(entry.invalid(
            "proxy-url",
            "must begin with http://, https:// or socks5:// and name a host; correct it",
        ));
    }
    if uri.host().is_some_and(|host| host.len() > LONGEST_HOST) {
        return Err(entry.invalid("proxy-url", TOO_LONG));
    }
    Ok(uri)
}
