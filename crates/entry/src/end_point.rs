//! [`end_point`]: what binds an exchange to the certificate of a server's end of TLS (RFC 5929, 4.1).

use sha2::{Digest, Sha256, Sha384, Sha512};

/// The hash of a certificate in DER, by the function that it was signed with. None: it was signed without one of its own, as by EdDSA.
pub(crate) fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    const SEQUENCE: u8 = 0x30;
    const OID: u8 = 0x06;
    let (SEQUENCE, parts, _) = der_value(certificate)? else { return None };
    let (SEQUENCE, _, after) = der_value(parts)? else { return None };
    let (SEQUENCE, algorithm, _) = der_value(after)? else { return None };
    let (OID, algorithm, _) = der_value(algorithm)? else { return None };
    Some(match hash_of(algorithm)? {
        256 => Sha256::digest(certificate).to_vec(),
        384 => Sha384::digest(certificate).to_vec(),
        _ => Sha512::digest(certificate).to_vec(),
    })
}

/// Bits of the hash of a signature, by its object identifier. SHA-256 takes the place of MD5 and SHA-1.
fn hash_of(algorithm: &[u8]) -> Option<u16> {
    /// 1.2.840.113549.1.1: RSA as PKCS #1 has it.
    const RSA: [u8; 8] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
    /// 1.2.840.10045.4: ECDSA, with SHA-1 and with others.
    const ECDSA_SHA1: [u8; 7] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01];
    const ECDSA: [u8; 7] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03];
    if algorithm == ECDSA_SHA1 {
        return Some(256);
    }
    match algorithm.split_last()? {
        (4 | 5 | 11, rest) if rest == RSA => Some(256),
        (12, rest) if rest == RSA => Some(384),
        (13, rest) if rest == RSA => Some(512),
        (2, rest) if rest == ECDSA => Some(256),
        (3, rest) if rest == ECDSA => Some(384),
        (4, rest) if rest == ECDSA => Some(512),
        _ => None,
    }
}

/// Tag and content of the first DER value, and what follows it.
pub(crate) fn der_value(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&short, rest) = rest.split_first()?;
    let (length, rest) = match short {
        0..=0x7f => (usize::from(short), rest),
        0x81 => rest.split_first().map(|(&length, rest)| (usize::from(length), rest))?,
        0x82 => rest.split_first_chunk().map(|(&length, rest)| (usize::from(u16::from_be_bytes(length)), rest))?,
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, SignatureAlgorithm};

    use super::*;

    fn certificate(algorithm: &'static SignatureAlgorithm) -> Vec<u8> {
        let key = KeyPair::generate_for(algorithm).unwrap();
        CertificateParams::new(vec!["a.example".to_owned()]).unwrap().self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn the_hash_is_that_of_the_signature() {
        let (small, large) = (certificate(&PKCS_ECDSA_P256_SHA256), certificate(&PKCS_ECDSA_P384_SHA384));
        assert_eq!(end_point(&small).unwrap(), Sha256::digest(&small).to_vec());
        assert_eq!(end_point(&large).unwrap(), Sha384::digest(&large).to_vec());
        assert_eq!(end_point(&certificate(&PKCS_ED25519)), None);
        let rsa = |last: u8| hash_of(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, last]);
        assert_eq!([5, 11, 12, 13, 10].map(rsa), [Some(256), Some(256), Some(384), Some(512), None]);
    }

    proptest! {
        #[test]
        fn any_bytes_have_an_end_point_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            end_point(&bytes);
        }
    }
}
