//! The arrangements in all of which every answer must be the same (`ARCHITECTURE.md`, "Invariants").

/// One arrangement.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    /// Its name.
    pub name: &'static str,
    /// Number of drives.
    pub drives: usize,
    /// Whether the drives are processes of their own, reached over the network.
    pub processes: bool,
    /// Arrays between the host and drives that are processes: how many one behind the other. Each has two drives or arrays below.
    pub arrays: usize,
    /// Whether the suites' Parquet files are attached where they lie, and not loaded.
    pub attached: bool,
    /// Whether they are attached in a bucket, by drives that are processes.
    pub bucket: bool,
    /// Worker processes among which the host divides what is left to it.
    pub workers: usize,
    /// Encoding of all slices.
    pub encoding: &'static str,
    /// Arguments of drives that are processes.
    pub arguments: &'static [&'static str],
    /// Statements that each session begins with.
    pub settings: &'static [&'static str],
}

const FILTERS_ONLY: &[&str] = &[
    "SET pithead.pushdown_aggregates = off",
    "SET pithead.pushdown_joins = off",
    "SET pithead.pushdown_top_k = off",
    "SET pithead.zone_maps = off",
    "SET pithead.summary_cache = off",
];
const PUSHDOWN_OFF: &[&str] = &["SET pithead.pushdown = off"];
const FILTERED: &[&str] = &["SET pithead.level = 2", "SET pithead.summary_cache = off"];
const STORED: &[&str] = &["SET pithead.level = 0", "SET pithead.summary_cache = off", "SET pithead.slice_cache = 0"];
const HINTED: &[&str] = &["SET pithead.level = 1", "SET pithead.summary_cache = off", "SET pithead.slice_cache = 0"];
const MIXED: &[&str] = &["SET pithead.level = 'random:11'", "SET pithead.slice_cache = 1000000"];
const LYING_SAMPLES: &[&str] =
    &["SET pithead.sample = 'lying:5'", "SET pithead.before_joins = always", "SET pithead.summary_cache = off"];
const REPLANNED: &[&str] = &[
    "SET pithead.replan = 'random:1'",
    "SET pithead.sample = off",
    "SET pithead.pushdown_joins = off",
    "SET pithead.summary_cache = off",
];
const UNHELPED: &[&str] = &["SET pithead.summary_cache = off", "SET pithead.slice_cache = 0"];

impl Mode {
    /// One drive within the process.
    pub const ONE_HERE: Mode = Mode {
        name: "one drive here",
        drives: 1,
        processes: false,
        arrays: 0,
        attached: false,
        bucket: false,
        workers: 0,
        encoding: "vortex",
        arguments: &[],
        settings: &[],
    };
    /// Four drives within the process.
    pub const FOUR_HERE: Mode = Mode { name: "four drives here", drives: 4, ..Mode::ONE_HERE };
    /// Four drives that are processes.
    pub const FOUR_PROCESSES: Mode = Mode { name: "four drive processes", processes: true, ..Mode::FOUR_HERE };
    /// Drives send columns, and the host does the rest.
    pub const PUSHDOWN_OFF: Mode = Mode { name: "push-down off", settings: PUSHDOWN_OFF, ..Mode::FOUR_HERE };
    /// The same over the network.
    pub const PROCESSES_PUSHDOWN_OFF: Mode =
        Mode { name: "drive processes, push-down off", settings: PUSHDOWN_OFF, ..Mode::FOUR_PROCESSES };
    /// Two arrays, each in front of two drives.
    pub const ARRAYS: Mode = Mode { name: "arrays", drives: 2, arrays: 1, ..Mode::FOUR_PROCESSES };
    /// One array in front of two, each of them in front of two drives.
    pub const ARRAYS_OF_ARRAYS: Mode = Mode { name: "arrays of arrays", drives: 1, arrays: 2, ..Mode::FOUR_PROCESSES };
    /// The simple encoding.
    pub const ARROW: Mode = Mode { name: "encoding arrow", encoding: "arrow", ..Mode::FOUR_HERE };
    /// Drives filter, and the host finishes their slices.
    pub const FILTERED: Mode = Mode { name: "slices filtered", settings: FILTERED, ..Mode::FOUR_PROCESSES };
    /// Drives hand slices back as they are stored.
    pub const STORED: Mode = Mode { name: "slices as stored", settings: STORED, ..Mode::FOUR_PROCESSES };
    /// Drives send the pages that may match as they are stored.
    pub const HINTED: Mode = Mode { name: "pages that may match", settings: HINTED, ..Mode::FOUR_PROCESSES };
    /// The same from slices of the simple encoding, which drives search otherwise.
    pub const HINTED_ARROW: Mode =
        Mode { name: "pages that may match, encoding arrow", encoding: "arrow", settings: HINTED, ..Mode::FOUR_HERE };
    /// Each round to a level by chance, with small caches.
    pub const MIXED: Mode = Mode { name: "levels by chance", settings: MIXED, ..Mode::FOUR_PROCESSES };
    /// Drives that are weak enough to hand work back, and decide so themselves.
    pub const WEAK: Mode =
        Mode { name: "weak drives", arguments: &["--cpu", "1/15"], settings: UNHELPED, ..Mode::FOUR_PROCESSES };
    /// One drive whose only partition is taken whole wherever that keeps a byte off the link.
    pub const ONE_ROUND: Mode =
        Mode { name: "one drive, in one round", settings: &["SET pithead.one_round_bytes_min = 0"], ..Mode::ONE_HERE };
    /// Plans are made by samples whose figures are wrong.
    pub const LYING_SAMPLES: Mode = Mode { name: "samples that lie", settings: LYING_SAMPLES, ..Mode::FOUR_HERE };
    /// Plans are changed while they run.
    pub const REPLANNED: Mode = Mode { name: "plans changed by chance", settings: REPLANNED, ..Mode::FOUR_HERE };
    /// Slices encoded as Parquet.
    pub const PARQUET: Mode = Mode { name: "encoding parquet", encoding: "parquet", ..Mode::FOUR_HERE };
    /// Slices of pages that are row by row.
    pub const NSM: Mode = Mode { name: "encoding nsm", encoding: "nsm", ..Mode::FOUR_HERE };
    /// Slices of pages that are column by column, and travel page by page where they may match.
    pub const PAX: Mode =
        Mode { name: "encoding pax, pages that may match", encoding: "pax", settings: HINTED, ..Mode::FOUR_HERE };
    /// Files that lie where they are, on one drive.
    pub const ATTACHED: Mode = Mode { name: "attached in place", attached: true, ..Mode::ONE_HERE };
    /// The same on several drives, each with a part.
    pub const ATTACHED_PARTS: Mode = Mode { name: "attached in parts", attached: true, ..Mode::FOUR_PROCESSES };
    /// Row groups of attached files travel as they are.
    pub const ATTACHED_STORED: Mode = Mode { name: "attached, as stored", attached: true, ..Mode::STORED };
    /// Pages of attached files that may match travel as they are.
    pub const ATTACHED_HINTED: Mode = Mode { name: "attached, pages that may match", attached: true, ..Mode::HINTED };
    /// Each round over attached files to a level by chance.
    pub const ATTACHED_MIXED: Mode = Mode { name: "attached, levels by chance", attached: true, ..Mode::MIXED };
    /// Drives send columns of attached files.
    pub const ATTACHED_PUSHDOWN_OFF: Mode =
        Mode { name: "attached, push-down off", attached: true, ..Mode::PROCESSES_PUSHDOWN_OFF };
    /// Files that lie on drives behind arrays.
    pub const ATTACHED_ARRAYS: Mode = Mode { name: "attached, behind arrays", attached: true, ..Mode::ARRAYS };
    /// Files that lie in buckets.
    pub const BUCKETS: Mode = Mode { name: "attached in buckets", bucket: true, ..Mode::ATTACHED_PARTS };
    /// Pages of files in buckets that may match travel as they are.
    pub const BUCKETS_HINTED: Mode = Mode { name: "buckets, pages that may match", settings: HINTED, ..Mode::BUCKETS };
    /// Each round over files in buckets to a level by chance.
    pub const BUCKETS_MIXED: Mode = Mode { name: "buckets, levels by chance", settings: MIXED, ..Mode::BUCKETS };
    /// What is left to the host is divided among workers.
    pub const WORKERS: Mode = Mode { name: "workers", workers: 2, ..Mode::FOUR_PROCESSES };
    /// The same of nearly everything.
    pub const WORKERS_PUSHDOWN_OFF: Mode = Mode { name: "workers, push-down off", workers: 2, ..Mode::PROCESSES_PUSHDOWN_OFF };
    /// Drives that are slowed to a device of the papers.
    pub const SMART_SSD: Mode = Mode {
        name: "as a smart-ssd",
        drives: 2,
        arguments: &["--device", "smart-ssd"],
        settings: UNHELPED,
        ..Mode::FOUR_PROCESSES
    };
    /// Drives filter, without help from bounds, and the host does the rest.
    pub const FILTERS_ONLY: Mode = Mode { name: "filters only", settings: FILTERS_ONLY, ..Mode::FOUR_HERE };
}
