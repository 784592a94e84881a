//! Benchmarks: `pithead bench …`. Each runs side by side with what it is compared to, in one go, and says on what machine.
//!
//! [`demo`] is TPC-H with push-down and without, on four drive processes; [`tpch`] adds DuckDB, Polars, sessions and loads; [`store`]
//! measures a drive's store beside its medium and RocksDB, [`kv`] its Kinetic protocol beside Redis, [`scan`] one drive's scans beside plain loops over the same values;
//! [`load`] measures loads beside DuckDB's `CREATE TABLE AS`; [`soak`] keeps many clients at work and checks every answer; [`near_data`] is TPC-H across a link that the kernel shapes, beside
//! DuckDB over HTTP; [`adaptive`] measures decisions made while queries run beside those made beforehand; [`cell`] finds genes that differ
//! between groups of cells, beside scanpy, TileDB-SOMA and DuckDB; [`yoursql`] plans queries whose predicates nothing tells of, beside
//! every order of their joins, and takes early filters of TPC-H away one by one; [`program`] runs SSDlets beside the same code
//! compiled natively; [`attach`] runs TPC-H over Parquet files where they lie, beside DuckDB and Polars over the same files; [`services`] puts and asks beside a drive's background services, under each policy that places them;
//! [`front`] has clients of PostgreSQL and of Flight SQL fetch and look up, beside PostgreSQL, a bare stream of Flight and DuckDB's Quack; [`throttled`] has drives that
//! are slowed to profiles beside the model of the same profiles.

mod adaptive;
mod answers;
mod attach;
mod cell;
mod demo;
mod drives;
mod duckdb;
mod front;
mod kv;
mod load;
mod machine;
mod neardata;
mod polars;
mod program;
mod python;
mod queries;
mod report;
mod scan;
mod services;
mod soak;
mod store;
mod tables;
mod throttled;
mod timing;
mod tpch;
mod yoursql;

pub use adaptive::{AdaptiveOptions, AdaptivePart, adaptive};
pub use answers::difference;
pub use attach::{AttachOptions, attach};
pub use cell::{CellEngine, CellOptions, CellPart, cell};
pub use demo::{DemoOptions, demo};
pub use drives::{DriveProcess, DriveProcesses};
pub use front::{FrontOptions, front};
pub use kv::{KvOptions, kv};
pub use load::{LoadOptions, load};
pub use neardata::{NearDataHostOptions, NearDataOptions, near_data, near_data_host};
pub use program::{ProgramFarOptions, ProgramOptions, program, program_far};
pub use queries::{QUERIES, TpchQuery};
pub use scan::{ScanOptions, scan};
pub use services::{ServicesOptions, services};
pub use soak::{SoakClientsOptions, SoakOptions, soak, soak_clients};
pub use store::{StoreBenchOptions, StorePart, StoreWriterOptions, store, store_writer};
pub use tables::{TABLES, TpchTable, generate};
pub use throttled::{ThrottledOptions, throttled};
pub use tpch::{TpchOptions, tpch};
pub use yoursql::{YourSqlOptions, YourSqlPart, yoursql};
