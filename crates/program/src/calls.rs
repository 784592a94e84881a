//! The host calls of the import module `pithead`. All pointers, lengths and handles come from guests and are hostile.

mod data;
mod files;
mod ports;

use wasmtime::{Caller, Linker};

use crate::Level;
use crate::budget::fault;
use crate::guest::{Guest, GuestRange, bytes};

pub(crate) const MODULE: &str = "pithead";

/// Defines all host calls.
pub(crate) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    ports::link(linker)?;
    files::link(linker)?;
    data::link(linker)?;
    linker.func_wrap(MODULE, "declare", |mut caller: Caller<'_, Guest>, pointer: u32, length: u32| {
        let (text, guest) = bytes(&mut caller, "declare", GuestRange { pointer, bytes: length })?;
        let text = text.to_vec();
        guest.declare(&text)
    })?;
    linker.func_wrap(MODULE, "arguments", |mut caller: Caller<'_, Guest>, pointer: u32, length: u32| {
        let (into, guest) = bytes(&mut caller, "arguments", GuestRange { pointer, bytes: length })?;
        Ok(answer(&guest.arguments, into) as u32)
    })?;
    linker.func_wrap(MODULE, "log", |mut caller: Caller<'_, Guest>, level: u32, pointer: u32, length: u32| {
        let (text, guest) = bytes(&mut caller, "log", GuestRange { pointer, bytes: length })?;
        Ok(guest.log(level_of(level)?, text)?)
    })?;
    linker.func_wrap(MODULE, "fail", |mut caller: Caller<'_, Guest>, pointer: u32, length: u32| {
        let (text, _) = bytes(&mut caller, "fail", GuestRange { pointer, bytes: length.min(4096) })?;
        let text = String::from_utf8_lossy(text).replace(char::is_control, " ");
        Err::<(), _>(fault(if text.is_empty() { "it failed without a message".to_owned() } else { text }))
    })?;
    linker.func_wrap(MODULE, "time_ns", |caller: Caller<'_, Guest>| caller.data().services.now_ns())?;
    linker.func_wrap(MODULE, "random", |mut caller: Caller<'_, Guest>, pointer: u32, length: u32| {
        let (into, _) = bytes(&mut caller, "random", GuestRange { pointer, bytes: length })?;
        rand::RngCore::fill_bytes(&mut rand::rng(), into);
        Ok(())
    })?;
    linker.func_wrap_async(MODULE, "yield", |_caller: Caller<'_, Guest>, (): ()| {
        Box::new(async {
            tokio::task::yield_now().await;
            Ok(())
        })
    })?;
    Ok(())
}

/// Writes an answer if there is room for all of it, and returns its length in any case.
fn answer(bytes: &[u8], into: &mut [u8]) -> usize {
    if let Some(into) = into.get_mut(..bytes.len()) {
        into.copy_from_slice(bytes);
    }
    bytes.len()
}

fn level_of(level: u32) -> wasmtime::Result<Level> {
    match level {
        0 => Ok(Level::Debug),
        1 => Ok(Level::Info),
        2 => Ok(Level::Warning),
        3 => Ok(Level::Error),
        _ => Err(fault(format!("it passed log the level {level}; levels are 0 to 3"))),
    }
}

/// Names and keys that guests pass are copied out, since the guest's memory is lent while it waits.
fn copied(caller: &mut Caller<'_, Guest>, call: &str, place: GuestRange, most: usize) -> wasmtime::Result<Vec<u8>> {
    let (name, _) = bytes(caller, call, place)?;
    match name.len() > most {
        true => Err(fault(format!("it passed {call} a name or key of {} bytes; the most is {most}", name.len()))),
        false => Ok(name.to_vec()),
    }
}

fn text(bytes: Vec<u8>, call: &str) -> wasmtime::Result<String> {
    String::from_utf8(bytes).map_err(|_| fault(format!("it passed {call} a name that is not UTF-8")))
}
