//! A store that is slow or damaged: who waits too long is told so, and what is damaged is named.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use pithead_kinetic::client::Client;
use pithead_kinetic::keys::{STATE_KEY, stored};
use pithead_kinetic::proto::{Batch, Body, Header, ManageApplet, Setup};
use pithead_kinetic::{Applets, Caller, Code, KineticOptions, Limits, Managing, NoSlices, Output, RequestKind};
use pithead_store::{Durability, Entry, Key, KeyRange, MemoryStore, Staged, Store, StoreError, StoreUse, Value, Write};

use crate::server::{Server, call, get, header_of, key_value, put, put_of, range_of, with_key, with_range};

/// Requests that the store does at one time in these tests: three for the one reactor of the server.
const PLACES: usize = 3;
/// Requests that may wait besides.
const WAITING: usize = 2;

/// A store in memory whose reads of values wait at a gate.
#[derive(Debug, Default)]
struct Gated {
    inner: MemoryStore,
    closed: Mutex<bool>,
    /// Reads that wait there.
    inside: AtomicUsize,
    changed: Condvar,
    /// Reads of it fail.
    damaged: Mutex<Vec<u8>>,
    /// Goes between the look for it and the read of it.
    vanishing: Mutex<Vec<u8>>,
    /// Values are in memory.
    resident: AtomicBool,
    /// Keys that others put while some are deleted.
    racing: AtomicUsize,
    /// Somebody puts a key while the protocol's own state changes.
    is_put_late: AtomicBool,
    /// How long a write takes, in milliseconds.
    write_ms: AtomicU64,
}

impl Gated {
    fn close(&self, closed: bool) {
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

async fn serve() -> (Arc<Gated>, Server) {
    let store = Arc::new(Gated::default());
    let limits = Limits { waiting: WAITING, ..Limits::default() };
    let options = KineticOptions { limits, ..KineticOptions::default() };
    let (applets, served) = (Arc::new(PuttingApplets), Arc::clone(&store) as Arc<dyn Store>);
    let server = Server::running(applets, served, Arc::new(NoSlices), options).await;
    put(&mut server.client().await, b"k", "1", b"v").await;
    (store, server)
}

async fn get_within(client: &mut Client, ms: i64) -> Code {
    let header = Header { timeout: Some(ms), ..header_of(RequestKind::Get) };
    client.call_with(header, with_key(key_value(b"k")), Bytes::new()).await.unwrap().code
}

/// Requests that wait at the gate.
async fn waiting(server: &Server, count: usize) -> Vec<tokio::task::JoinHandle<Code>> {
    let mut tasks = Vec::new();
    for _ in 0..count {
        let mut client = server.client().await;
        tasks.push(tokio::spawn(async move { get(&mut client, b"k").await.code }));
    }
    tasks
}

async fn until(is_so: impl Fn() -> bool) {
    let waited = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waited).await.expect("it comes to be so");
}

#[tokio::test]
async fn who_finds_no_turn_in_time_is_told_that_the_drive_is_busy() {
    let (store, server) = serve().await;
    store.close(true);
    let tasks = waiting(&server, PLACES).await;
    let mut client = server.client().await;
    until(|| store.inside.load(Ordering::Relaxed) == PLACES).await;
    assert_eq!(get_within(&mut client, 50).await, Code::ServiceBusy, "no turn in time");
    let tasks: Vec<_> = tasks.into_iter().chain(waiting(&server, WAITING).await).collect();
    let told = format!("waiting {WAITING}");
    until(|| server.service.metrics_text().contains(&told)).await;
    assert_eq!(get_within(&mut client, 20_000).await, Code::ServiceBusy, "too many wait");
    store.close(false);
    for task in tasks {
        assert_eq!(tokio::time::timeout(Duration::from_secs(20), task).await.unwrap().unwrap(), Code::Success);
    }
    assert_eq!(get_within(&mut client, 20_000).await, Code::Success);
}

/// A batch was lost with an answer that said to try again.
#[tokio::test]
async fn a_batch_whose_end_finds_no_turn_stays_open() {
    let (store, server) = serve().await;
    let mut client = server.client().await;
    let in_batch = |kind: RequestKind| Header { batch_id: Some(1), ..header_of(kind) };
    let started = client.call_with(in_batch(RequestKind::StartBatch), Body::default(), Bytes::new()).await.unwrap();
    assert_eq!(started.code, Code::Success);
    client.send(in_batch(RequestKind::Put), with_key(put_of(b"batched", "1")), Bytes::from_static(b"v")).await.unwrap();
    store.close(true);
    let tasks = waiting(&server, PLACES).await;
    until(|| store.inside.load(Ordering::Relaxed) == PLACES).await;
    let body = || Body { batch: Some(Batch { count: Some(1), ..Batch::default() }), ..Body::default() };
    for _ in 0..2 {
        let within = Header { timeout: Some(50), ..in_batch(RequestKind::EndBatch) };
        assert_eq!(client.call_with(within, body(), Bytes::new()).await.unwrap().code, Code::ServiceBusy);
    }
    store.close(false);
    for task in tasks {
        assert_eq!(task.await.unwrap(), Code::Success);
    }
    let ended = client.call_with(in_batch(RequestKind::EndBatch), body(), Bytes::new()).await.unwrap();
    assert_eq!((ended.code, ended.body.batch.unwrap().sequence), (Code::Success, vec![2]), "{}", ended.what);
    assert_eq!(get(&mut client, b"batched").await.value, "v");
}

/// An erasure began anew until there were no keys, and so it did not end while others put some.
#[tokio::test]
async fn an_erasure_ends_while_others_put_keys() {
    let (store, server) = serve().await;
    let mut client = server.client().await;
    store.racing.store(1, Ordering::Relaxed);
    let setup = Setup { instant_secure_erase: Some(true), ..Setup::default() };
    let erase = call(&mut client, RequestKind::Setup, Body { setup: Some(setup), ..Body::default() });
    assert_eq!(tokio::time::timeout(Duration::from_secs(20), erase).await.expect("it ends").code, Code::Success);
    assert_eq!(get(&mut client, b"k").await.code, Code::NotFound);
    for others in [b"a000000001", b"z000000001"] {
        assert_eq!(get(&mut client, others).await.value, "other's", "it came when those before it were erased");
    }
}

/// An identity that an erasure takes away put a key when the keys were erased already, and it stayed.
#[tokio::test]
async fn keys_of_identities_that_are_erased_go_with_them() {
    const ERASE: i32 = 3;
    let (store, server) = serve().await;
    store.is_put_late.store(true, Ordering::Relaxed);
    let mut client = server.tls_client().await;
    assert_eq!(client.pin(ERASE, b"").await.unwrap().code, Code::Success);
    assert!(store.entry(&stored(b"late")).unwrap().is_none());
}

/// The answer was EXPIRED, and the output was put all the same.
#[tokio::test]
async fn an_output_that_is_being_put_is_waited_for_beyond_the_time() {
    let (store, server) = serve().await;
    store.write_ms.store(1_000, Ordering::Relaxed);
    let mut client = server.client().await;
    let applet = ManageApplet { output_key: Some("out".into()), ..ManageApplet::default() };
    let header = Header { timeout: Some(300), ..header_of(RequestKind::ManageApplet) };
    let body = Body { manage_applet: Some(applet), ..Body::default() };
    let reply = client.call_with(header, body, Bytes::new()).await.unwrap();
    assert_eq!(reply.code, Code::ExecuteComplete, "{}", reply.what);
    assert_eq!(get(&mut client, b"out").await.value, "output");
}

#[tokio::test]
async fn what_is_in_memory_needs_no_turn() {
    let (store, server) = serve().await;
    store.close(true);
    let tasks = waiting(&server, PLACES).await;
    until(|| store.inside.load(Ordering::Relaxed) == PLACES).await;
    store.resident.store(true, Ordering::Relaxed);
    let mut client = server.client().await;
    let reply = get(&mut client, b"k").await;
    assert_eq!((reply.code, &reply.value[..]), (Code::Success, &b"v"[..]));
    assert_eq!(store.inside.load(Ordering::Relaxed), PLACES, "the others wait still");
    store.close(false);
    for task in tasks {
        assert_eq!(task.await.unwrap(), Code::Success);
    }
    assert_eq!(get(&mut client, b"missing").await.code, Code::NotFound);
}

#[tokio::test]
async fn a_check_whose_time_is_over_says_how_far_it_came() {
    let (store, server) = serve().await;
    let mut client = server.client().await;
    for key in ["a", "b", "c"] {
        put(&mut client, key.as_bytes(), "1", b"v").await;
    }
    store.close(true);
    let header = Header { timeout: Some(1_000), ..header_of(RequestKind::MediaScan) };
    let opening = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            until(|| store.inside.load(Ordering::Relaxed) == 1).await;
            tokio::time::sleep(Duration::from_millis(1_100)).await;
            store.close(false);
        })
    };
    let reply = client.call_with(header, with_range(range_of(b"a", b"z", 10)), Bytes::new()).await.unwrap();
    opening.await.unwrap();
    assert_eq!(reply.code, Code::Expired, "{}", reply.what);
    assert_eq!(reply.body.range.unwrap().end_key.unwrap(), "a", "the next one begins after it");
    let whole = call(&mut client, RequestKind::MediaScan, with_range(range_of(b"a", b"z", 10))).await;
    assert_eq!((whole.code, whole.body.range.unwrap().end_key.unwrap()), (Code::Success, "z".into()));
}

#[tokio::test]
async fn what_is_damaged_is_named_and_nothing_else_fails() {
    let (store, server) = serve().await;
    let mut client = server.client().await;
    put(&mut client, b"bad", "1", b"v").await;
    *store.damaged.lock() = b"bad".to_vec();
    assert_eq!(get(&mut client, b"bad").await.code, Code::PermDataError);
    let early = Header { early_exit: Some(true), ..header_of(RequestKind::Get) };
    let reply = client.call_with(early, with_key(key_value(b"bad")), Bytes::new()).await.unwrap();
    assert_eq!(reply.code, Code::DataError);
    let scanned = call(&mut client, RequestKind::MediaScan, with_range(range_of(b"a", b"z", 10))).await;
    assert_eq!((scanned.code, scanned.body.range.unwrap().keys), (Code::Success, vec![Bytes::from_static(b"bad")]));
    assert_eq!(get(&mut client, b"k").await.code, Code::Success);
    let body: Body = with_key(key_value(b"bad"));
    assert_eq!(call(&mut client, RequestKind::GetVersion, body).await.code, Code::Success, "its version is known");
}

/// Clients that walk over their keys by GETNEXT stop at NOT_FOUND. They were told so in the middle, when a key went just then.
#[tokio::test]
async fn a_neighbour_that_goes_while_it_is_read_is_passed_over() {
    let (store, server) = serve().await;
    let mut client = server.client().await;
    for key in ["a", "gone", "z"] {
        put(&mut client, key.as_bytes(), "1", key.as_bytes()).await;
    }
    *store.vanishing.lock() = b"gone".to_vec();
    for (kind, from, found) in [(RequestKind::GetNext, "a", "k"), (RequestKind::GetPrevious, "k", "a")] {
        let reply = call(&mut client, kind, with_key(key_value(from.as_bytes()))).await;
        assert_eq!((reply.code, reply.body.key_value.unwrap().key.unwrap()), (Code::Success, found.into()), "{kind:?}");
    }
    *store.vanishing.lock() = b"z".to_vec();
    assert_eq!(call(&mut client, RequestKind::GetNext, with_key(key_value(b"k"))).await.code, Code::NotFound);
}
