//! Runs that go: what a cut-off call, or damage of a note, leaves behind.

use std::sync::atomic::{AtomicBool, Ordering};

use futures::TryStreamExt;
use pithead_door::RunPiece;
use pithead_store::{Durability, Entry, Key, KeyRange, Staged, StoreError, StoreUse, Value, Write};

use super::*;

/// Holds writes up, and finds one value damaged.
#[derive(Debug)]
struct Troubled {
    inner: MemoryStore,
    holds: AtomicBool,
    is_held: AtomicBool,
    damaged: parking_lot::Mutex<Option<Key>>,
}

impl Troubled {
    fn new() -> Arc<Troubled> {
        let (holds, is_held) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Troubled { inner: MemoryStore::new(), holds, is_held, damaged: parking_lot::Mutex::new(None) })
    }
}

impl Store for Troubled {
    fn get(&self, key: &[u8]) -> Result<Option<(Value, Entry)>, StoreError> {
        match self.damaged.lock().as_ref().is_some_and(|damaged| damaged == key) {
            true => Err(StoreError::Corrupt { key: key.escape_ascii().to_string(), what: "damaged by a test".into() }),
            false => self.inner.get(key),
        }
    }
    fn entry(&self, key: &[u8]) -> Result<Option<Entry>, StoreError> {
        self.inner.entry(key)
    }
    fn range(&self, range: &KeyRange) -> Result<Vec<Entry>, StoreError> {
        self.inner.range(range)
    }
    fn write(&self, batch: Vec<Write>, durability: Durability) -> Result<(), StoreError> {
        while self.holds.load(Ordering::Relaxed) {
            self.is_held.store(true, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(1));
        }
        self.inner.write(batch, durability)
    }
    fn flush(&self) -> Result<(), StoreError> {
        self.inner.flush()
    }
    fn stage(&self, value: Value) -> Result<Staged, StoreError> {
        self.inner.stage(value)
    }
    fn adopt(&self, staged: Vec<(Key, Staged)>, batch: Vec<Write>) -> Result<(), StoreError> {
        self.inner.adopt(staged, batch)
    }
    fn unstage(&self, staged: Staged) {
        self.inner.unstage(staged);
    }
    fn usage(&self) -> Result<StoreUse, StoreError> {
        self.inner.usage()
    }
}

fn drive_over(store: &Arc<Troubled>, directory: &TempDir, opening: u32) -> Arc<Drive> {
    let options = DriveOptions { threads: 2, ..DriveOptions::new(directory.path().join(opening.to_string())) };
    Drive::over(Arc::clone(store) as Arc<dyn Store>, DriveId(1), options).unwrap()
}

/// A regression: the run was then taken to be on its way out for as long as the drive was open, and no copy of it came in.
#[tokio::test]
async fn a_discard_that_is_cut_off_lets_go_of_its_runs() {
    let (store, directory) = (Troubled::new(), tempfile::tempdir().unwrap());
    let drive = drive_over(&store, &directory, 0);
    let made = load(&drive, 1, 25).await;
    let pieces: Vec<RunPiece> = drive.read_run(run_key(&made)).await.unwrap().try_collect().await.unwrap();
    store.holds.store(true, Ordering::Relaxed);
    {
        let mut discarding = std::pin::pin!(drive.discard(discard(Loads::All)));
        tokio::select! {
            done = &mut discarding => panic!("it was not held: {done:?}"),
            () = until("the deletion has begun", async || store.is_held.load(Ordering::Relaxed)) => {}
        }
    }
    store.holds.store(false, Ordering::Relaxed);
    until("the run is gone", async || store.inner.list(b"slice/").unwrap().is_empty()).await;
    let copy = async || {
        let pieces = futures::stream::iter(pieces.clone().into_iter().map(Ok)).boxed();
        drive.write_run(run_key(&made), pieces).await
    };
    until("the run comes back", async || copy().await.is_ok()).await;
    assert_eq!(run(&*drive, scan(&[&made])).await.values, (0..25).collect::<Vec<i64>>());
}

/// A regression: one such note kept all of the drive from being opened.
#[tokio::test]
async fn a_damaged_note_of_a_run_to_delete_keeps_no_drive_from_opening() {
    let (store, directory) = (Troubled::new(), tempfile::tempdir().unwrap());
    let drive = drive_over(&store, &directory, 0);
    let made = [load(&drive, 1, 25).await, load(&drive, 2, 25).await, load(&drive, 3, 25).await];
    drop(drive);
    for made in &made[..2] {
        let run = run_key(made);
        let note = Write::put(crate::storage::condemned_key(&run), serde_json::to_vec(&run).unwrap());
        store.write(vec![note], Durability::Through).unwrap();
    }
    *store.damaged.lock() = Some(crate::storage::condemned_key(&run_key(&made[0])));
    let drive = drive_over(&store, &directory, 1);
    let left = || store.inner.list(b"slice/").unwrap().len();
    assert_eq!(left(), 8);
    assert_eq!(run(&*drive, scan(&[&made[2]])).await.values.len(), 25);
    // It goes where the note can be read again.
    drop(drive);
    *store.damaged.lock() = None;
    drive_over(&store, &directory, 2);
    assert_eq!(left(), 4);
}

/// A regression: the drive that rightly refused it was told to have a medium that fails.
#[tokio::test]
async fn a_damaged_copy_that_is_refused_says_nothing_of_the_medium() {
    let (store, directory) = (Troubled::new(), tempfile::tempdir().unwrap());
    let drive = drive_over(&store, &directory, 0);
    let made = load(&drive, 1, 25).await;
    let mut pieces: Vec<RunPiece> = drive.read_run(run_key(&made)).await.unwrap().try_collect().await.unwrap();
    pieces[1].bytes = vec![7; pieces[1].bytes.len()].into();
    let run = SliceKey { load: LoadId(9), ..run_key(&made) };
    let pieces = futures::stream::iter(pieces.into_iter().map(Ok)).boxed();
    assert_eq!(drive.write_run(run, pieces).await.unwrap_err().blame, Blame::Corrupt);
    assert_eq!(drive.health().await.status, "ok");
}
