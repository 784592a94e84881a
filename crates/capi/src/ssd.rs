//! [`PitheadSsd`]: a drive, and its modules.

use std::collections::HashMap;
use std::ffi::c_char;
use std::sync::Arc;

use futures::executor::block_on;
use parking_lot::Mutex;
use pithead_door::Door;
use pithead_model::Fault;
use pithead_program::{FolderServices, MODULE_BYTES_MAX, Module, Runtime, RuntimeOptions, Services};
use pithead_sched::{Pool, PoolOptions};

use crate::drives::{door, is_address, runtime};
use crate::error::{free, guard, handle, text};

/// A drive, and the modules that a host program uses of it.
pub struct PitheadSsd {
    pub(crate) place: DriveAccess,
    modules: Mutex<Modules>,
}

/// Where a drive is.
pub(crate) enum DriveAccess {
    Here(Here),
    /// On the network.
    There(Arc<dyn Door>),
}

/// A drive in this process: reactors, the sandbox, and a folder with its files.
pub(crate) struct Here {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) services: Arc<dyn Services>,
}

/// A module that was loaded.
#[derive(Clone)]
pub(crate) enum Loaded {
    Here(Arc<Module>),
    /// The drive keeps it under this name.
    There(String),
}

#[derive(Default)]
struct Modules {
    loaded: HashMap<u64, Loaded>,
    last: u64,
}

impl PitheadSsd {
    fn open(place: &str) -> Result<Self, String> {
        let place = if is_address(place) { DriveAccess::There(door(place)?) } else { DriveAccess::Here(Here::open(place)?) };
        Ok(Self { place, modules: Mutex::default() })
    }

    fn load(&self, name: &str) -> Result<u64, String> {
        let module = match &self.place {
            DriveAccess::Here(here) => Loaded::Here(block_on(here.load(name))?),
            DriveAccess::There(door) => Loaded::There(runtime()?.block_on(kept(door, name))?),
        };
        let mut modules = self.modules.lock();
        modules.last += 1;
        let number = modules.last;
        modules.loaded.insert(number, module);
        Ok(number)
    }

    pub(crate) fn module(&self, number: u64) -> Result<Loaded, String> {
        self.modules.lock().loaded.get(&number).cloned().ok_or_else(|| format!("no module with the number {number} is loaded"))
    }
}

impl Here {
    fn open(folder: &str) -> Result<Self, String> {
        let services = FolderServices::new(folder).map_err(|error| error.to_string())?;
        let options = PoolOptions { name: "ssd".to_owned(), cores: None, reactors: 0, blocking_threads_max: 4 };
        let pool = Arc::new(Pool::new(options).map_err(|error| error.to_string())?);
        // The SSDlets are the program's own, and so is the thread that starts them.
        let options = RuntimeOptions { starts_here: true, ..RuntimeOptions::default() };
        let runtime = Runtime::new(pool, options).map_err(|error| error.to_string())?;
        Ok(Self { runtime, services: Arc::new(services) })
    }

    async fn load(&self, name: &str) -> Result<Arc<Module>, String> {
        let file = self.services.open(name).await.map_err(|error| error.to_string())?;
        let size = file.size();
        if size > MODULE_BYTES_MAX as u64 {
            return Err(format!("{name} has {size} bytes; a module has at most {MODULE_BYTES_MAX}"));
        }
        let bytes = self.runtime.read(&file, size as usize).await.map_err(|error| error.to_string())?;
        self.runtime.load(name, bytes.into(), &self.services).await.map_err(|error| error.to_string())
    }
}

/// The name of a module that a drive on the network keeps; a path and an ending say nothing there.
async fn kept(door: &Arc<dyn Door>, name: &str) -> Result<String, String> {
    let modules = door.modules().await.map_err(|fault| fault.at_drive(door.label()).to_string())?;
    let names: Vec<&str> = modules.iter().map(|module| module.name.as_str()).collect();
    kept_as(&names, name).map(str::to_owned).map_err(|wanted| {
        let missing = Fault::invalid(format!("the drive has no module {wanted}")).at_drive(door.label());
        missing.hint("`pithead program ls` shows those that there are, and `pithead program load` loads one").to_string()
    })
}

/// The one of a drive's modules that a file's name stands for: `pithead program load` leaves off its folder and its ending. The error
/// is the name that was looked for.
fn kept_as<'a>(modules: &[&'a str], name: &'a str) -> Result<&'a str, &'a str> {
    let file = name.rsplit('/').next().unwrap_or_default();
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    [file, stem].into_iter().find(|wanted| modules.contains(wanted)).ok_or(stem)
}

/// Opens a folder as a drive in this process, or a drive on the network at `pithead://HOST:PORT` or `pithead+tls://HOST:PORT`. Null
/// if it cannot be used; whether a drive is there shows with the first call.
///
/// # Safety
/// `place` is a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pithead_ssd_open(place: *const c_char) -> *mut PitheadSsd {
    // SAFETY: the caller's promise.
    guard(std::ptr::null_mut(), || Ok(Box::into_raw(Box::new(PitheadSsd::open(unsafe { text(place) }?)?))))
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

/// Loads a module that is a file of the drive; a drive on the network keeps it by its name. Returns its number, 0 if it cannot be run.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_and_an_ending_say_nothing() {
        let modules = ["libkvstore", "words", "words.v2"];
        for name in ["libkvstore", "/libkvstore.so", "lib/libkvstore.wasm"] {
            assert_eq!(kept_as(&modules, name), Ok("libkvstore"));
        }
        assert_eq!(kept_as(&modules, "words.v2"), Ok("words.v2"));
        assert_eq!(kept_as(&modules, "words.v3"), Ok("words"));
        assert_eq!(kept_as(&modules, "/libother.so"), Err("libother"));
    }
}
