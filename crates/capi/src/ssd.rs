//! [`PitheadSsd`]: a drive in this process, and its modules.

use std::collections::HashMap;
use std::ffi::c_char;
use std::sync::Arc;

use futures::executor::block_on;
use parking_lot::Mutex;
use pithead_program::{FolderServices, MODULE_BYTES_MAX, Module, Runtime, RuntimeOptions, Services};
use pithead_sched::{Pool, PoolOptions};

use crate::error::{free, guard, handle, text};

/// A drive: reactors, the sandbox, and a folder with its files.
pub struct PitheadSsd {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) services: Arc<dyn Services>,
    modules: Mutex<Modules>,
}

#[derive(Default)]
struct Modules {
    loaded: HashMap<u64, Arc<Module>>,
    last: u64,
}

impl PitheadSsd {
    fn open(folder: &str) -> Result<Self, String> {
        let services = FolderServices::new(folder).map_err(|error| error.to_string())?;
        let options = PoolOptions { name: "ssd".to_owned(), cores: None, reactors: 0, blocking_threads_max: 4 };
        let pool = Arc::new(Pool::new(options).map_err(|error| error.to_string())?);
        let runtime = Runtime::new(pool, RuntimeOptions::default()).map_err(|error| error.to_string())?;
        Ok(Self { runtime, services: Arc::new(services), modules: Mutex::default() })
    }

    fn load(&self, name: &str) -> Result<u64, String> {
        let module = block_on(async {
            let file = self.services.open(name).await.map_err(|error| error.to_string())?;
            let size = file.size();
            if size > MODULE_BYTES_MAX as u64 {
                return Err(format!("{name} has {size} bytes; a module has at most {MODULE_BYTES_MAX}"));
            }
            let bytes = self.runtime.read(&file, size as usize).await.map_err(|error| error.to_string())?;
            self.runtime.load(name, bytes.into(), &self.services).await.map_err(|error| error.to_string())
        })?;
        let mut modules = self.modules.lock();
        modules.last += 1;
        let number = modules.last;
        modules.loaded.insert(number, module);
        Ok(number)
    }

    pub(crate) fn module(&self, number: u64) -> Result<Arc<Module>, String> {
        self.modules.lock().loaded.get(&number).cloned().ok_or_else(|| format!("no module with the number {number} is loaded"))
    }
}

/// Opens a folder as a drive. Null if it cannot be used.
///
/// # Safety
/// `folder` is a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pithead_ssd_open(folder: *const c_char) -> *mut PitheadSsd {
    // SAFETY: the caller's promise.
    guard(std::ptr::null_mut(), || Ok(Box::into_raw(Box::new(PitheadSsd::open(unsafe { text(folder) }?)?))))
}

/// Closes a drive.
///
/// # Safety
/// `ssd` came from [`pithead_ssd_open`], and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pithead_ssd_close(ssd: *mut PitheadSsd) {
    // SAFETY: the caller's promise.
    unsafe { free(ssd) }
}

/// Loads a module that is a file of the drive. Returns its number, 0 if it cannot be run.
///
/// # Safety
/// `ssd` is open, and `name` is a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pithead_module_load(ssd: *const PitheadSsd, name: *const c_char) -> u64 {
    // SAFETY: the caller's promise.
    guard(0, || unsafe { handle(ssd)?.load(text(name)?) })
}

/// Lets go of a module; applications that use it go on.
///
/// # Safety
/// `ssd` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pithead_module_unload(ssd: *const PitheadSsd, module: u64) -> i32 {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let removed = unsafe { handle(ssd) }?.modules.lock().loaded.remove(&module);
        removed.map(|_| 1).ok_or_else(|| format!("no module with the number {module} is loaded"))
    })
}
