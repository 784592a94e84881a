//! Every SQL function and aggregate of Pithead's own, and the one [`session_state`] that all engines share.
//!
//! A sub-plan gives the same rows wherever it runs, because host and drives take their functions, their planner's rules
//! and their switches from here. Errors of DataFusion become a `Fault` here, too.

mod any_order;
mod average;
mod bounded;
mod checked;
mod clock;
mod constants_right;
mod empty_join;
mod equal_keys;
mod extracted_names;
mod extreme;
mod extreme_floats;
mod extreme_nested;
mod fault;
mod filter_projections;
mod floats;
mod give_way;
mod give_way_exec;
mod group_keys;
mod groups;
mod kept_names;
mod matrix;
mod moments;
mod moments_groups;
mod nested_order;
mod one_distinct;
mod or_zero;
mod orders_hold;
mod planned;
mod set_operations;
mod state;
mod subqueries;
mod sum;
mod sum_groups;
mod sum_scalar;
mod told_apart;
mod top_k;
mod totals;

pub use average::average;
pub use bounded::rows_at_once;
pub use checked::{check_decimals, name_overflow};
pub use clock::check_clock;
pub use extreme::{max_udaf, min_udaf};
pub use fault::fault_from_datafusion;
pub use floats::before_one_float;
pub use matrix::{matrix_aggregates, matrix_scalars, test_type};
pub use moments::{merge_mean_udaf, merge_var_pop_udaf};
pub use or_zero::or_zero;
pub use planned::ready_to_run;
pub use set_operations::count_repeats;
pub use state::{EXTENSIONS, EngineOptions, planning_state, session_state};
pub use sum::sum_udaf;
