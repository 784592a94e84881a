//! Another home for a domain.

use pithead_model::{Blame, DriveId, Fault, Manifest};

use crate::commit::spread;
use crate::drives::ConnectedDrive;
use crate::fault::at_drive;
use crate::host::Host;

/// Times that a hand-over is tried against other hosts' changes.
const ATTEMPTS_MAX: usize = 10;
/// Versions left free for changes that only a lost home knew of, so that none of these is ever taken for newer.
const VERSIONS_LOST: u64 = 1 << 20;

/// Makes another drive home. The old one takes note first and changes nothing from then on; the new one holds the manifest
/// before that, so that whatever is cut off here, the newest version names one home, and the next change ends the hand-over.
pub(super) async fn hand_over(host: &Host, domain: &str, to: DriveId) -> Result<(), Fault> {
    let drives = host.refreshed().await;
    let new = drives.get(to)?;
    for _ in 0..ATTEMPTS_MAX {
        let (manifest, old) = host.catalog().manifest(domain, &drives).await?;
        if old.id() == to || manifest.version == 0 {
            return Ok(());
        }
        let next = with_home(&manifest, to);
        new.door.keep_manifest(manifest.clone()).await.map_err(|fault| at_drive(fault, new.label()))?;
        old.door.keep_manifest(next.clone()).await.map_err(|fault| at_drive(fault, old.label()))?;
        let noted = old.door.manifest(domain.to_owned()).await.map_err(|fault| at_drive(fault, old.label()))?;
        if noted.is_none_or(|noted| noted != next) {
            // Another change came first, and is not in what was handed over.
            continue;
        }
        return take_over(host, new, manifest.version, &next).await;
    }
    Err(Fault::new(Blame::Conflict, format!("domain {domain} is changed all the time")).hint("try again"))
}

/// Makes a drive home of a domain whose home is lost, by the newest copy of the manifest.
pub(super) async fn replace_home(host: &Host, newest: &Manifest, to: DriveId) -> Result<(), Fault> {
    let drives = host.connected();
    let new = drives.get(to)?;
    let floor = Manifest { version: newest.version.saturating_add(VERSIONS_LOST), ..newest.clone() };
    new.door.keep_manifest(floor.clone()).await.map_err(|fault| at_drive(fault, new.label()))?;
    take_over(host, new, floor.version, &with_home(&floor, to)).await
}

async fn take_over(host: &Host, new: &ConnectedDrive, version: u64, next: &Manifest) -> Result<(), Fault> {
    new.door.commit(version, next.clone()).await.map_err(|fault| at_drive(fault, new.label()))?;
    host.catalog().note_home(&next.domain, new.id());
    spread(&host.connected(), next).await;
    Ok(())
}

/// The next version, with this home.
fn with_home(manifest: &Manifest, home: DriveId) -> Manifest {
    let others = manifest.drives.iter().copied().filter(|drive| *drive != home);
    let drives = std::iter::once(home).chain(others).collect();
    Manifest { version: manifest.version.saturating_add(1), drives, ..manifest.clone() }
}
