//! `string_agg` that puts its values in order itself, so that two of them in one query may have two orders. DataFusion's does that, too,
//! and asks for rows in its order all the same, which no rows are in for both.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::functions_aggregate::string_agg::StringAgg;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF, Signature,
};

use crate::ordered_lists::in_asked_order;

pub(crate) fn string_agg_udaf() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(JoinedTexts { standard: StringAgg::new() }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct JoinedTexts {
    standard: StringAgg,
}

impl AggregateUDFImpl for JoinedTexts {
    fn name(&self) -> &str {
        self.standard.name()
    }

    fn signature(&self) -> &Signature {
        self.standard.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.standard.return_type(types)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.standard.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        in_asked_order(args, |args| self.standard.accumulator(args))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.standard.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        self.standard.create_groups_accumulator(args)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::SoftRequirement
    }

    /// It sorts its values, whatever order they come in.
    fn with_beneficial_ordering(self: Arc<Self>, _is_ordered: bool) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        Ok(Some(self))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Reversed(string_agg_udaf())
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.standard.documentation()
    }
}
