//! The words of Pithead as types: names, units, limits, the manifest, the slice directory, annotations, kinds of error.
//!
//! Everything above speaks in these types. Nothing here does I/O, reads a clock or knows an engine.

mod adapt;
mod annotation;
mod counts;
mod directory;
mod distinct;
mod error;
mod function;
pub mod lasting;
mod limits;
mod manifest;
mod name;
mod pages;
mod profile;
mod sample;
mod units;
mod uuid;
mod value;
mod view;

pub use adapt::{Adapt, ByLevel, Cores, Finished, HostState, LevelRule, SliceCosts};
pub use pithead_boxed::boxed;

pub use annotation::{Annotation, Level, PushBackCause, Reply, ScanShare, SliceSpan};
pub use counts::Counts;
pub use directory::{ColumnSummary, Directory, SliceEntry, merge_columns};
pub use error::{Blame, Fault, FaultKind};
pub use function::{
    CalledFunction, FUNCTION_ARGUMENTS_MAX, FUNCTION_MODULE_BYTES_MAX, FUNCTION_NAME_BYTES_MAX, FUNCTIONS_MAX, Function,
    FunctionArgument, FunctionKind, FunctionType, RUNS_USER_FUNCTIONS, Volatility,
};
pub use limits::*;
pub use manifest::{Dataset, Loaded, LostHome, Manifest, Partition, Partitioning, Run, SortKey};
pub use name::{DatasetId, DatasetName, DriveId, LoadId, RESERVED, SessionId, SliceKey, near_names};
pub use pages::PageSet;
pub use profile::{CallShare, SessionProfile, SessionState};
pub use sample::PageSample;
pub use units::{Bytes, Rate, parse_bytes, parse_period, parse_rate, total};
pub use uuid::{UUID_BYTES, is_uuid, uuid_metadata};
pub use value::Value;
pub use view::{VIEW_BYTES_MAX, VIEWS_MAX, View};
