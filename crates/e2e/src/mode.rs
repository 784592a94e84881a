//! The arrangements that every answer must be the same in (DESIGN's rule 1).

/// One arrangement.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    /// Its name.
    pub name: &'static str,
    /// Number of drives.
    pub drives: usize,
    /// Whether the drives are processes of their own, reached over the network.
    pub processes: bool,
    /// Encoding of all slices.
    pub encoding: &'static str,
    /// Statements that each session begins with.
    pub settings: &'static [&'static str],
}

const FILTERS_ONLY: &[&str] = &[
    "SET pithead.pushdown_aggregates = off",
    "SET pithead.pushdown_joins = off",
    "SET pithead.pushdown_top_k = off",
    "SET pithead.zone_maps = off",
];
const PUSHDOWN_OFF: &[&str] = &["SET pithead.pushdown = off"];

impl Mode {
    /// One drive within the process.
    pub const ONE_HERE: Mode = Mode { name: "one drive here", drives: 1, processes: false, encoding: "vortex", settings: &[] };
    /// Four drives within the process.
    pub const FOUR_HERE: Mode = Mode { name: "four drives here", drives: 4, ..Mode::ONE_HERE };
    /// Four drives that are processes.
    pub const FOUR_PROCESSES: Mode = Mode { name: "four drive processes", processes: true, ..Mode::FOUR_HERE };
    /// Drives send columns, and the host does the rest.
    pub const PUSHDOWN_OFF: Mode = Mode { name: "push-down off", settings: PUSHDOWN_OFF, ..Mode::FOUR_HERE };
    /// The same over the network.
    pub const PROCESSES_PUSHDOWN_OFF: Mode =
        Mode { name: "drive processes, push-down off", settings: PUSHDOWN_OFF, ..Mode::FOUR_PROCESSES };
    /// The simple encoding.
    pub const ARROW: Mode = Mode { name: "encoding arrow", encoding: "arrow", ..Mode::FOUR_HERE };
    /// Drives filter, without help from bounds, and the host does the rest.
    pub const FILTERS_ONLY: Mode = Mode { name: "filters only", settings: FILTERS_ONLY, ..Mode::FOUR_HERE };
}
