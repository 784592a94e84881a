//! A fault as the engine hands it on.

use datafusion::common::DataFusionError;
use pithead_model::Fault;

pub(crate) fn external(fault: Fault) -> DataFusionError {
    DataFusionError::External(Box::new(fault))
}
