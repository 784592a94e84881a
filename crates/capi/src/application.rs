//! [`PitheadApplication`]: a graph of SSDlets that a host program builds.

use std::ffi::c_char;

use futures::executor::block_on;
use parking_lot::Mutex;
use pithead_program::{Application, Argument, Limits, Ssdlet, Type, Value, decode_rows};

use crate::PitheadSsd;
use crate::error::{bytes, free, guard, handle, text};

/// An application and its SSDlets, which are known by their numbers.
pub struct PitheadApplication {
    pub(crate) application: Application,
    ssdlets: Mutex<Vec<Ssdlet>>,
}

impl PitheadApplication {
    pub(crate) fn ssdlet(&self, number: i32) -> Result<Ssdlet, String> {
        let known = usize::try_from(number).ok().and_then(|number| self.ssdlets.lock().get(number).cloned());
        known.ok_or_else(|| format!("the application has no SSDlet with the number {number}"))
    }
}

/// Makes an application without SSDlets.
///
/// # Safety
/// `ssd` is open, and `name` is a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pithead_application_new(ssd: *const PitheadSsd, name: *const c_char) -> *mut PitheadApplication {
    guard(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let (ssd, name) = unsafe { (handle(ssd)?, text(name)?) };
        let application = ssd.runtime.application(name, std::sync::Arc::clone(&ssd.services), Limits::default());
        Ok(Box::into_raw(Box::new(PitheadApplication { application, ssdlets: Mutex::default() })))
    })
}

/// Stops an application, if it runs, and frees it.
///
/// # Safety
/// `application` came from [`pithead_application_new`], and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pithead_application_free(application: *mut PitheadApplication) {
    // SAFETY: the caller's promise.
    unsafe { free(application) }
}

/// Makes an SSDlet of a module. `types` are the types of its arguments with commas between them, empty for none; `arguments` are their
/// values as a row, a file as its name. Returns its number, -1 if it cannot be made.
///
/// # Safety
/// The handles are live, the texts end with zero bytes, and there are `length` bytes at `arguments`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pithead_ssdlet_new(
    ssd: *const PitheadSsd,
    application: *const PitheadApplication,
    module: u64,
    name: *const c_char,
    types: *const c_char,
    arguments: *const u8,
    length: usize,
) -> i32 {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let (ssd, application) = unsafe { (handle(ssd)?, handle(application)?) };
        // SAFETY: the caller's promise.
        let (name, types, arguments) = unsafe { (text(name)?, text(types)?, bytes(arguments, length)) };
        let (module, arguments) = (ssd.module(module)?, parse_arguments(types, arguments)?);
        let made = block_on(application.application.ssdlet(&module, name, &arguments)).map_err(|error| error.to_string())?;
        let mut ssdlets = application.ssdlets.lock();
        ssdlets.push(made);
        Ok(ssdlets.len() as i32 - 1)
    })
}

fn parse_arguments(types: &str, bytes: &[u8]) -> Result<Vec<Argument>, String> {
    let names: Vec<&str> = types.split(',').filter(|name| !name.is_empty()).collect();
    let of = |name: &&str| if *name == "file" { Ok(Type::String) } else { name.parse() };
    let types: Vec<Type> = names.iter().map(of).collect::<Result<_, _>>()?;
    let values = decode_rows(&types, bytes)?.into_iter().next().unwrap_or_default();
    let argument = |(name, value): (&str, Value)| match value {
        Value::String(file) if name == "file" => Argument::File(file),
        value => Argument::Value(value),
    };
    Ok(names.into_iter().zip(values).map(argument).collect())
}

/// Connects an output of an SSDlet to an input of another one, which may be of another application. Returns 1, -1 if it cannot be.
///
/// # Safety
/// The applications are live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pithead_connect(
    from: *const PitheadApplication,
    from_ssdlet: i32,
    output: u32,
    to: *const PitheadApplication,
    to_ssdlet: i32,
    input: u32,
) -> i32 {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let (from, to) = unsafe { (handle(from)?, handle(to)?) };
        let (output, input) = (from.ssdlet(from_ssdlet)?.output(output as usize), to.ssdlet(to_ssdlet)?.input(input as usize));
        from.application.connect(&output, &input).map(|()| 1).map_err(|error| error.to_string())
    })
}

/// Starts all SSDlets. Returns 1, -1 if they cannot be.
///
/// # Safety
/// `application` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pithead_application_start(application: *const PitheadApplication) -> i32 {
    // SAFETY: the caller's promise.
    guard(-1, || unsafe { handle(application) }?.application.start().map(|()| 1).map_err(|error| error.to_string()))
}

/// Waits until all SSDlets have ended. Returns 1, -1 if one failed.
///
/// # Safety
/// `application` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pithead_application_wait(application: *const PitheadApplication) -> i32 {
    // SAFETY: the caller's promise.
    guard(-1, || block_on(unsafe { handle(application) }?.application.wait()).map(|()| 1).map_err(|error| error.to_string()))
}

/// Ends all SSDlets.
///
/// # Safety
/// `application` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pithead_application_stop(application: *const PitheadApplication) -> i32 {
    guard(-1, || {
        // SAFETY: the caller's promise.
        unsafe { handle(application) }?.application.stop();
        Ok(1)
    })
}
