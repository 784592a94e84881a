//! Signatures of commands: HMAC with SHA-1 (RFC 2104) over the length of the command, four bytes, big end first, and the command.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;

/// Bytes of a signature.
pub const SIGNATURE_BYTES: usize = 20;

/// Signs a command.
pub fn sign(key: &[u8], command: &[u8]) -> [u8; SIGNATURE_BYTES] {
    mac(key, command).finalize().into_bytes().into()
}

/// Whether a signature is that of a command. It takes as long wherever the two differ.
pub fn verify(key: &[u8], command: &[u8], signature: &[u8]) -> bool {
    mac(key, command).verify_slice(signature).is_ok()
}

fn mac(key: &[u8], command: &[u8]) -> Hmac<Sha1> {
    // HMAC takes keys of every length: `new_from_slice` fails for other constructions only.
    let Ok(mut mac) = Hmac::<Sha1>::new_from_slice(key) else { unreachable!("HMAC takes keys of every length") };
    mac.update(&u32::try_from(command.len()).unwrap_or(u32::MAX).to_be_bytes());
    mac.update(command);
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_key_and_command_verify() {
        let signature = sign(b"asdfasdf", b"command");
        assert!(verify(b"asdfasdf", b"command", &signature));
        assert!(!verify(b"asdfasdg", b"command", &signature));
        assert!(!verify(b"asdfasdf", b"commanc", &signature));
        assert!(!verify(b"asdfasdf", b"command", &signature[..19]));
        assert!(!verify(b"asdfasdf", b"command", b""));
        assert!(verify(&[7; 200], b"", &sign(&[7; 200], b"")));
    }

    #[test]
    fn the_length_is_signed_too() {
        // RFC 2202's third case has fifty bytes of 0xdd; here four bytes of length come before them.
        let plain = |bytes: &[u8]| {
            let mut mac = Hmac::<Sha1>::new_from_slice(&[0xaa; 20]).unwrap();
            mac.update(bytes);
            <[u8; 20]>::from(mac.finalize().into_bytes())
        };
        let expected = [
            0x12, 0x5d, 0x73, 0x42, 0xb9, 0xac, 0x11, 0xcd, 0x91, 0xa3, 0x9a, 0xf4, 0x8a, 0xa1, 0x7b, 0x4f, 0x63, 0xf1, 0x75,
            0xd3,
        ];
        assert_eq!(plain(&[0xdd; 50]), expected);
        assert_eq!(sign(&[0xaa; 20], &[0xdd; 50]), plain(&[&[0, 0, 0, 50][..], &[0xdd; 50]].concat()));
    }
}
