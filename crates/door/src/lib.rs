//! The door between CSEs: what a host sees of a CSE below it ([`Door`]), in-process or over any network.
//!
//! A drive and an array implement it, and a host is written against it; `wire` carries it over Arrow Flight. Nothing here executes
//! anything, and nothing here knows a protocol.

mod attached;
mod background;
mod bounds;
mod columns;
mod compact;
mod door;
mod event;
mod function;
mod greeting;
mod history;
mod load;
mod open;
mod pieces;
mod program;
mod status;

pub use attached::{ATTACHED_FILES_MAX, AttachedDataset, Attachments, Refusal, RefusedDataset, check_attachments};
pub use background::{BackgroundOrder, BackgroundStatus, CoreStatus, DedupSettings, ServiceStatus};
pub use bounds::{check_open, check_plan_bytes, check_spans, input_bytes};
pub use columns::{check_columns, children, same_columns};
pub use compact::{batch_bytes, compact, compact_views, needed_bytes};
pub use door::{Batches, Door};
pub use event::{Event, Events, HINT_BYTES_MAX, LinkGauge, LinkReading, PARTS_MAX, PartsOutline};
pub use function::{FunctionAsk, FunctionModule, check_function};
pub use greeting::{Hello, Welcome, check_hello, check_protocol};
pub use history::{HistoryAsk, Pick, ToldDataset, ToldVersion, VERSIONS_TOLD_MAX};
pub use load::{CLAIMED_MAX, Claim, Discard, LoadRequest, Loads, MERGED_MAX, ManifestReceipt, MarkRun, Marked, MergeRuns};
pub use open::{Granted, OpenRequest, Opened, PlanBytes, SessionOptions, ShippedInput, SlicePart};
pub use pieces::{PIECE_BYTES_MAX, PieceOrder, Pieces, RunPiece, RunValue, run_values, value_pieces};
pub use program::{
    ApplicationEvent, ApplicationRun, Connection, DeclaredSsdlet, HostPort, LoadModule, MODULE_BYTES_MAX, PORT_BATCH_BYTES_MAX,
    PortAt, PortInput, PortInputs, Reads, ReadsAll, ReadsNothing, RunApplication, SsdletSpec, StoredModule, check_application,
    check_module, check_module_name,
};
pub use status::{CostRate, DomainAt, DriveStatus, OpenSession, PartitionUse};
