//! The kinds of keys and signatures, for texts. Reads a little DER, and decides nothing.

use rustls_pki_types::PrivateKeyDer;

/// An elliptic curve that is spelled out, or that has no name here.
pub(crate) const SPELLED_OUT: &str = "ECDSA with an uncommon or spelled-out curve";

/// The names of object identifiers: keys, curves, and the signatures that a server may still use and can't be verified.
const NAMES: [(&[u8], &str); 10] = [
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01", "RSA"),
    (b"\x2a\x86\x48\xce\x3d\x02\x01", SPELLED_OUT),
    (b"\x2a\x86\x48\xce\x3d\x03\x01\x07", "ECDSA P-256"),
    (b"\x2b\x81\x04\x00\x22", "ECDSA P-384"),
    (b"\x2b\x81\x04\x00\x23", "ECDSA P-521"),
    (b"\x2b\x65\x70", "Ed25519"),
    (b"\x2b\x65\x71", "Ed448"),
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05", "RSA with SHA-1"),
    (b"\x2a\x86\x48\xce\x3d\x04\x01", "ECDSA with SHA-1"),
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x04", "ECDSA with SHA-512"),
];

/// The name of an algorithm: an object identifier, and the parameters after it, which name the curve of a key.
pub fn algorithm(id: &[u8]) -> &'static str {
    let parts = || values(id).filter_map(|part| NAMES.iter().find(|(known, _)| *known == part));
    parts().last().map_or("an uncommon algorithm", |(_, name)| name)
}

/// The kind of a private key.
pub(crate) fn of_private_key(key: &PrivateKeyDer<'_>) -> Option<String> {
    let whole: Vec<_> = values(values(key.secret_der()).next()?).collect();
    match key {
        PrivateKeyDer::Pkcs1(_) => Some(rsa(whole.get(1)?, whole.get(2)?)),
        PrivateKeyDer::Sec1(_) => {
            let curve = algorithm(whole.get(2)?);
            Some(
                if curve.contains("ECDSA") {
                    curve
                } else {
                    SPELLED_OUT
                }
                .to_owned(),
            )
        }
        _ => kind(whole.get(1)?, whole.get(2)?, 1),
    }
}

/// The kind of a certificate's key, if it is RSA of a length that can't be verified with here.
pub fn unusable_rsa(certificate: &[u8]) -> Option<String> {
    let signed = values(values(certificate).next()?).next()?;
    // The version is left out of the certificates of version 1.
    let key = values(signed).nth(if signed.first() == Some(&0xa0) { 6 } else { 5 })?;
    let kind = kind(values(key).next()?, values(key).nth(1)?.get(1..)?, 0)?;
    let bits = kind.strip_prefix("RSA of ")?.split(' ').next()?;
    let usable = bits.parse().is_ok_and(|bits| (2048..=8192).contains(&bits));
    (!usable).then_some(kind)
}

/// The kind of a key: its algorithm, and for RSA the numbers in it, of which the modulus is number `at`.
fn kind(id: &[u8], key: &[u8], at: usize) -> Option<String> {
    let name = algorithm(id);
    let numbers = || values(values(key).next().unwrap_or_default()).skip(at);
    match name {
        "RSA" => Some(rsa(numbers().next()?, numbers().nth(1)?)),
        name => Some(name.to_owned()),
    }
}

fn rsa(modulus: &[u8], exponent: &[u8]) -> String {
    let modulus: Vec<_> = modulus.iter().skip_while(|byte| **byte == 0).collect();
    let unused = modulus.first().map_or(0, |byte| byte.leading_zeros() as usize);
    let of = match exponent {
        [1, 0, 1] => String::new(),
        [small] => format!(" with the exponent {small}"),
        _ => " with an uncommon exponent".to_owned(),
    };
    format!("RSA of {} bits{of}", modulus.len() * 8 - unused)
}

/// The contents of the DER values that follow each other in a text. Ends where it can't go on.
fn values(mut der: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (first, rest) = der.get(1..)?.split_first()?;
        let long = if *first < 0x80 {
            0
        } else {
            usize::from(first & 0x7f)
        };
        let (len, rest) = rest.split_at_checked(long.min(4))?;
        let len = len.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        let (content, after) = rest.split_at_checked(if long == 0 { usize::from(*first) } else { len })?;
        der = after;
        Some(content)
    })
}
