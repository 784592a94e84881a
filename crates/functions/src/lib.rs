//! The SQL functions that every engine needs, the [`Registry`] of those that others bring, and the one [`session_state`] that all
//! engines share.
//!
//! A sub-plan gives the same rows wherever it runs, because host and drives take their functions, their planner's rules
//! and their switches from here. Errors of DataFusion become a `Fault` here, too.

mod any_order;
mod at_zone;
mod average;
mod balanced;
mod bounded;
mod checked;
mod checked_avg;
mod clock;
mod constants_right;
mod correlated_names;

mod decimal_floats;
mod empty_join;
mod equal_keys;
mod extreme;
mod extreme_floats;
mod extreme_nested;
mod fault;
mod fault_kind;
mod filter_projections;
mod give_way;
mod give_way_exec;
mod group_keys;
mod groups;
mod guarded;
mod kept_names;
mod merged_keys;
mod mode;
mod moments;
mod moments_groups;
mod moments_in_time;
mod named_casts;
mod nested_order;
mod one_distinct;
mod one_row;
mod one_value;
mod open_lists;
mod or_zero;
mod orders_hold;
mod pieces;
mod planned;
mod registry;
mod same_moments;
mod set_operations;
mod similar;
mod sliding;
mod sort_keys;
mod state;
mod subqueries;
mod subquery_values;
mod sum;
mod sum_groups;
mod sum_scalar;
mod told_apart;
mod top_k;
mod totals;
mod travelling;
mod wall_time;
mod whole_field;
mod whole_sorts;

pub use at_zone::AT_ZONE;
pub use average::average;
pub use balanced::conjunction;
pub use bounded::{Holder, SessionMemory, rows_at_once};
pub use checked::{check_decimals, name_overflow};
pub use checked_avg::avg_udaf;
pub use clock::check_clock;
pub use extreme::{max_udaf, min_udaf};
pub use fault::fault_from_datafusion;
pub use kept_names::map_named;
pub use merged_keys::{MERGED_KEY, with_merged_keys};
pub use moments::{merge_mean_udaf, merge_var_pop_udaf};
pub use named_casts::NAMED_CAST;
pub use one_value::before_one_value;
pub use or_zero::or_zero;
pub use planned::ready_to_run;
pub use registry::{Extension, Registry, Steps};
pub use set_operations::count_repeats;
pub use state::{EngineOptions, planning_state, session_state};
pub use sum::sum_udaf;
pub use travelling::{any_order, bare, is_any_order, unnamed_functions};
