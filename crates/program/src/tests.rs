//! Applications of guests that are written as text, honest and hostile ones.

mod aggregates;
mod aggregates_guest;
mod bytes;
mod first_turns;
mod functions;
mod functions_guest;
mod graphs;
mod guests;
mod hostile;
mod runner;
mod scripts;
mod services;
mod udfs;

use std::sync::Arc;
use std::time::Duration;

use bytes_crate::Bytes;
use pithead_sched::{Pool, PoolOptions};

use crate::{Application, FolderServices, HostReader, Limits, Module, ProgramError, Runtime, RuntimeOptions, Services};

use ::bytes as bytes_crate;
use guests::{PASS, guest};

/// A runtime on one reactor over an empty folder.
struct TestBed {
    runtime: Arc<Runtime>,
    services: Arc<dyn Services>,
    folder: tempfile::TempDir,
}

impl TestBed {
    fn new() -> Self {
        Self::with(RuntimeOptions { instances_max: 16, ..RuntimeOptions::default() })
    }

    fn with(options: RuntimeOptions) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let services = Arc::new(FolderServices::new(folder.path()).expect("services"));
        Self { runtime: Runtime::new(pool(), options).expect("a runtime"), services, folder }
    }

    async fn load(&self, text: &str) -> Result<Arc<Module>, ProgramError> {
        self.load_bytes(wat::parse_str(text).expect("a module")).await
    }

    async fn load_bytes(&self, bytes: Vec<u8>) -> Result<Arc<Module>, ProgramError> {
        self.runtime.load("test.wasm", Bytes::from(bytes), &self.services).await
    }

    fn application(&self, limits: Limits) -> Application {
        self.runtime.application("test", Arc::clone(&self.services), limits)
    }
}

fn pool() -> Arc<Pool> {
    let options = PoolOptions { name: "test".to_owned(), cores: None, reactors: 1, blocking_threads_max: 2 };
    Arc::new(Pool::new(options).expect("a pool"))
}

/// Runs a test; a wait without end is a failure.
fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let limited = async { tokio::time::timeout(Duration::from_secs(60), test).await };
    runtime.block_on(limited).expect("the test ends")
}

/// All bytes that a reader gets until the end.
async fn drain(reader: &HostReader) -> Result<Vec<u8>, ProgramError> {
    let mut all = Vec::new();
    while let Some(batch) = reader.get().await? {
        all.extend_from_slice(&batch);
    }
    Ok(all)
}
