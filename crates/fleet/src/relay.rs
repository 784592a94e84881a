//! Copying runs from drive to drive, byte for byte. No drive talks to a drive, so the bytes pass through the host.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use pithead_model::{Blame, Fault, FaultKind, SliceKey, boxed};

use crate::drives::ConnectedDrive;

/// Longest wait for the next piece of a run.
const PIECE_WAIT: Duration = Duration::from_secs(120);
/// How long a drive without memory for it is asked again: loads hold theirs until they are through.
const MEMORY_WAIT: Duration = Duration::from_secs(20);
/// Pause before it is asked again.
const MEMORY_PAUSE: Duration = Duration::from_millis(200);

/// Copies one run. It is flushed at `to` when this returns; on a fault nothing of it is there. Returns its bytes.
#[boxed]
pub async fn relay(run: &SliceKey, from: &ConnectedDrive, to: &ConnectedDrive) -> Result<u64, Fault> {
    relay_as(run, run, from, to).await
}

/// The same, and the run gets another name at `to`.
pub(crate) async fn relay_as(
    run: &SliceKey,
    name: &SliceKey,
    from: &ConnectedDrive,
    to: &ConnectedDrive,
) -> Result<u64, Fault> {
    let started = Instant::now();
    loop {
        match relay_once(run, name, from, to).await {
            Err(fault) if fault.kind == FaultKind::Memory && started.elapsed() < MEMORY_WAIT => {
                tracing::debug!("a copy waits: {}", fault.message);
                tokio::time::sleep(MEMORY_PAUSE).await;
            }
            outcome => return outcome,
        }
    }
}

async fn relay_once(run: &SliceKey, name: &SliceKey, from: &ConnectedDrive, to: &ConnectedDrive) -> Result<u64, Fault> {
    let pieces = from.door.read_run(run.clone()).await.map_err(|fault| fault.at_drive(from.label()))?;
    let bytes = Arc::new(AtomicU64::new(0));
    let (counted, label) = (Arc::clone(&bytes), from.label().to_owned());
    let waited = futures::stream::unfold(pieces, |mut pieces| async move {
        let late = |_| Some(Err(Fault::new(Blame::Device, format!("no bytes of a run within {} s", PIECE_WAIT.as_secs()))));
        let piece = tokio::time::timeout(PIECE_WAIT, pieces.next()).await.unwrap_or_else(late);
        piece.map(|piece| (piece, pieces))
    });
    let told = waited.map(move |piece| {
        let piece = piece.map_err(|fault| fault.at_drive(&label))?;
        counted.fetch_add(piece.bytes.len() as u64, Ordering::Relaxed);
        Ok(piece)
    });
    let written = to.door.write_run(name.clone(), told.boxed()).await;
    // A fault of the drive that is read names it already.
    written.map_err(|fault| if fault.message.contains(from.label()) { fault } else { fault.at_drive(to.label()) })?;
    Ok(bytes.load(Ordering::Relaxed))
}
