//! A host together with its drives, in one call: drives inside this process on a directory, or drives on the network.
//!
//! This is what the tops (the command line, benchmarks, language bindings) connect through. A data directory holds
//! `drive-0`, `drive-1` and so on, each the store of one drive. Drives inside a process share its reactors, and their
//! batches pass by pointer; above the door they are drives like any other.

mod connect;
mod directory;
mod functions;
mod here;
mod memory;
mod options;
mod status;

pub use connect::{Engine, connect, doors};
pub use functions::functions;
pub use options::{EmbedOptions, HISTORY, Target};
pub use pithead_door::{
    ApplicationEvent, ApplicationRun, BackgroundOrder, BackgroundStatus, Connection, CoreStatus, DeclaredSsdlet, DedupSettings,
    Door, DriveStatus, HostPort, LoadModule, MODULE_BYTES_MAX, OpenSession, PartitionUse, PortAt, PortInput, PortInputs, Reads,
    ReadsAll, RunApplication, ServiceStatus, SsdletSpec, StoredModule,
};
pub use pithead_drive::Attach;
pub use pithead_entry::{Access, ClientTlsFiles, ConnectOptions, LinkFlags, Token};
pub use status::{Answers, background, background_in_turn, status};

/// The programs of `sdk/examples/` that are written in Rust.
#[cfg(doctest)]
mod examples {
    #[doc = concat!("```\n", include_str!("../../../sdk/examples/load_and_ask.rs"), "\n```")]
    struct LoadAndAsk;

    #[doc = concat!("```\n", include_str!("../../../sdk/examples/query_parameters.rs"), "\n```")]
    struct QueryParameters;

    #[doc = concat!("```\n", include_str!("../../../sdk/examples/several_drives.rs"), "\n```")]
    struct SeveralDrives;

    #[doc = concat!("```\n", include_str!("../../../sdk/examples/streaming_results.rs"), "\n```")]
    struct StreamingResults;

    #[doc = concat!("```\n", include_str!("../../../sdk/examples/append_and_replace.rs"), "\n```")]
    struct AppendAndReplace;

    #[doc = concat!("```\n", include_str!("../../../sdk/examples/arrow_batches.rs"), "\n```")]
    struct ArrowBatches;

    #[doc = concat!("```\n", include_str!("../../../sdk/examples/errors_and_hints.rs"), "\n```")]
    struct ErrorsAndHints;

    #[doc = concat!("```\n", include_str!("../../../sdk/examples/see_what_travels.rs"), "\n```")]
    struct SeeWhatTravels;
}
