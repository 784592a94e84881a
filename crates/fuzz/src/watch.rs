//! Watches the case that runs: one that hangs, or ends the process, leaves its bytes behind.

use std::ffi::CString;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Processor time after which a case hangs: other work on the machine does not count.
const CPU_MAX: Duration = Duration::from_secs(20);
/// The same for one that waits for what does not come.
const WALL_MAX: Duration = Duration::from_secs(180);
const STEP: Duration = Duration::from_millis(250);

static INPUT: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static INPUT_BYTES: AtomicUsize = AtomicUsize::new(0);
static FILE: AtomicPtr<libc::c_char> = AtomicPtr::new(std::ptr::null_mut());
/// Cases begun and ended: odd while one runs.
static CASES: AtomicU64 = AtomicU64::new(0);

/// The watch of this process. A case under it that aborts (out of memory, out of stack, a panic while panicking) or hangs ends
/// the process, after its bytes were written to a file.
pub struct Watch(());

impl Watch {
    /// Starts watching. The case that ends the process is written to `file`.
    pub fn start(file: &Path) -> io::Result<Watch> {
        let path = CString::new(file.as_os_str().as_encoded_bytes()).map_err(io::Error::other)?;
        // It is needed for as long as the process lives.
        FILE.store(path.into_raw(), Ordering::Release);
        // SAFETY: an action without flags but for the stack to run on, and a handler that only makes calls that are allowed
        // in one.
        let done = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_abort as *const () as usize;
            action.sa_flags = libc::SA_ONSTACK;
            libc::sigaction(libc::SIGABRT, &action, std::ptr::null_mut())
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        std::thread::Builder::new().name("watch".to_owned()).spawn(watch)?;
        Ok(Watch(()))
    }

    /// Runs a case under the watch.
    pub fn over<T>(&self, input: &[u8], case: impl FnOnce() -> T) -> T {
        INPUT_BYTES.store(input.len(), Ordering::Relaxed);
        INPUT.store(input.as_ptr().cast_mut(), Ordering::Release);
        CASES.fetch_add(1, Ordering::AcqRel);
        let done = case();
        CASES.fetch_add(1, Ordering::AcqRel);
        INPUT.store(std::ptr::null_mut(), Ordering::Release);
        done
    }
}

fn watch() {
    let (mut seen, mut since) = (0, (Duration::ZERO, Duration::ZERO));
    loop {
        std::thread::sleep(STEP);
        let now = (clock(libc::CLOCK_PROCESS_CPUTIME_ID), clock(libc::CLOCK_MONOTONIC));
        let case = CASES.load(Ordering::Acquire);
        if case != seen || case.is_multiple_of(2) {
            (seen, since) = (case, now);
        } else if now.0 - since.0 > CPU_MAX || now.1 - since.1 > WALL_MAX {
            say(b"a case hangs\n");
            std::process::abort();
        }
    }
}

fn clock(which: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is there to be written to. The clocks exist on Linux.
    unsafe { libc::clock_gettime(which, &mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

fn say(text: &[u8]) {
    // SAFETY: `text` is as long as it says.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}

/// Runs in a signal's handler: nothing here allocates or locks.
extern "C" fn on_abort(_signal: libc::c_int) {
    let (input, bytes, file) =
        (INPUT.load(Ordering::Acquire), INPUT_BYTES.load(Ordering::Relaxed), FILE.load(Ordering::Acquire));
    if input.is_null() || file.is_null() {
        return;
    }
    // SAFETY: the file's name is never freed, and the input outlives the case that runs.
    unsafe {
        let out = libc::open(file, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC, 0o644);
        let mut written = 0;
        while out >= 0 && written < bytes {
            let step = libc::write(out, input.add(written).cast(), bytes - written);
            if step <= 0 {
                break;
            }
            written += step.unsigned_abs();
        }
        libc::close(out);
        say(b"the case that ended the process is in ");
        libc::write(2, file.cast(), libc::strlen(file));
        say(b"\n");
    }
}
