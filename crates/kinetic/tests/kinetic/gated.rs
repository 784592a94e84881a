//! A store that is slow or damaged on purpose, and a server over it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use pithead_kinetic::keys::{STATE_KEY, stored};
use pithead_kinetic::proto::ManageApplet;
use pithead_kinetic::{Applets, Caller, Code, KineticOptions, Limits, Managing, NoSlices, Output};
use pithead_store::{Durability, Entry, Key, KeyRange, MemoryStore, Staged, Store, StoreError, StoreUse, Value, Write};

use crate::server::{Server, get, put};

/// Requests that the store does at one time in these tests: eight for the one reactor of the server.
pub const PLACES: usize = 8;
/// Requests that may wait besides.
pub const WAITING: usize = 2;

/// A store in memory whose reads of values wait at a gate.
#[derive(Debug, Default)]
pub struct Gated {
    inner: MemoryStore,
    closed: Mutex<bool>,
    /// Reads that wait there.
    pub inside: AtomicUsize,
    /// Reads that have begun.
    pub reads: AtomicUsize,
    changed: Condvar,
    /// Reads of it fail.
    pub damaged: Mutex<Vec<u8>>,
    /// Goes between the look for it and the read of it.
    pub vanishing: Mutex<Vec<u8>>,
    /// Values are in memory.
    pub resident: AtomicBool,
    /// Keys that others put while some are deleted.
    pub racing: AtomicUsize,
    /// Somebody puts a key while the protocol's own state changes.
    pub is_put_late: AtomicBool,
    /// How long a write takes, in milliseconds.
    pub write_ms: AtomicU64,
    /// The next flush says that writes before it are lost.
    pub is_lost: AtomicBool,
}

impl Gated {
    pub fn close(&self, closed: bool) {
        *self.closed.lock() = closed;
        self.changed.notify_all();
    }
}

impl Store for Gated {
    fn get(&self, key: &[u8]) -> Result<Option<(Value, Entry)>, StoreError> {
        let damaged = self.damaged.lock().clone();
        if !damaged.is_empty() && key.ends_with(&damaged) {
            return Err(StoreError::Corrupt { key: "k".to_owned(), what: "on purpose".to_owned() });
        }
        let vanishing = self.vanishing.lock().clone();
        if !vanishing.is_empty() && key.ends_with(&vanishing) {
            return Ok(None);
        }
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inside.fetch_add(1, Ordering::Relaxed);
        self.changed.wait_while(&mut self.closed.lock(), |closed| *closed);
        self.inside.fetch_sub(1, Ordering::Relaxed);
        self.inner.get(key)
    }

    fn get_resident(&self, key: &[u8]) -> Result<Option<(Value, Entry)>, StoreError> {
        if self.resident.load(Ordering::Relaxed) { self.inner.get(key) } else { Ok(None) }
    }

    fn entry(&self, key: &[u8]) -> Result<Option<Entry>, StoreError> {
        self.inner.entry(key)
    }

    fn range(&self, range: &KeyRange) -> Result<Vec<Entry>, StoreError> {
        self.inner.range(range)
    }

    fn write(&self, batch: Vec<Write>, durability: Durability) -> Result<(), StoreError> {
        if self.is_put_late.load(Ordering::Relaxed) && batch.iter().any(|write| write.key() == STATE_KEY) {
            self.inner.write(vec![Write::put(stored(b"late"), "v")], durability)?;
        }
        std::thread::sleep(Duration::from_millis(self.write_ms.load(Ordering::Relaxed)));
        let deletes = batch.iter().any(|write| matches!(write, Write::Delete { .. }));
        self.inner.write(batch, durability)?;
        let racing = self.racing.load(Ordering::Relaxed);
        if deletes && racing > 0 {
            self.racing.store(racing + 1, Ordering::Relaxed);
            let others = ["a", "z"].map(|place| Write::put(stored(format!("{place}{racing:09}").as_bytes()), "other's"));
            self.inner.write(others.into(), durability)?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), StoreError> {
        match self.is_lost.swap(false, Ordering::Relaxed) {
            true => Err(StoreError::Index { path: "memory".into(), what: "on purpose".to_owned() }),
            false => self.inner.flush(),
        }
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

/// Runs programs that end at once, and whose output is put.
#[derive(Debug)]
struct PuttingApplets;

impl Applets for PuttingApplets {
    fn manage<'a>(&'a self, request: &'a ManageApplet, caller: &'a Caller) -> Managing<'a> {
        Box::pin(async move {
            let key = request.output_key.clone().unwrap_or_default();
            Ok(Output { put: Some(caller.put(&key, Bytes::from_static(b"output"))?), ..Output::default() })
        })
    }
}

pub async fn serve() -> (Arc<Gated>, Server) {
    let store = Arc::new(Gated::default());
    let limits = Limits { waiting: WAITING, ..Limits::default() };
    let options = KineticOptions { limits, ..KineticOptions::default() };
    let (applets, served) = (Arc::new(PuttingApplets), Arc::clone(&store) as Arc<dyn Store>);
    let server = Server::running(applets, served, Arc::new(NoSlices), options).await;
    put(&mut server.client().await, b"k", "1", b"v").await;
    (store, server)
}

/// Requests that wait at the gate.
pub async fn waiting(server: &Server, count: usize) -> Vec<tokio::task::JoinHandle<Code>> {
    let mut tasks = Vec::new();
    for _ in 0..count {
        let mut client = server.client().await;
        tasks.push(tokio::spawn(async move { get(&mut client, b"k").await.code }));
    }
    tasks
}

pub async fn until(is_so: impl Fn() -> bool) {
    let waited = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waited).await.expect("it comes to be so");
}
