//! `AT TIME ZONE`, as PostgreSQL and DuckDB have it.
//!
//! A moment with a zone becomes the wall time that clocks of the named zone showed then, without a zone. A wall time without a zone
//! becomes the moment at which clocks of the named zone showed it. DataFusion's planner makes a moment with the zone of both.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::common::{DFSchema, Result, internal_err};
use datafusion::functions::core::expr_fn::greatest;
use datafusion::functions::datetime::expr_fn::to_local_time;
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    cast,
};

use crate::wall_time::moment_at;

/// The function's name, which no SQL text can spell: its arguments are the planner's cast to the zone, and what is cast.
pub const AT_ZONE: &str = "\u{0}at_zone";

/// The function itself. The analyser always takes it away, by [`at_zone`].
pub(crate) fn at_zone_udf() -> ScalarUDF {
    ScalarUDF::new_from_impl(AtZone { signature: Signature::any(2, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct AtZone {
    signature: Signature,
}

/// What a call of the function is; none: it is none. Moments with a zone are in the session's.
pub(crate) fn at_zone(expr: &Expr, schema: &DFSchema, session: &Arc<str>) -> Result<Option<Expr>> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = expr else { return Ok(None) };
    let (true, [zoned, moment]) = (func.inner().is::<AtZone>(), args.as_slice()) else { return Ok(None) };
    let DataType::Timestamp(_, zone) = zoned.get_type(schema)? else { return internal_err!("expected a cast to a zone") };
    let is_zoned = has_zone(&moment.get_type(schema)?);
    let there = |zone| cast(moment.clone(), DataType::Timestamp(TimeUnit::Microsecond, zone));
    Ok(Some(match (is_zoned, zone) {
        (false, Some(zone)) => {
            let moment = moment_at(there(None), &zone);
            cast(moment, DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::clone(session))))
        }
        (_, zone) => to_local_time(vec![there(zone)]),
    }))
}

/// A cast from wall times to moments that stays one. The optimiser takes it for one that keeps the number, and casts what it is compared
/// with back instead.
pub(crate) fn as_it_is(cast: Expr) -> Expr {
    greatest(vec![cast])
}

pub(crate) fn has_zone(moment: &DataType) -> bool {
    matches!(moment, DataType::Timestamp(_, Some(_)))
}

impl ScalarUDFImpl for AtZone {
    fn name(&self) -> &'static str {
        AT_ZONE
    }

    fn display_name(&self, arguments: &[Expr]) -> Result<String> {
        self.schema_name(arguments)
    }

    /// As it is written: by the zone, too, it is told from others over the same moment.
    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        match arguments {
            [Expr::Cast(Cast { field, .. }), moment] => match field.data_type() {
                DataType::Timestamp(_, Some(zone)) => Ok(format!("{} AT TIME ZONE '{zone}'", moment.schema_name())),
                _ => internal_err!("expected a zone"),
            },
            _ => internal_err!("expected a cast and what is cast"),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [_, moment] if has_zone(moment) => Ok(DataType::Timestamp(TimeUnit::Microsecond, None)),
            [DataType::Timestamp(_, zone), _] => Ok(DataType::Timestamp(TimeUnit::Microsecond, zone.clone())),
            _ => internal_err!("expected a cast and what is cast"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, nullable)))
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("AT TIME ZONE was not planned")
    }
}
