//! [`Versions`]: what a host asks for before each statement, without a word from the store.

use std::collections::HashMap;

use parking_lot::Mutex;

/// The version of each domain's manifest, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct Versions(Mutex<DomainVersions>);

/// The newest known version of each domain.
#[derive(Debug, Default)]
struct DomainVersions {
    by_domain: HashMap<String, u64>,
    /// How often something was forgotten.
    forgotten: u64,
}

/// What was forgotten up to the start of a read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Since(u64);

impl Versions {
    pub(super) fn get(&self, domain: &str) -> Option<u64> {
        self.0.lock().by_domain.get(domain).copied()
    }

    /// To be asked before a manifest is read.
    pub(super) fn since(&self) -> Since {
        Since(self.0.lock().forgotten)
    }

    /// Notes what was read. If something was forgotten meanwhile, it may be older than what is there.
    pub(super) fn note_read(&self, domain: &str, version: u64, since: Since) {
        let mut known = self.0.lock();
        if known.forgotten == since.0 {
            known.note(domain, version);
        }
    }

    /// Notes what a change has left.
    pub(super) fn note(&self, domain: &str, version: u64) {
        self.0.lock().note(domain, version);
    }

    /// After a change of which nobody knows whether it was made.
    pub(super) fn forget(&self, domain: &str) {
        let mut known = self.0.lock();
        known.by_domain.remove(domain);
        known.forgotten += 1;
    }
}

impl DomainVersions {
    /// Versions only grow, so who comes late with an older one changes nothing.
    fn note(&mut self, domain: &str, version: u64) {
        let known = self.by_domain.entry(domain.to_owned()).or_default();
        *known = (*known).max(version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_was_overtaken_says_nothing() {
        let versions = Versions::default();
        let since = versions.since();
        versions.note("lab", 6);
        versions.note_read("lab", 5, since);
        assert_eq!(versions.get("lab"), Some(6));
        versions.forget("lab");
        versions.note_read("lab", 5, since);
        assert_eq!(versions.get("lab"), None);
        versions.note_read("lab", 6, versions.since());
        assert_eq!(versions.get("lab"), Some(6));
    }
}
