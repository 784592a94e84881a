//! Operators as checked functions, and back.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::kept_names::map_named;

use super::function::Checked;
use super::kernels::Operation;

/// Makes operators to checked functions, for as long as the optimiser may compute them: what it folds is checked, and what would
/// overflow stays for the run to report.
#[derive(Debug)]
pub(crate) struct AsFunctions;

/// Makes operators of them again, after all other rules.
#[derive(Debug)]
pub(crate) struct AsOperators;

impl OptimizerRule for AsFunctions {
    fn name(&self) -> &'static str {
        "pithead_checked_arithmetic"
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if_any(plan, |part| operation(part).is_some(), |plan| plan.transform_down_with_subqueries(node_with_checks))
    }
}

impl OptimizerRule for AsOperators {
    fn name(&self) -> &'static str {
        "pithead_plain_arithmetic"
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if_any(plan, is_checked_function, |plan| {
            plan.transform_down_with_subqueries(|node| {
                map_named(node, |expr| Ok(expr.transform_up(as_operator)?.update_data(plainly)))
            })
        })
    }
}

/// The plan with checked functions in place of operators, those of its subqueries too.
pub(crate) fn with_checks(plan: LogicalPlan) -> Result<LogicalPlan> {
    let checked = if_any(plan, |part| operation(part).is_some(), |plan| plan.transform_down_with_subqueries(node_with_checks))?;
    Ok(checked.data)
}

/// Changes a plan that has such an expression anywhere. Most have none, and looking costs less than taking plans apart.
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

fn node_with_checks(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !has(&plan, |part| operation(part).is_some())? {
        return Ok(Transformed::no(plan));
    }
    let schema = match &plan {
        LogicalPlan::TableScan(scan) => DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?,
        plan => merge_schema(&plan.inputs()),
    };
    map_named(plan, |expr| expr.transform_up(|expr| as_function(expr, &schema)))
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

fn as_function(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Some(operation) = operation(&expr).filter(|operation| is_checked(*operation, &expr, schema)) else {
        return Ok(Transformed::no(expr));
    };
    Ok(Transformed::yes(match expr {
        Expr::BinaryExpr(binary) => Checked::call(operation, vec![*binary.left, *binary.right]),
        Expr::Negative(value) => Checked::call(operation, vec![*value]),
        expr => expr,
    }))
}

/// Whether the engine would compute it unchecked. The right operand's type tells: with a whole number or a decimal on the right,
/// there is one on the left, too, or an interval, which the function computes as the operator does. Chains lean to the left, so
/// that their types are not worked out anew for each operator.
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

fn is_checked_function(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(function) if function.func.inner().downcast_ref::<Checked>().is_some())
}

fn as_operator(expr: Expr) -> Result<Transformed<Expr>> {
    match expr {
        Expr::ScalarFunction(function) => match function.func.inner().downcast_ref::<Checked>() {
            Some(checked) => checked.as_operator(function.args).map(Transformed::yes),
            None => Ok(Transformed::no(Expr::ScalarFunction(function))),
        },
        expr => Ok(Transformed::no(expr)),
    }
}

/// An aggregate without the name that it got while functions stood for its operators.
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
