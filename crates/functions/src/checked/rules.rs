//! The rules that turn operators into checked functions, and back.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::bounded::{Bounded, bounded, may_fold, plain};
use crate::guarded::{case_of, guarded, guards};
use crate::kept_names::map_named;
use crate::nested_order::operator_of;
use crate::one_value::{
    compared, compares_cast, compares_constants, is_constant, with_cast_kept, with_lists_apart, without_one_value,
};
use crate::similar::{is_misread, well_read, whole_match};
use crate::whole_field::{plain_field, takes_field, whole_field};

use super::function::Checked;
use super::kernels::Operation;

/// Turns operators into checked functions for as long as the optimiser may compute them. What it folds is then checked,
/// and what would overflow stays in the plan, so that the run reports it. Does the same for functions that could make a
/// large constant, and for what compares constants or takes a field of one in another way than the engine that runs.
#[derive(Debug)]
pub(crate) struct AsFunctions;

/// Turns these functions back into operators, after all other rules.
#[derive(Debug)]
pub(crate) struct AsOperators;

impl OptimizerRule for AsFunctions {
    fn name(&self) -> &'static str {
        "pithead_checked_arithmetic"
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let apart = if_any(plan, is_list, |plan| plan.transform_down_with_subqueries(node_with_lists_apart))?;
        let is_one = |part: &Expr| operation(part).is_some() || may_fold(part) || is_other_if_folded(part);
        apart.transform_data(|plan| {
            if_any(plan, is_one, |plan| plan.transform_down_with_subqueries(|node| node_with_checks(node, &is_one, true)))
        })
    }
}

impl OptimizerRule for AsOperators {
    fn name(&self) -> &'static str {
        "pithead_plain_arithmetic"
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if_any(plan, is_ours, |plan| {
            plan.transform_down_with_subqueries(|node| {
                map_named(node, |expr| Ok(expr.transform_up(as_operator)?.update_data(plainly)))
            })
        })
    }
}

/// The plan, and the plans of its subqueries, with checked functions in the place of operators and bounded functions in
/// the place of others.
pub(crate) fn with_checks(plan: LogicalPlan) -> Result<LogicalPlan> {
    let is_one = |part: &Expr| operation(part).is_some() || bounded(part).is_some() || takes_field(part);
    let checked =
        if_any(plan, is_one, |plan| plan.transform_down_with_subqueries(|node| node_with_checks(node, &is_one, false)))?;
    Ok(checked.data)
}

/// Changes a plan that has such an expression anywhere. Most plans have none, and looking costs less than taking plans
/// apart.
fn if_any(
    plan: LogicalPlan,
    is_one: impl Fn(&Expr) -> bool,
    change: impl FnOnce(LogicalPlan) -> Result<Transformed<LogicalPlan>>,
) -> Result<Transformed<LogicalPlan>> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found = found || has(node, &is_one)?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if found { change(plan) } else { Ok(Transformed::no(plan)) }
}

fn node_with_checks(plan: LogicalPlan, is_one: &impl Fn(&Expr) -> bool, folds: bool) -> Result<Transformed<LogicalPlan>> {
    if !has(&plan, is_one)? {
        return Ok(Transformed::no(plan));
    }
    let schema = schema_of(&plan)?;
    map_named(plan, |expr| {
        expr.transform_up(|expr| if is_one(&expr) { as_function(expr, &schema, folds) } else { Ok(Transformed::no(expr)) })
    })
}

fn is_list(expr: &Expr) -> bool {
    matches!(expr, Expr::InList(_))
}

fn node_with_lists_apart(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !has(&plan, is_list)? {
        return Ok(Transformed::no(plan));
    }
    let schema = schema_of(&plan)?;
    map_named(plan, |expr| with_lists_apart(expr, &schema))
}

/// What a node's expressions are of.
fn schema_of(plan: &LogicalPlan) -> Result<DFSchema> {
    match plan {
        LogicalPlan::TableScan(scan) => DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema()),
        plan => Ok(merge_schema(&plan.inputs())),
    }
}

fn has(plan: &LogicalPlan, is_one: impl Fn(&Expr) -> bool) -> Result<bool> {
    let mut found = false;
    plan.apply_expressions(|expr| {
        found = found || expr.exists(|part| Ok(is_one(part)))?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

fn operation(expr: &Expr) -> Option<Operation> {
    match expr {
        Expr::BinaryExpr(binary) => Checked::of(binary.op),
        Expr::Negative(_) => Some(Operation::Negate),
        _ => None,
    }
}

fn as_function(expr: Expr, schema: &DFSchema, folds: bool) -> Result<Transformed<Expr>> {
    if let Some(bounded) = bounded(&expr) {
        let bounded = if folds { bounded.folding() } else { bounded };
        return Ok(Transformed::yes(bounded.call(expr)));
    }
    if takes_field(&expr) {
        return Ok(Transformed::yes(whole_field(expr)));
    }
    if let Expr::SimilarTo(like) = expr {
        return whole_match(like, schema).map(Transformed::yes);
    }
    if compares_constants(&expr) {
        return compared(expr, schema);
    }
    if is_misread(&expr) {
        return Ok(Transformed::yes(well_read(expr)));
    }
    if compares_cast(&expr) {
        return with_cast_kept(expr, schema);
    }
    if let Expr::Case(case) = expr {
        // Of others the optimiser makes no AND and OR.
        let is_truth =
            case.when_then_expr.first().is_some_and(|(_, then)| then.get_type(schema).is_ok_and(|of| of == DataType::Boolean));
        return Ok(if is_truth { Transformed::yes(guarded(case)) } else { Transformed::no(Expr::Case(case)) });
    }
    let Some(operation) = operation(&expr).filter(|operation| is_checked(*operation, &expr, schema)) else {
        return Ok(Transformed::no(expr));
    };
    Ok(Transformed::yes(match expr {
        Expr::BinaryExpr(binary) => Checked::call(operation, vec![*binary.left, *binary.right]),
        Expr::Negative(value) => Checked::call(operation, vec![*value]),
        expr => expr,
    }))
}

/// Whether the optimiser would compute something else of it than the engine that runs.
fn is_other_if_folded(expr: &Expr) -> bool {
    match expr {
        Expr::SimilarTo(_) => true,
        Expr::Case(_) => guards(expr) || compares_constants(expr),
        expr => compares_constants(expr) || takes_field(expr) && is_constant(expr) || is_misread(expr) || compares_cast(expr),
    }
}

/// Whether the engine would compute the operator without a check. The type of the right operand decides: with a whole
/// number or a decimal on the right, there is one on the left, too, or an interval, for which the function does what
/// the operator does. Chains lean to the left, so their types are not computed again for each operator.
fn is_checked(operation: Operation, expr: &Expr, schema: &DFSchema) -> bool {
    let operand = match expr {
        Expr::BinaryExpr(binary) => &binary.right,
        Expr::Negative(value) => value,
        _ => return false,
    };
    match operand.get_type(schema) {
        Ok(data_type) if data_type.is_integer() => operation != Operation::Divide,
        Ok(DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..) | DataType::Decimal256(..)) => {
            operation != Operation::Negate
        }
        _ => false,
    }
}

fn is_ours(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(function)
        if function.func.inner().is::<Checked>()
            || function.func.inner().is::<Bounded>()
            || replaced(function).is_some())
}

/// What a function stands for that took the place of an expression only while the optimiser works.
fn replaced(function: &ScalarFunction) -> Option<Expr> {
    let first = operator_of(function).or_else(|| without_one_value(function));
    first.or_else(|| plain_field(function)).or_else(|| case_of(function))
}

fn as_operator(expr: Expr) -> Result<Transformed<Expr>> {
    match expr {
        Expr::ScalarFunction(function) => match function.func.inner().downcast_ref::<Checked>() {
            Some(checked) => checked.as_operator(function.args).map(Transformed::yes),
            None => Ok(match replaced(&function) {
                Some(expr) => Transformed::yes(expr),
                None => {
                    let (was_bounded, expr) = plain(function);
                    if was_bounded { Transformed::yes(expr) } else { Transformed::no(expr) }
                }
            }),
        },
        expr => Ok(Transformed::no(expr)),
    }
}

/// An aggregate without the name that it got while functions took the place of its operators.
fn plainly(expr: Expr) -> Expr {
    match expr {
        Expr::Alias(alias)
            if matches!(*alias.expr, Expr::AggregateFunction(_) | Expr::WindowFunction(_))
                && alias.relation.is_none()
                && alias.expr.schema_name().to_string() == alias.name =>
        {
            *alias.expr
        }
        expr => expr,
    }
}
