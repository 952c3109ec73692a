//! The variables by which other programs find a proxy. The fleet goes by `proxy-url` of the kubeconfig alone.

use std::net::IpAddr;

use hyper_util::client::proxy::matcher::Matcher;

/// The variable by which kubectl or curl would go through a proxy to this host.
pub(super) fn variable(host: &str, get: impl Fn(&str) -> Option<String>) -> Option<&'static str> {
    let set = |name: &&str| get(name).filter(|value| !value.trim().is_empty());
    let mut names = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"].into_iter();
    let name = names.find(|name| set(name).is_some())?;
    let exceptions = ["NO_PROXY", "no_proxy"].iter().find_map(set).unwrap_or_default();
    let is_local = host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    };
    let matcher = Matcher::builder().https("http://proxy").no(exceptions).build();
    let is_meant = matcher
        .intercept(&format!("https://{host}").parse().ok()?)
        .is_some();
    (!is_local && is_meant).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_named_unless_an_exception_or_this_machine_is_meant() {
        for (host, no_proxy, named) in [
            ("eu.example.com", "us.example.com,10.0.0.0/8", true),
            ("eu.example.com", "a, .example.com", false),
            ("eu-example.com", "example.com", true),
            ("eu.example.com", "*", false),
            ("10.9.8.7", "10.0.0.0/8", false),
            ("11.9.8.7", "10.0.0.0/8,", true),
            ("127.0.0.1", "", false),
        ] {
            let get = |name: &str| match name {
                "no_proxy" => Some(no_proxy.to_owned()),
                name => (name == "https_proxy").then(|| "http://proxy:3128".to_owned()),
            };
            assert_eq!(
                variable(host, get),
                named.then_some("https_proxy"),
                "{host} {no_proxy}"
            );
        }
    }
}
