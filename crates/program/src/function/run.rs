//! One call of a function, from an empty memory to its result.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use arrow::array::ArrayRef;
use wasmtime::{Instance, Memory, ResourceLimiter, Store, Trap, UpdateDeadline};

use super::frame::Frame;
use super::module::FunctionModule;
use super::{INSTANCE_MEMORY_BYTES_MAX, WALL_MAX};
use crate::budget::{Fault, fault, size, thread_time};
use crate::limits::{STACK_BYTES, TABLE_ELEMENTS_MAX};

/// Where the memory of functions is counted, such as a session's grant.
pub trait GuestMemory: Send {
    /// Takes so many bytes more. The error is a sentence that says why there are none.
    fn grow(&mut self, bytes: usize) -> Result<(), String>;
}

/// The state of one instance.
pub(super) struct Called {
    /// Set once the instance is there.
    pub memory: Option<Memory>,
    /// What it wrote to its standard error.
    pub words: Vec<u8>,
    memory_bytes: Box<dyn GuestMemory>,
    began: Began,
    time_max: Duration,
}

/// When a call began: a call has its thread until it ends, so that the thread's time is the call's.
struct Began {
    processor: Duration,
    wall: Instant,
}

impl Began {
    fn now() -> Began {
        Began { processor: thread_time(), wall: Instant::now() }
    }

    /// Fails once the call has taken too long.
    fn check(&self, time_max: Duration) -> Result<(), Fault> {
        if thread_time().saturating_sub(self.processor) > time_max {
            return Err(Fault(format!("it ran for longer than the {time_max:?} that it may take for these rows")));
        }
        match self.wall.elapsed() > WALL_MAX {
            true => Err(Fault(format!("it had not ended after {WALL_MAX:?}: the machine has too little time for it"))),
            false => Ok(()),
        }
    }
}

impl ResourceLimiter for Called {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|most| desired > most) {
            return Ok(false);
        }
        if desired > INSTANCE_MEMORY_BYTES_MAX {
            let most = size(INSTANCE_MEMORY_BYTES_MAX as u64);
            return Err(fault(format!("it asked for more memory than the {most} that a function may have")));
        }
        let more = desired.saturating_sub(current);
        self.memory_bytes
            .grow(more)
            .map(|()| true)
            .map_err(|why| fault(format!("it asked for more memory than there is: {why}")))
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

/// An instance, and what was started in it.
pub(super) struct Running {
    store: Store<Called>,
    instance: Instance,
    memory: Memory,
}

/// Calls a function in a new instance. The error is a sentence without the function's name.
pub(super) fn run<T>(
    module: &FunctionModule,
    memory_bytes: Box<dyn GuestMemory>,
    time_max: Duration,
    call: impl FnOnce(&mut Running) -> wasmtime::Result<T>,
) -> Result<T, String> {
    let _ticking = module.engine.ticking();
    let called = Called { memory: None, words: Vec::new(), memory_bytes, began: Began::now(), time_max };
    let mut store = new_store(module, called);
    let started = now(module.instance.instantiate_async(&mut store));
    let instance = started.map_err(|error| cause(&error, &[]))?;
    let memory = instance.get_memory(&mut store, "memory").ok_or("it has no memory")?;
    store.data_mut().memory = Some(memory);
    let mut running = Running { store, instance, memory };
    let done = running.start().and_then(|()| call(&mut running));
    done.map_err(|error| cause(&error, &running.store.data().words))
}

fn new_store(module: &FunctionModule, called: Called) -> Store<Called> {
    let mut store = Store::new(module.instance.module().engine(), called);
    store.limiter(|called| called);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|context| {
        let called = context.data();
        called.began.check(called.time_max)?;
        Ok(UpdateDeadline::Continue(1))
    });
    store
}

impl Running {
    fn start(&mut self) -> wasmtime::Result<()> {
        match self.instance.get_func(&mut self.store, "_initialize") {
            Some(_) => self.call::<(), ()>("_initialize", ()),
            None => Ok(()),
        }
    }

    /// Writes a frame into the guest's memory, calls an export on it, and reads its result.
    pub fn call_on(&mut self, export: &str, frame: &Frame<'_>) -> wasmtime::Result<ArrayRef> {
        let bytes = frame.bytes();
        let at = self.call::<u32, u32>("pithead_allocate", u32::try_from(bytes)?)?;
        let place = frame.write(self.region("pithead_allocate", at, bytes)?, at);
        match self.call::<u32, i32>(export, at)? {
            0 => place.read(self.memory()).map_err(fault),
            code => Err(fault(format!("it returned the code {code}"))),
        }
    }

    /// The bytes that the guest's `export` has given for so many.
    pub fn region(&mut self, export: &str, at: u32, bytes: usize) -> wasmtime::Result<&mut [u8]> {
        let memory = self.memory.data_mut(&mut self.store);
        let (start, end, room) = (at as usize, at as usize + bytes, memory.len());
        if at == 0 || !at.is_multiple_of(8) || end > room {
            return Err(fault(format!(
                "its {export} returned {at:#x} for {bytes} bytes; expected a multiple of 8 within its memory of {room}"
            )));
        }
        Ok(&mut memory[start..end])
    }

    /// The guest's memory, all of which it may have written.
    pub fn memory(&self) -> &[u8] {
        self.memory.data(&self.store)
    }

    /// Calls an export.
    pub fn call<P, R>(&mut self, name: &str, parameters: P) -> wasmtime::Result<R>
    where
        P: wasmtime::WasmParams + Sync + 'static,
        R: wasmtime::WasmResults + Sync + 'static,
    {
        let function = self.instance.get_typed_func::<P, R>(&mut self.store, name)?;
        now(function.call_async(&mut self.store, parameters))
    }
}

/// The result of a future that never waits: functions have no call that does, and give way to nobody. They run on a stack of their
/// own, whose end is guarded, which is why they are futures at all.
fn now<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

/// What ended a call, as a sentence.
fn cause(error: &wasmtime::Error, words: &[u8]) -> String {
    if let Some(fault) = error.downcast_ref::<Fault>() {
        return fault.to_string();
    }
    if error.is::<wasmtime::PoolConcurrencyLimitError>() {
        return format!("as many functions run as there is room for ({error}). hint: try again later");
    }
    let what = match error.downcast_ref::<Trap>() {
        Some(Trap::StackOverflow) => format!("it recursed until its stack of {} was used up", size(STACK_BYTES as u64)),
        Some(Trap::MemoryOutOfBounds) => "it accessed memory beyond its own".to_owned(),
        Some(Trap::UnreachableCodeReached) => "it gave up (it reached an `unreachable` instruction)".to_owned(),
        Some(trap) => format!("it trapped: {trap}"),
        None => format!("{error:#}"),
    };
    let words = String::from_utf8_lossy(words.trim_ascii()).replace(char::is_control, " ");
    if words.is_empty() { what } else { format!("{what}; it wrote: {words}") }
}
