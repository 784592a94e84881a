//! [`FormerHomes`]: a home that was declared lost, and is reached again, is told that another drive is home now.
//!
//! A drive that belongs to its domain still gets copies of the manifest anyway. One that does not would take itself for home for ever,
//! and hosts that were idle meanwhile would go on reading from it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::future::join_all;
use parking_lot::Mutex;
use pithead_model::{Blame, DriveId, LostHome, Manifest};

use crate::drives::{ConnectedDrive, Drives};
use crate::homes::asked;

/// Longest that a change waits for a former home's word.
const TELL_WAIT: Duration = Duration::from_secs(1);
/// How long one is left alone that did not answer in that time, did not give way, or lets this host write nothing.
const SILENT_FOR: Duration = Duration::from_secs(10);

/// What this host has told former homes, by domain and drive.
#[derive(Debug, Default)]
pub(crate) struct FormerHomes(Mutex<BTreeMap<(String, DriveId), Telling>>);

#[derive(Clone, Copy, Debug)]
enum Telling {
    /// It knows of its loss, as of this version of its own.
    Told(u64),
    /// It was told in vain.
    Silent(Instant),
}

impl FormerHomes {
    /// Gives a manifest to those former homes that are reached, get no copies otherwise, and do not know of their loss yet. One that
    /// does not take it is told with a later change.
    pub(crate) async fn tell(&self, drives: &Drives, manifest: &Manifest) {
        let mut telling = Vec::new();
        for lost in manifest.lost_homes.iter().filter(|lost| !manifest.drives.contains(&lost.drive)) {
            if let Some(drive) = drives.find(lost.drive).filter(|_| self.is_due(&manifest.domain, lost)) {
                telling.push(self.tell_one(drives, drive, lost, manifest));
            }
        }
        join_all(telling).await;
    }

    fn is_due(&self, domain: &str, lost: &LostHome) -> bool {
        match self.0.lock().get(&(domain.to_owned(), lost.drive)) {
            Some(Telling::Told(version)) => *version < lost.version,
            Some(Telling::Silent(since)) => since.elapsed() >= SILENT_FOR,
            None => true,
        }
    }

    async fn tell_one(&self, drives: &Drives, drive: &ConnectedDrive, lost: &LostHome, manifest: &Manifest) {
        let domain = manifest.domain.as_str();
        let told = asked(drives, drive, drive.door.keep_manifest(manifest.clone()));
        let telling = match tokio::time::timeout(TELL_WAIT, told).await {
            Ok(Ok(kept)) if kept.home != Some(drive.id()) => {
                tracing::info!(domain, drive = drive.label(), "a former home knows of the new one");
                Telling::Told(lost.version)
            }
            // It is not there, and is told once it is.
            Ok(Err(fault)) if fault.blame != Blame::Access => {
                tracing::debug!(domain, "a former home does not know of the new one: {}", fault.message);
                return;
            }
            Ok(Ok(_) | Err(_)) | Err(_) => Telling::Silent(Instant::now()),
        };
        self.0.lock().insert((domain.to_owned(), drive.id()), telling);
    }
}
