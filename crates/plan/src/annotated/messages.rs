//! The messages of an annotation, field by field as `docs/reference/annotation.proto` has them.

/// How far the slices of a partition are: each of them is named exactly once, as executed or as left.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Progress {
    /// The driving dataset's domain.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// Its name there.
    #[prost(string, tag = "2")]
    pub dataset: String,
    /// Its incarnation.
    #[prost(fixed64, tag = "3")]
    pub incarnation: u64,
    /// The version of the manifest in which the runs are visible.
    #[prost(uint64, tag = "4")]
    pub manifest_version: u64,
    /// The partition.
    #[prost(uint32, tag = "5")]
    pub partition: u32,
    /// Its runs, in the manifest's order.
    #[prost(message, repeated, tag = "6")]
    pub runs: Vec<RunOfSlices>,
    /// Whether the plan must see all slices in one round.
    #[prost(bool, tag = "7")]
    pub whole_partition: bool,
    /// Slices that are done, by level.
    #[prost(message, repeated, tag = "8")]
    pub executed: Vec<Executed>,
    /// Slices that are in no closed round.
    #[prost(message, repeated, tag = "9")]
    pub left: Vec<Span>,
}

/// A run, and how many slices it has. The schema calls it `Run`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct RunOfSlices {
    /// Its load.
    #[prost(fixed64, tag = "1")]
    pub load: u64,
    /// The number of slices.
    #[prost(uint32, tag = "2")]
    pub slices: u32,
}

/// Slices `first..first + count`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Span {
    /// The first one.
    #[prost(uint32, tag = "1")]
    pub first: u32,
    /// The number of slices, at least 1.
    #[prost(uint32, tag = "2")]
    pub count: u32,
}

/// Slices that were taken to one level.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Executed {
    /// The level; none: whole, by another plan or session, or from results that were kept.
    #[prost(int32, optional, tag = "1")]
    pub level: Option<i32>,
    /// The slices.
    #[prost(message, repeated, tag = "2")]
    pub slices: Vec<Span>,
    /// The operators of the plan that are executed for them.
    #[prost(uint32, repeated, tag = "3")]
    pub operators: Vec<u32>,
}

/// What the rounds have cost.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Rounds {
    /// Where they were executed, of several places the last one.
    #[prost(string, tag = "1")]
    pub cse: String,
    /// The rounds that were closed.
    #[prost(message, repeated, tag = "2")]
    pub rounds: Vec<Round>,
}

/// One round: see [`pithead_model::Annotation`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Round {
    /// Its number within its session.
    #[prost(uint32, tag = "1")]
    pub round: u32,
    /// Its level.
    #[prost(int32, tag = "2")]
    pub level: i32,
    /// Its slices.
    #[prost(message, repeated, tag = "3")]
    pub slices: Vec<Span>,
    /// Of them, ruled out unread.
    #[prost(uint32, tag = "4")]
    pub slices_skipped: u32,
    /// Of them, answered for by kept results.
    #[prost(uint32, tag = "5")]
    pub slices_from_kept_results: u32,
    /// Rows of the slices that were read.
    #[prost(uint64, tag = "6")]
    pub rows_in: u64,
    /// Rows that it gave.
    #[prost(uint64, tag = "7")]
    pub rows_out: u64,
    /// Bytes from the medium.
    #[prost(uint64, tag = "8")]
    pub medium_bytes: u64,
    /// Bytes of the rows that it gave.
    #[prost(uint64, tag = "9")]
    pub batch_bytes: u64,
    /// Bytes of its slices as they are stored.
    #[prost(uint64, tag = "10")]
    pub stored_bytes: u64,
    /// Processor time.
    #[prost(uint64, tag = "11")]
    pub cpu_ns: u64,
    /// Time from its start to its end.
    #[prost(uint64, tag = "12")]
    pub wall_ns: u64,
    /// Why it went no further: 0 where it did, or nobody knows.
    #[prost(int32, tag = "13")]
    pub cause: i32,
    /// Processor time of the work that waited there.
    #[prost(uint64, optional, tag = "14")]
    pub queue_ms: Option<u64>,
    /// When to try again.
    #[prost(uint64, optional, tag = "15")]
    pub retry_after_ms: Option<u64>,
}

/// What an annotation adds to a `substrait.Plan`, whose other fields are written already.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Added {
    #[prost(message, optional, tag = "4")]
    pub(super) advanced_extensions: Option<AdvancedExtension>,
    #[prost(string, repeated, tag = "5")]
    pub(super) expected_type_urls: Vec<String>,
}

/// `substrait.extensions.AdvancedExtension`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct AdvancedExtension {
    #[prost(message, repeated, tag = "1")]
    pub(super) optimization: Vec<Any>,
    #[prost(message, optional, tag = "2")]
    pub(super) enhancement: Option<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Any {
    #[prost(string, tag = "1")]
    pub(super) type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
}
