//! The SQL functions that every engine needs, the [`Registry`] of those that others bring, and the one [`session_state`] that all
//! engines share.
//!
//! A sub-plan gives the same rows wherever it runs, because host and drives take their functions, their planner's rules
//! and their switches from here. Errors of DataFusion become a `Fault` here, too.

mod any_order;
mod average;
mod bounded;
mod checked;
mod checked_avg;
mod clock;
mod constants_right;
mod empty_join;
mod equal_keys;
mod extracted_names;
mod extreme;
mod extreme_floats;
mod extreme_nested;
mod fault;
mod fault_kind;
mod filter_projections;
mod floats;
mod give_way;
mod give_way_exec;
mod group_keys;
mod groups;
mod kept_names;
mod moments;
mod moments_groups;
mod nested_order;
mod one_distinct;
mod or_zero;
mod orders_hold;
mod pieces;
mod planned;
mod registry;
mod set_operations;
mod state;
mod subqueries;
mod sum;
mod sum_groups;
mod sum_scalar;
mod told_apart;
mod top_k;
mod totals;
mod travelling;

pub use average::average;
pub use bounded::{Holder, SessionMemory, rows_at_once};
pub use checked::{check_decimals, name_overflow};
pub use checked_avg::avg_udaf;
pub use clock::check_clock;
pub use extracted_names::EXTRACTED_PREFIX;
pub use extreme::{max_udaf, min_udaf};
pub use fault::fault_from_datafusion;
pub use floats::before_one_float;
pub use moments::{merge_mean_udaf, merge_var_pop_udaf};
pub use or_zero::or_zero;
pub use planned::ready_to_run;
pub use registry::{Extension, Registry, Steps};
pub use set_operations::count_repeats;
pub use state::{EngineOptions, planning_state, session_state};
pub use sum::sum_udaf;
pub use travelling::{any_order, bare, is_any_order, unnamed_functions};
