//! Aggregates at the drives: complete where all rows of a group are on one drive, else in parts that the host merges.
//!
//! Parts are standard functions only: `avg` travels as sum and count, variances travel as count, mean and variance of
//! the population, and DISTINCT travels as more groups. The host merges means and variances by the formula of Chan et
//! al. 1979 (see `docs/bibliography.md`), in aggregates of our own.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result};
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::functions::expr_fn::sqrt;
use datafusion::logical_expr::expr::{AggregateFunction, Case, ScalarFunction};
use datafusion::logical_expr::utils::COUNT_STAR_EXPANSION;
use datafusion::logical_expr::{Aggregate, Cast, Expr, ExprSchemable, LogicalPlan, Operator, Projection, binary_expr, lit};
use pithead_functions::Registry;
use pithead_model::Level;

use crate::Estimate;
use crate::cutter::{Cutter, Outcome};
use crate::expression::any_stays;
use crate::names::{own, own_column};
use crate::piece::Piece;

impl Cutter<'_> {
    pub(crate) fn aggregate(&mut self, plan: &LogicalPlan, aggregate: &Aggregate) -> Result<Outcome> {
        if let Some(outcome) = self.aggregate_of_join(plan, aggregate)? {
            return Ok(outcome);
        }
        let input = self.visit(&aggregate.input)?;
        self.aggregate_over(plan, aggregate, input)
    }

    /// The aggregate over an input that was visited already.
    pub(crate) fn aggregate_over(&mut self, plan: &LogicalPlan, aggregate: &Aggregate, input: Outcome) -> Result<Outcome> {
        let below = aggregate.input.schema();
        let estimate = input.estimate.group(&aggregate.group_expr, below, &aggregate.schema);
        let estimate = estimate.with_functions(&aggregate.aggr_expr, &input.estimate, below);
        let host = self.built(&aggregate.schema, || over(aggregate, input.host))?;
        let host_cost = input.host_cost;
        let Some(piece) = input.piece else { return Ok(Outcome { estimate, host, host_cost, piece: None }) };
        if let Some(reason) = self.aggregate_obstacle(plan, aggregate) {
            self.stayed(plan, || reason);
            return Ok(Outcome { estimate, host, host_cost, piece: None });
        }
        if piece.complete_groups(&aggregate.group_expr) {
            let grown = self.built(&aggregate.schema, || over(aggregate, piece.plan.clone()))?;
            let complete = Piece { whole: true, ..self.grown(piece.with_columns(&aggregate.group_expr), grown, plan) };
            return self.settle(plan, estimate, host, host_cost, Some(complete));
        }
        let (host, host_cost) = match self.partial(plan, aggregate, &piece, &input.estimate, &estimate)? {
            Some((merged, cost)) if cost <= host_cost * (1.0 + 1e-9) => {
                self.stayed(&merged, || "merges the drives' parts");
                (merged, cost)
            }
            Some((_, cost)) => {
                self.stayed(plan, || piece.too_dear(cost, host_cost));
                (host, host_cost)
            }
            None => (host, host_cost),
        };
        if !piece.scheme.single() || !piece.is_whole() {
            return Ok(Outcome { estimate, host, host_cost, piece: None });
        }
        // A single partition has every group as a whole, whatever it was partitioned by.
        let grown = self.built(&aggregate.schema, || over(aggregate, piece.plan.clone()))?;
        let one_round = piece.one_round || !piece.whole;
        let grown = self.grown(piece.with_columns(&aggregate.group_expr), grown, plan);
        self.settle(plan, estimate, host, host_cost, Some(Piece { whole: true, one_round, ..grown }))
    }

    fn aggregate_obstacle(&mut self, plan: &LogicalPlan, aggregate: &Aggregate) -> Option<String> {
        if !self.options.aggregates {
            return Some("aggregates are not pushed down (pithead.pushdown_aggregates)".into());
        }
        if let Some(reason) = self.refusal(plan) {
            return Some(reason);
        }
        any_stays(aggregate.group_expr.iter().chain(&aggregate.aggr_expr))
    }

    /// The aggregate in parts at the drives, merged at the host: the merged plan and the bytes on the link.
    fn partial(
        &mut self,
        plan: &LogicalPlan,
        aggregate: &Aggregate,
        piece: &Piece,
        input: &Estimate,
        output: &Estimate,
    ) -> Result<Option<(LogicalPlan, f64)>> {
        let split = match Split::of(aggregate, self.state) {
            Ok(split) => split,
            Err(reason) => {
                self.stayed(plan, || reason);
                return Ok(None);
            }
        };
        let parts = Aggregate::try_new(Arc::new(piece.plan.clone()), split.groups.clone(), split.parts.clone())?;
        let estimate = input.group(&split.groups, piece.plan.schema(), &parts.schema);
        let rows = input.rows.min(estimate.rows.max(output.rows) * piece.scheme.copies.len() as f64);
        let estimate = estimate.with_rows(rows).with_counted(&split.parts, input, piece.plan.schema());
        let cost = piece.cost + estimate.bytes();
        if self.is_draft() {
            return Ok(Some((self.built(&aggregate.schema, || Ok(plan.clone()))?, cost)));
        }
        let names = DFSchema::from_unqualified_fields(
            parts.schema.fields().iter().enumerate().map(|(i, field)| part_field(i, field)).collect(),
            Default::default(),
        )?;
        let grown = self.grown(piece.clone(), LogicalPlan::Aggregate(parts), plan);
        let sealed = self.seal(&grown, Arc::new(names), &estimate, Level::Whole);
        let groups = (0..aggregate.group_expr.len()).map(part).collect();
        let (_, merged) = split.merge_by(aggregate, groups, sealed)?;
        Ok(Some((LogicalPlan::Projection(merged), cost)))
    }
}

fn part_field(index: usize, field: &datafusion::arrow::datatypes::Field) -> datafusion::arrow::datatypes::Field {
    field.clone().with_name(part_name(index))
}

/// The name of a column of the first step.
pub(crate) fn part_name(index: usize) -> String {
    own("part", index)
}

fn part(index: usize) -> Expr {
    own_column("part", index)
}

fn over(aggregate: &Aggregate, input: LogicalPlan) -> Result<LogicalPlan> {
    let grouped = Aggregate::try_new_with_schema(
        Arc::new(input),
        aggregate.group_expr.clone(),
        aggregate.aggr_expr.clone(),
        Arc::clone(&aggregate.schema),
    )?;
    Ok(LogicalPlan::Aggregate(grouped))
}

/// An aggregate that is computed in two steps.
pub(crate) struct Split<'a> {
    state: &'a SessionState,
    /// The groups of the first step: those of the aggregate, then the arguments of its DISTINCT functions.
    pub(crate) groups: Vec<Expr>,
    /// The functions of the first step.
    pub(crate) parts: Vec<Expr>,
    /// How each of the aggregate's functions is computed from the first step's columns.
    merges: Vec<Merge>,
}

/// How a function's value is computed from columns of the first step, given by their positions among all its columns.
enum Merge {
    /// The function itself over a column: `sum`, `min` and so on, and DISTINCT functions over their group.
    Again(AggregateFunction, usize),
    /// The sum of counts.
    Count(usize),
    /// The aggregate of this name, over an extension's results for parts of the rows.
    By(String, usize),
    /// The same, and then the function of one row of the second name, which makes the result of it.
    Finished(String, String, usize),
    /// A sum and a count.
    Average(usize, usize),
    /// A count, a mean and a variance of the population; and the function.
    Moments([usize; 3], Spread),
}

#[derive(Clone, Copy)]
enum Spread {
    VariancePopulation,
    VarianceSample,
    DeviationPopulation,
    DeviationSample,
}

/// A count of what cannot be NULL is one of rows, which all counts of a query then share.
fn counted(count: Expr, schema: &DFSchema) -> Result<Expr, String> {
    let Expr::AggregateFunction(mut function) = count else { return Ok(count) };
    let may_be_null = function.params.args.iter().map(|argument| argument.nullable(schema));
    let may_be_null = may_be_null.collect::<Result<Vec<bool>>>().map_err(|error| error.to_string())?;
    if may_be_null.contains(&false) && !may_be_null.contains(&true) {
        function.params.args = vec![Expr::Literal(COUNT_STAR_EXPANSION, None)];
    }
    Ok(Expr::AggregateFunction(function))
}

impl<'a> Split<'a> {
    /// The two steps. The error says why there are none.
    pub(crate) fn of(aggregate: &Aggregate, state: &'a SessionState) -> Result<Split<'a>, String> {
        let mut split = Split { state, groups: aggregate.group_expr.clone(), parts: vec![], merges: vec![] };
        let functions: Vec<AggregateFunction> =
            aggregate.aggr_expr.iter().map(function).collect::<Option<_>>().ok_or("not a function")?;
        let distinct: Vec<usize> = functions.iter().map(|function| split.distinct_group(function)).collect::<Result<_, _>>()?;
        for (function, group) in functions.into_iter().zip(distinct) {
            split.add(function, group, aggregate.input.schema())?;
        }
        Ok(split)
    }

    /// For a DISTINCT function, the group that its argument becomes.
    fn distinct_group(&mut self, function: &AggregateFunction) -> Result<usize, String> {
        let name = function.func.name();
        if !function.params.order_by.is_empty() || function.params.null_treatment.is_some() {
            return Err(format!("{name}() with an order has no parts"));
        }
        if !function.params.distinct || matches!(name, "min" | "max") {
            return Ok(usize::MAX);
        }
        let [argument] = function.params.args.as_slice() else {
            return Err(format!("{name}(DISTINCT …) of several arguments"));
        };
        if function.params.filter.is_some() {
            return Err(format!("{name}(DISTINCT …) with a filter"));
        }
        let known = self.groups.iter().position(|group| group.clone().unalias() == *argument);
        Ok(known.unwrap_or_else(|| {
            let number = self.groups.len();
            self.groups.push(argument.clone().alias(own("distinct", number)));
            number
        }))
    }

    fn add(&mut self, function: AggregateFunction, group: usize, schema: &DFSchema) -> Result<(), String> {
        if group != usize::MAX {
            self.merges.push(Merge::Again(function, group));
            return Ok(());
        }
        let spread = match function.func.name() {
            "count" => {
                let index = self.part(counted(Expr::AggregateFunction(function), schema)?);
                self.merges.push(Merge::Count(index));
                return Ok(());
            }
            "sum" | "min" | "max" | "bool_and" | "bool_or" | "bit_and" | "bit_or" | "bit_xor" => {
                let index = self.part(Expr::AggregateFunction(function.clone()));
                self.merges.push(Merge::Again(function, index));
                return Ok(());
            }
            "avg" => return self.average(&function, schema),
            "var" | "var_samp" => Spread::VarianceSample,
            "var_pop" => Spread::VariancePopulation,
            "stddev" | "stddev_samp" => Spread::DeviationSample,
            "stddev_pop" => Spread::DeviationPopulation,
            _ => return self.extension(function),
        };
        let [count, variance] = ["count", "var_pop"].map(|name| self.like(&function, name));
        let indices = [self.part(counted(count?, schema)?), self.part(self.mean(&function)?), self.part(variance?)];
        self.merges.push(Merge::Moments(indices, spread));
        Ok(())
    }

    fn extension(&mut self, function: AggregateFunction) -> Result<(), String> {
        let name = function.func.name();
        let extensions = Registry::of(self.state);
        if let Some(steps) = extensions.steps(name)
            && let Some(by) = extensions.merging(&steps.part)
        {
            let part = self.like(&function, &steps.part)?;
            let index = self.part(part);
            self.merges.push(Merge::Finished(by.to_owned(), steps.finish.clone(), index));
            return Ok(());
        }
        let by = extensions.merging(name).ok_or_else(|| format!("{name}() has no parts that could be merged"))?;
        let index = self.part(Expr::AggregateFunction(function));
        self.merges.push(Merge::By(by.to_owned(), index));
        Ok(())
    }

    fn average(&mut self, function: &AggregateFunction, schema: &DFSchema) -> Result<(), String> {
        let data_type = function.params.args[0].get_type(schema).map_err(|error| error.to_string())?;
        if !matches!(data_type, DataType::Float64 | DataType::Decimal128(..)) {
            return Err(format!("avg() of {data_type} has no parts that could be merged"));
        }
        let (sum, count) = (self.like(function, "sum")?, self.like(function, "count")?);
        let merge = Merge::Average(self.part(sum), self.part(counted(count, schema)?));
        self.merges.push(merge);
        Ok(())
    }

    /// Another function with the same arguments and filter.
    fn like(&self, function: &AggregateFunction, name: &str) -> Result<Expr, String> {
        self.with(function, name, function.params.args.clone())
    }

    /// The mean of a function's argument that goes with its variance: each row is a part of one. `avg`, a rounded sum by a count, would
    /// be another number for equal values in each part, as if they were spread.
    fn mean(&self, function: &AggregateFunction) -> Result<Expr, String> {
        let arguments = [lit(1_i64)].into_iter().chain(function.params.args.iter().cloned());
        self.with(function, "pithead_merge_mean", arguments.collect())
    }

    /// Another function with the same filter.
    fn with(&self, function: &AggregateFunction, name: &str, arguments: Vec<Expr>) -> Result<Expr, String> {
        let func = self.state.udaf(name).map_err(|error| error.to_string())?;
        let filter = function.params.filter.clone();
        Ok(Expr::AggregateFunction(AggregateFunction::new_udf(func, arguments, false, filter, vec![], None)))
    }

    /// The position of a function of the first step, which is added if it is not there. Each function gets a name of
    /// its own, since functions of a column and of its cast would share one.
    fn part(&mut self, expr: Expr) -> usize {
        let index = self.parts.iter().position(|part| part.clone().unalias() == expr).unwrap_or_else(|| {
            let number = self.parts.len();
            self.parts.push(expr.alias(own("value", number)));
            number
        });
        self.groups.len() + index
    }

    /// Whether a function is computed from a group of the first step itself.
    pub(crate) fn merges(&self, group: usize) -> bool {
        self.merges.iter().any(|merge| matches!(merge, Merge::Again(_, index) if *index == group))
    }

    /// The second step over the first one's columns, grouped by these expressions, and the aggregate's own output over it.
    pub(crate) fn merge_by(
        &self,
        aggregate: &Aggregate,
        groups: Vec<Expr>,
        parts: LogicalPlan,
    ) -> Result<(Aggregate, Projection)> {
        let mut merged = Vec::new();
        let mut values = Vec::new();
        for merge in &self.merges {
            values.push(self.value(merge, &mut merged)?);
        }
        let own_groups = groups.len();
        let step = Aggregate::try_new(Arc::new(parts), groups, merged)?;
        let groups = step.schema.columns().into_iter().take(own_groups).map(Expr::Column);
        let outputs = groups.chain(values).zip(aggregate.schema.iter());
        let exprs = outputs.map(|(expr, (qualifier, field))| {
            Ok(typed(expr, field.data_type(), &step.schema)?.alias_qualified(qualifier.cloned(), field.name()))
        });
        let exprs = exprs.collect::<Result<Vec<_>>>()?;
        let projection = Projection::try_new(exprs, Arc::new(LogicalPlan::Aggregate(step.clone())))?;
        Ok((step, projection))
    }

    /// A function's value over the second step's columns. Adds the columns that it needs.
    fn value(&self, merge: &Merge, merged: &mut Vec<Expr>) -> Result<Expr> {
        let column = |expr: Expr, merged: &mut Vec<Expr>| {
            let number = merged.len();
            merged.push(expr.alias(own("merged", number)));
            own_column("merged", number)
        };
        Ok(match merge {
            Merge::Again(function, index) => {
                let func = Arc::clone(&function.func);
                let distinct = function.params.distinct;
                let again = AggregateFunction::new_udf(func, vec![part(*index)], distinct, None, vec![], None);
                column(Expr::AggregateFunction(again), merged)
            }
            Merge::Count(index) => pithead_functions::or_zero(column(self.call("sum", vec![part(*index)])?, merged)),
            Merge::By(name, index) => column(self.call(name, vec![part(*index)])?, merged),
            Merge::Finished(name, finish, index) => {
                let parts = self.call(name, vec![part(*index)])?;
                // Several results may be made of one part.
                let known = merged.iter().position(|known| known.clone().unalias() == parts);
                let merged = known.map_or_else(|| column(parts, merged), |number| own_column("merged", number));
                Expr::ScalarFunction(ScalarFunction::new_udf(self.state.udf(finish)?, vec![merged]))
            }
            Merge::Average(sum, count) => {
                let sum = column(self.call("sum", vec![part(*sum)])?, merged);
                let count = column(self.call("sum", vec![part(*count)])?, merged);
                pithead_functions::average(sum, count)
            }
            Merge::Moments([count, mean, variance], spread) => {
                let n = column(self.call("sum", vec![part(*count)])?, merged);
                let arguments = vec![part(*count), part(*mean), part(*variance)];
                let variance = column(self.call("pithead_merge_var_pop", arguments)?, merged);
                spread.of(variance, n)?
            }
        })
    }

    fn call(&self, name: &str, args: Vec<Expr>) -> Result<Expr> {
        let func = self.state.udaf(name)?;
        Ok(Expr::AggregateFunction(AggregateFunction::new_udf(func, args, false, None, vec![], None)))
    }
}

impl Spread {
    /// Computes the value from the population's variance and its size.
    fn of(self, variance: Expr, n: Expr) -> Result<Expr> {
        let float = |expr: Expr| Expr::Cast(Cast::new(Box::new(expr), DataType::Float64));
        let sample = |variance: Expr| {
            let scaled = binary_expr(
                binary_expr(variance, Operator::Multiply, float(n.clone())),
                Operator::Divide,
                float(n.clone() - lit(1_i64)),
            );
            Expr::Case(Case {
                expr: None,
                when_then_expr: vec![(Box::new(n.clone().gt(lit(1_i64))), Box::new(scaled))],
                else_expr: None,
            })
        };
        Ok(match self {
            Spread::VariancePopulation => variance,
            Spread::VarianceSample => sample(variance),
            Spread::DeviationPopulation => sqrt(variance),
            Spread::DeviationSample => sqrt(sample(variance)),
        })
    }
}

/// The function in an aggregate's expression, below any aliases.
pub(crate) fn function(expr: &Expr) -> Option<AggregateFunction> {
    match expr {
        Expr::AggregateFunction(function) => Some(function.clone()),
        Expr::Alias(alias) => function(&alias.expr),
        _ => None,
    }
}

fn typed(expr: Expr, data_type: &DataType, schema: &DFSchema) -> Result<Expr> {
    use datafusion::logical_expr::ExprSchemable;
    Ok(if expr.get_type(schema)? == *data_type { expr } else { Expr::Cast(Cast::new(Box::new(expr), data_type.clone())) })
}
