//! Aggregates over windows whose frame slides.
//!
//! DataFusion takes what leaves the frame away from a total. That is wrong for sums of floats: after a NaN or an infinity nothing is
//! left of the total, and after a large number not the digits of small ones. Here a total is never taken apart: those of the rows that
//! leave soonest are kept from each row on, and what comes is added up beside them, which costs two additions a row (a queue of two
//! stacks). And functions of which DataFusion can take nothing away are computed anew for each row.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::concat;
use arrow::datatypes::{FieldRef, Float64Type, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr::{WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Expr, ExprSchemable, LogicalPlan, WindowFrameBound, WindowFunctionDefinition,
};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};

use crate::delegated::as_standard;
use crate::kept_names::map_named;

/// Functions of floats whose means DataFusion takes rows away from: beginnings of their names.
const INEXACT: [&str; 5] = ["corr", "covar", "regr_", "stddev", "var"];

/// A total of floats and how many there are: of some rows.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    sum: f64,
    count: u64,
}

impl Total {
    fn and(self, other: Total) -> Total {
        Total { sum: self.sum + other.sum, count: self.count + other.count }
    }
}

/// The sum or the mean of the floats of a frame.
#[derive(Debug)]
pub(crate) struct SlidingFloats {
    is_mean: bool,
    /// For each row that was there when the last one of those before had left: the total from it on. The next to leave is the last.
    leaving: Vec<Total>,
    /// The rows that came since.
    came: Vec<Total>,
    /// Their total.
    total: Total,
}

impl SlidingFloats {
    /// Its value is the mean, or else the sum.
    pub(crate) fn new(is_mean: bool) -> Self {
        Self { is_mean, leaving: vec![], came: vec![], total: Total::default() }
    }
}

impl Accumulator for SlidingFloats {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = values else { return internal_err!("a sum has one argument") };
        for value in values.as_primitive::<Float64Type>() {
            let row = value.map_or_else(Total::default, |sum| Total { sum, count: 1 });
            self.total = self.total.and(row);
            self.came.push(row);
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for _ in 0..values.first().map_or(0, |values| values.len()) {
            if self.leaving.is_empty() {
                let mut total = Total::default();
                self.leaving.extend(self.came.drain(..).rev().map(|row| {
                    total = row.and(total);
                    total
                }));
                self.total = Total::default();
            }
            self.leaving.pop();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let Total { sum, count } = self.leaving.last().copied().unwrap_or_default().and(self.total);
        let value = if self.is_mean { sum / count as f64 } else { sum };
        Ok(ScalarValue::Float64((count > 0).then_some(value)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + (self.leaving.capacity() + self.came.capacity()) * size_of::<Total>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("a window's sum has no parts")
    }

    fn merge_batch(&mut self, _states: &[ArrayRef]) -> Result<()> {
        internal_err!("a window's sum has no parts")
    }
}

/// Puts a function that can be computed over any frame in the place of each that cannot over its own.
pub(crate) fn over_any_frame(plan: LogicalPlan) -> Result<LogicalPlan> {
    let replaced = plan.transform_up(|node| match node {
        LogicalPlan::Window(window) => {
            let schema = Arc::clone(window.input.schema());
            map_named(LogicalPlan::Window(window), |expr| expr.transform_up(|part| Ok(anew(part, &schema))))
        }
        node => Ok(Transformed::no(node)),
    })?;
    Ok(replaced.data)
}

/// The window function with rows of its own, where rows leave its frame.
fn anew(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::WindowFunction(mut call) = expr else { return Transformed::no(expr) };
    match sliding(&call, schema) {
        Some(function) => {
            call.fun =
                WindowFunctionDefinition::AggregateUDF(Arc::new(AggregateUDF::new_from_impl(Anew { standard: function })));
            Transformed::yes(Expr::WindowFunction(call))
        }
        None => Transformed::no(Expr::WindowFunction(call)),
    }
}

/// The function, if it may be one of which nothing can be taken away.
fn sliding(call: &WindowFunction, schema: &DFSchema) -> Option<Arc<AggregateUDF>> {
    let WindowFunctionDefinition::AggregateUDF(function) = &call.fun else { return None };
    let WindowFunctionParams { args, window_frame, distinct, .. } = &call.params;
    let slides = !matches!(&window_frame.start_bound, WindowFrameBound::Preceding(value) if value.is_null());
    let is_nested = args.iter().any(|arg| arg.get_type(schema).is_ok_and(|of| of.is_nested()));
    // `min(x, n)` is a list.
    let is_one = args.len() == 1 || function.name() == "count";
    let is_known = !distinct && !is_nested && is_one && ["sum", "avg", "count", "min", "max"].contains(&function.name());
    (slides && !is_known && function.inner().downcast_ref::<Anew>().is_none()).then(|| Arc::clone(function))
}

/// A function that over a frame which slides is computed anew for each row, unless it can be had from the row before.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Anew {
    standard: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for Anew {
    as_standard!(name signature coerce_types return_type return_field is_nullable default_value);
    as_standard!(state_fields accumulator supports_null_handling_clause);

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let standard = self.standard.create_sliding_accumulator(args.clone())?;
        if standard.supports_retract_batch() && !INEXACT.iter().any(|prefix| self.name().starts_with(prefix)) {
            return Ok(standard);
        }
        Ok(Box::new(EachAnew { function: Arc::clone(&self.standard), call: Call::of(&args), rows: VecDeque::new() }))
    }
}

/// What an accumulator is made by.
#[derive(Debug)]
struct Call {
    return_field: FieldRef,
    schema: Schema,
    ignore_nulls: bool,
    order_bys: Vec<PhysicalSortExpr>,
    is_reversed: bool,
    name: String,
    is_distinct: bool,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    expr_fields: Vec<FieldRef>,
}

impl Call {
    fn of(args: &AccumulatorArgs) -> Self {
        Self {
            return_field: Arc::clone(&args.return_field),
            schema: args.schema.clone(),
            ignore_nulls: args.ignore_nulls,
            order_bys: args.order_bys.to_vec(),
            is_reversed: args.is_reversed,
            name: args.name.to_owned(),
            is_distinct: args.is_distinct,
            exprs: args.exprs.to_vec(),
            expr_fields: args.expr_fields.to_vec(),
        }
    }

    fn args(&self) -> AccumulatorArgs<'_> {
        AccumulatorArgs {
            return_field: Arc::clone(&self.return_field),
            schema: &self.schema,
            ignore_nulls: self.ignore_nulls,
            order_bys: &self.order_bys,
            is_reversed: self.is_reversed,
            name: &self.name,
            is_distinct: self.is_distinct,
            exprs: &self.exprs,
            expr_fields: &self.expr_fields,
        }
    }
}

/// A value that is computed from all rows of the frame, whenever it is asked for.
#[derive(Debug)]
struct EachAnew {
    function: Arc<AggregateUDF>,
    call: Call,
    /// The rows of the frame, in pieces: the columns of each.
    rows: VecDeque<Vec<ArrayRef>>,
}

impl Accumulator for EachAnew {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        if values.first().is_some_and(|column| !column.is_empty()) {
            self.rows.push_back(values.to_vec());
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let mut left = values.first().map_or(0, |column| column.len());
        while left > 0 {
            let Some(piece) = self.rows.pop_front() else { return internal_err!("more rows leave a frame than came") };
            let rows = piece[0].len();
            if rows > left {
                self.rows.push_front(piece.iter().map(|column| column.slice(left, rows - left)).collect());
            }
            left = left.saturating_sub(rows);
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut value = self.function.accumulator(self.call.args())?;
        if self.rows.len() > 1 {
            let columns = (0..self.rows[0].len()).map(|column| {
                let pieces: Vec<&dyn Array> = self.rows.iter().map(|piece| piece[column].as_ref()).collect();
                Ok(concat(&pieces)?)
            });
            let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
            self.rows = VecDeque::from([columns]);
        }
        if let Some(rows) = self.rows.front() {
            value.update_batch(rows)?;
        }
        value.evaluate()
    }

    fn size(&self) -> usize {
        let pieces = self.rows.iter().flatten();
        size_of_val(self) + pieces.map(|column| column.get_array_memory_size()).sum::<usize>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("a window's value has no parts")
    }

    fn merge_batch(&mut self, _states: &[ArrayRef]) -> Result<()> {
        internal_err!("a window's value has no parts")
    }
}
