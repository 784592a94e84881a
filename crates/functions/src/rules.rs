//! The rules of all engines: those of DataFusion, with ours before them, after them and in their places.

use std::sync::Arc;

use datafusion::optimizer::decorrelate_predicate_subquery::DecorrelatePredicateSubquery;
use datafusion::optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion::optimizer::eliminate_group_by_constant::EliminateGroupByConstant;
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion::optimizer::extract_leaf_expressions::{ExtractLeafExpressions, PushDownLeafProjections};
use datafusion::optimizer::optimizer::Optimizer;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::rewrite_set_comparison::RewriteSetComparison;
use datafusion::optimizer::single_distinct_to_groupby::SingleDistinctToGroupBy;
use datafusion::optimizer::{Analyzer, AnalyzerRule, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;

use crate::any_order::AnyOrder;
use crate::balanced::BalancedFilters;
use crate::branches::Branches;
use crate::byte_texts::ByteTexts;
use crate::bytes_in_texts::{BytesInTexts, LettersAsBytes};
use crate::calls::CallsLast;
use crate::checked::{AsFunctions, AsOperators};
use crate::constants_right::ConstantsRight;
use crate::correlated::Correlated;
use crate::correlated_names::CorrelatedNames;
use crate::decimal_floats::DecimalsAndFloats;
use crate::empty_join::EmptyJoin;
use crate::equal_keys::{EqualKeys, NullKeysApart};
use crate::exists_limits::ExistsLimits;
use crate::fewer_rows::FewerRows;
use crate::filter_projections::FilterProjections;
use crate::finite_casts::FiniteCasts;
use crate::give_way::GiveWay;
use crate::keys_of_lists::KeysOfLists;
use crate::lateral::LateralRows;
use crate::lists_in_texts::ListsInTexts;
use crate::meant_texts::MeantTexts;
use crate::moment_texts::MomentTexts;
use crate::moments_in_time::Moments;
use crate::named_casts::NamedCasts;
use crate::named_groups::NamedGroups;
use crate::one_distinct::OneDistinct;
use crate::one_row::OneRow;
use crate::only_row::OnlyRow;
use crate::orders_hold::OrdersHold;
use crate::sort_keys::{EachKeyOnce, GroupsOfPeers};
use crate::sorted_inputs::SortedInputs;
use crate::subqueries::{NamedSetComparisons, ThreeValuedIn};
use crate::subquery_values::SubqueryValues;
use crate::times_of_day::TimesOfDay;
use crate::told_apart::ToldApart;
use crate::top_k::TopKByGroup;
use crate::totals::FiltersAboveTotals;
use crate::unnested::Unnested;
use crate::uuids::Uuids;
use crate::whole_sorts::WholeSorts;
use crate::window_keys::WindowKeys;

/// DataFusion's rules that go by what is known of unique columns.
const GOES_BY_KEYS: [&str; 3] = ["replace_distinct_aggregate", "eliminate_join", "optimize_projections"];

pub(crate) fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let mut rules = Analyzer::new().rules;
    rules.insert(0, Arc::new(BytesInTexts));
    rules.insert(0, Arc::new(ListsInTexts));
    rules.insert(0, Arc::new(MeantTexts));
    rules.insert(0, Arc::new(Uuids));
    rules.insert(0, Arc::new(GroupsOfPeers));
    rules.insert(0, Arc::new(DecimalsAndFloats));
    // Sums of days and hours are moments from here on; and what is said of a union's moments hangs on the type that they have.
    rules.insert(0, Arc::new(Branches));
    rules.insert(0, Arc::new(Moments));
    rules.insert(0, Arc::new(Branches));
    rules.insert(0, Arc::new(SortedInputs));
    rules.insert(0, Arc::new(Correlated));
    rules.insert(0, Arc::new(OnlyRow));
    rules.push(Arc::new(MomentTexts));
    rules.push(Arc::new(TimesOfDay));
    rules.push(Arc::new(LettersAsBytes));
    rules.push(Arc::new(ByteTexts));
    rules.push(Arc::new(FiniteCasts));
    rules
}

/// The rules of DataFusion and ours.
pub(crate) fn optimizer_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let mut rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> = vec![
        Arc::new(LateralRows),
        Arc::new(KeysOfLists),
        // They make scalar subqueries of others, and the next makes joins of them.
        Arc::new(ExistsLimits),
        Arc::new(OneRow),
        Arc::new(Unnested),
        Arc::new(CorrelatedNames),
        Arc::new(NamedCasts),
        Arc::new(EachKeyOnce),
        Arc::new(AsFunctions),
        Arc::new(WindowKeys),
    ];
    for rule in Optimizer::new().rules {
        match rule.name() {
            name if name == RewriteSetComparison::new().name() => rules.extend([Arc::new(NamedSetComparisons) as Arc<_>, rule]),
            name if name == DecorrelatePredicateSubquery::new().name() => {
                rules.extend([
                    Arc::new(ThreeValuedIn) as Arc<dyn OptimizerRule + Send + Sync>,
                    Arc::new(SubqueryValues::default()),
                    rule,
                ]);
            }
            name if name == ExtractEquijoinPredicate::new().name() => rules.push(Arc::new(EqualKeys::default())),
            // They compute fields of structs early, in columns that they number, and confuse those of two relations of a plan.
            name if name == ExtractLeafExpressions::new().name() || name == PushDownLeafProjections::new().name() => {}
            name if name == EliminateCrossJoin::new().name() => rules.extend([Arc::new(NullKeysApart) as Arc<_>, rule]),
            name if name == PushDownFilter::new().name() => {
                rules.extend([Arc::new(EmptyJoin) as Arc<_>, Arc::new(ConstantsRight) as Arc<_>]);
                rules.push(Arc::new(FiltersAboveTotals::default()));
                rules.push(Arc::new(EqualKeys::default()));
                rules.push(Arc::new(BalancedFilters));
            }
            name if GOES_BY_KEYS.contains(&name) => rules.extend([Arc::new(KeysOfLists) as Arc<_>, rule]),
            name if name == EliminateGroupByConstant::new().name() => rules.push(Arc::new(NamedGroups::default())),
            name if name == SingleDistinctToGroupBy::new().name() => rules.push(Arc::new(OneDistinct::default())),
            _ => rules.push(rule),
        }
    }
    rules.push(Arc::new(CallsLast));
    rules.push(Arc::new(AsOperators));
    rules
}

pub(crate) fn physical_optimizer_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = PhysicalOptimizer::new().rules;
    FewerRows::in_place(&mut rules);
    TopKByGroup::in_place(&mut rules);
    ToldApart::in_place(&mut rules);
    FilterProjections::in_place(&mut rules);
    OrdersHold::before_check(&mut rules);
    rules.insert(0, Arc::new(AnyOrder));
    rules.push(Arc::new(WholeSorts));
    rules.push(Arc::new(GiveWay));
    rules
}
