//! `row_number`, `rank`, `dense_rank` and `ntile` with results of type BIGINT, as in DuckDB and PostgreSQL. The engine's are
//! unsigned, and what is computed with an unsigned and a signed number is a decimal, or fails below zero.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::compute::{SortOptions, cast};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_window::ntile::ntile_udwf;
use datafusion::functions_window::rank::{dense_rank_udwf, rank_udwf};
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::function::{ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::window_state::WindowAggState;
use datafusion::logical_expr::{Expr, LimitEffect, PartitionEvaluator, WindowUDF, WindowUDFImpl};
use datafusion::physical_plan::PhysicalExpr;

use crate::delegated::as_standard;

/// All of them, under the engine's names.
pub(crate) fn counted_rows_udwfs() -> impl Iterator<Item = WindowUDF> {
    [row_number_udwf(), rank_udwf(), dense_rank_udwf(), ntile_udwf()].into_iter().map(counted)
}

/// A call of `row_number`.
pub(crate) fn row_number() -> Expr {
    Arc::new(counted(row_number_udwf())).call(vec![])
}

fn counted(standard: Arc<WindowUDF>) -> WindowUDF {
    WindowUDF::new_from_impl(CountedRows { standard })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CountedRows {
    standard: Arc<WindowUDF>,
}

impl WindowUDFImpl for CountedRows {
    as_standard!(name aliases signature documentation);

    fn expressions(&self, args: ExpressionArgs) -> Vec<Arc<dyn PhysicalExpr>> {
        self.standard.expressions(args)
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(Counting(self.standard.partition_evaluator_factory(args)?)))
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        let field = self.standard.field(args)?;
        Ok(Arc::new(Field::new(field.name(), DataType::Int64, field.is_nullable())))
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.standard.sort_options()
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.standard.inner().limit_effect(args)
    }
}

/// The engine's evaluator, whose results are made signed: no partition has so many rows that one is out of range.
#[derive(Debug)]
struct Counting(Box<dyn PartitionEvaluator>);

impl PartitionEvaluator for Counting {
    fn memoize(&mut self, state: &mut WindowAggState) -> Result<()> {
        self.0.memoize(state)
    }

    fn get_range(&self, row: usize, rows: usize) -> Result<Range<usize>> {
        self.0.get_range(row, rows)
    }

    fn is_causal(&self) -> bool {
        self.0.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        Ok(cast(&self.0.evaluate_all(values, rows)?, &DataType::Int64)?)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        self.0.evaluate(values, range)?.cast_to(&DataType::Int64)
    }

    fn evaluate_all_with_rank(&self, rows: usize, ranks: &[Range<usize>]) -> Result<ArrayRef> {
        Ok(cast(&self.0.evaluate_all_with_rank(rows, ranks)?, &DataType::Int64)?)
    }

    fn supports_bounded_execution(&self) -> bool {
        self.0.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.0.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.0.include_rank()
    }
}
