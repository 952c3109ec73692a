//! The variables by which other programs find a proxy. The fleet goes by `proxy-url` of the kubeconfig alone.

use std::net::IpAddr;

/// The variable by which kubectl or curl would go through a proxy to this host.
pub(super) fn variable(host: &str, get: impl Fn(&str) -> Option<String>) -> Option<&'static str> {
    let set = |name: &&str| get(name).filter(|value| !value.trim().is_empty());
    let name = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]
        .into_iter()
        .find(|name| set(name).is_some())?;
    let exceptions = ["NO_PROXY", "no_proxy"].iter().find_map(set).unwrap_or_default();
    let excepted = exceptions.split(',').map(str::trim).any(|entry| {
        let suffix = entry.trim_start_matches(['*', '.']);
        let named = !suffix.is_empty()
            && host
                .strip_suffix(suffix)
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        entry == "*" || named || is_in(host, entry)
    });
    let local = host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    (!local && !excepted).then_some(name)
}

/// Whether a host is an IPv4 address in a range such as `10.0.0.0/8`.
fn is_in(host: &str, range: &str) -> bool {
    let bits = |text: &str| text.parse().ok().map(std::net::Ipv4Addr::to_bits);
    range.split_once('/').is_some_and(|(base, len)| {
        let differ = bits(host)
            .zip(bits(base))
            .map_or(u32::MAX, |(host, base)| host ^ base);
        len.parse().is_ok_and(|len: u32| differ.leading_zeros() >= len)
    })
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
