//! The host: the CSE that a client talks to. It knows what the drives hold, loads data onto them, plans statements,
//! sends the drives what they can do, and finishes what comes back.
//!
//! ```
//! use std::sync::Arc;
//!
//! use futures::TryStreamExt;
//! use pithead_door::Door;
//! use pithead_host::{Host, HostOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), pithead_model::Fault> {
//! // A drive of tests. Those that keep rows come from `pithead_embed::connect`.
//! let drive: Arc<dyn Door> = pithead_fakes::FakeDoor::new(1);
//! let host = Host::connect(vec![drive], HostOptions::default()).await?;
//! let session = host.session();
//! let answer = session.run("SELECT x * 2 AS y FROM (VALUES (20), (21)) AS t(x) ORDER BY y DESC LIMIT 1").await?;
//! let batches: Vec<_> = answer.rows.try_collect().await?;
//! assert_eq!(batches[0].num_rows(), 1);
//!
//! let fault = session.run("SELECT fare FROM trips").await.err().expect("there are no trips");
//! assert!(fault.to_string().contains("trips"));
//! # Ok(())
//! # }
//! ```

mod activity;
mod ambiguous;
mod as_of;
mod aside;
#[cfg(test)]
mod beneath_tests;
mod client;
mod column_words;
mod commitment;
mod converted;
#[cfg(test)]
mod copies_tests;
mod copying;
mod ctes;
mod dialect;
mod dropping;
mod elsewhere;
mod energy;
mod explain;
mod explain_options;
mod figures;
mod file_tables;
mod frames;
mod from_first;
mod functions;
mod history;
mod host;
mod idle_state;
mod information;
mod kept_rows;
mod large_texts;
mod lateral_aliases;
mod metrics;
mod operators;
mod order_columns;
mod outer_names;
mod parameter_groups;
mod parameters;
mod patterns;
mod planned_statement;
mod planner;
mod precedence;
mod pushdown;
mod query;
mod query_plan;
mod renaming;
mod repeated;
mod replan;
mod rest;
mod row_inserts;
mod ruled_out;
mod sampler;
mod schemas;
mod session;
mod settings;
mod shared_rows;
mod showing;
mod spills;
mod statement;
mod statement_plan;
mod sub_plans;
mod substrait_plans;
mod summarize;
mod table;
mod timeout;
mod tokens;
mod truncating;
#[cfg(test)]
mod two_hosts_tests;
mod unread_names;
mod views;
mod watch;
mod wide_rows;
mod writing;
#[cfg(test)]
mod writing_tests;
mod written_plans;
mod zoned;

pub use activity::{Activity, ActivityTotals, Ending, Followed};
pub use client::Client;
pub use commitment::Commitment;
pub use converted::converted;
pub use elsewhere::{Elsewhere, Placed, is_of_query};
pub use energy::{Emulated, device_profile, emulate};
pub use figures::{PlanLine, StatementFigures, SubPlanFigures};
pub use frames::Frames;
pub use host::{Host, HostOptions};
pub use large_texts::{KeptText, Turn};
pub use parameters::Parameters;
pub use patterns::patterns_of;
pub use planned_statement::Statement;
pub use repeated::ORIGIN;
pub use session::{Answer, Session};
pub use settings::{Settings, Switches};
pub use spills::SpillFolder;
pub use statement::is_set;
pub use sub_plans::{DividedPart, Merged, ReadSubPlan, SubPlans};
pub use timeout::{Deadline, taken_in_parts};
pub use written_plans::WrittenPlan;

pub use pithead_entry::{Identity, Right};
pub use pithead_files::{CsvOptions, Format, uuids_as_texts};
pub use pithead_fleet::{AsOf, Fleet};
pub use pithead_load::{LoadMode, LoadProgress, LoadReport, LoadSpec, PartitionBy};
pub use pithead_plan::substrait_version;
pub use pithead_remote::{PartitionProfile, ProfileSnapshot, QueryProfile, SubPlanProfile};
