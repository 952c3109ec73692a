//! The kinds of keys and signatures, for texts. A small look at DER, which decides nothing.

use rustls_pki_types::PrivateKeyDer;

/// What can be verified and signed with here. More may be known to other clients, such as kubectl.
pub const SUPPORTED: &str =
    "RSA of 2048 to 4096 bits with the exponent 65537, ECDSA P-256 or P-384, or Ed25519";

const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];

/// Keys and curves, and signatures, by the content of their object identifiers.
const NAMES: [(&[u8], &str); 22] = [
    (RSA, "RSA"),
    (EC, "ECDSA with an uncommon or spelled-out curve"),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7], "ECDSA P-256"),
    (&[0x2b, 0x81, 4, 0, 0x21], "ECDSA P-224"),
    (&[0x2b, 0x81, 4, 0, 0x22], "ECDSA P-384"),
    (&[0x2b, 0x81, 4, 0, 0x23], "ECDSA P-521"),
    (&[0x2b, 0x81, 4, 0, 0x0a], "ECDSA secp256k1"),
    (&[0x2b, 0x65, 0x70], "Ed25519"),
    (&[0x2b, 0x65, 0x71], "Ed448"),
    (&[0x2a, 0x86, 0x48, 0xce, 0x38, 4, 1], "DSA"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 4], "RSA with MD5"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 5], "RSA with SHA-1"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10], "RSA-PSS"),
    (
        &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11],
        "RSA with SHA-256",
    ),
    (
        &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 12],
        "RSA with SHA-384",
    ),
    (
        &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 13],
        "RSA with SHA-512",
    ),
    (
        &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 14],
        "RSA with SHA-224",
    ),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1], "ECDSA with SHA-1"),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 1], "ECDSA with SHA-224"),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2], "ECDSA with SHA-256"),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3], "ECDSA with SHA-384"),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 4], "ECDSA with SHA-512"),
];

/// The name of an algorithm: an object identifier, and the parameters after it. Of a key of ECDSA they name the curve.
pub fn algorithm(id: &[u8]) -> &'static str {
    let parts: Vec<_> = values(id).collect();
    let name = |part: Option<&&[u8]>| {
        NAMES
            .iter()
            .find(|(id, _)| part == Some(&id))
            .map(|(_, name)| *name)
    };
    let curve = name(parts.get(1)).filter(|_| parts.first() == Some(&EC));
    curve
        .or_else(|| name(parts.first()))
        .unwrap_or("an uncommon algorithm")
}

/// The kind of a private key.
pub(crate) fn of_private_key(key: &PrivateKeyDer<'_>) -> Option<String> {
    let whole: Vec<_> = values(values(key.secret_der()).next()?).collect();
    Some(match key {
        PrivateKeyDer::Pkcs1(_) => rsa(whole.get(1)?, whole.get(2)?),
        PrivateKeyDer::Sec1(_) => {
            let id = whole.get(2).and_then(|id| values(id).next());
            let curve = NAMES.iter().find(|(known, _)| id == Some(known));
            curve.map_or(NAMES[1].1, |(_, name)| name).to_owned()
        }
        _ => {
            let id = whole.get(1)?;
            let inner: Vec<_> = values(values(whole.get(2)?).next()?).collect();
            match values(id).next()? {
                RSA => rsa(inner.get(1)?, inner.get(2)?),
                _ => algorithm(id).to_owned(),
            }
        }
    })
}

/// The kind of a certificate's key, if it is RSA of a length that can't be verified with here.
pub fn unusable_rsa(certificate: &[u8]) -> Option<String> {
    let signed = values(values(certificate).next()?).next()?;
    // The version is left out of the certificates of version 1.
    let key = values(signed).nth(if signed.first() == Some(&0xa0) { 6 } else { 5 })?;
    let mut parts = values(key);
    let (id, bits) = (parts.next()?, parts.next()?);
    let numbers: Vec<_> = values(values(bits.get(1..)?).next()?).collect();
    let is_rsa = values(id).next() == Some(RSA) && !(2048..=8192).contains(&bit_length(numbers.first()?));
    is_rsa.then(|| Some(rsa(numbers.first()?, numbers.get(1)?)))?
}

fn rsa(modulus: &[u8], exponent: &[u8]) -> String {
    let of = match exponent {
        [1, 0, 1] => String::new(),
        [small] => format!(" with the exponent {small}"),
        _ => " with an uncommon exponent".to_owned(),
    };
    format!("RSA of {} bits{of}", bit_length(modulus))
}

fn bit_length(number: &[u8]) -> usize {
    let zeros: usize = number.iter().take_while(|byte| **byte == 0).count();
    let first = number.get(zeros).map_or(0, |byte| byte.leading_zeros() as usize);
    ((number.len() - zeros) * 8).saturating_sub(first)
}

/// The contents of the DER values that follow each other in a text. Ends where it can't go on.
fn values(mut der: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (first, rest) = der.get(1..)?.split_first()?;
        let (len, rest) = match first {
            0..=0x7f => (usize::from(*first), rest),
            0x81..=0x83 => {
                let (len, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (
                    len.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
                    rest,
                )
            }
            _ => return None,
        };
        let (content, after) = rest.split_at_checked(len)?;
        der = after;
        Some(content)
    })
}
