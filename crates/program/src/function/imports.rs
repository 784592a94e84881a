//! What functions may call: `pithead.fail`, and what languages' runtimes need to start. All of it gives the same every time.

use wasmtime::{Caller, Linker};

use super::run::Called;
use crate::budget::fault;
use crate::calls;
use crate::guest::GuestRange;
use crate::wasi;

/// The most bytes of what a function writes to its standard streams that are kept for its error.
const WORDS_BYTES_MAX: usize = 512;
/// The most bytes of a message.
const MESSAGE_BYTES_MAX: u32 = 4 << 10;

const SUCCESS: i32 = 0;
const BAD_FILE: i32 = 8;
const NOT_OFFERED: i32 = 52;

pub(super) fn link(linker: &mut Linker<Called>) -> wasmtime::Result<()> {
    wasi::link_refused(linker)?;
    linker.func_wrap(calls::MODULE, "fail", |mut caller: Caller<'_, Called>, pointer: u32, length: u32| {
        let bytes = length.min(MESSAGE_BYTES_MAX);
        let text = String::from_utf8_lossy(bytes_at(&mut caller, "fail", GuestRange { pointer, bytes })?);
        let text = text.replace(char::is_control, " ");
        Err::<(), _>(fault(if text.is_empty() { "it failed without a message".to_owned() } else { text }))
    })?;
    link_start(linker)?;
    link_streams(linker)?;
    link_still(linker)
}

fn link_start(linker: &mut Linker<Called>) -> wasmtime::Result<()> {
    for name in ["args_sizes_get", "environ_sizes_get"] {
        linker.func_wrap(wasi::MODULE, name, move |mut caller: Caller<'_, Called>, count: u32, size: u32| {
            write(&mut caller, name, count, &[0; 4])?;
            write(&mut caller, name, size, &[0; 4])
        })?;
    }
    for name in ["args_get", "environ_get"] {
        linker.func_wrap(wasi::MODULE, name, |_: Caller<'_, Called>, _: u32, _: u32| SUCCESS)?;
    }
    linker.func_wrap(wasi::MODULE, "proc_exit", |_: Caller<'_, Called>, code: i32| {
        Err::<(), _>(fault(format!("it left by exit({code}); a function returns")))
    })?;
    Ok(())
}

/// Numbers that look random and are the same in every call, and clocks that stand still: a result hangs on the rows alone.
fn link_still(linker: &mut Linker<Called>) -> wasmtime::Result<()> {
    linker.func_wrap(wasi::MODULE, "random_get", |mut caller: Caller<'_, Called>, pointer: u32, length: u32| {
        let into = bytes_at(&mut caller, "random_get", GuestRange { pointer, bytes: length })?;
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for byte in into {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = (state >> 32) as u8;
        }
        Ok(SUCCESS)
    })?;
    linker.func_wrap(wasi::MODULE, "clock_time_get", |mut caller: Caller<'_, Called>, _: u32, _: u64, into: u32| {
        write(&mut caller, "clock_time_get", into, &0_u64.to_le_bytes())
    })?;
    linker.func_wrap(wasi::MODULE, "clock_res_get", |mut caller: Caller<'_, Called>, _: u32, into: u32| {
        write(&mut caller, "clock_res_get", into, &1_u64.to_le_bytes())
    })?;
    linker.func_wrap(wasi::MODULE, "sched_yield", |_: Caller<'_, Called>| SUCCESS)?;
    linker.func_wrap(wasi::MODULE, "poll_oneoff", |_: Caller<'_, Called>, _: u32, _: u32, _: u32, _: u32| NOT_OFFERED)?;
    Ok(())
}

/// Standard output goes nowhere. The first words of standard error are quoted if the function gives up.
fn link_streams(linker: &mut Linker<Called>) -> wasmtime::Result<()> {
    let fd_write = |mut caller: Caller<'_, Called>, stream: u32, vectors: u32, count: u32, written: u32| {
        if stream != 1 && stream != 2 {
            return Ok(BAD_FILE);
        }
        let mut total = 0_u32;
        for vector in 0..count.min(1024) {
            let at = GuestRange { pointer: vectors.saturating_add(vector * 8), bytes: 8 };
            let place = bytes_at(&mut caller, "fd_write", at)?;
            let [pointer, length] =
                [0, 4].map(|at| u32::from_le_bytes([place[at], place[at + 1], place[at + 2], place[at + 3]]));
            let text = bytes_at(&mut caller, "fd_write", GuestRange { pointer, bytes: length })?;
            let text = text[..text.len().min(WORDS_BYTES_MAX)].to_vec();
            let words = &mut caller.data_mut().words;
            let room = WORDS_BYTES_MAX.saturating_sub(words.len());
            if stream == 2 {
                words.extend_from_slice(&text[..text.len().min(room)]);
            }
            total = total.saturating_add(length);
        }
        write(&mut caller, "fd_write", written, &total.to_le_bytes())
    };
    linker.func_wrap(wasi::MODULE, "fd_write", fd_write)?;
    linker.func_wrap(wasi::MODULE, "fd_fdstat_get", |mut caller: Caller<'_, Called>, stream: u32, into: u32| {
        let mut facts = [0; 24];
        facts[0] = 2;
        facts[8] = 1 << 6;
        match stream {
            0..=2 => write(&mut caller, "fd_fdstat_get", into, &facts),
            _ => Ok(BAD_FILE),
        }
    })?;
    linker.func_wrap(
        wasi::MODULE,
        "fd_close",
        |_: Caller<'_, Called>, stream: u32| if stream <= 2 { SUCCESS } else { BAD_FILE },
    )?;
    Ok(())
}

fn bytes_at<'a>(caller: &'a mut Caller<'_, Called>, call: &str, place: GuestRange) -> wasmtime::Result<&'a mut [u8]> {
    let memory = caller.data().memory.ok_or_else(|| fault("it called the host before its memory was there"))?;
    let memory = memory.data_mut(caller);
    let range = place.range(call, memory.len())?;
    Ok(&mut memory[range])
}

fn write(caller: &mut Caller<'_, Called>, call: &str, pointer: u32, what: &[u8]) -> wasmtime::Result<i32> {
    bytes_at(caller, call, GuestRange { pointer, bytes: what.len() as u32 })?.copy_from_slice(what);
    Ok(SUCCESS)
}
