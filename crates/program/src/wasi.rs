//! What language runtimes need of `wasi_snapshot_preview1` to start: clocks, random numbers, empty arguments and environment,
//! standard output and error as lines of the log, and an exit as a failure. There are no files and no sockets.

use std::time::{Duration, Instant};

use wasmtime::{Caller, FuncType, Linker, Val, ValType};

use crate::budget::fault;
use crate::guest::{Guest, GuestRange, Stream, bytes, parts};
use crate::limits::LOG_CALL_LINES_MAX;

pub(crate) const MODULE: &str = "wasi_snapshot_preview1";

// Error numbers of wasi_snapshot_preview1.
const SUCCESS: i32 = 0;
const BAD_FILE: i32 = 8;
const INVALID: i32 = 28;
const NOT_OFFERED: i32 = 52;

/// Calls that are there to be refused: their names, parameters (`i` for 32 bits, `I` for 64), and the error that they return.
const REFUSED: &[(&str, &str, i32)] = &[
    ("fd_advise", "iIIi", BAD_FILE),
    ("fd_allocate", "iII", BAD_FILE),
    ("fd_datasync", "i", BAD_FILE),
    ("fd_fdstat_set_flags", "ii", BAD_FILE),
    ("fd_fdstat_set_rights", "iII", BAD_FILE),
    ("fd_filestat_get", "ii", BAD_FILE),
    ("fd_filestat_set_size", "iI", BAD_FILE),
    ("fd_filestat_set_times", "iIIi", BAD_FILE),
    ("fd_pread", "iiiIi", BAD_FILE),
    ("fd_prestat_get", "ii", BAD_FILE),
    ("fd_prestat_dir_name", "iii", BAD_FILE),
    ("fd_pwrite", "iiiIi", BAD_FILE),
    ("fd_read", "iiii", BAD_FILE),
    ("fd_readdir", "iiiIi", BAD_FILE),
    ("fd_renumber", "ii", BAD_FILE),
    ("fd_seek", "iIii", BAD_FILE),
    ("fd_sync", "i", BAD_FILE),
    ("fd_tell", "ii", BAD_FILE),
    ("path_create_directory", "iii", NOT_OFFERED),
    ("path_filestat_get", "iiiii", NOT_OFFERED),
    ("path_filestat_set_times", "iiiiIIi", NOT_OFFERED),
    ("path_link", "iiiiiii", NOT_OFFERED),
    ("path_open", "iiiiiIIii", NOT_OFFERED),
    ("path_readlink", "iiiiii", NOT_OFFERED),
    ("path_remove_directory", "iii", NOT_OFFERED),
    ("path_rename", "iiiiii", NOT_OFFERED),
    ("path_symlink", "iiiii", NOT_OFFERED),
    ("path_unlink_file", "iii", NOT_OFFERED),
    ("proc_raise", "i", NOT_OFFERED),
    ("sock_accept", "iii", NOT_OFFERED),
    ("sock_recv", "iiiiii", NOT_OFFERED),
    ("sock_send", "iiiii", NOT_OFFERED),
    ("sock_shutdown", "ii", NOT_OFFERED),
];

/// Defines the calls that are refused, for whatever state a guest has.
pub(crate) fn link_refused<T: 'static>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    for (name, parameters, error) in REFUSED {
        let parameters = parameters.bytes().map(|kind| if kind == b'I' { ValType::I64 } else { ValType::I32 });
        let of = FuncType::new(linker.engine(), parameters, [ValType::I32]);
        linker.func_new(MODULE, name, of, |_, _, results| {
            results[0] = Val::I32(*error);
            Ok(())
        })?;
    }
    Ok(())
}

/// Defines all calls of the preview.
pub(crate) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    link_refused(linker)?;
    link_start(linker)?;
    link_streams(linker)?;
    link_time(linker)
}

fn link_start(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    for name in ["args_sizes_get", "environ_sizes_get"] {
        linker.func_wrap(MODULE, name, move |mut caller: Caller<'_, Guest>, count: u32, size: u32| {
            write(&mut caller, name, count, &[0; 4])?;
            write(&mut caller, name, size, &[0; 4])
        })?;
    }
    for name in ["args_get", "environ_get"] {
        linker.func_wrap(MODULE, name, |_: Caller<'_, Guest>, _: u32, _: u32| SUCCESS)?;
    }
    linker.func_wrap(MODULE, "random_get", |mut caller: Caller<'_, Guest>, pointer: u32, length: u32| {
        let (into, _) = bytes(&mut caller, "random_get", GuestRange { pointer, bytes: length })?;
        rand::RngCore::fill_bytes(&mut rand::rng(), into);
        Ok(SUCCESS)
    })?;
    linker.func_wrap(MODULE, "proc_exit", |_: Caller<'_, Guest>, code: i32| {
        Err::<(), _>(fault(format!("it left by exit({code}); an SSDlet ends when its run function returns")))
    })?;
    Ok(())
}

fn link_streams(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    let fd_write = |mut caller: Caller<'_, Guest>, stream: u32, vectors: u32, count: u32, written: u32| {
        let stream = match stream {
            1 => Stream::Output,
            2 => Stream::Error,
            _ => return Ok(BAD_FILE),
        };
        let (mut total, mut lines) = (0_u32, LOG_CALL_LINES_MAX);
        for vector in 0..count.min(1024) {
            let at = GuestRange { pointer: vectors.saturating_add(vector * 8), bytes: 8 };
            let (place, _) = bytes(&mut caller, "fd_write", at)?;
            let [pointer, length] =
                [0, 4].map(|at| u32::from_le_bytes([place[at], place[at + 1], place[at + 2], place[at + 3]]));
            let (text, guest) = bytes(&mut caller, "fd_write", GuestRange { pointer, bytes: length })?;
            let taken = guest.print(stream, text, &mut lines)?;
            total = total.saturating_add(taken as u32);
            if taken < text.len() {
                break;
            }
        }
        write(&mut caller, "fd_write", written, &total.to_le_bytes())
    };
    linker.func_wrap(MODULE, "fd_write", fd_write)?;
    linker.func_wrap(MODULE, "fd_fdstat_get", |mut caller: Caller<'_, Guest>, stream: u32, into: u32| {
        // A character device that can be written to, which makes C libraries write line by line.
        let mut facts = [0; 24];
        facts[0] = 2;
        facts[8] = 1 << 6;
        match stream {
            0..=2 => write(&mut caller, "fd_fdstat_get", into, &facts),
            _ => Ok(BAD_FILE),
        }
    })?;
    linker.func_wrap(MODULE, "fd_close", |_: Caller<'_, Guest>, stream: u32| if stream <= 2 { SUCCESS } else { BAD_FILE })?;
    Ok(())
}

fn link_time(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    let origin = Instant::now();
    linker.func_wrap(MODULE, "clock_time_get", move |mut caller: Caller<'_, Guest>, clock: u32, _: u64, into: u32| {
        let now = match clock {
            0 => caller.data().services.now_ns(),
            1 => origin.elapsed().as_nanos() as u64,
            _ => return Ok(INVALID),
        };
        write(&mut caller, "clock_time_get", into, &now.to_le_bytes())
    })?;
    linker.func_wrap(MODULE, "clock_res_get", |mut caller: Caller<'_, Guest>, clock: u32, into: u32| match clock {
        0 | 1 => write(&mut caller, "clock_res_get", into, &1_u64.to_le_bytes()),
        _ => Ok(INVALID),
    })?;
    linker.func_wrap_async(MODULE, "sched_yield", |_: Caller<'_, Guest>, (): ()| {
        Box::new(async {
            tokio::task::yield_now().await;
            SUCCESS
        })
    })?;
    linker.func_wrap_async(MODULE, "poll_oneoff", move |caller: Caller<'_, Guest>, asked: (u32, u32, u32, u32)| {
        Box::new(sleep(caller, origin, asked))
    })?;
    Ok(())
}

/// A guest sleeps in parts of this length, each of which counts as run time when it is over.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// Sleeps until the first of the clocks that a guest subscribes to. There is nothing else to wait for.
async fn sleep(
    mut caller: Caller<'_, Guest>,
    origin: Instant,
    (asked, happened, count, number): (u32, u32, u32, u32),
) -> wasmtime::Result<i32> {
    if count != 1 {
        return Ok(if count == 0 { INVALID } else { NOT_OFFERED });
    }
    let (asked, _) = bytes(&mut caller, "poll_oneoff", GuestRange { pointer: asked, bytes: 48 })?;
    let mut asked = <[u8; 48]>::try_from(&*asked)?;
    let number_at = |at: usize, bytes: &[u8; 48]| u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
    if asked[8] != 0 {
        return Ok(NOT_OFFERED);
    }
    let (clock, until, absolute) = (number_at(16, &asked) as u32, number_at(24, &asked), asked[40] & 1 == 1);
    let now = if clock == 0 { caller.data().services.now_ns() } else { origin.elapsed().as_nanos() as u64 };
    let wait = if absolute { until.saturating_sub(now) } else { until };
    let meter = std::sync::Arc::clone(&caller.data().meter);
    let mut left = Duration::from_nanos(wait);
    loop {
        // A little more than what is left, so that sleeping ends as running does: by the limit, and not by waking again and again.
        let part = left.min(SLEEP_MAX).min(meter.left() + Duration::from_millis(1));
        tokio::time::sleep(part).await;
        meter.slept(part)?;
        left -= part;
        if left.is_zero() {
            break;
        }
    }
    // The event: what the guest called its subscription, no error, and that it was a clock.
    asked[8..32].fill(0);
    write(&mut caller, "poll_oneoff", happened, &asked[..32])?;
    write(&mut caller, "poll_oneoff", number, &1_u32.to_le_bytes())
}

fn write(caller: &mut Caller<'_, Guest>, call: &str, pointer: u32, what: &[u8]) -> wasmtime::Result<i32> {
    let (memory, _) = parts(caller)?;
    let range = GuestRange { pointer, bytes: what.len() as u32 }.range(call, memory.len())?;
    memory[range].copy_from_slice(what);
    Ok(SUCCESS)
}
