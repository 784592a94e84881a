//! Modules that a drive keeps, and those that it only runs.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use pithead_door::{ApplicationEvent, Door, LoadModule, PortInput, PortInputs, ReadsNothing, RunApplication, SsdletSpec};
use pithead_model::{DriveId, Fault};
use pithead_store::{Durability, MemoryStore, Put, Store, Write};

use crate::{Drive, DriveOptions};

/// A module with one SSDlet that is declared so, and whose `pithead_run` has this code.
fn module_of(declared: &str, run: &[u8]) -> Bytes {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let section = |id: u8, parts: &[&[u8]]| {
        let body = parts.concat();
        [&[id, body.len() as u8], &body[..]].concat()
    };
    let body = |code: &[u8]| [&[code.len() as u8 + 2, 0], code, &[0x0b]].concat();
    let describe = body(&[0x41, 16, 0x41, declared.len() as u8, 0x10, 0]);
    let exports = [("memory", [2, 0]), ("pithead_abi_1", [0, 2]), ("pithead_describe", [0, 3]), ("pithead_run", [0, 4])];
    let exports: Vec<u8> = exports.iter().flat_map(|(name, place)| [text(name), place.to_vec()].concat()).collect();
    let imports = [text("pithead"), text("declare"), vec![0, 2], text("pithead"), text("input_wait"), vec![0, 3]].concat();
    let sections = [
        b"\0asm\x01\0\0\0".to_vec(),
        section(1, &[&[4, 0x60, 0, 0, 0x60, 1, 0x7f, 1, 0x7f, 0x60, 2, 0x7f, 0x7f, 0, 0x60, 1, 0x7f, 0]]),
        section(2, &[&[2], &imports]),
        section(3, &[&[3, 0, 0, 1]]),
        section(5, &[&[1, 0, 1]]),
        section(7, &[&[4], &exports]),
        section(10, &[&[3], &body(&[]), &describe, &body(run)]),
        section(11, &[&[1, 0, 0x41, 16, 0x0b], &text(declared)]),
    ];
    sections.concat().into()
}

/// One whose SSDlet has no ports, and ends at once.
fn module(ssdlet: &str) -> Bytes {
    module_of(&format!("name {ssdlet}\n"), &[0x41, 0])
}

struct Rig {
    drive: Arc<Drive>,
    store: Arc<MemoryStore>,
    _directory: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        let (directory, store) = (tempfile::tempdir().unwrap(), Arc::new(MemoryStore::new()));
        let options = DriveOptions { threads: 2, ..DriveOptions::new(directory.path().join("drive")) };
        let drive = Drive::over(Arc::clone(&store) as Arc<dyn Store>, DriveId(1), options).unwrap();
        Self { drive, store, _directory: directory }
    }

    async fn load(&self, name: &str, ssdlet: &str, replace: bool) -> Result<u64, Fault> {
        let request = LoadModule { name: name.to_owned(), replace, bytes: module(ssdlet) };
        self.drive.load_module(request).await.map(|about| about.version)
    }

    async fn names(&self) -> Vec<String> {
        self.drive.modules().await.unwrap().into_iter().map(|about| about.name).collect()
    }

    /// Changes the last byte of a value, whose version stays.
    fn damage(&self, key: &str) {
        let (value, entry) = self.store.get(key.as_bytes()).unwrap().unwrap();
        let mut value = value.to_vec();
        *value.last_mut().unwrap() ^= 1;
        let put = Put { version: entry.version, ..Put::forced(entry.key, value) };
        self.store.write(vec![Write::Put(put)], Durability::Through).unwrap();
    }

    fn request(ssdlet: &str) -> RunApplication {
        let spec = SsdletSpec { module: "m".to_owned(), ssdlet: Some(ssdlet.to_owned()), arguments: vec![] };
        RunApplication {
            name: "m".to_owned(),
            ssdlets: vec![spec],
            connections: vec![],
            memory: 16 << 20,
            run_ms: None,
            window: None,
        }
    }

    async fn run(&self, ssdlet: &str) -> Result<(), Fault> {
        self.run_of(module(ssdlet), ssdlet, futures::stream::empty().boxed()).await
    }

    async fn run_of(&self, module: Bytes, ssdlet: &str, inputs: PortInputs) -> Result<(), Fault> {
        let run = self.drive.run_module(module, Self::request(ssdlet), inputs, Arc::new(ReadsNothing)).await?;
        let events: Vec<Result<ApplicationEvent, Fault>> = run.events.collect().await;
        events.into_iter().try_for_each(|event| event.map(drop))
    }

    fn kept_codes(&self) -> usize {
        self.store.list(b"program/code/").unwrap().len()
    }
}

/// Nothing ever deleted it.
#[tokio::test(flavor = "multi_thread")]
async fn code_of_modules_that_are_not_kept_is_in_memory_only() {
    let rig = Rig::new();
    rig.run("one").await.unwrap();
    rig.run("two").await.unwrap();
    assert_eq!(rig.kept_codes(), 0);
    rig.load("m", "three", false).await.unwrap();
    assert_eq!(rig.kept_codes(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_module_is_loaded_again() {
    let rig = Rig::new();
    assert_eq!(rig.load("m", "one", false).await, Ok(1));
    assert_eq!(rig.load("m", "one", false).await, Ok(1), "the same is there");
    rig.damage("program/module/m");
    assert_eq!(rig.load("m", "one", false).await, Ok(2));
    let (value, _) = rig.store.get(b"program/module/m").unwrap().unwrap();
    assert_eq!(value, module("one"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_description_hides_no_other_module() {
    let rig = Rig::new();
    for name in ["a", "b", "c"] {
        rig.load(name, "one", false).await.unwrap();
    }
    rig.damage("program/about/a");
    rig.damage("program/about/b");
    assert_eq!(rig.names().await, ["c"]);
    let refused = rig.load("a", "one", false).await.unwrap_err();
    assert_eq!(refused.message, "a module is loaded as a, and what is said of it is damaged");
    assert_eq!(rig.load("a", "one", true).await, Ok(2));
    assert_eq!(rig.drive.remove_module("b".to_owned()).await, Ok(true));
    assert_eq!(rig.drive.remove_module("b".to_owned()).await, Ok(false));
    assert_eq!(rig.names().await, ["a", "c"]);
}

/// Nobody was told anything, and it went on until its session's limit.
#[tokio::test(flavor = "multi_thread")]
async fn an_input_that_nobody_takes_is_no_endless_wait() {
    let rig = Rig::new();
    // It waits for rows in in(1).
    let module = module_of("name one\ninput i64\ninput i64\n", &[0x41, 1, 0x10, 1, 0x41, 0]);
    let batch = |port| Ok(PortInput::Batch { port, bytes: vec![0; 200 << 10].into() });
    let inputs = futures::stream::iter([batch(0), batch(0), batch(1)]).chain(futures::stream::pending()).boxed();
    let fault = rig.run_of(module.clone(), "one", inputs).await.unwrap_err();
    let wanted = "input 0 is full, and no SSDlet takes from it: one for rows in in(1), which comes later";
    assert!(fault.message.contains(wanted), "{fault}");
    let inputs = futures::stream::iter([batch(0), batch(1)]).boxed();
    assert_eq!(rig.run_of(module, "one", inputs).await, Ok(()));
}
