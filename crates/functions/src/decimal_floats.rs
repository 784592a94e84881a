//! [`DecimalsAndFloats`]: decimals are compared with the numbers that a statement says, and with the floats of a row as floats.
//!
//! DataFusion 55.2 reads `8.46` as a float, and makes DECIMAL(30, 15) of both sides where it meets a decimal: 8.460000000000001, which no
//! price is. And floats have numbers that this type has not. So constants that are written with a point become the decimals that they
//! are written as, and a decimal beside any other float becomes a float, as in DuckDB.

use std::sync::Arc;

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::functions::expr_fn::to_timestamp_seconds;
use datafusion::logical_expr::expr::{Between, Case, InList, ScalarFunction};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Join, LogicalPlan, Operator, cast, lit};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;

use crate::kept_names::map_named;
use crate::looked_for;
use crate::one_value::compares;
use crate::same_moments::{CHOOSING, of_one_type, same};

/// The rule.
#[derive(Debug)]
pub(crate) struct DecimalsAndFloats;

/// Functions whose result has as many decimal places as their second argument says, where it is a literal.
const ROUNDING: [&str; 2] = ["round", "trunc"];

impl AnalyzerRule for DecimalsAndFloats {
    fn name(&self) -> &'static str {
        "pithead_decimals_and_floats"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_down_with_subqueries(|node| {
            let schema = match &node {
                LogicalPlan::TableScan(scan) if scan.filters.is_empty() => return Ok(Transformed::no(node)),
                LogicalPlan::TableScan(scan) => {
                    Arc::new(DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?)
                }
                node => Arc::new(merge_schema(&node.inputs())),
            };
            let changed = map_named(node, |expr| {
                expr.transform_up(|expr| of_one_type(expr, &schema).transform_data(|expr| alike(expr, &schema)))
            })?;
            changed.transform_data(keys)
        })?;
        Ok(changed.data)
    }
}

/// An expression whose operands are decimals or floats alike.
fn alike(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(op) => {
            let Some(target) = Alike::of([left.as_ref(), &right], schema) else {
                return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })));
            };
            let [left, right] = [left, right].map(|side| Box::new(target.of_operand(*side, schema)));
            Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right })))
        }
        Expr::Between(Between { expr, negated, low, high }) => {
            let Some(target) = Alike::of([expr.as_ref(), &low, &high], schema) else {
                return Ok(Transformed::no(Expr::Between(Between { expr, negated, low, high })));
            };
            let [expr, low, high] = [expr, low, high].map(|part| Box::new(target.of_operand(*part, schema)));
            Ok(Transformed::yes(Expr::Between(Between { expr, negated, low, high })))
        }
        Expr::InList(InList { expr, list, negated }) => {
            let Some(target) = Alike::of(std::iter::once(expr.as_ref()).chain(&list), schema) else {
                return Ok(Transformed::no(Expr::InList(InList { expr, list, negated })));
            };
            let list = list.into_iter().map(|member| target.of_operand(member, schema)).collect();
            let expr = Box::new(target.of_operand(*expr, schema));
            Ok(Transformed::yes(Expr::InList(InList { expr, list, negated })))
        }
        Expr::Case(case) => {
            Ok(compared(case, schema).transform_data(|case| Ok(results(case, schema)))?.update_data(Expr::Case))
        }
        Expr::ScalarFunction(function) if function.func.name() == "to_timestamp" => Ok(since_1970(function, schema)),
        Expr::ScalarFunction(function) if ROUNDING.contains(&function.func.name()) => places(function),
        Expr::ScalarFunction(function) if CHOOSING.contains(&function.func.name()) => {
            let Some(target) = Alike::of(&function.args, schema) else {
                return Ok(Transformed::no(Expr::ScalarFunction(function)));
            };
            let args = function.args.into_iter().map(|arg| target.of_operand(arg, schema)).collect();
            Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { args, ..function })))
        }
        expr @ (Expr::InSubquery(_) | Expr::SetComparison(_)) => looked_for_alike(expr, schema),
        expr => Ok(Transformed::no(expr)),
    }
}

/// A CASE whose operands are compared.
fn compared(case: Case, schema: &DFSchema) -> Transformed<Case> {
    if case.expr.is_none() {
        return Transformed::no(case);
    }
    let compared = case.expr.as_deref().into_iter().chain(case.when_then_expr.iter().map(|(when, _)| when.as_ref()));
    let Some(target) = Alike::of(compared, schema) else { return Transformed::no(case) };
    let of = |expr: Box<Expr>| Box::new(target.of_operand(*expr, schema));
    let when_then_expr = case.when_then_expr.into_iter().map(|(when, then)| (of(when), then)).collect();
    Transformed::yes(Case { expr: case.expr.map(of), when_then_expr, ..case })
}

/// A CASE whose results are put together.
fn results(case: Case, schema: &DFSchema) -> Transformed<Case> {
    let results = case.when_then_expr.iter().map(|(_, then)| then).chain(&case.else_expr).map(Box::as_ref);
    let Some(target) = Alike::of(results, schema) else { return Transformed::no(case) };
    let of = |expr: Box<Expr>| Box::new(target.of_operand(*expr, schema));
    let when_then_expr = case.when_then_expr.into_iter().map(|(when, then)| (when, of(then))).collect();
    Transformed::yes(Case { expr: case.expr, when_then_expr, else_expr: case.else_expr.map(of) })
}

/// A value and the subquery that it is looked for in.
fn looked_for_alike(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    looked_for::changed(expr, |value, column, within| {
        let types = [value.get_type(schema)?, column.get_type(within)?];
        let operands = [Operand::of(Some(&value), &types[0]), Operand::of(None, &types[1])];
        if let Some(target) = Alike::of_operands(operands) {
            let said = value.clone();
            return Ok((target.of_typed(value, Some(&said), &types[0]), target.of_typed(column, None, &types[1])));
        }
        let mut pair = [value, column];
        let before = pair.clone();
        same(&mut pair, &types.map(Some));
        let [value, column] = pair;
        let is_other = [value != before[0], column != before[1]];
        Ok((Transformed::new_transformed(value, is_other[0]), Transformed::new_transformed(column, is_other[1])))
    })
}

/// A function that rounds, to a constant number of places, in the type that the function takes. DataFusion 55.2 would put a cast around
/// it: the function's type is then another one until the cast is simplified, and what was made of that type does not fit.
fn places(mut function: ScalarFunction) -> Result<Transformed<Expr>> {
    if let [_, places] = function.args.as_mut_slice()
        && let Some(constant) = constant(places)?
        && let Ok(ScalarValue::Int32(Some(number))) = constant.cast_to(&DataType::Int32)
    {
        *places = lit(number);
        return Ok(Transformed::yes(Expr::ScalarFunction(function)));
    }
    Ok(Transformed::no(Expr::ScalarFunction(function)))
}

/// The value of an expression that has the same for every row, whoever asks.
fn constant(expr: &Expr) -> Result<Option<ScalarValue>> {
    let varies = |part: &Expr| !matches!(part, Expr::Literal(..) | Expr::BinaryExpr(_) | Expr::Negative(_) | Expr::Cast(_));
    if expr.exists(|part| Ok(varies(part)))? {
        return Ok(None);
    }
    let simplified = ExprSimplifier::new(SimplifyContext::default()).simplify(expr.clone())?;
    Ok(simplified.as_literal().cloned())
}

/// `to_timestamp` of a whole number: that many seconds after 1970. DataFusion 55.2 takes them for seconds of the session's zone.
fn since_1970(function: ScalarFunction, schema: &DFSchema) -> Transformed<Expr> {
    let is_whole = matches!(function.args.as_slice(), [number] if number.get_type(schema).is_ok_and(|of| of.is_integer()));
    let seconds = |args: &[Expr]| to_timestamp_seconds(args.to_vec());
    let utc = || DataType::Timestamp(TimeUnit::Second, Some("UTC".into()));
    match Expr::ScalarFunction(function.clone()).get_type(schema) {
        Ok(data_type @ DataType::Timestamp(_, Some(_))) if is_whole => {
            Transformed::yes(cast(cast(seconds(&function.args), utc()), data_type))
        }
        Ok(data_type) if is_whole => Transformed::yes(cast(seconds(&function.args), data_type)),
        _ => Transformed::no(Expr::ScalarFunction(function)),
    }
}

/// The keys of a join, which are pairs of expressions over its two sides.
fn keys(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Join(join) = plan else { return Ok(Transformed::no(plan)) };
    if join.on.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    let schema = merge_schema(&[&join.left, &join.right]);
    let mut changed = false;
    let pairs = join.on.into_iter().map(|(left, right)| match Alike::of([&left, &right], &schema) {
        Some(target) => {
            changed = true;
            (target.of_operand(left, &schema), target.of_operand(right, &schema))
        }
        None => {
            let types = [&left, &right].map(|key| key.get_type(&schema).ok());
            let mut pair = [left, right];
            changed |= same(&mut pair, &types);
            pair.into()
        }
    });
    let on = pairs.collect();
    Ok(Transformed::new_transformed(LogicalPlan::Join(Join { on, ..join }), changed))
}

/// What operands of several types become.
#[derive(Clone, Copy)]
pub(crate) enum Alike {
    /// Every float among them is a constant that a decimal is equal to.
    Decimals,
    Floats,
}

/// What is known of an operand.
pub(crate) enum Operand {
    Decimal,
    /// Whether it is a constant that a decimal is equal to.
    Float {
        is_exact: bool,
    },
    Other,
}

impl Operand {
    /// Of a type, and of the expression that gives it, where that is known.
    pub(crate) fn of(said: Option<&Expr>, of: &DataType) -> Operand {
        match of {
            of if of.is_decimal() => Operand::Decimal,
            of if of.is_floating() => Operand::Float { is_exact: said.is_some_and(|said| as_decimal(said).is_some()) },
            _ => Operand::Other,
        }
    }
}

impl Alike {
    /// None where there are not both decimals and floats.
    fn of<'e>(operands: impl IntoIterator<Item = &'e Expr>, schema: &DFSchema) -> Option<Self> {
        let known = |operand: &'e Expr| operand.get_type(schema).map_or(Operand::Other, |of| Operand::of(Some(operand), &of));
        Self::of_operands(operands.into_iter().map(known))
    }

    /// The same of operands of which that is known.
    pub(crate) fn of_operands(operands: impl IntoIterator<Item = Operand>) -> Option<Self> {
        let (mut has_decimal, mut has_float, mut are_exact) = (false, false, true);
        for operand in operands {
            match operand {
                Operand::Decimal => has_decimal = true,
                Operand::Float { is_exact } => {
                    has_float = true;
                    are_exact = are_exact && is_exact;
                }
                Operand::Other => {}
            }
        }
        (has_decimal && has_float).then_some(if are_exact { Self::Decimals } else { Self::Floats })
    }

    fn of_operand(self, operand: Expr, schema: &DFSchema) -> Expr {
        let Ok(of) = operand.get_type(schema) else { return operand };
        let said = operand.clone();
        self.of_typed(operand, Some(&said), &of).data
    }

    /// An operand of a type, in the type that all become. `said`: the expression that gives its value, where that is known.
    pub(crate) fn of_typed(self, operand: Expr, said: Option<&Expr>, of: &DataType) -> Transformed<Expr> {
        match self {
            Self::Decimals if of.is_floating() => match said.and_then(as_decimal) {
                Some(decimal) => Transformed::yes(decimal),
                None => Transformed::no(operand),
            },
            Self::Floats if of.is_decimal() => Transformed::yes(cast(operand, DataType::Float64)),
            _ => Transformed::no(operand),
        }
    }
}

/// The decimal that a constant is written as: a number, or sums, differences and products of numbers.
fn as_decimal(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Literal(ScalarValue::Float64(Some(value)), metadata) => Some(Expr::Literal(decimal(*value)?, metadata.clone())),
        Expr::Literal(value, _) if value.data_type().is_integer() => Some(expr.clone()),
        Expr::Negative(inner) => Some(Expr::Negative(Box::new(as_decimal(inner)?))),
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Plus | Operator::Minus | Operator::Multiply), right }) => {
            let (left, right) = (as_decimal(left)?, as_decimal(right)?);
            Some(Expr::BinaryExpr(BinaryExpr { left: Box::new(left), op: *op, right: Box::new(right) }))
        }
        _ => None,
    }
}

/// The decimal with the fewest digits that a float is written as; none: it has more than a decimal can, or is no number.
fn decimal(value: f64) -> Option<ScalarValue> {
    if !value.is_finite() {
        return None;
    }
    let text = format!("{value}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = i8::try_from(fraction.len()).ok()?;
    let precision = u8::try_from(digits.unsigned_abs().to_string().len().max(fraction.len())).ok()?;
    (precision <= DECIMAL128_MAX_PRECISION).then_some(ScalarValue::Decimal128(Some(digits), precision, scale))
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::{EngineOptions, session_state};

    async fn rows_of(sql: &str) -> usize {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let found = context.sql(sql).await.unwrap().collect().await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        found.iter().map(|batch| batch.num_rows()).sum()
    }

    #[tokio::test]
    async fn decimals_are_the_numbers_that_are_written() {
        let rows = "(SELECT CAST(v AS decimal(15, 2)) AS d FROM (VALUES ('8.46'), ('203851.13'), ('-0.07'), ('123456789.01')) AS t(v))";
        for (condition, expected) in [
            ("d = 8.46", 1),
            ("d <> 8.46", 3),
            ("203851.13 = d", 1),
            ("d IN (8.46, 203851.13, 123456789.01)", 3),
            ("d BETWEEN 8.46 AND 203851.13", 2),
            ("d = -0.07", 1),
            ("d = -0.06 - 0.01", 1),
            ("d > 8.455 AND d < 8.465", 1),
            ("CASE d WHEN 8.46 THEN true ELSE false END", 1),
            ("nullif(d, 8.46) IS NULL", 1),
            ("greatest(d, 8.46) = 8.46", 2),
            ("d < 1e300", 4),
            ("d < 'NaN'::double", 4),
            ("d = 8.46::double", 1),
        ] {
            assert_eq!(rows_of(&format!("SELECT 1 FROM {rows} WHERE {condition}")).await, expected, "{condition}");
        }
    }

    #[tokio::test]
    async fn floats_of_rows_are_compared_as_floats() {
        let rows = "(SELECT CAST(a AS decimal(10, 2)) AS d, b AS f FROM (VALUES (0.0, 1e-20), (0.3, 0.1 + 0.2), (1.0, 'NaN'::double), \
                    (2.0, 2.0), (3.0, 1e300)) AS v(a, b))";
        for (sql, expected) in [
            (format!("SELECT 1 FROM {rows} WHERE d < f"), 4),
            (format!("SELECT 1 FROM {rows} WHERE f = d"), 1),
            (format!("SELECT 1 FROM {rows} AS x JOIN {rows} AS y ON x.d = y.f"), 1),
            (format!("SELECT 1 FROM {rows} WHERE d BETWEEN f - 1 AND f"), 3),
        ] {
            assert_eq!(rows_of(&sql).await, expected, "{sql}");
        }
    }

    #[test]
    fn floats_are_written_as_decimals() {
        let of = |value| match decimal(value) {
            Some(ScalarValue::Decimal128(Some(digits), precision, scale)) => Some((digits, precision, scale)),
            _ => None,
        };
        assert_eq!(of(8.46), Some((846, 3, 2)));
        assert_eq!(of(-0.05), Some((-5, 2, 2)));
        assert_eq!(of(0.0), Some((0, 1, 0)));
        assert_eq!(of(1e20), Some((100_000_000_000_000_000_000, 21, 0)));
        assert_eq!((of(1e-40), of(1e300), of(f64::NAN), of(f64::INFINITY)), (None, None, None, None));
    }
}
