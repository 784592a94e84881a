//! `array_agg` that keeps the order that it was asked for.
//!
//! Where another aggregate of the query wants the opposite order, the planner turns an aggregate round: its ORDER BY is reversed, and a
//! flag says so. DataFusion's accumulators of DISTINCT values sort the values themselves, by the reversed ORDER BY, and do not look at the
//! flag. Two such aggregates in one query then had one order.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::functions_aggregate::array_agg::array_agg_udaf as standard_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF, Signature,
};
use datafusion::physical_expr::PhysicalSortExpr;

pub(crate) fn array_agg_udaf() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(OrderedLists { standard: standard_udaf().as_ref().clone() }))
}

/// The accumulator that an aggregate makes, told the order that the query asks for.
pub(crate) fn in_asked_order(
    args: AccumulatorArgs,
    make: impl FnOnce(AccumulatorArgs) -> Result<Box<dyn Accumulator>>,
) -> Result<Box<dyn Accumulator>> {
    if !(args.is_distinct && args.is_reversed) {
        return make(args);
    }
    let asked: Vec<_> = args.order_bys.iter().map(PhysicalSortExpr::reverse).collect();
    make(AccumulatorArgs { order_bys: &asked, is_reversed: false, ..args })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OrderedLists {
    standard: AggregateUDF,
}

impl AggregateUDFImpl for OrderedLists {
    fn name(&self) -> &str {
        self.standard.name()
    }

    fn aliases(&self) -> &[String] {
        self.standard.aliases()
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
        self.standard.order_sensitivity()
    }

    fn with_beneficial_ordering(self: Arc<Self>, is_ordered: bool) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        let standard = self.standard.clone().with_beneficial_ordering(is_ordered)?;
        Ok(standard.map(|standard| Arc::new(Self { standard }) as Arc<dyn AggregateUDFImpl>))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Reversed(array_agg_udaf())
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.standard.supports_null_handling_clause()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.standard.documentation()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::common::ScalarValue;
    use datafusion::execution::context::SessionContext;

    use crate::{EngineOptions, session_state};

    #[tokio::test]
    async fn distinct_values_are_in_the_order_of_their_own_aggregate() {
        let rows = "(VALUES ('b'), ('a'), ('b'), ('c')) AS t(x)";
        for (up, down, expected) in [
            ("array_agg(DISTINCT x ORDER BY x)", "array_agg(DISTINCT x ORDER BY x DESC)", ("[a, b, c]", "[c, b, a]")),
            ("string_agg(DISTINCT x, '' ORDER BY x)", "string_agg(DISTINCT x, '' ORDER BY x DESC)", ("abc", "cba")),
            ("array_agg(x ORDER BY x)", "array_agg(x ORDER BY x DESC)", ("[a, b, b, c]", "[c, b, b, a]")),
            ("array_agg(DISTINCT x ORDER BY x)", "max(x)", ("[a, b, c]", "c")),
        ] {
            let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
            let sql = format!("SELECT {up}, {down} FROM {rows}");
            let batches = context.sql(&sql).await.unwrap().collect().await.unwrap();
            let value = |column: usize| ScalarValue::try_from_array(batches[0].column(column), 0).unwrap().to_string();
            assert_eq!((&*value(0), &*value(1)), expected, "{sql}");
        }
    }
}
