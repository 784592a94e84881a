//! What PostgreSQL's clients ask a server about itself: the tables of `pg_catalog` and `information_schema` as ordinary rows over the
//! datasets that there are, the functions that such queries call, and the forms of SQL that only PostgreSQL has ([`rewrite`]).
//!
//! Domains are schemas, datasets are tables. There is one database, [`DATABASE`].

mod absent;
mod facts;
mod forms;
mod functions;
mod information;
mod rewrite;
mod rows;
mod settings;
mod subqueries;
mod syntax;
mod tables;
mod types;

pub use facts::{Facts, Listed, Shown};
pub use functions::functions;
pub use rewrite::rewrite;
pub use settings::{BLOCK_WRITES, SETTINGS, Setting, setting};
pub use tables::table;
pub use types::{PgType, TYPES, modifier, pg_type};

/// The one database.
pub const DATABASE: &str = "pithead";
/// The schema of PostgreSQL's own tables.
pub const PG_CATALOG: &str = "pg_catalog";
/// The version of PostgreSQL whose catalogue and protocol are served.
pub const SERVER_VERSION: &str = "15.0";
