//! Which IP addresses an untrusted kubeconfig may lead to.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

/// The IP addresses that connections of untrusted access may use.
///
/// The policy applies to the addresses that DNS returns, so a host name can't circumvent it.
///
/// The default refuses loopback, link-local, unspecified and multicast addresses, and well-known metadata services. It
/// allows private networks, because most API servers are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AddressPolicy {
    loopback: bool,
    link_local: bool,
    private: bool,
    /// Addresses that are not of a single host: unspecified, multicast, broadcast.
    reserved: bool,
}

impl Default for AddressPolicy {
    fn default() -> Self {
        Self {
            loopback: false,
            link_local: false,
            private: true,
            reserved: false,
        }
    }
}

impl AddressPolicy {
    /// Allows every address.
    pub fn any() -> Self {
        Self {
            loopback: true,
            link_local: true,
            private: true,
            reserved: true,
        }
    }

    /// Sets whether loopback addresses are allowed: `127.0.0.0/8` and `::1`.
    #[must_use]
    pub fn allow_loopback(mut self, allow: bool) -> Self {
        self.loopback = allow;
        self
    }

    /// Sets whether link-local addresses (`169.254.0.0/16`, `fe80::/10`) and the metadata services of clouds are allowed.
    #[must_use]
    pub fn allow_link_local(mut self, allow: bool) -> Self {
        self.link_local = allow;
        self
    }

    /// Sets whether private networks are allowed: `10.0.0.0/8`, `172.16.0.0/12`, `192.168.0.0/16`, `100.64.0.0/10` and
    /// `fc00::/7`.
    #[must_use]
    pub fn allow_private(mut self, allow: bool) -> Self {
        self.private = allow;
        self
    }

    /// Checks an address. An IPv6 address that embeds an IPv4 address is not allowed more than either of them.
    ///
    /// # Errors
    /// [`ForbiddenAddress`] if the policy does not allow the address.
    pub fn check(&self, address: IpAddr) -> Result<(), ForbiddenAddress> {
        let kind = match address {
            IpAddr::V4(v4) => kind_v4(v4),
            IpAddr::V6(v6) => {
                let embedded = embedded_v4(v6).into_iter().flatten().map(kind_v4);
                embedded.fold(kind_v6(v6), Kind::max)
            }
        };
        let (allowed, kind) = match kind {
            Kind::Public => (true, "public"),
            Kind::Private => (self.private, "private"),
            Kind::Loopback => (self.loopback, "loopback"),
            Kind::LinkLocal => (self.link_local, "link-local or metadata"),
            Kind::Reserved => (self.reserved, "unspecified, multicast or broadcast"),
        };
        if allowed {
            Ok(())
        } else {
            Err(ForbiddenAddress {
                address,
                kind,
                host: None,
            })
        }
    }
}

/// Of several kinds that an address may be of, the last one counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Public,
    Private,
    Reserved,
    LinkLocal,
    Loopback,
}

/// Returns the IPv4 addresses that a mapped, compatible, NAT64, 6to4, Teredo or ISATAP address may lead to.
fn embedded_v4(v6: Ipv6Addr) -> [Option<Ipv4Addr>; 4] {
    let [a, b, c, d, e, f, g, h] = v6.segments();
    let v4 = |high: u16, low: u16| Some(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)));
    let only = |address| [address, None, None, None];
    match (a, b, c, d, e, f) {
        (0, 0, 0, 0, 0, 0xffff) | (0, 0, 0, 0, 0xffff, 0) | (0x64, 0xff9b, 0, 0, 0, 0) => only(v4(g, h)),
        (0, 0, 0, 0, 0, 0) if g != 0 => only(v4(g, h)),
        // The local NAT64 prefix (RFC 8215). Its translator uses 48, 56, 64 or 96 bits of it, and only the translator knows
        // how many (RFC 6052). Bits that are no address, all of them zero, are none.
        (0x64, 0xff9b, 1, ..) => {
            let octets = v6.octets();
            let layouts = [[6, 7, 9, 10], [7, 9, 10, 11], [9, 10, 11, 12], [12, 13, 14, 15]];
            layouts.map(|layout| {
                Some(Ipv4Addr::from(layout.map(|at: usize| octets[at]))).filter(|v4| v4.octets()[0] != 0)
            })
        }
        (0x2002, ..) => only(v4(b, c)),
        // Teredo: the client, inverted, and its server.
        (0x2001, 0, ..) => [v4(!g, !h), v4(c, d), None, None],
        (.., 0 | 0x200, 0x5efe) => only(v4(g, h)),
        _ => [None; 4],
    }
}

fn kind_v4(v4: Ipv4Addr) -> Kind {
    // Metadata services outside of the link-local range: Alibaba Cloud, Azure's wire server, Oracle Cloud.
    const METADATA: [Ipv4Addr; 3] = [
        Ipv4Addr::new(100, 100, 100, 200),
        Ipv4Addr::new(168, 63, 129, 16),
        Ipv4Addr::new(192, 0, 0, 192),
    ];
    let [a, b, ..] = v4.octets();
    if v4.is_loopback() {
        Kind::Loopback
    } else if v4.is_link_local() || METADATA.contains(&v4) {
        Kind::LinkLocal
    } else if a == 0 || a >= 224 {
        Kind::Reserved
    } else if v4.is_private() || (a == 100 && (64..128).contains(&b)) {
        Kind::Private
    } else {
        Kind::Public
    }
}

fn kind_v6(v6: Ipv6Addr) -> Kind {
    // Metadata and credential services with unique local addresses. AWS has several in its network, GCP one.
    let is_metadata = matches!(
        v6.segments(),
        [0xfd00, 0xec2, 0, 0, ..]
            | [0xfd20, 0xce, 0, 0, ..]
            | [0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42]
            | [0xfd00, 0xa9fe, 0xa9fe, 0, ..]
    );
    if v6.is_loopback() {
        Kind::Loopback
    } else if v6.is_unicast_link_local() || is_metadata {
        Kind::LinkLocal
    } else if v6.is_unspecified() || v6.is_multicast() {
        Kind::Reserved
    } else if v6.is_unique_local() {
        Kind::Private
    } else {
        Kind::Public
    }
}

/// An address that the [`AddressPolicy`] does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}{address}, and untrusted access may not use {kind} addresses; \
     allow it with AccessPolicy::addresses if it is meant",
    host.as_ref().map(|host| format!("{host} leads to ")).unwrap_or_else(|| "the server is at ".to_owned())
)]
pub struct ForbiddenAddress {
    address: IpAddr,
    kind: &'static str,
    host: Option<Arc<str>>,
}

impl ForbiddenAddress {
    /// The refused address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Adds the host name of the address, for the error text.
    #[doc(hidden)]
    pub fn of_host(mut self, host: &str) -> Self {
        self.host = Some(host.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_metadata_service_is_reached_whatever_the_form_of_its_address() {
        let policy = AddressPolicy::default();
        let is_refused = |address: &str| {
            let address = address.parse().unwrap();
            let allowed = policy.allow_link_local(true);
            policy.check(address).is_err() && allowed.check(address).is_ok()
        };
        // AWS, GCP, Azure, IBM, Oracle, OpenStack and others; ECS; EKS Pod Identity; Tencent; Scaleway; Alibaba; Azure's wire server; Oracle.
        let services = "169.254.169.254 169.254.170.2 169.254.170.23 169.254.0.23 169.254.42.42 100.100.100.200 168.63.129.16 192.0.0.192";
        for v4 in services.split(' ').map(|v4| v4.parse::<Ipv4Addr>().unwrap()) {
            let [a, b, c, d] = v4.octets();
            let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            for form in [
                v4.to_string(),
                format!("::ffff:{v4}"),
                format!("::{v4}"),
                format!("::ffff:0:{v4}"),
                format!("64:ff9b::{v4}"),
                format!("64:ff9b:1::{v4}"),
                format!("64:ff9b:1:{high:x}:{c:x}:{d:x}00::"),
                format!("64:ff9b:1:{a:x}:{b:x}:{low:x}::"),
                format!("64:ff9b:1:0:{a:x}:{b:x}{c:02x}:{d:x}00::"),
                format!("2002:{high:x}:{low:x}::1"),
                format!("2001:0:808:808::{:x}:{:x}", !high, !low),
                format!("fd00::5efe:{v4}"),
            ] {
                assert!(is_refused(&form), "{form}");
            }
        }
        // AWS, EKS Pod Identity, GCP, Scaleway, Linode, OpenStack.
        for v6 in
            "fd00:ec2::254 fd00:ec2::23 fd20:ce::254 fd00:42::42 fd00:a9fe:a9fe::1 fe80::a9fe:a9fe".split(' ')
        {
            assert!(is_refused(v6), "{v6}");
        }
        for form in ["64:ff9b::8.8.8.8", "64:ff9b:1::8.8.8.8", "::ffff:8.8.8.8"] {
            assert!(policy.check(form.parse().unwrap()).is_ok(), "{form}");
        }
    }

    #[test]
    fn only_ordinary_addresses_are_allowed_by_default() {
        let policy = AddressPolicy::default();
        let bad = "127.0.0.1 127.9.9.9 ::1 169.254.169.254 fe80::1 fe80::5efe:8.8.8.8 0.0.0.0 :: 224.0.0.1 255.255.255.255 ff02::1 \
                   ::ffff:127.0.0.1 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe ::127.0.0.1 2002:7f00:1:: 0.1.2.3 240.0.0.1";
        for bad in bad.split_whitespace() {
            assert!(policy.check(bad.parse().unwrap()).is_err(), "{bad}");
            assert!(AddressPolicy::any().check(bad.parse().unwrap()).is_ok(), "{bad}");
        }
        for good in "10.0.0.1 172.16.0.1 192.168.1.1 100.64.0.1 fd00::1 8.8.8.8 2a00::1".split(' ') {
            assert!(policy.check(good.parse().unwrap()).is_ok(), "{good}");
        }
        for private in ["10.0.0.1", "fd12::5efe:8.8.8.8", "fd12:0:0:0:200:5efe:8.8.8.8"] {
            let address = private.parse().unwrap();
            assert!(policy.allow_private(false).check(address).is_err(), "{private}");
        }
        for (policy, allowed) in [
            (policy.allow_loopback(true), "127.0.0.1"),
            (policy.allow_link_local(true), "169.254.169.254"),
        ] {
            assert!(policy.check(allowed.parse().unwrap()).is_ok(), "{allowed}");
        }
        assert_eq!(
            policy
                .check("::ffff:127.0.0.1".parse().unwrap())
                .unwrap_err()
                .of_host("evil.example")
                .to_string(),
            "evil.example leads to ::ffff:127.0.0.1, and untrusted access may not use loopback addresses; \
             allow it with AccessPolicy::addresses if it is meant"
        );
    }
}
