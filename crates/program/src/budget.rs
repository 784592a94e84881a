//! [`Budget`]: what an application has taken of its limits, and [`Meter`], one SSDlet's share of the time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use wasmtime::ResourceLimiter;

use crate::Limits;
use crate::limits::TABLE_ELEMENTS_MAX;

/// What a guest did to be ended: a sentence about it, without its name.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Fault(pub String);

/// A fault as the error that unwinds a guest.
pub(crate) fn fault(text: impl Into<String>) -> wasmtime::Error {
    wasmtime::Error::new(Fault(text.into()))
}

#[derive(Debug)]
pub(crate) struct Budget {
    limits: Limits,
    memory_bytes: AtomicU64,
    run_ns: AtomicU64,
    log_bytes: AtomicU64,
}

impl Budget {
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, memory_bytes: AtomicU64::new(0), run_ns: AtomicU64::new(0), log_bytes: AtomicU64::new(0) })
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The processor time that guests took, in nanoseconds.
    pub fn run_ns(&self) -> u64 {
        self.run_ns.load(Ordering::Relaxed)
    }

    /// Counts the bytes of a line of the log.
    pub fn log(&self, bytes: usize) -> Result<(), Fault> {
        let logged = self.log_bytes.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        match logged > self.limits.log_bytes_max {
            true => {
                Err(Fault(format!("it flooded the log: its application may write {} to it", size(self.limits.log_bytes_max))))
            }
            false => Ok(()),
        }
    }
}

/// Bytes as a person reads them.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

/// Measures the time in which one guest runs.
#[derive(Debug)]
pub(crate) struct Meter {
    budget: Arc<Budget>,
    origin: Instant,
    /// Nanoseconds since `origin`; only read while the guest runs.
    began_ns: AtomicU64,
}

impl Meter {
    pub fn new(budget: Arc<Budget>) -> Arc<Self> {
        Arc::new(Self { budget, origin: Instant::now(), began_ns: AtomicU64::new(0) })
    }

    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Fails once the application has run for as long as it may.
    pub fn check(&self) -> Result<(), Fault> {
        let run_ns = self.budget.run_ns() + self.now_ns().saturating_sub(self.began_ns.load(Ordering::Relaxed));
        let most = self.budget.limits.run_time_max;
        match u128::from(run_ns) > most.as_nanos() {
            true => {
                Err(Fault(format!("its application has run for longer than the {most:?} of processor time that it may take")))
            }
            false => Ok(()),
        }
    }

    fn now_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    fn begin(&self) {
        self.began_ns.store(self.now_ns(), Ordering::Relaxed);
    }

    fn end(&self) {
        let ran_ns = self.now_ns() - self.began_ns.load(Ordering::Relaxed);
        self.budget.run_ns.fetch_add(ran_ns, Ordering::Relaxed);
    }
}

/// A future whose polls a meter measures.
pub(crate) struct Metered<F> {
    pub meter: Arc<Meter>,
    pub future: Pin<Box<F>>,
}

impl<F: Future> Future for Metered<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.meter.begin();
        let polled = self.future.as_mut().poll(context);
        self.meter.end();
        polled
    }
}

/// Grants memory to one guest out of its application's budget.
#[derive(Debug)]
pub(crate) struct Grants {
    budget: Arc<Budget>,
    granted: u64,
}

impl Grants {
    pub fn new(budget: Arc<Budget>) -> Self {
        Self { budget, granted: 0 }
    }
}

impl Drop for Grants {
    fn drop(&mut self) {
        self.budget.memory_bytes.fetch_sub(self.granted, Ordering::Relaxed);
    }
}

impl ResourceLimiter for Grants {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|most| desired > most) {
            return Ok(false);
        }
        let more = (desired - current) as u64;
        let most = self.budget.limits.memory_bytes_max;
        if self.budget.memory_bytes.fetch_add(more, Ordering::Relaxed) + more > most {
            self.budget.memory_bytes.fetch_sub(more, Ordering::Relaxed);
            return Err(fault(format!("it asked for more memory than the {} that its application may hold", size(most))));
        }
        self.granted += more;
        Ok(true)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        Err(fault(format!("its memory could not grow: {error}")))
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        match desired > TABLE_ELEMENTS_MAX {
            true => {
                Err(fault(format!("it asked for a table of {desired} functions; a table has at most {TABLE_ELEMENTS_MAX}")))
            }
            false => Ok(true),
        }
    }
}
