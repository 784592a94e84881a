//! Bounds that every CSE keeps to, in one place. Units come last in the names.

/// The version of Pithead's protocol between CSEs. Both ends must speak the same version.
pub const PROTOCOL_VERSION: u32 = 12;
/// Longest name of a domain or a dataset.
pub const NAME_BYTES_MAX: usize = 255;
/// The largest value, and so the largest slice.
pub const SLICE_BYTES_MAX: usize = 64 << 20;
/// Rows of a page and of a batch. A page is the part of a slice that can be decoded alone.
pub const PAGE_ROWS: usize = 8_192;
/// Rows of a slice unless the loader says otherwise.
pub const SLICE_ROWS_DEFAULT: usize = 262_144;
/// Most columns of a dataset.
pub const COLUMNS_MAX: usize = 16_384;
/// Largest sub-plan that a drive accepts.
pub const PLAN_BYTES_MAX: usize = 16 << 20;
/// Most operators (`+`, `=`, AND, UNION and so on) of a statement, and of a sub-plan that a drive accepts. Optimisers
/// turn them into chains that nest as deep as there are operators, and process these by recursion.
pub const OPERATORS_MAX: usize = 2_048;
/// Most words, values and signs of a statement. Each takes hundreds of bytes until the statement is planned.
pub const TOKENS_MAX: usize = 1_500_000;
/// Stack of threads that plan: enough for [`OPERATORS_MAX`] levels of nesting. A stack takes memory only as far as it
/// is used.
pub const PLANNING_STACK_BYTES: usize = 64 << 20;
/// Largest single Flight message in either direction.
pub const MESSAGE_BYTES_MAX: usize = 128 << 20;
/// Most bytes of inputs shipped to one session.
pub const SHIPPED_BYTES_MAX: usize = 64 << 20;
/// Most partitions of a dataset.
pub const PARTITIONS_MAX: usize = 4_096;
/// Most drives that a partition is on.
pub const COPIES_MAX: usize = 16;
/// Longest text stored as a bound in a directory. Longer texts are cut, and the bound is marked as inexact.
pub const BOUND_BYTES_MAX: usize = 64;
/// Most connections that a drive has open unless it is configured otherwise. Connections of callers that the drive has
/// not identified yet are not among them.
pub const CONNECTIONS_MAX: usize = 1_024;
/// The same bound for one address.
pub const CONNECTIONS_PER_ADDRESS_MAX: usize = 256;
/// Most connections without an accepted call. For one more, the drive closes the oldest.
pub const CONNECTIONS_WAITING_MAX: usize = 256;
/// The same bound for one address: a pool of connections that is opened at once has room.
pub const CONNECTIONS_WAITING_PER_ADDRESS_MAX: usize = 100;
/// Bytes of messages that have arrived in part, over all callers of a drive.
pub const RECEIVING_BYTES_MAX: u64 = 1 << 30;
/// The same bound for one connection.
pub const RECEIVING_BYTES_PER_CONNECTION_MAX: u64 = 256 << 20;
/// Most identities of an access file.
pub const IDENTITIES_MAX: usize = 10_000;
/// Largest access file, certificate file or key file.
pub const SECRET_FILE_BYTES_MAX: u64 = 4 << 20;
