//! [`Moments`]: a day and some hours are a moment, and what moments are in a zone.
//!
//! A column of moments with a zone is stored in UTC. What a moment is in hours, as a day or as a text, depends on a zone, and that is the
//! session's ([`SessionZone`]), as in PostgreSQL and DuckDB; DataFusion takes the column's.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::functions::datetime::expr_fn::to_local_time;
use datafusion::logical_expr::expr::{Between, Case, Cast, InList, ScalarFunction, TryCast};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Join, LogicalPlan, Operator, cast};
use datafusion::optimizer::AnalyzerRule;

use crate::at_zone::{AT_ZONE, as_it_is, at_zone, has_zone};
use crate::by_type::{by_type, is_by_type};
use crate::day_sums::{by_moment, in_micros, is_interval};
use crate::kept_names::map_named;
use crate::looked_for;
use crate::moment_parts::{is_moment_part, moment_part};
use crate::one_value::compares;
use crate::same_moments::CHOOSING;
use crate::short_times::{is_short, with_seconds};
use crate::wall_time::{moment_at, shifted};

/// Adds intervals to days, and takes them away, as PostgreSQL and DuckDB do: by the moment at which the day begins. DataFusion drops the
/// hours of the interval. Of intervals that are written in days and months, the sum stays a day: it is compared as the moment is, and
/// bounds of slices rule out what they can.
#[derive(Debug)]
pub(crate) struct Moments;

impl AnalyzerRule for Moments {
    fn name(&self) -> &'static str {
        "pithead_moments"
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        let zone = SessionZone::of(config);
        let mut is_changed = false;
        // Types change, and with them the columns of what is above.
        let changed = plan.transform_up_with_subqueries(|node| {
            if matches!(node, LogicalPlan::TableScan(_)) || !(is_changed || zone.concerns(&node)?) {
                return Ok(Transformed::no(node));
            }
            let schema = Arc::new(merge_schema(&node.inputs()));
            let node = map_named(node, |expr| {
                expr.transform_up(|part| {
                    if let Some(parts) = moment_part(&part, |part| Ok(zone.shown(part, &schema)?.data))? {
                        return Ok(Transformed::yes(parts));
                    }
                    if let Some(meant) =
                        at_zone(&part, &schema, zone.name())?.map_or_else(|| by_type(&part, &schema), |it| Ok(Some(it)))?
                    {
                        return Ok(Transformed::yes(meant));
                    }
                    with_seconds(part, &schema)
                        .transform_data(|part| by_moment(part, &schema).transform_data(|part| zone.shown(part, &schema)))
                })
            })?;
            let node = node.transform_data(|node| zone.keys(node))?;
            is_changed |= node.transformed;
            if is_changed { node.map_data(LogicalPlan::recompute_schema) } else { Ok(node) }
        })?;
        Ok(changed.data)
    }
}

/// The zone of a session.
pub(crate) struct SessionZone {
    name: Arc<str>,
}

/// Whether two zones are one, as far as their names say.
fn is_same(one: &str, other: &str) -> bool {
    const UTC: [&str; 4] = ["UTC", "+00:00", "+00", "Z"];
    one == other || UTC.contains(&one) && UTC.contains(&other)
}

/// Functions of a moment whose result hangs on a zone.
const IN_ZONE: [&str; 6] = ["date_bin", "date_part", "date_trunc", "to_char", "to_date", "to_time"];

/// What `x = ANY (list)` is planned as, and a list that is written out.
const IN_ARRAY: &str = "array_has";
const ARRAY: &str = "make_array";

impl SessionZone {
    pub(crate) fn of(config: &ConfigOptions) -> Self {
        let name = config.execution.time_zone.as_deref().unwrap_or("UTC");
        Self { name: name.into() }
    }

    /// Whether an expression of a node may have another meaning here than to DataFusion.
    fn concerns(&self, node: &LogicalPlan) -> Result<bool> {
        let is_special = |field: &FieldRef| match field.data_type() {
            DataType::Timestamp(TimeUnit::Second | TimeUnit::Millisecond, _) => true,
            DataType::Timestamp(_, Some(zone)) => !is_same(zone, &self.name),
            _ => false,
        };
        let mut found =
            !is_same(&self.name, "UTC") || node.inputs().iter().any(|input| input.schema().fields().iter().any(is_special));
        node.apply_expressions(|expr| {
            found = found
                || expr.exists(|part| {
                    let is_sum = matches!(part, Expr::BinaryExpr(BinaryExpr { op: Operator::Plus | Operator::Minus, .. }));
                    let is_at_zone = matches!(part, Expr::ScalarFunction(function) if function.func.name() == AT_ZONE);
                    Ok(is_sum || is_at_zone || is_by_type(part) || is_moment_part(part) || is_short(part))
                })?;
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        Ok(found)
    }

    fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// An expression that reads moments, and writes them, in this zone.
    fn shown(&self, expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        Ok(match expr {
            Expr::ScalarFunction(function) if IN_ZONE.contains(&function.func.name()) => {
                let args = each(function.args, |arg| self.here(arg, schema));
                args.update_data(|args| Expr::ScalarFunction(ScalarFunction { func: function.func, args }))
            }
            Expr::ScalarFunction(function) if CHOOSING.contains(&function.func.name()) => {
                let of = function.args.iter().find_map(|arg| arg.get_type(schema).ok().filter(has_zone));
                let args = each(function.args, |arg| self.moment_of(arg, of.as_ref(), schema));
                args.update_data(|args| Expr::ScalarFunction(ScalarFunction { func: function.func, args }))
            }
            Expr::Case(case) => self.case(case, schema),
            Expr::Cast(Cast { expr, field }) => {
                self.casted(*expr, field, |expr, field| Expr::Cast(Cast { expr, field }), schema)
            }
            Expr::TryCast(TryCast { expr, field }) => {
                self.casted(*expr, field, |expr, field| Expr::TryCast(TryCast { expr, field }), schema)
            }
            Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Plus | Operator::Minus), right }) => {
                self.sum(*left, op, *right, schema)
            }
            expr @ (Expr::InSubquery(_) | Expr::SetComparison(_)) => self.looked_for(expr, schema)?,
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(op) => {
                let [left, right] = fine(self.moments([*left, *right], schema), schema);
                binary(left, op, right)
            }
            Expr::Between(Between { expr, negated, low, high }) => {
                let [expr, low, high] = fine(self.moments([*expr, *low, *high], schema), schema);
                let changed = [&expr, &low, &high].iter().any(|part| part.transformed);
                let [expr, low, high] = [expr, low, high].map(|part| Box::new(part.data));
                Transformed::new_transformed(Expr::Between(Between { expr, negated, low, high }), changed)
            }
            Expr::InList(InList { expr, list, negated }) => {
                let mut operands = std::iter::once(expr.as_ref()).chain(&list);
                let zoned = operands.find_map(|operand| operand.get_type(schema).ok().filter(has_zone));
                let list = each(list, |member| self.moment_of(member, zoned.as_ref(), schema));
                let expr = self.moment_of(*expr, zoned.as_ref(), schema);
                let of = expr.data.get_type(schema)?;
                let is_told = list.data.iter().all(|member| is_told(member, &of, schema));
                let changed = expr.transformed || list.transformed || !is_told;
                let expr = Box::new(if is_told { expr.data } else { as_it_is(cast(expr.data, in_micros(&of))) });
                Transformed::new_transformed(Expr::InList(InList { expr, list: list.data, negated }), changed)
            }
            Expr::ScalarFunction(function) if function.func.name() == IN_ARRAY => self.in_array(function, schema),
            expr => Transformed::no(expr),
        })
    }

    /// A moment and an interval: days and months are those of the session's zone. Or a moment taken from another, which may be a day or
    /// a wall time.
    fn sum(&self, left: Expr, op: Operator, right: Expr, schema: &DFSchema) -> Transformed<Expr> {
        let sign = if op == Operator::Plus { 1 } else { -1 };
        let (moment, interval) = match [is_interval(&left, schema), is_interval(&right, schema)] {
            [false, true] => (left, right),
            [true, false] if op == Operator::Plus => (right, left),
            _ if op == Operator::Minus && [&left, &right].iter().all(|side| is_moment(side, schema)) => {
                let sides = self.moments([left, right], schema);
                let is_mixed = sides.iter().any(|side| side.transformed);
                let [left, right] = sides.map(|side| match is_mixed {
                    true => Transformed::yes(self.here(side.data, schema).data),
                    false => side,
                });
                return binary(left, op, right);
            }
            _ => return binary(Transformed::no(left), op, Transformed::no(right)),
        };
        let is_zoned = moment.get_type(schema).is_ok_and(|of| has_zone(&of));
        match is_zoned && !is_same(&self.name, "UTC") {
            true => Transformed::yes(shifted(self.here(moment, schema).data, interval, sign)),
            false => binary(self.here(moment, schema), op, Transformed::no(interval)),
        }
    }

    /// A value and the subquery that it is looked for in, whose column is of the same kind of moment.
    fn looked_for(&self, expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        looked_for::changed(expr, |value, column, within| {
            let (of, of_column) = (value.get_type(schema)?, column.get_type(within)?);
            Ok((self.moment(value, &of_column, schema), self.moment(column, &of, within)))
        })
    }

    /// A list and the value that it is searched for: a wall time among moments, or a moment among wall times that are written out.
    fn in_array(&self, function: ScalarFunction, schema: &DFSchema) -> Transformed<Expr> {
        let ScalarFunction { func, args } = function;
        let call = |args| Expr::ScalarFunction(ScalarFunction { func, args });
        let (list, value) = match <[Expr; 2]>::try_from(args) {
            Ok([list, value]) => (list, value),
            Err(args) => return Transformed::no(call(args)),
        };
        let member = match list.get_type(schema) {
            Ok(DataType::List(of) | DataType::LargeList(of) | DataType::FixedSizeList(of, _)) => Some(of.data_type().clone()),
            _ => None,
        };
        let zoned = value.get_type(schema).ok().filter(has_zone);
        let value = self.moment_among(value, member.filter(has_zone).as_ref(), schema);
        let list = match list {
            Expr::ScalarFunction(made) if made.func.name() == ARRAY => {
                let members = each(made.args, |member| self.moment_among(member, zoned.as_ref(), schema));
                members.update_data(|args| Expr::ScalarFunction(ScalarFunction { func: made.func, args }))
            }
            other => Transformed::no(other),
        };
        Transformed::new_transformed(call(vec![list.data, value.data]), list.transformed || value.transformed)
    }

    /// A wall time as a moment of exactly a type.
    fn moment_among(&self, expr: Expr, of: Option<&DataType>, schema: &DFSchema) -> Transformed<Expr> {
        let Some(of) = of else { return Transformed::no(expr) };
        let moment = self.moment(expr, of, schema);
        if moment.transformed { moment.update_data(|moment| cast(moment, of.clone())) } else { moment }
    }

    /// The keys of a join, which may be wall times beside moments.
    fn keys(&self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(join) = plan else { return Ok(Transformed::no(plan)) };
        let schema = merge_schema(&[&join.left, &join.right]);
        let mut changed = false;
        let pair = |(left, right)| {
            let pair = self.moments([left, right], &schema);
            changed |= pair.iter().any(|key| key.transformed);
            pair.map(|key| key.data).into()
        };
        let on = join.on.into_iter().map(pair).collect();
        Ok(Transformed::new_transformed(LogicalPlan::Join(Join { on, ..join }), changed))
    }

    fn case(&self, case: Case, schema: &DFSchema) -> Transformed<Expr> {
        let results = case.when_then_expr.iter().map(|(_, then)| then).chain(&case.else_expr);
        let of = results.filter_map(|result| result.get_type(schema).ok()).find(has_zone);
        let mut changed = false;
        let mut result = |result: Box<Expr>| {
            let result = self.moment_of(*result, of.as_ref(), schema);
            changed |= result.transformed;
            Box::new(result.data)
        };
        let when_then_expr = case.when_then_expr.into_iter().map(|(when, then)| (when, result(then))).collect();
        let else_expr = case.else_expr.map(&mut result);
        Transformed::new_transformed(Expr::Case(Case { expr: case.expr, when_then_expr, else_expr }), changed)
    }

    /// A cast, of which nothing can fail but what `made` makes.
    fn casted(&self, expr: Expr, field: FieldRef, made: Made, schema: &DFSchema) -> Transformed<Expr> {
        let (from, to) = (expr.get_type(schema).ok(), field.data_type());
        let is_wall_time = matches!(from, Some(DataType::Timestamp(_, None) | DataType::Date32 | DataType::Date64));
        if let DataType::Timestamp(_, Some(zone)) = to {
            if from.as_ref().is_some_and(|from| from.is_string()) && !is_same(zone, &self.name) {
                let here = Arc::new(field.as_ref().clone().with_data_type(self.here_of(to)));
                return Transformed::yes(made(Box::new(as_it_is(made(Box::new(expr), here))), field));
            }
            let expr = self.moment(expr, to, schema);
            let keeps_number = is_same(zone, "UTC") && !expr.transformed;
            let there = expr.update_data(|expr| made(Box::new(expr), Arc::clone(&field)));
            return if is_wall_time && !keeps_number { Transformed::yes(as_it_is(there.data)) } else { there };
        }
        let is_elsewhere = from.is_some_and(|from| has_zone(&from)) && !is_same(&self.name, "UTC");
        let expr = self.here(expr, schema);
        let expr = match is_elsewhere && matches!(to, DataType::Timestamp(_, None)) {
            true => Transformed::yes(to_local_time(vec![expr.data])),
            false => expr,
        };
        expr.update_data(|expr| made(Box::new(expr), field))
    }

    /// The type of the same moments in this zone.
    fn here_of(&self, of: &DataType) -> DataType {
        match of {
            DataType::Timestamp(unit, _) => DataType::Timestamp(*unit, Some(Arc::clone(&self.name))),
            other => other.clone(),
        }
    }

    /// [`SessionZone::moment`], if there is a type.
    fn moment_of(&self, expr: Expr, of: Option<&DataType>, schema: &DFSchema) -> Transformed<Expr> {
        match of {
            Some(of) => self.moment(expr, of, schema),
            None => Transformed::no(expr),
        }
    }

    /// A moment in this zone.
    pub(crate) fn here(&self, expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
        match expr.get_type(schema) {
            Ok(DataType::Timestamp(unit, Some(zone))) if !is_same(&zone, &self.name) => {
                Transformed::yes(cast(expr, DataType::Timestamp(unit, Some(Arc::clone(&self.name)))))
            }
            _ => Transformed::no(expr),
        }
    }

    /// What is to be a moment of a type with a zone: a text or a wall time is one of this zone.
    pub(crate) fn moment(&self, expr: Expr, of: &DataType, schema: &DFSchema) -> Transformed<Expr> {
        let DataType::Timestamp(unit, Some(zone)) = of else { return Transformed::no(expr) };
        if is_same(zone, &self.name) && is_same(zone, "UTC") {
            return Transformed::no(expr);
        }
        match expr.get_type(schema) {
            Ok(DataType::Timestamp(_, None)) => Transformed::yes(moment_at(expr, &self.name)),
            Ok(DataType::Date32 | DataType::Date64) => {
                Transformed::yes(moment_at(cast(expr, DataType::Timestamp(TimeUnit::Microsecond, None)), &self.name))
            }
            Ok(data_type) if data_type.is_string() && !is_same(zone, &self.name) => {
                Transformed::yes(as_it_is(cast(expr, DataType::Timestamp(*unit, Some(Arc::clone(&self.name))))))
            }
            _ => Transformed::no(expr),
        }
    }

    /// Operands that are compared, if one is a moment with a zone.
    fn moments<const N: usize>(&self, operands: [Expr; N], schema: &DFSchema) -> [Transformed<Expr>; N] {
        let of = operands.iter().find_map(|operand| operand.get_type(schema).ok().filter(has_zone));
        operands.map(|operand| self.moment_of(operand, of.as_ref(), schema))
    }
}

/// Operands that are compared, with moments in units as fine as what they are compared with: of a constant, the optimiser drops what a
/// coarser column has no digits for.
fn fine<const N: usize>(operands: [Transformed<Expr>; N], schema: &DFSchema) -> [Transformed<Expr>; N] {
    let types: Vec<Option<DataType>> = operands.iter().map(|operand| operand.data.get_type(schema).ok()).collect();
    let is_too_coarse: Vec<bool> = types
        .iter()
        .map(|of| of.as_ref().is_some_and(|of| operands.iter().any(|other| !is_told(&other.data, of, schema))))
        .collect();
    let mut known = types.into_iter().zip(is_too_coarse);
    operands.map(|operand| match known.next() {
        Some((Some(of), true)) => Transformed::yes(as_it_is(cast(operand.data, in_micros(&of)))),
        _ => operand,
    })
}

/// Whether what is compared with moments of a type in seconds or milliseconds has no finer digits.
fn is_told(expr: &Expr, of: &DataType, schema: &DFSchema) -> bool {
    let DataType::Timestamp(unit @ (TimeUnit::Second | TimeUnit::Millisecond), _) = of else { return true };
    let of_unit = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000_i64,
    };
    let text_of = |expr: &Expr| match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten().map(str::to_owned),
        _ => None,
    };
    let Ok(DataType::Timestamp(finer, _)) = expr.get_type(schema) else {
        return text_of(expr).is_none_or(|text| !text.contains('.'));
    };
    let ratio = of_unit(&finer) / of_unit(unit);
    if ratio <= 1 {
        return true;
    }
    match expr {
        Expr::Literal(
            ScalarValue::TimestampMillisecond(Some(value), _)
            | ScalarValue::TimestampMicrosecond(Some(value), _)
            | ScalarValue::TimestampNanosecond(Some(value), _),
            _,
        ) => value % ratio == 0,
        Expr::Cast(cast) => text_of(&cast.expr).is_some_and(|text| !text.contains('.')),
        _ => false,
    }
}

/// Each of some expressions, changed.
fn each(exprs: Vec<Expr>, mut change: impl FnMut(Expr) -> Transformed<Expr>) -> Transformed<Vec<Expr>> {
    let mut changed = false;
    let one = |expr| {
        let expr = change(expr);
        changed |= expr.transformed;
        expr.data
    };
    let exprs = exprs.into_iter().map(one).collect();
    Transformed::new_transformed(exprs, changed)
}

fn binary(left: Transformed<Expr>, op: Operator, right: Transformed<Expr>) -> Transformed<Expr> {
    let changed = left.transformed || right.transformed;
    let expr = Expr::BinaryExpr(BinaryExpr { left: Box::new(left.data), op, right: Box::new(right.data) });
    Transformed::new_transformed(expr, changed)
}

/// Makes a cast to the type of a field.
type Made = fn(Box<Expr>, FieldRef) -> Expr;

/// Whether an expression is a moment, a wall time or a day.
fn is_moment(expr: &Expr, schema: &DFSchema) -> bool {
    matches!(expr.get_type(schema), Ok(DataType::Timestamp(..) | DataType::Date32 | DataType::Date64))
}

#[cfg(test)]
mod tests;
