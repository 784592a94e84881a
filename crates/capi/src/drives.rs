//! Drives on the network, and the threads that pass batches between them.

use std::sync::{Arc, OnceLock};

use pithead_door::Door;
use pithead_entry::LinkFlags;
use pithead_wire::FlightDoor;
use tokio::runtime::{Builder, Runtime};

/// How places of drives on the network begin; anything else is a folder.
const SCHEMES: [&str; 2] = ["pithead://", "pithead+tls://"];

static RUNTIME: OnceLock<Result<Runtime, String>> = OnceLock::new();

/// The process's threads for drives on the network.
pub(crate) fn runtime() -> Result<&'static Runtime, String> {
    let build = || Builder::new_multi_thread().worker_threads(2).thread_name("ssd-link").enable_all().build();
    let made = RUNTIME.get_or_init(|| build().map_err(|error| format!("the system gives no threads: {error}")));
    made.as_ref().map_err(Clone::clone)
}

/// Whether a place is that of a drive on the network.
pub(crate) fn is_address(place: &str) -> bool {
    SCHEMES.iter().any(|scheme| place.starts_with(scheme))
}

/// The drive at an address. What the link needs is named by the same variables of the environment as for the program `pithead`.
pub(crate) fn door(address: &str) -> Result<Arc<dyn Door>, String> {
    let _inside = runtime()?.enter();
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let options = LinkFlags::default().options(variable).map_err(|fault| fault.to_string())?;
    let door = FlightDoor::connect_with(address, &options).map_err(|fault| fault.to_string())?;
    Ok(Arc::new(door))
}
