//! One segment file that is being written, and the flushes that its writers share.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::medium::{Medium, MediumFile};

/// The longest wait for a flush that another writer has begun. Disks that spin up or collect garbage take seconds.
const FLUSH_WAIT: Duration = Duration::from_secs(120);
/// Folder of the segment files.
pub(crate) const FOLDER: &str = "segments";

/// A segment file that is being written.
///
/// Each write takes a ticket when it is done. A flush covers all tickets that were given out before it begins, so of
/// several writers at the same time the first flushes for all.
#[derive(Debug)]
pub(super) struct Segment {
    pub file: u64,
    pub handle: Arc<dyn MediumFile>,
    /// This process has made the name, which is not durable yet.
    unnamed: AtomicBool,
    flushes: Mutex<Flushes>,
    over: Condvar,
}

#[derive(Debug, Default)]
struct Flushes {
    /// The last ticket that was given out.
    written: u64,
    /// The last ticket that is durable.
    flushed: u64,
    running: bool,
    /// The error of a flush that failed: nothing after `flushed` will become durable.
    failed: Option<(io::ErrorKind, String)>,
}

impl Segment {
    pub fn new(file: u64, handle: Arc<dyn MediumFile>, is_new: bool) -> Self {
        let (unnamed, flushes, over) = (AtomicBool::new(is_new), Mutex::default(), Condvar::new());
        Self { file, handle, unnamed, flushes, over }
    }

    /// Takes a ticket for what was written.
    pub fn written(&self) -> u64 {
        let mut flushes = self.flushes.lock();
        flushes.written += 1;
        flushes.written
    }

    /// Whether a flush has failed, so that nothing more may be written.
    pub fn has_failed(&self) -> bool {
        self.flushes.lock().failed.is_some()
    }

    /// Whether everything that was written is durable.
    pub fn is_settled(&self) -> bool {
        let flushes = self.flushes.lock();
        !flushes.running && flushes.failed.is_none() && flushes.flushed == flushes.written
    }

    /// Makes everything durable that the ticket covers.
    pub fn flush(&self, ticket: u64, medium: &dyn Medium) -> io::Result<()> {
        let mut flushes = self.flushes.lock();
        loop {
            if flushes.flushed >= ticket {
                return Ok(());
            }
            if let Some((kind, what)) = &flushes.failed {
                return Err(io::Error::new(*kind, what.clone()));
            }
            if !flushes.running {
                break;
            }
            if self.over.wait_for(&mut flushes, FLUSH_WAIT).timed_out() && flushes.running {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "a flush takes too long"));
            }
        }
        flushes.running = true;
        let upto = flushes.written;
        drop(flushes);
        let mut ending = Ending { segment: self, upto: None, failed: None };
        match self.flush_now(medium) {
            Ok(()) => ending.upto = Some(upto),
            Err(error) => ending.failed = Some((error.kind(), error.to_string())),
        }
        drop(ending);
        self.flush(ticket, medium)
    }

    fn flush_now(&self, medium: &dyn Medium) -> io::Result<()> {
        self.handle.flush()?;
        if self.unnamed.load(Ordering::Acquire) {
            medium.flush_names(FOLDER)?;
            medium.flush_names("")?;
            self.unnamed.store(false, Ordering::Release);
        }
        Ok(())
    }
}

/// Ends a flush, whether it succeeded or failed.
struct Ending<'a> {
    segment: &'a Segment,
    upto: Option<u64>,
    failed: Option<(io::ErrorKind, String)>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let mut flushes = self.segment.flushes.lock();
        flushes.running = false;
        match (self.upto, self.failed.take()) {
            (Some(upto), _) => flushes.flushed = upto.max(flushes.flushed),
            (None, failed) => {
                flushes.failed = Some(failed.unwrap_or((io::ErrorKind::Other, "a flush did not end".to_string())));
            }
        }
        self.segment.over.notify_all();
    }
}
