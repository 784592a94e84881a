//! `array_agg` and `string_agg` that keep the order that they were asked for.
//!
//! Where another aggregate of the query wants the opposite order, the planner turns an aggregate round: its ORDER BY is reversed, and a
//! flag says so. DataFusion's accumulators of DISTINCT values sort the values themselves, by the reversed ORDER BY, and do not look at the
//! flag. Two such aggregates in one query then had one order. And its `string_agg` puts its values in order itself, and asks for rows in
//! its order all the same, which no rows are in for two of them.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::functions_aggregate::array_agg::array_agg_udaf;
use datafusion::functions_aggregate::string_agg::string_agg_udaf;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, ReversedUDAF};
use datafusion::physical_expr::PhysicalSortExpr;

use crate::delegated::as_standard;

pub(crate) fn ordered_udafs() -> [Arc<AggregateUDF>; 2] {
    [array_agg_udaf(), string_agg_udaf()].map(|standard| ordered(standard.as_ref().clone()))
}

fn ordered(standard: AggregateUDF) -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(Ordered { standard }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Ordered {
    standard: AggregateUDF,
}

impl AggregateUDFImpl for Ordered {
    as_standard!(name aliases signature documentation return_type state_fields supports_null_handling_clause);
    as_standard!(groups_accumulator_supported create_groups_accumulator);

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if !(args.is_distinct && args.is_reversed) {
            return self.standard.accumulator(args);
        }
        let asked: Vec<_> = args.order_bys.iter().map(PhysicalSortExpr::reverse).collect();
        self.standard.accumulator(AccumulatorArgs { order_bys: &asked, is_reversed: false, ..args })
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::SoftRequirement
    }

    fn with_beneficial_ordering(self: Arc<Self>, is_ordered: bool) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        // One that knows nothing of it sorts its values, whatever order they come in.
        let standard = self.standard.clone().with_beneficial_ordering(is_ordered)?;
        Ok(Some(standard.map_or(self as Arc<dyn AggregateUDFImpl>, |standard| Arc::new(Self { standard }))))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.standard.reverse_udf() {
            ReversedUDAF::Reversed(standard) => ReversedUDAF::Reversed(ordered(standard.as_ref().clone())),
            other => other,
        }
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
