//! Characters of a text by their places: `s[1]`, `s[-1]` and `s[2:3]`, as in DuckDB. Places begin at 1, and those below 0 count from the
//! end; what is beyond the text is empty.

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result};
use datafusion::functions::unicode::expr_fn::substring;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawFieldAccessExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, GetFieldAccess, cast, lit, when};

use crate::octets::text_length;

/// Plans places of texts; the engine's planner knows those of lists.
#[derive(Debug)]
pub(crate) struct TextPlaces;

impl ExprPlanner for TextPlaces {
    fn plan_field_access(&self, access: RawFieldAccessExpr, schema: &DFSchema) -> Result<PlannerResult<RawFieldAccessExpr>> {
        let is_place = matches!(access.field_access, GetFieldAccess::ListIndex { .. } | GetFieldAccess::ListRange { .. });
        if !is_place || !access.expr.get_type(schema)?.is_string() {
            return Ok(PlannerResult::Original(access));
        }
        Ok(match access.field_access {
            GetFieldAccess::ListIndex { key } => PlannerResult::Planned(character(&access.expr, *key)?),
            GetFieldAccess::ListRange { start, stop, stride } if *stride == lit(1_i64) => {
                PlannerResult::Planned(characters(&access.expr, *start, *stop)?)
            }
            other => PlannerResult::Original(RawFieldAccessExpr { field_access: other, ..access }),
        })
    }
}

/// The character at a place.
fn character(text: &Expr, place: Expr) -> Result<Expr> {
    let place = from_front(text, place)?;
    let is_before = place.clone().lt(lit(1_i64));
    let length = when(is_before, lit(0_i64)).otherwise(lit(1_i64))?;
    Ok(substring(text.clone(), at_least(place, 1)?, length))
}

/// From one place to another, with both.
fn characters(text: &Expr, first: Expr, last: Expr) -> Result<Expr> {
    let first = at_least(from_front(text, first)?, 1)?;
    let last = from_front(text, last)?;
    let length = at_least(last - first.clone() + lit(1_i64), 0)?;
    Ok(substring(text.clone(), first, length))
}

/// A place, counted from the front.
fn from_front(text: &Expr, place: Expr) -> Result<Expr> {
    let place = cast(place, DataType::Int64);
    let length = cast(text_length(text.clone()), DataType::Int64);
    when(place.clone().lt(lit(0_i64)), length + place.clone() + lit(1_i64)).otherwise(place)
}

/// The larger of both, and NULL where the value is: the character at no place is none.
fn at_least(value: Expr, least: i64) -> Result<Expr> {
    when(value.clone().lt(lit(least)), lit(least)).otherwise(value)
}
