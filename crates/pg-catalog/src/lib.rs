//! What PostgreSQL's clients ask a server about itself: the tables of `pg_catalog` and `information_schema` as ordinary rows over the
//! datasets that there are, the functions that such queries call, and the forms of SQL that only PostgreSQL has ([`rewrite`]).
//!
//! Domains are schemas, datasets are tables. There is one database, which has the name that a client gives it, or [`DATABASE`].

mod absent;
mod call;
mod factors;
mod facts;
mod formatting;
mod forms;
mod functions;
mod identifiers;
mod information;
mod interval_texts;
mod known;
mod names;
mod procedures;
mod reserved;
mod rewrite;
mod rights;
mod row_values;
mod rows;
mod sets;
mod settings;
mod sleep;
mod stats;
mod subqueries;
mod syntax;
mod tables;
mod types;
mod zones;

pub use facts::{
    ColumnStatistics, ConnectionFacts, CursorFacts, Facts, Listed, ListedFunction, PreparedFacts, Privilege, SearchPath, Shown,
    Source, table_number,
};
pub use formatting::quoted;
pub use functions::{functions, is_of_snapshot};
pub use interval_texts::interval_in_units;
pub use rewrite::{floats, rewrite};
pub use settings::{BLOCK_WRITES, ISOLATIONS, SETTINGS, Setting, setting};
pub use tables::table;
pub use types::{PgType, TYPES, modifier, pg_type, type_named};

/// The one database, where a client gives it no other name.
pub const DATABASE: &str = "pithead";
/// The schema of PostgreSQL's own tables.
pub const PG_CATALOG: &str = "pg_catalog";
/// What an error says of a setting that is not there, before its name. Whoever carries the error to a client knows it by this.
pub const NO_SETTING: &str = "unrecognized configuration parameter";
/// The version of PostgreSQL whose catalogue and protocol are served.
pub const SERVER_VERSION: &str = "15.0";
