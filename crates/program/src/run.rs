//! One run of a guest, from an empty memory to its end.

use std::sync::Arc;

use wasmtime::{Engine, Instance, Store, Trap, UpdateDeadline};

use crate::budget::{Fault, Metered, fault, size};
use crate::guest::Guest;
use crate::limits::STACK_BYTES;
use crate::module::Code;
use crate::{Declared, ProgramError};

/// An instance with the state of its guest.
struct Running {
    store: Store<Guest>,
    instance: Instance,
}

/// Runs an SSDlet to its end; its outputs are finished if it ended well. `failed` hears of a failure while the outputs are still
/// open, so that nobody takes it for their end.
pub(crate) async fn run(code: Arc<Code>, guest: Guest, number: usize, failed: impl FnOnce(ProgramError)) {
    let work = async |running: &mut Running| {
        let code = running.call::<u32, i32>("pithead_run", number as u32).await?;
        if code != 0 {
            return Err(fault(format!("it ended with the code {code}")));
        }
        let outputs = std::mem::take(&mut running.store.data_mut().ports.outputs);
        outputs.into_iter().flatten().for_each(crate::channel::Writer::finish);
        Ok(())
    };
    metered(code, guest, work, failed).await;
}

/// Asks a module for its declarations.
pub(crate) async fn describe(code: Arc<Code>, mut guest: Guest) -> Result<Vec<Declared>, ProgramError> {
    guest.declared = Some(Vec::new());
    let work = async |running: &mut Running| {
        running.call::<(), ()>("pithead_describe", ()).await?;
        match running.store.data_mut().declared.take() {
            Some(declared) if !declared.is_empty() => Ok(declared),
            _ => Err(fault(
                "it declares no SSDlet. hint: in C++ a line RegisterSSDlet(id, Class) declares one, in Rust register!, in Go \
                 ssdlet.New",
            )),
        }
    };
    let mut failure = None;
    let declared = metered(code, guest, work, |error| failure = Some(error)).await;
    declared.ok_or_else(|| failure.unwrap_or_else(|| ProgramError::engine("a failure was lost")))
}

/// Runs a guest under its meter. An error is given its name while the guest is still there.
async fn metered<T>(
    code: Arc<Code>,
    guest: Guest,
    work: impl AsyncFnOnce(&mut Running) -> wasmtime::Result<T>,
    failed: impl FnOnce(ProgramError),
) -> Option<T> {
    let meter = Arc::clone(&guest.meter);
    let future = Box::pin(async move {
        let mut store = new_store(code.instance.module().engine(), guest);
        let instance = match code.instance.instantiate_async(&mut store).await {
            Ok(instance) => instance,
            Err(error) => {
                failed(named(store.data_mut(), &error));
                return None;
            }
        };
        store.data_mut().memory = instance.get_memory(&mut store, "memory");
        let mut running = Running { store, instance };
        let outcome = running.start_and(work).await;
        running.store.data_mut().end_lines();
        outcome.map_err(|error| failed(named(running.store.data_mut(), &error))).ok()
    });
    Metered { meter, future }.await
}

/// The error of a guest, with its name and its last words.
fn named(guest: &mut Guest, error: &wasmtime::Error) -> ProgramError {
    if error.is::<wasmtime::PoolConcurrencyLimitError>() {
        return ProgramError::Busy(format!(
            "the drive runs as many SSDlets as it has room for ({error}). hint: try again later"
        ));
    }
    guest.end_lines();
    let (module, ssdlet) = (guest.names.module.to_string(), guest.names.ssdlet.to_string());
    let last_words = guest.last_words.take();
    // Whatever it makes of a stream that was cut off, that is why it gives up.
    let cut = guest.ports.cut.take();
    ProgramError::Guest { module, ssdlet, cause: cut.map_or_else(|| cause(error, &last_words), |why| why.to_string()) }
}

fn new_store(engine: &Engine, guest: Guest) -> Store<Guest> {
    let mut store = Store::new(engine, guest);
    store.limiter(|guest| &mut guest.grants);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|context| {
        context.data().meter.check()?;
        Ok(UpdateDeadline::Yield(1))
    });
    store
}

impl Running {
    async fn start_and<T>(&mut self, work: impl AsyncFnOnce(&mut Self) -> wasmtime::Result<T>) -> wasmtime::Result<T> {
        if self.instance.get_func(&mut self.store, "_initialize").is_some() {
            self.call::<(), ()>("_initialize", ()).await?;
        }
        work(self).await
    }

    async fn call<P, R>(&mut self, name: &str, parameters: P) -> wasmtime::Result<R>
    where
        P: wasmtime::WasmParams + Sync + 'static,
        R: wasmtime::WasmResults + Sync + 'static,
    {
        let function = self.instance.get_typed_func::<P, R>(&mut self.store, name)?;
        function.call_async(&mut self.store, parameters).await
    }
}

/// What ended a guest, as a sentence.
fn cause(error: &wasmtime::Error, last_words: &[String]) -> String {
    if let Some(fault) = error.downcast_ref::<Fault>() {
        return fault.to_string();
    }
    let what = match error.downcast_ref::<Trap>() {
        Some(Trap::StackOverflow) => format!("it recursed until its stack of {} was used up", size(STACK_BYTES as u64)),
        Some(Trap::MemoryOutOfBounds) => "it accessed memory beyond its own".to_owned(),
        Some(Trap::UnreachableCodeReached) => "it gave up (it reached an `unreachable` instruction)".to_owned(),
        Some(trap) => format!("it trapped: {trap}"),
        None => format!("{error:#}"),
    };
    match last_words.is_empty() {
        true => what,
        false => format!("{what}; it wrote: {}", last_words.join(" / ")),
    }
}
