//! [`CrossChecks`]: now and then another drive of a domain is asked beside its home.
//!
//! A home that was declared lost and is back does not know that another drive is home now, and tells hosts that were idle meanwhile
//! that nothing has changed. Any other drive of the domain knows better, as all of them take note before there is another home.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pithead_model::{DriveId, Fault, Manifest};

use crate::drives::{ConnectedDrive, Drives};
use crate::homes::asked;

/// How often, at most, another drive is asked about a domain.
const CHECK_EVERY: Duration = Duration::from_secs(2);
/// How long a statement waits for its word, which mostly comes with that of the home. What comes later is for the next statement.
const CHECK_WAIT: Duration = Duration::from_millis(100);
/// After this time a question has no answer any more. Each of its two calls has a shorter limit.
const CHECK_LIMIT: Duration = Duration::from_secs(60);
/// How long a drive is left alone whose copy was behind: mostly it is brought up to date with the next change, but it may become home
/// meanwhile.
const BEHIND_FOR: Duration = Duration::from_secs(30);

/// What other drives than their homes have said of the domains.
#[derive(Debug, Default)]
pub(crate) struct CrossChecks(Arc<Mutex<BTreeMap<String, Checked>>>);

/// A manifest that a drive has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Word {
    /// Its version.
    pub(crate) version: u64,
    /// The home that it names.
    pub(crate) home: DriveId,
}

/// What is known of one domain.
#[derive(Debug)]
struct Checked {
    /// When a drive was last asked.
    begun: Instant,
    is_running: bool,
    /// Drives take turns.
    turn: usize,
    /// The newest manifest that is newer than what home told.
    newer: Option<Word>,
    /// Drives whose copies were behind this version, and when: they are not asked again for a while, or before the next one.
    behind: BTreeMap<DriveId, (u64, Instant)>,
}

/// What a host knows of a domain that it reads.
pub(crate) struct Reading<'a> {
    /// The domain.
    pub(crate) name: &'a str,
    /// The drive that it takes for home.
    pub(crate) home: DriveId,
    /// The manifest that it has read before.
    pub(crate) known: Option<&'a Manifest>,
}

impl Reading<'_> {
    fn version(&self) -> u64 {
        self.known.map_or(0, |known| known.version)
    }

    fn is_member(&self, drive: DriveId) -> bool {
        drive != self.home && self.known.is_none_or(|known| known.drives.contains(&drive))
    }
}

impl CrossChecks {
    /// The newest manifest that another drive than home was found to have, newer than what this host knew by then. Where it is time,
    /// one of them is asked first; `since` is when all drives were last asked.
    pub(crate) async fn newer(&self, reading: Reading<'_>, drives: &Drives, since: Instant) -> Option<Word> {
        if let Some(drive) = self.begin(&reading, drives, since) {
            let asking = ask(Arc::clone(&self.0), reading.name.to_owned(), reading.version(), drive, drives.clone());
            // A statement that does not wait for it, or is given up, does not end it.
            let _ = tokio::time::timeout(CHECK_WAIT, tokio::spawn(asking)).await;
        }
        self.0.lock().get(reading.name)?.newer
    }

    /// What was found newer has been looked into.
    pub(crate) fn forget(&self, name: &str) {
        if let Some(checked) = self.0.lock().get_mut(name) {
            checked.newer = None;
        }
    }

    /// The drive whose turn it is, where it is time to ask one.
    fn begin(&self, reading: &Reading<'_>, drives: &Drives, since: Instant) -> Option<ConnectedDrive> {
        let mut checks = self.0.lock();
        let checked = checks.entry(reading.name.to_owned()).or_insert_with(|| Checked::since(since));
        let interval = if checked.is_running { CHECK_LIMIT } else { CHECK_EVERY };
        if checked.begun.elapsed() < interval {
            return None;
        }
        checked.begun = Instant::now();
        let may_know_more = |drive: &&ConnectedDrive| {
            let is_member = reading.is_member(drive.id()) && !drives.suspects().has(drive.id());
            is_member && !checked.is_behind(drive.id(), reading.version())
        };
        let others: Vec<&ConnectedDrive> = drives.all().iter().filter(may_know_more).collect();
        let drive = *others.get(checked.turn.checked_rem(others.len())?)?;
        checked.turn = checked.turn.wrapping_add(1);
        checked.is_running = true;
        Some(drive.clone())
    }
}

impl Checked {
    fn since(begun: Instant) -> Self {
        Self { begun, is_running: false, turn: 0, newer: None, behind: BTreeMap::new() }
    }

    /// Whether a drive's copy was behind this version when it was asked last, not long ago.
    fn is_behind(&self, drive: DriveId, version: u64) -> bool {
        self.behind.get(&drive).is_some_and(|(behind, noted)| *behind == version && noted.elapsed() < BEHIND_FOR)
    }

    /// Takes note of a drive's word; none: it has the very version that this host knows.
    fn note(&mut self, drive: DriveId, version: u64, word: Option<Word>) {
        self.is_running = false;
        let Some(word) = word else { return };
        if word.version > version {
            self.newer = self.newer.max(Some(word));
        } else {
            self.behind.insert(drive, (version, Instant::now()));
        }
    }
}

/// Asks one drive, and takes note of what it says.
async fn ask(checks: Arc<Mutex<BTreeMap<String, Checked>>>, name: String, version: u64, drive: ConnectedDrive, drives: Drives) {
    let word = word(&name, version, &drive, &drives).await.unwrap_or_else(|fault| {
        tracing::debug!(domain = name, "a home's word was not checked: {}", fault.message);
        None
    });
    if let Some(checked) = checks.lock().get_mut(&name) {
        checked.note(drive.id(), version, word);
    }
}

/// A drive's manifest; none: it is of this version. The whole manifest travels only if it is another one.
async fn word(name: &str, version: u64, drive: &ConnectedDrive, drives: &Drives) -> Result<Option<Word>, Fault> {
    if version > 0 && asked(drives, drive, drive.door.has_manifest(name.to_owned(), version)).await? {
        return Ok(None);
    }
    let manifest = asked(drives, drive, drive.door.manifest(name.to_owned())).await?;
    let word = |manifest: Manifest| Some(Word { version: manifest.version, home: manifest.home()? });
    Ok(Some(manifest.and_then(word).unwrap_or(Word { version: 0, home: drive.id() })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_words_are_kept_and_older_copies_are_passed_over() {
        let mut checked = Checked::since(Instant::now());
        let word = |version, home| Some(Word { version, home: DriveId(home) });
        checked.note(DriveId(2), 7, None);
        checked.note(DriveId(2), 7, word(6, 1));
        checked.note(DriveId(3), 7, word(7, 1));
        assert_eq!((checked.newer, checked.behind.len()), (None, 2));
        assert!(checked.is_behind(DriveId(3), 7) && !checked.is_behind(DriveId(3), 8), "the next one is asked for");
        if let Some(long_ago) = Instant::now().checked_sub(BEHIND_FOR) {
            checked.behind.insert(DriveId(3), (7, long_ago));
            assert!(!checked.is_behind(DriveId(3), 7), "it may have become home");
        }
        checked.note(DriveId(4), 7, word(1_000_007, 2));
        checked.note(DriveId(3), 7, word(8, 1));
        assert_eq!(checked.newer, word(1_000_007, 2));
    }
}
