//! The variables by which other programs find a proxy. The fleet goes by `proxy-url` of the kubeconfig alone.

use std::net::IpAddr;

/// The variable by which kubectl or curl would go through a proxy to this host.
pub(super) fn variable(host: &str, get: impl Fn(&str) -> Option<String>) -> Option<&'static str> {
    let set = |name: &str| get(name).filter(|value| !value.trim().is_empty());
    let names = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
    let name = names.into_iter().find(|name| set(name).is_some())?;
    let address: Option<IpAddr> = host.parse().ok();
    let excepted = |entry: &str| {
        let entry = entry.trim().trim_start_matches(['*', '.']);
        let inside = host.strip_suffix(entry).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        inside || address.is_some_and(|address| is_in(address, entry))
    };
    let exceptions = set("NO_PROXY").or_else(|| set("no_proxy")).unwrap_or_default();
    let local = host == "localhost" || address.is_some_and(|address| address.is_loopback());
    let all = exceptions.split(',').any(|entry| entry.trim() == "*");
    let named = exceptions.split(',').filter(|entry| !entry.trim().is_empty()).any(excepted);
    (!local && !all && !named).then_some(name)
}

/// Whether an address is in a range such as `10.0.0.0/8`.
fn is_in(address: IpAddr, range: &str) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let Some((Ok(base), Ok(len))) = range.split_once('/').map(|(base, len)| (base.parse::<IpAddr>(), len.parse::<u32>())) else {
        return false;
    };
    let ((address, width), (base, base_width)) = (bits(address), bits(base));
    width == base_width && len <= width && (address ^ base).checked_shr(128 - len).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_named_unless_an_exception_or_this_machine_is_meant() {
        for (host, no_proxy, named) in [
            ("eu.example.com", "", true),
            ("eu.example.com", "us.example.com,10.0.0.0/8", true),
            ("eu.example.com", "a, .example.com", false),
            ("eu.example.com", "example.com", false),
            ("eu-example.com", "example.com", true),
            ("eu.example.com", "*", false),
            ("10.9.8.7", "10.0.0.0/8", false),
            ("11.9.8.7", "10.0.0.0/8,0.0.0.0/40", true),
            ("11.9.8.7", "0.0.0.0/0", false),
            ("fd00::1", "fd00::/8", false),
            ("127.0.0.1", "", false),
            ("localhost", "", false),
        ] {
            for name in ["https_proxy", "ALL_PROXY"] {
                let get = |wanted: &str| match wanted {
                    "no_proxy" => Some(no_proxy.to_owned()),
                    wanted => (wanted == name).then(|| "http://proxy:3128".to_owned()),
                };
                assert_eq!(variable(host, get), named.then_some(name), "{host} {no_proxy}");
            }
        }
        assert_eq!(variable("eu.example.com", |_| None), None);
    }
}
