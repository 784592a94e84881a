//! [`rows_at_once`]: how many rows to give to an expression at a time.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use super::function::Bounded;
use super::growth::Growth;

/// The bytes that an expression should make at a time.
const PIECE_BYTES: u64 = 8 << 20;
/// The bytes of a value of which nothing is known.
const VALUE_BYTES: u64 = 64;
/// The value that is assumed for a number that is not known.
const NUMBER: u64 = 256;
/// This many rows are as good as all rows.
const ROWS_MAX: u64 = 8_192;

/// How many rows to give to an expression at a time; none: as many as there are.
pub fn rows_at_once(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    let (_, most) = bytes(expr);
    let rows = (PIECE_BYTES / most.max(1)).max(1);
    (rows < ROWS_MAX).then_some(rows as usize)
}

/// The bytes of a row of the result, and the most bytes of any intermediate result.
fn bytes(expr: &Arc<dyn PhysicalExpr>) -> (u64, u64) {
    let parts: Vec<(u64, u64)> = expr.children().into_iter().map(bytes).collect();
    let most = parts.iter().map(|(_, most)| *most).max().unwrap_or(0);
    let own = match bounded(expr) {
        Some((function, growth)) => grown(growth, function, &parts),
        None => match expr.downcast_ref::<Literal>() {
            Some(literal) => match literal.value().try_as_str() {
                Some(text) => text.map_or(0, str::len) as u64,
                None => VALUE_BYTES,
            },
            None => VALUE_BYTES,
        },
    };
    (own, most.max(own))
}

fn bounded(expr: &Arc<dyn PhysicalExpr>) -> Option<(&ScalarFunctionExpr, Growth)> {
    let function = expr.downcast_ref::<ScalarFunctionExpr>()?;
    let bounded = function.fun().inner().downcast_ref::<Bounded>()?;
    Some((function, bounded.growth()))
}

fn grown(growth: Growth, function: &ScalarFunctionExpr, parts: &[(u64, u64)]) -> u64 {
    let part = |index: usize| parts.get(index).map_or(0, |(bytes, _)| *bytes);
    let count = |index: usize| function.args().get(index).and_then(number).unwrap_or(NUMBER);
    match growth {
        Growth::Times | Growth::Copies => part(0).saturating_mul(count(1)),
        Growth::Characters => part(0).saturating_add(count(1)),
        Growth::Elements => part(0).saturating_add(count(1).saturating_mul(part(2).max(VALUE_BYTES / 4))),
        Growth::Series => {
            let stop = if function.args().len() == 1 { count(0) } else { count(1) };
            stop.saturating_mul(VALUE_BYTES / 4)
        }
        Growth::Together => parts.iter().map(|(bytes, _)| *bytes).fold(0, u64::saturating_add),
        Growth::Written(style) => {
            let (own, places) = function.args().first().and_then(text).map_or((part(0), 1), |format| style.sizes(format));
            let longest = parts.iter().skip(1).map(|(bytes, _)| *bytes).max().unwrap_or(0);
            own.saturating_add(longest.saturating_mul(places))
        }
        Growth::Replacements => part(0).saturating_mul((part(2) / part(1).max(1)).max(1)),
        Growth::PatternReplacements => part(0).saturating_mul(part(2).max(1)),
        Growth::PatternGroups => part(0).saturating_mul(2),
        Growth::Separators => {
            let all = parts.iter().map(|(bytes, _)| *bytes).fold(0, u64::saturating_add);
            all.saturating_add(part(0).saturating_mul(parts.len().saturating_sub(2) as u64))
        }
        Growth::Listed => {
            let elements = part(0) / (VALUE_BYTES / 4);
            part(0).saturating_add(elements.saturating_mul(part(1).saturating_add(part(2))))
        }
        Growth::ElementReplacements => part(0).saturating_add((part(0) / (VALUE_BYTES / 4)).saturating_mul(part(2))),
        Growth::Formatted => part(1),
        Growth::Steps => part(0).saturating_mul(part(1)),
    }
}

/// A constant text.
fn text(expr: &Arc<dyn PhysicalExpr>) -> Option<&str> {
    expr.downcast_ref::<Literal>()?.value().try_as_str().flatten()
}

/// A constant count.
fn number(expr: &Arc<dyn PhysicalExpr>) -> Option<u64> {
    let value = expr.downcast_ref::<Literal>()?.value();
    match value.cast_to(&DataType::Int64) {
        Ok(ScalarValue::Int64(number)) => Some(number.map_or(0, |number| u64::try_from(number).unwrap_or(0))),
        _ => None,
    }
}
