//! `sum` that never wraps: DataFusion's function, with an error for totals that do not fit.
//!
//! It has DataFusion's name, signature and result types, so that plans, optimiser rules and Substrait take it for the
//! standard function. It checks whether a total fits when it hands the total on, and not on the way, so that the
//! outcome does not depend on the order of the rows. A drive's partial total that does not fit is an error, even if the
//! totals of other drives would bring it back into range.

use std::sync::Arc;

use arrow::datatypes::{
    DataType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, DurationMicrosecondType, DurationMillisecondType,
    DurationNanosecondType, DurationSecondType, Int64Type, TimeUnit, UInt64Type,
};
use datafusion::common::Result;
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, SetMonotonicity};

use crate::delegated::as_standard;
use crate::sliding::SlidingFloats;
use crate::sum_groups::CheckedGroups;
use crate::sum_scalar::{CheckedDistinct, CheckedTotal};

/// `sum`.
pub fn sum_udaf() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(CheckedSum { standard: Sum::new() }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedSum {
    standard: Sum,
}

/// `Some($make!(type))` for result types that can overflow, `None` for floats and intervals.
macro_rules! for_checked {
    ($data_type:expr, $make:ident) => {
        match $data_type {
            DataType::Int64 => Some($make!(Int64Type)),
            DataType::UInt64 => Some($make!(UInt64Type)),
            DataType::Decimal32(..) => Some($make!(Decimal32Type)),
            DataType::Decimal64(..) => Some($make!(Decimal64Type)),
            DataType::Decimal128(..) => Some($make!(Decimal128Type)),
            DataType::Decimal256(..) => Some($make!(Decimal256Type)),
            DataType::Duration(TimeUnit::Second) => Some($make!(DurationSecondType)),
            DataType::Duration(TimeUnit::Millisecond) => Some($make!(DurationMillisecondType)),
            DataType::Duration(TimeUnit::Microsecond) => Some($make!(DurationMicrosecondType)),
            DataType::Duration(TimeUnit::Nanosecond) => Some($make!(DurationNanosecondType)),
            _ => None,
        }
    };
}

impl CheckedSum {
    fn total(data_type: &DataType) -> Option<Box<dyn Accumulator>> {
        macro_rules! make {
            ($type:ty) => {
                Box::new(CheckedTotal::<$type>::new(data_type.clone())) as Box<dyn Accumulator>
            };
        }
        for_checked!(data_type, make)
    }

    fn distinct(data_type: &DataType, values: Box<dyn Accumulator>) -> Result<Box<dyn Accumulator>, Box<dyn Accumulator>> {
        match Self::total(data_type) {
            Some(_) => Ok(Box::new(CheckedDistinct::new(data_type.clone(), values, Self::total))),
            None => Err(values),
        }
    }
}

impl AggregateUDFImpl for CheckedSum {
    as_standard!(name signature return_type state_fields groups_accumulator_supported reverse_expr documentation);

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let data_type = args.return_field.data_type().clone();
        if args.is_distinct {
            return self
                .standard
                .accumulator(args)
                .map(|values| Self::distinct(&data_type, values).unwrap_or_else(|values| values));
        }
        Self::total(&data_type).map_or_else(|| self.standard.accumulator(args), Ok)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            return self.standard.create_sliding_accumulator(args);
        }
        if args.return_field.data_type() == &DataType::Float64 {
            return Ok(Box::new(SlidingFloats::new(false)));
        }
        Self::total(args.return_field.data_type()).map_or_else(|| self.standard.create_sliding_accumulator(args), Ok)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        let data_type = args.return_field.data_type();
        macro_rules! make {
            ($type:ty) => {
                Box::new(CheckedGroups::<$type>::new(data_type.clone())) as Box<dyn GroupsAccumulator>
            };
        }
        for_checked!(data_type, make).map_or_else(|| self.standard.create_groups_accumulator(args), Ok)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.standard.order_sensitivity()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.standard.set_monotonicity(data_type)
    }

    // `value_from_stats` stays at its default: DataFusion's takes the sum of a constant column below a join for the one above it.

    // `simplify_expr_op_literal` stays at its default. DataFusion's turns `sum(x + c)` into `sum(x) + c * count(x)`,
    // whose arithmetic wraps where the sum would not.
}
