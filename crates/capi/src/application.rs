//! [`PitheadApplication`]: a graph of SSDlets that a host program builds.

use std::ffi::c_char;
use std::sync::Arc;

use futures::executor::block_on;
use parking_lot::Mutex;
use pithead_door::Door;
use pithead_program::{Application, Argument, Limits, Ssdlet, Type, Value, decode_rows};
use pithead_span as span;

use crate::PitheadSsd;
use crate::drives::runtime;
use crate::error::{bytes, free, guard, handle, text};
use crate::ssd::{DriveAccess, Loaded};

/// An application and its SSDlets, which are known by their numbers.
pub struct PitheadApplication {
    pub(crate) kind: Deployment,
}

/// Where an application runs.
pub(crate) enum Deployment {
    /// In this process.
    Here { application: Application, ssdlets: Mutex<Vec<Ssdlet>> },
    /// On drives on the network.
    There { application: span::Application, doors: Vec<Arc<dyn Door>>, ssdlets: Mutex<Vec<span::Ssdlet>> },
}

/// The SSDlet of a number.
pub(crate) fn numbered<T: Clone>(ssdlets: &Mutex<Vec<T>>, number: i32) -> Result<T, String> {
    let known = usize::try_from(number).ok().and_then(|number| ssdlets.lock().get(number).cloned());
    known.ok_or_else(|| format!("the application has no SSDlet with the number {number}"))
}

fn push<T>(ssdlets: &Mutex<Vec<T>>, ssdlet: T) -> i32 {
    let mut ssdlets = ssdlets.lock();
    ssdlets.push(ssdlet);
    ssdlets.len() as i32 - 1
}

impl PitheadApplication {
    fn new(ssds: &[&PitheadSsd], name: &str) -> Result<Self, String> {
        if let [PitheadSsd { place: DriveAccess::Here(here), .. }] = ssds {
            let application = here.runtime.application(name, Arc::clone(&here.services), Limits::default());
            return Ok(Self { kind: Deployment::Here { application, ssdlets: Mutex::default() } });
        }
        let doors = ssds.iter().map(|ssd| match &ssd.place {
            DriveAccess::There(door) => Ok(Arc::clone(door)),
            DriveAccess::Here(_) => {
                Err("an application over several drives needs drives on the network: pithead://HOST:PORT, not folders"
                    .to_owned())
            }
        });
        let doors: Vec<Arc<dyn Door>> = doors.collect::<Result<_, _>>()?;
        let application = span::Application::new(name, doors.clone(), span::Bounds::default());
        let application = application.map_err(|fault| fault.to_string())?;
        Ok(Self { kind: Deployment::There { application, doors, ssdlets: Mutex::default() } })
    }

    fn ssdlet(&self, ssd: &PitheadSsd, module: u64, name: &str, types: &str, arguments: &[u8]) -> Result<i32, String> {
        let types: Vec<String> = types.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let arguments = parse_arguments(&types, arguments)?;
        match (&self.kind, &ssd.place, ssd.module(module)?) {
            (Deployment::Here { application, ssdlets }, DriveAccess::Here(_), Loaded::Here(module)) => {
                let made = block_on(application.ssdlet(&module, name, &arguments)).map_err(|error| error.to_string())?;
                Ok(push(ssdlets, made))
            }
            (Deployment::There { application, doors, ssdlets }, DriveAccess::There(door), Loaded::There(module)) => {
                let drive = doors.iter().position(|known| Arc::ptr_eq(known, door));
                let drive = drive.ok_or_else(|| format!("{} is none of the application's drives", door.label()))?;
                let texts = arguments.into_iter().map(as_text).collect::<Result<_, _>>()?;
                let made = application.typed_ssdlet(drive, &module, Some(name), texts, Some(&types));
                Ok(push(ssdlets, runtime()?.block_on(made).map_err(|fault| fault.to_string())?))
            }
            _ => Err("the SSDlet's drive is none of the application's".to_owned()),
        }
    }
}

/// Makes an application without SSDlets.
///
/// # Safety
/// `ssd` is open, and `name` is a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pithead_application_new(ssd: *const PitheadSsd, name: *const c_char) -> *mut PitheadApplication {
    // SAFETY: the caller's promise.
    unsafe { pithead_application_over(&raw const ssd, 1, name) }
}

/// Makes an application without SSDlets over several drives on the network.
///
/// # Safety
/// There are `count` drives at `ssds`, which are open, and `name` is a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pithead_application_over(
    ssds: *const *const PitheadSsd,
    count: usize,
    name: *const c_char,
) -> *mut PitheadApplication {
    guard(std::ptr::null_mut(), || {
        if ssds.is_null() {
            return Err("drives were expected, not a null pointer".to_owned());
        }
        // SAFETY: the caller's promise.
        let (ssds, name) = unsafe { (std::slice::from_raw_parts(ssds, count), text(name)?) };
        // SAFETY: the caller's promise.
        let ssds: Vec<&PitheadSsd> = ssds.iter().map(|ssd| unsafe { handle(*ssd) }).collect::<Result<_, _>>()?;
        Ok(Box::into_raw(Box::new(PitheadApplication::new(&ssds, name)?)))
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
        application.ssdlet(ssd, module, name, types, arguments)
    })
}

fn parse_arguments(names: &[String], bytes: &[u8]) -> Result<Vec<Argument>, String> {
    let of = |name: &String| if name == "file" { Ok(Type::String) } else { name.parse() };
    let types: Vec<Type> = names.iter().map(of).collect::<Result<_, _>>()?;
    let values = decode_rows(&types, bytes)?.into_iter().next().unwrap_or_default();
    let argument = |(name, value): (&String, Value)| match value {
        Value::String(file) if name == "file" => Argument::File(file),
        value => Argument::Value(value),
    };
    Ok(names.iter().zip(values).map(argument).collect())
}

/// An argument as a drive on the network reads it.
fn as_text(argument: Argument) -> Result<String, String> {
    match argument {
        Argument::File(name) => Ok(name),
        Argument::Value(Value::Bytes(bytes)) => {
            String::from_utf8(bytes).map_err(|_| "an argument of bytes is UTF-8 where it goes over the network".to_owned())
        }
        Argument::Value(value) => Ok(value.to_string()),
    }
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
        let (output, input) = (output as usize, input as usize);
        match (&from.kind, &to.kind) {
            (Deployment::Here { application, ssdlets }, Deployment::Here { ssdlets: others, .. }) => {
                let (one, other) = (numbered(ssdlets, from_ssdlet)?, numbered(others, to_ssdlet)?);
                application.connect(&one.output(output), &other.input(input)).map_err(|error| error.to_string())?;
            }
            (Deployment::There { application, ssdlets, .. }, Deployment::There { ssdlets: others, .. }) => {
                let (one, other) = (numbered(ssdlets, from_ssdlet)?, numbered(others, to_ssdlet)?);
                let _inside = runtime()?.enter();
                application.connect(&one.output(output), &other.input(input)).map_err(|fault| fault.to_string())?;
            }
            _ => return Err("an application in this process and one on drives on the network cannot be connected".to_owned()),
        }
        Ok(1)
    })
}

/// Starts all SSDlets. Returns 1, -1 if they cannot be.
///
/// # Safety
/// `application` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pithead_application_start(application: *const PitheadApplication) -> i32 {
    // SAFETY: the caller's promise.
    guard(-1, || match &unsafe { handle(application) }?.kind {
        Deployment::Here { application, .. } => application.start().map(|()| 1).map_err(|error| error.to_string()),
        Deployment::There { application, .. } => {
            runtime()?.block_on(application.start()).map(|()| 1).map_err(|fault| fault.to_string())
        }
    })
}

/// Waits until all SSDlets have ended. Returns 1, -1 if one failed.
///
/// # Safety
/// `application` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pithead_application_wait(application: *const PitheadApplication) -> i32 {
    // SAFETY: the caller's promise.
    guard(-1, || match &unsafe { handle(application) }?.kind {
        Deployment::Here { application, .. } => block_on(application.wait()).map(|()| 1).map_err(|error| error.to_string()),
        Deployment::There { application, .. } => block_on(application.wait()).map(|_| 1).map_err(|fault| fault.to_string()),
    })
}

/// Ends all SSDlets.
///
/// # Safety
/// `application` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pithead_application_stop(application: *const PitheadApplication) -> i32 {
    guard(-1, || {
        // SAFETY: the caller's promise.
        match &unsafe { handle(application) }?.kind {
            Deployment::Here { application, .. } => application.stop(),
            Deployment::There { application, .. } => application.stop(),
        }
        Ok(1)
    })
}
