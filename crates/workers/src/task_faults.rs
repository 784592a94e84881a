//! How a task's error keeps its blame on its way to other machines.
//!
//! The engine carries errors of its own kinds, and of all others nothing but their text. So the outermost operator of each task
//! ([`StandIn::of_task`](crate::stand_in::StandIn::of_task)) makes every error a [`MarkedFault`], whose text is the fault as JSON
//! behind a mark, and who called the worker reads it back ([`read`]). A fault of a call to another worker has a mark of its own, so
//! that only the worker that failed is named.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use datafusion::common::DataFusionError;
use pithead_functions::fault_from_datafusion;
use pithead_host::is_of_query;
use pithead_model::{Blame, Fault};
use pithead_wire::{fault_json, from_status};
use tonic::{Code, Status};

/// Before the JSON. No error of the engine begins with it.
const MARK: &str = "\u{1}pithead fault ";
/// The same before a fault of a call to another worker.
const CALL_MARK: &str = "\u{1}pithead call fault ";
/// Errors that are wrapped deeper than this are not looked at.
const DEPTH_MAX: usize = 64;

/// An error whose text another machine reads.
#[derive(Debug)]
struct MarkedFault {
    fault: Fault,
    /// Whether a call to a worker failed with it. It names that worker already.
    of_call: bool,
}

impl fmt::Display for MarkedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.of_call { CALL_MARK } else { MARK };
        write!(f, "{mark}{}", String::from_utf8_lossy(&fault_json(&self.fault)))
    }
}

impl Error for MarkedFault {}

/// The fault of a call to a worker, which names that worker.
#[derive(Debug)]
struct CallFault(Fault);

impl fmt::Display for CallFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Error for CallFault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

/// A fault of a call to a worker, as an error of the engine.
pub(crate) fn call_error(fault: Fault) -> DataFusionError {
    DataFusionError::External(Box::new(CallFault(fault)))
}

/// The error as it travels.
pub(crate) fn told(error: DataFusionError) -> DataFusionError {
    let marked = match read(&error) {
        Some(marked) => marked,
        None => MarkedFault { fault: fault_from_datafusion(error), of_call: false },
    };
    DataFusionError::External(Box::new(marked))
}

/// The fault that an error of a task or of a call was; none where neither made it.
fn read(error: &DataFusionError) -> Option<MarkedFault> {
    let mut current: &(dyn Error + 'static) = error;
    for _ in 0..DEPTH_MAX {
        if let Some(CallFault(fault)) = current.downcast_ref::<CallFault>() {
            return Some(MarkedFault { fault: fault.clone(), of_call: true });
        }
        let text = current.to_string();
        for (mark, of_call) in [(MARK, false), (CALL_MARK, true)] {
            if let Some(json) = text.strip_prefix(mark) {
                return serde_json::from_str(json).ok().map(|fault| MarkedFault { fault, of_call });
            }
        }
        current = match current.downcast_ref::<Arc<DataFusionError>>() {
            Some(shared) => shared.as_ref(),
            None => current.source()?,
        };
    }
    None
}

/// What is to blame for an error that came from a worker.
///
/// Where no task made it, the worker or the way to it failed, or its engine around the task, which knows one error that is the
/// query's: that there is not enough memory.
pub(crate) fn fault_of(address: &str, error: DataFusionError) -> Fault {
    if let Some(MarkedFault { fault, of_call }) = read(&error) {
        let is_placed = of_call || is_of_query(&fault);
        return if is_placed { fault } else { fault.at(format_args!("worker {address}")) };
    }
    if let DataFusionError::ResourcesExhausted(_) = error.find_root() {
        return fault_from_datafusion(error);
    }
    refused(address, &error).unwrap_or_else(|| lost(address, &error))
}

/// The fault of a worker that does not let this host in.
fn refused(address: &str, error: &DataFusionError) -> Option<Fault> {
    let DataFusionError::External(source) = error else { return None };
    let status = source.downcast_ref::<Status>()?;
    let is_refused = matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied);
    is_refused.then(|| {
        Fault::new(Blame::Access, format!("worker {address}: {}", status.message())).hint(
            "workers are called with the credentials for drives: --token-file or --tls-cert, of `serve` --drives-token-file",
        )
    })
}

/// The fault of a worker that did not do its task.
fn lost(address: &str, error: &DataFusionError) -> Fault {
    let mut chain = std::iter::successors(Some(error as &(dyn Error + 'static)), |error| (*error).source());
    if let Some(status) = chain.clone().find_map(|error| error.downcast_ref::<Status>()) {
        return of_worker(from_status(status, address));
    }
    let last = chain.by_ref().last().map(ToString::to_string).unwrap_or_default();
    Fault::new(Blame::Device, format!("worker {address}: {last}"))
}

/// What links say of drives, of a worker.
pub(crate) fn of_worker(fault: Fault) -> Fault {
    let hint = fault.hint.filter(|hint| !hint.contains("drive serve"));
    let message = fault.message.replacen("this drive", "this worker", 1);
    Fault { message: message.replace("the drive", "the worker").replace("drive ", "worker "), hint, ..fault }
}

#[cfg(test)]
mod tests {
    use arrow::error::ArrowError;
    use pithead_model::FaultKind;

    use super::*;
    use crate::codec::external;

    /// What is left of an error on the other machine: its text.
    fn travelled(error: DataFusionError) -> DataFusionError {
        let DataFusionError::External(told) = error else { panic!("{error}") };
        let text = DataFusionError::External(Box::new(std::io::Error::other(told.to_string())));
        DataFusionError::Shared(Arc::new(text.context("a stage")))
    }

    #[test]
    fn errors_keep_blame_and_words_over_several_machines() {
        let by_zero = DataFusionError::ArrowError(Box::new(ArrowError::DivideByZero), None);
        let corrupt = Fault::new(Blame::Corrupt, "slice 3 is damaged\nas a whole").of_kind(FaultKind::Other).hint("repair it");
        let memory = || DataFusionError::ResourcesExhausted("not enough for a sort".to_owned());
        for error in [by_zero, external(corrupt.clone()), memory()] {
            let shared = Arc::new(error);
            let alone = fault_from_datafusion(DataFusionError::Shared(Arc::clone(&shared)));
            let once = call_error(fault_of("a:1", travelled(told(DataFusionError::Shared(shared)))));
            let twice = fault_of("b:2", travelled(told(once)));
            assert_eq!(twice, alone);
        }
        // Told by the engine around a task.
        assert_eq!(fault_of("a:1", memory()), fault_from_datafusion(memory()));
    }

    #[test]
    fn a_worker_that_fails_is_named_once() {
        let refused = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "connection refused");
        let fault = fault_of("a:1", DataFusionError::External(Box::new(refused)));
        assert_eq!((fault.blame, fault.message.as_str()), (Blame::Device, "worker a:1: connection refused"));
        assert_eq!(fault_of("b:2", travelled(told(call_error(fault.clone())))), fault);
        let late = fault_of("a:1", DataFusionError::Execution("timed out while waiting for the plan".to_owned()));
        assert_eq!(late.blame, Blame::Device);
        let drive = Fault::new(Blame::Device, "drive d:1 is away");
        assert_eq!(fault_of("a:1", travelled(told(external(drive)))).message, "worker a:1: drive d:1 is away");
        let denied = DataFusionError::External(Box::new(Status::unauthenticated("this worker asks for a token")));
        assert_eq!(fault_of("a:1", denied).blame, Blame::Access);
    }

    #[test]
    fn long_texts_fit_into_a_status() {
        let fault = Fault::invalid("x".repeat(1 << 20));
        let DataFusionError::External(text) = told(external(fault)) else { panic!() };
        assert!(text.to_string().len() < 8 << 10);
    }
}
