//! [`Parsed`]: manifests of many tables are large, and each change reads the one before it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use pithead_model::{Fault, Manifest};

use super::parse;

/// Bytes of text beside which manifests are remembered at most. Parsed, they take some eight times as many.
const BYTES_MAX: usize = 16 << 20;

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
        texts.remove(domain);
        if bytes.len() > BYTES_MAX {
            return;
        }
        if texts.values().map(|text| text.bytes.len()).sum::<usize>() > BYTES_MAX - bytes.len() {
            texts.clear();
        }
        texts.insert(domain.to_owned(), Text { bytes, manifest });
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
    fn texts_are_remembered_up_to_a_bound() {
        let parsed = Parsed::default();
        let remember = |domain: &str, bytes: usize| {
            parsed.remember(domain, Bytes::from(vec![b' '; bytes]), Arc::new(text(1).1));
            parsed.0.lock().keys().cloned().collect::<Vec<_>>()
        };
        assert_eq!(remember("lab", BYTES_MAX - 1), ["lab"]);
        assert_eq!(remember("other", 1), ["lab", "other"]);
        assert_eq!(remember("third", 1), ["third"], "the others make room");
        assert_eq!(remember("large", BYTES_MAX + 1), ["third"], "it is parsed each time");
        assert!(remember("third", BYTES_MAX + 1).is_empty(), "and so is what was small once");
    }
}
