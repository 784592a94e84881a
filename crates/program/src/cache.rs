//! Compiled code: kept in memory by the hash of its module, and sealed where it is kept longer.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use wasmtime::Engine;

/// A place where compiled code survives the process, such as a drive's store. What it returns is not trusted: it is sealed with
/// a [`Secret`], and code whose seal is wrong is compiled anew.
pub trait CodeStore: Send + Sync + 'static {
    /// What was saved under a key.
    fn load(&self, key: &[u8; 32]) -> Option<Vec<u8>>;

    /// Saves sealed code. A failure only costs the next process some time.
    fn save(&self, key: &[u8; 32], sealed: &[u8]);
}

/// What seals compiled code: 32 random bytes that only the drive itself can read, never a key-value of its store.
#[derive(Clone)]
pub struct Secret(pub [u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// Hexadecimal digits of bytes, such as a hash's.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The SHA-256 that 64 hexadecimal digits write.
pub fn sha256_of_hex(digits: &str) -> Option<[u8; 32]> {
    let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..64).step_by(2).map(byte).collect();
    bytes?.try_into().ok().filter(|_| digits.len() == 64)
}

/// The key of a module's compiled code: a hash of the bytes, and of all that decides whether an engine can run the code.
pub(crate) fn code_key(engine: &Engine, module: &[u8]) -> [u8; 32] {
    code_key_of(engine, &Sha256::digest(module).into())
}

/// The same for a module whose SHA-256 is known.
pub(crate) fn code_key_of(engine: &Engine, digest: &[u8; 32]) -> [u8; 32] {
    let mut hasher = Digesting(Sha256::new());
    engine.precompile_compatibility_hash().hash(&mut hasher);
    let compatible = hasher.0.finalize();
    Sha256::new().chain_update(compatible).chain_update(digest).finalize().into()
}

struct Digesting(Sha256);

impl Hasher for Digesting {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest = self.0.clone().finalize();
        u64::from_le_bytes(std::array::from_fn(|index| digest[index]))
    }
}

/// A store of code with the secret that seals what goes there.
#[derive(Clone)]
pub struct Sealed {
    store: Arc<dyn CodeStore>,
    secret: Secret,
}

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealed")
    }
}

const SEAL_BYTES: usize = 32;

impl Sealed {
    /// What goes to this store is sealed with this secret.
    pub fn new(store: Arc<dyn CodeStore>, secret: Secret) -> Self {
        Self { store, secret }
    }

    /// Code that this drive has sealed under this key.
    pub(crate) fn load(&self, key: &[u8; 32]) -> Option<Vec<u8>> {
        let mut sealed = self.store.load(key)?;
        if sealed.len() < SEAL_BYTES {
            return None;
        }
        let code = sealed.split_off(SEAL_BYTES);
        self.mac(key, &code).verify_slice(&sealed).ok().map(|()| code)
    }

    pub(crate) fn save(&self, key: &[u8; 32], code: &[u8]) {
        let mut sealed = self.mac(key, code).finalize().into_bytes().to_vec();
        sealed.extend_from_slice(code);
        self.store.save(key, &sealed);
    }

    fn mac(&self, key: &[u8; 32], code: &[u8]) -> Hmac<Sha256> {
        // HMAC pads a short key with zeros to the size of a block.
        let mut padded = [0; 64];
        padded[..32].copy_from_slice(&self.secret.0);
        Hmac::<Sha256>::new(&padded.into()).chain_update(key).chain_update(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_a_hash_again() {
        let hash: [u8; 32] = Sha256::digest(b"module").into();
        assert_eq!(sha256_of_hex(&hex(&hash)), Some(hash));
        assert_eq!((sha256_of_hex("0"), sha256_of_hex(&"é".repeat(32)), sha256_of_hex(&"0".repeat(66))), (None, None, None));
    }
}
