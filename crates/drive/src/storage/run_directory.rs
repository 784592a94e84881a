//! [`RunDirectory`]: what sessions need to know of a run, be it stored or attached.

use std::sync::{Arc, OnceLock};

use arrow::datatypes::SchemaRef;
use pithead_model::SliceEntry;

/// What sessions need of a run's metadata slice.
#[derive(Debug)]
pub(crate) struct RunDirectory {
    pub(crate) schema: SchemaRef,
    pub(crate) slices: Vec<Arc<SliceEntry>>,
    /// What its slices are encoded as, once one of them was read.
    pub(crate) encoding: OnceLock<&'static str>,
}
