//! The proxies that the environment of a process names: which connections use them. No I/O but for reading the variables.

use std::{fmt, net::IpAddr, sync::LazyLock};

use http::Uri;
use ipnet::IpNet;
use mcr_access::{
    AccessError,
    internal::{literal_ip, redacted_uri},
};

/// The proxies of the environment, by the rules that kubectl and client-go follow (`golang.org/x/net/http/httpproxy`).
///
/// `HTTPS_PROXY` is the proxy to servers with `https`, `HTTP_PROXY` that to servers with `http`, and `NO_PROXY` has the
/// exceptions, separated by commas: a domain with its subdomains (`example.com`), its subdomains only (`.example.com`,
/// `*.example.com`), an address, a network (`10.0.0.0/8`), each of the first two with a port if only that port is meant, or `*` for all. The
/// names in lower case count if those in upper case are not set or empty. No proxy is used for `localhost` and loopback addresses.
///
/// ```
/// use mcr_client::ProxyEnvironment;
///
/// let variables = [("HTTPS_PROXY", "http://egress.example.com:3128"), ("NO_PROXY", "10.0.0.0/8")];
/// let proxies = ProxyEnvironment::new(|name| {
///     variables.iter().find(|(is, _)| *is == name).map(|(_, value)| (*value).to_owned())
/// })?;
/// assert!(proxies.proxy_to(&"https://api.eu.example.com:6443".parse().unwrap()).is_some());
/// assert!(proxies.proxy_to(&"https://10.1.2.3:6443".parse().unwrap()).is_none());
/// # Ok::<(), mcr_access::AccessError>(())
/// ```
#[derive(Clone, Default)]
pub struct ProxyEnvironment {
    https: Option<(&'static str, Uri)>,
    http: Option<(&'static str, Uri)>,
    exceptions: Vec<Exception>,
}

#[derive(Clone)]
enum Exception {
    All,
    Network(IpNet),
    Address(IpAddr, Option<String>),
    /// With a dot before the name.
    Domain {
        name: String,
        port: Option<String>,
        /// Whether the name itself is meant, too.
        itself: bool,
    },
}

impl ProxyEnvironment {
    /// Reads the variables of this process.
    ///
    /// # Errors
    /// If a variable has no URL of a proxy. The error names the variable.
    pub fn from_env() -> Result<Self, AccessError> {
        Self::new(|name| std::env::var(name).ok())
    }

    /// Reads variables with `get`.
    ///
    /// # Errors
    /// If a variable has no URL of a proxy. The error names the variable.
    pub fn new(get: impl Fn(&str) -> Option<String>) -> Result<Self, AccessError> {
        let first = |names: [&'static str; 2]| {
            names
                .into_iter()
                .find_map(|name| Some((name, get(name).filter(|value| !value.is_empty())?)))
        };
        let proxy = |names| {
            first(names)
                .map(|(name, value)| Ok((name, proxy_url(name, &value)?)))
                .transpose()
        };
        let exceptions = first(["NO_PROXY", "no_proxy"]);
        Ok(Self {
            https: proxy(["HTTPS_PROXY", "https_proxy"])?,
            http: proxy(["HTTP_PROXY", "http_proxy"])?,
            exceptions: exceptions
                .map(|(_, list)| list.split(',').filter_map(exception).collect())
                .unwrap_or_default(),
        })
    }

    /// The proxy for connections to a server, which may contain a login. `None`: they are direct.
    pub fn proxy_to(&self, server: &Uri) -> Option<&Uri> {
        self.find(server).map(|(_, proxy)| proxy)
    }

    /// The variable with the proxy for connections to a server.
    pub fn variable_for(&self, server: &Uri) -> Option<&'static str> {
        self.find(server).map(|(name, _)| *name)
    }

    fn find(&self, server: &Uri) -> Option<&(&'static str, Uri)> {
        let (proxy, port) = match server.scheme_str() {
            Some("https") => (&self.https, "443"),
            Some("http") => (&self.http, "80"),
            _ => return None,
        };
        let host = server.host()?.to_ascii_lowercase();
        let port = server
            .port()
            .map_or_else(|| port.to_owned(), |port| port.to_string());
        // An IPv4 address may be written as IPv6.
        let address = literal_ip(server).map(|address| address.to_canonical());
        let is_local = host == "localhost" || address.is_some_and(|address| address.is_loopback());
        let is_exception = |exception: &Exception| exception.matches(&host, address, &port);
        proxy
            .as_ref()
            .filter(|_| !is_local && !self.exceptions.iter().any(is_exception))
    }
}

impl Exception {
    fn matches(&self, host: &str, address: Option<IpAddr>, port: &str) -> bool {
        let is_port = |wanted: &Option<String>| wanted.as_ref().is_none_or(|wanted| wanted == port);
        match self {
            Self::All => true,
            Self::Network(network) => address.is_some_and(|address| network.contains(&address)),
            Self::Address(wanted, wanted_port) => address == Some(*wanted) && is_port(wanted_port),
            Self::Domain { name, port, itself } => {
                let is_named = host.ends_with(name) || (*itself && name.strip_prefix('.') == Some(host));
                is_named && is_port(port)
            }
        }
    }
}

/// An entry of `NO_PROXY`. `None` if it means nothing.
fn exception(entry: &str) -> Option<Exception> {
    let entry = entry.trim().to_ascii_lowercase();
    if entry == "*" {
        return Some(Exception::All);
    }
    if let Ok(network) = entry.parse() {
        return Some(Exception::Network(network));
    }
    if let Ok(address) = entry.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Some(Exception::Address(address.to_canonical(), None));
    }
    let (name, port) = match entry.rsplit_once(':') {
        Some((name, port)) => (name, Some(port.to_owned())),
        None => (&*entry, None),
    };
    let name = name.trim_matches(['[', ']']);
    if let Ok(address) = name.parse::<IpAddr>() {
        return Some(Exception::Address(address.to_canonical(), port));
    }
    let name = name
        .strip_prefix('*')
        .filter(|rest| rest.starts_with('.'))
        .unwrap_or(name);
    if name.is_empty() {
        return None;
    }
    Some(Exception::Domain {
        itself: !name.starts_with('.'),
        name: format!(".{}", name.trim_start_matches('.')),
        port,
    })
}

/// The URL of a proxy. One without a scheme is of an HTTP proxy.
fn proxy_url(variable: &'static str, value: &str) -> Result<Uri, AccessError> {
    let has_host = |uri: &Uri| uri.scheme().is_some() && uri.host().is_some_and(|host| !host.is_empty());
    let url = value.parse().ok().filter(has_host);
    let url = url.or_else(|| {
        let url = format!("http://{value}");
        url.parse()
            .ok()
            .filter(has_host)
            .filter(|_| !value.contains("://"))
    });
    url.filter(|url: &Uri| matches!(url.scheme_str(), Some("http" | "https" | "socks5" | "socks5h")))
        .ok_or_else(|| {
            AccessError::invalid(
                variable,
                "has no URL of a proxy; write http://host:port, https:// or socks5://",
            )
        })
}

/// The variable of this process that names a proxy to a server, for programs that do not use the proxies of the environment.
pub fn unused_variable(server: &Uri) -> Option<&'static str> {
    static PROCESS: LazyLock<ProxyEnvironment> =
        LazyLock::new(|| ProxyEnvironment::from_env().unwrap_or_default());
    PROCESS.variable_for(server)
}

/// What to do when a server can't be reached without the proxy of this variable.
pub fn hint(variable: &str) -> String {
    format!(
        "{variable} is set, and kubectl would connect through that proxy: to use it, too, start the program with --proxy-from-env, or \
         set TransportSettings::proxies; or name the proxy as proxy-url of the cluster in the kubeconfig"
    )
}

// Not derived: the URL of a proxy can contain a password.
impl fmt::Debug for ProxyEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let proxy = |proxy: &Option<(_, Uri)>| proxy.as_ref().map(|(_, url)| redacted_uri(url));
        f.debug_struct("ProxyEnvironment")
            .field("https", &proxy(&self.https))
            .field("http", &proxy(&self.http))
            .field("exceptions", &self.exceptions.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(no_proxy: &str) -> ProxyEnvironment {
        ProxyEnvironment::new(|name| match name {
            "HTTPS_PROXY" => Some("proxy.example:3128".into()),
            "http_proxy" => Some("http://me:canary@plain.example".into()),
            "NO_PROXY" => Some(no_proxy.into()),
            _ => None,
        })
        .unwrap()
    }

    /// The table of `golang.org/x/net/http/httpproxy`.
    #[test]
    fn exceptions_are_those_of_go() {
        let no_proxy = "foobar.com, .barbaz.net, *.wildcard.io, 192.168.1.1, 192.168.1.2:81, 192.168.1.3:80, 10.0.0.0/30, \
                        2001:db8::52:0:1, [2001:db8::52:0:2]:443, [2001:db8::52:0:3]:80, 2002:db8:a::45/64";
        for (host, proxied) in [
            ("localhost", false),
            ("127.0.0.1", false),
            ("127.0.0.2", false),
            ("[::1]", false),
            ("[::2]", true),
            ("[::ffff:127.0.0.1]", false),
            ("[::ffff:10.0.0.2]", false),
            ("[::ffff:192.168.1.1]", false),
            ("192.168.1.1", false),
            ("192.168.1.2", true),
            ("192.168.1.3", false),
            ("192.168.1.4", true),
            ("10.0.0.2", false),
            ("[2001:db8::52:0:1]", false),
            ("[2001:db8::52:0:2]", true),
            ("[2001:db8::52:0:3]", false),
            ("[2002:db8:a::123]", false),
            ("[fe80::424b:c8be:1643:a1b6]", true),
            ("barbaz.net", true),
            ("www.barbaz.net", false),
            ("foobar.com", false),
            ("www.foobar.com", false),
            ("foofoobar.com", true),
            ("baz.com", true),
            ("localhost.net", true),
            ("local.localhost", true),
            ("barbarbaz.net", true),
            ("wildcard.io", true),
            ("nested.wildcard.io", false),
            ("awildcard.io", true),
        ] {
            for port in ["", ":80"] {
                let server = format!("http://{host}{port}").parse().unwrap();
                let is = |no_proxy| environment(no_proxy).proxy_to(&server).is_some();
                assert_eq!(is(no_proxy), proxied, "{server}");
                assert!(!is("*") && !is("other.example, *"), "{server}");
            }
        }
        let server = "http://example.com/".parse().unwrap();
        for meaningless in [":1", "", " , ,", "example.com:1", "*."] {
            assert!(
                environment(meaningless).proxy_to(&server).is_some(),
                "{meaningless}"
            );
        }
    }

    #[test]
    fn variables_by_scheme_and_errors_that_name_them() {
        let all = environment("");
        let of = |server: &str| {
            let server = server.parse().unwrap();
            let proxy = all.proxy_to(&server).map(ToString::to_string);
            proxy.zip(all.variable_for(&server))
        };
        let https = ("http://proxy.example:3128/".to_owned(), "HTTPS_PROXY");
        assert_eq!(of("https://a.example:6443/path"), Some(https));
        let http = ("http://me:canary@plain.example/".to_owned(), "http_proxy");
        assert_eq!(of("http://a.example"), Some(http));
        assert_eq!(of("/version"), None);
        assert!(!format!("{all:?}").contains("canary"));
        for bad in ["ftp://proxy", "http://", "a b", "://"] {
            let error = ProxyEnvironment::new(|name| (name == "https_proxy").then(|| bad.to_owned()));
            let text = error.unwrap_err().to_string();
            assert!(text.starts_with("https_proxy: has no URL of a proxy"), "{text}");
        }
    }
}
