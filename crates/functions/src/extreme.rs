//! `min` and `max` that give the same answer in whatever order rows come.
//!
//! DataFusion's functions do not do that over groups of floats: a NaN replaces a group's value, and the next value
//! replaces the NaN. Here NaN is larger than all other floats, as in directories and filters, and there is one NaN.
//! Over structs and lists with a NULL inside, DataFusion has three orders: one for all rows, one for groups and one for
//! windows. Here a NULL inside is larger than all values. For all other types these are DataFusion's functions. With a second argument
//! they are those of [`listed_extremes`], which take their place wherever they are no functions of a window.

use std::sync::Arc;

use arrow::array::types::Float16Type;
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, SetMonotonicity, StatisticsArgs,
};

use crate::delegated::as_standard;
use crate::extreme_floats::{FloatExtreme, FloatExtremes, Side, SlidingExtreme};
use crate::extreme_nested::{NestedExtreme, NestedExtremes, is_ordered};
use crate::listed_extremes;
use crate::ranked::list_of;

/// `min`.
pub fn min_udaf() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(Extreme { standard: Min::new(), side: Side::Min }))
}

/// `max`.
pub fn max_udaf() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(Extreme { standard: Max::new(), side: Side::Max }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Extreme<S> {
    standard: S,
    side: Side,
}

impl<S: AggregateUDFImpl + PartialEq + Eq + std::hash::Hash> AggregateUDFImpl for Extreme<S> {
    as_standard!(name signature state_fields reverse_expr documentation);

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        match arg_types {
            [_, _] => listed_extremes::coerced(self.name(), arg_types),
            _ => self.standard.coerce_types(arg_types),
        }
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types {
            [values, _] => Ok(list_of(values)),
            _ => self.standard.return_type(arg_types),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if args.exprs.len() == 2 {
            return listed_extremes::in_window(self.side, &args);
        }
        match args.return_field.data_type() {
            DataType::Float16 => Ok(Box::new(FloatExtreme::<Float16Type>::new(self.side))),
            DataType::Float32 => Ok(Box::new(FloatExtreme::<Float32Type>::new(self.side))),
            DataType::Float64 => Ok(Box::new(FloatExtreme::<Float64Type>::new(self.side))),
            data_type if is_ordered(data_type) => Ok(Box::new(NestedExtreme::new(self.side, data_type)?)),
            _ => self.standard.accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if args.return_field.data_type().is_nested() {
            // Nothing can be taken away from it: it is computed anew.
            return self.accumulator(args);
        }
        let data_type = args.return_field.data_type().clone();
        let standard = self.standard.create_sliding_accumulator(args)?;
        Ok(if data_type.is_floating() { Box::new(SlidingExtreme::new(standard)) } else { standard })
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        let is_one = args.exprs.len() == 1;
        is_one && (is_ordered(args.return_field.data_type()) || self.standard.groups_accumulator_supported(args))
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        match args.return_field.data_type() {
            DataType::Float16 => Ok(Box::new(FloatExtremes::<Float16Type>::new(self.side))),
            DataType::Float32 => Ok(Box::new(FloatExtremes::<Float32Type>::new(self.side))),
            DataType::Float64 => Ok(Box::new(FloatExtremes::<Float64Type>::new(self.side))),
            data_type if is_ordered(data_type) => Ok(Box::new(NestedExtremes::new(self.side, data_type)?)),
            _ => self.standard.create_groups_accumulator(args),
        }
    }

    fn is_descending(&self) -> Option<bool> {
        self.standard.is_descending()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.standard.order_sensitivity()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        // A list may be one of several extremes: with a lesser value, the list of the least becomes longer, too.
        match data_type {
            DataType::List(_) => SetMonotonicity::NotMonotonic,
            data_type => self.standard.set_monotonicity(data_type),
        }
    }

    fn value_from_stats(&self, statistics: &StatisticsArgs) -> Option<ScalarValue> {
        self.standard.value_from_stats(statistics)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    #[tokio::test]
    async fn frames_that_slide_have_the_extremes_of_their_rows() {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let frame = "OVER (ORDER BY column1 ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)";
        let rows = "(VALUES (0, 1.0::double, 1.0::double), (1, 0.0, 0.0), (2, 3.0, 1.0), (3, -1.0, 0.0), (4, NULL, 1.0))";
        for (expr, expected) in [
            ("min(column2 / column3)", "1.0 1.0 3.0 -inf -inf"),
            ("max(column2 / column3)", "1.0 NaN NaN 3.0 -inf"),
            ("min((column2 / column3)::real)", "1.0 1.0 3.0 -inf -inf"),
            ("max([column1, 1])", "[0, 1] [1, 1] [2, 1] [3, 1] [4, 1]"),
            ("min([column1, 1])", "[0, 1] [0, 1] [1, 1] [2, 1] [3, 1]"),
        ] {
            let sql = format!("SELECT {expr} {frame} FROM {rows} ORDER BY column1");
            let batches = context.sql(&sql).await.unwrap().collect().await.unwrap_or_else(|error| panic!("{sql}: {error}"));
            let text = |batch: &arrow::array::RecordBatch, row| {
                arrow::util::display::array_value_to_string(batch.column(0), row).unwrap()
            };
            let found: Vec<String> =
                batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| text(batch, row))).collect();
            assert_eq!(found.join(" "), expected, "{sql}");
        }
    }
}
