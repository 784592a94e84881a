//! [`Parsed`]: manifests of many tables are large, and each change reads the one before it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use pithead_model::{Fault, Manifest};

use super::parse;

/// Bytes of text beside which manifests are remembered at most. Parsed, they take a few times as many.
const BYTES_MAX: usize = 32 << 20;

/// The manifest of each domain as it was last read or written here, beside its text. What the store has under the key counts: where it
/// is another text, it is parsed.
#[derive(Debug, Default)]
pub(super) struct Parsed(Mutex<BTreeMap<String, Text>>);

#[derive(Clone, Debug)]
struct Text {
    bytes: Bytes,
    manifest: Arc<Manifest>,
}

impl Parsed {
    /// The manifest that a text is.
    pub(super) fn of(&self, domain: &str, bytes: &Bytes) -> Result<Arc<Manifest>, Fault> {
        let last = self.0.lock().get(domain).cloned();
        if let Some(last) = last.filter(|last| last.bytes == bytes) {
            return Ok(last.manifest);
        }
        let manifest = Arc::new(parse(domain, bytes)?);
        self.remember(domain, bytes.clone(), Arc::clone(&manifest));
        Ok(manifest)
    }

    /// Remembers a text that was read or written.
    pub(super) fn remember(&self, domain: &str, bytes: Bytes, manifest: Arc<Manifest>) {
        let mut texts = self.0.lock();
        texts.insert(domain.to_owned(), Text { bytes, manifest });
        if texts.values().map(|text| text.bytes.len()).sum::<usize>() > BYTES_MAX {
            texts.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pithead_model::DriveId;

    fn text(version: u64) -> (Bytes, Manifest) {
        let manifest = Manifest { version, ..Manifest::empty("lab", vec![DriveId(7)]) };
        (serde_json::to_vec(&manifest).unwrap().into(), manifest)
    }

    #[test]
    fn another_text_of_the_same_domain_is_another_manifest() {
        let parsed = Parsed::default();
        for version in [1, 2, 1] {
            let (bytes, manifest) = text(version);
            let first = parsed.of("lab", &bytes).unwrap();
            assert_eq!(*first, manifest);
            assert!(Arc::ptr_eq(&first, &parsed.of("lab", &bytes).unwrap()), "it is parsed once");
        }
        parsed.of("lab", &Bytes::from_static(b"{")).unwrap_err();
        assert_eq!(*parsed.of("lab", &text(1).0).unwrap(), text(1).1);
    }

    #[test]
    fn large_texts_are_not_kept() {
        let parsed = Parsed::default();
        let manifest = Arc::new(text(1).1);
        parsed.remember("lab", Bytes::from(vec![b' '; BYTES_MAX]), Arc::clone(&manifest));
        assert_eq!(parsed.0.lock().len(), 1);
        parsed.remember("other", Bytes::from_static(b" "), manifest);
        assert_eq!(parsed.0.lock().len(), 0);
    }
}
