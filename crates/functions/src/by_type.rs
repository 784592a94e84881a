//! Functions that mean something else for each type that they are given, as in DuckDB: `len`, `epoch_ms`, `epoch_us` and `epoch_ns`.
//!
//! The analyser puts into their place what they mean, so that no drive knows them. Of `now()`, `date_trunc` and `date_bin` it makes
//! moments in microseconds, as SQL has them: nanoseconds do not reach the years of dates that they are compared with. Counts of
//! the engine's become ours, which have a sign. Aggregates of a list become one function that drives know, and extremes
//! with a count others.

use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{DFSchema, Result, internal_err, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, cast, lit, when,
};

use crate::list_aggregates::{is_planned, planned};
use crate::listed_extremes::{is_listed, listed};
use crate::octets::{octets, text_length};
use crate::signed_counts::{is_unsigned, list_length, with_sign};

/// What such a function asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Measure {
    Length,
    Since1970(TimeUnit),
}

const FUNCTIONS: [(&str, Measure); 4] = [
    ("len", Measure::Length),
    ("epoch_ms", Measure::Since1970(TimeUnit::Millisecond)),
    ("epoch_us", Measure::Since1970(TimeUnit::Microsecond)),
    ("epoch_ns", Measure::Since1970(TimeUnit::Nanosecond)),
];

const NOW: &str = "now";
/// Functions whose second argument is a moment.
const OF_MOMENT: [&str; 2] = ["date_bin", "date_trunc"];

pub(crate) fn by_type_udfs() -> impl Iterator<Item = ScalarUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    FUNCTIONS
        .into_iter()
        .map(move |(name, asked)| ScalarUDF::new_from_impl(ByType { name, asked, signature: signature.clone() }))
}

/// Whether an expression is a call of such a function.
pub(crate) fn is_by_type(expr: &Expr) -> bool {
    let Expr::ScalarFunction(ScalarFunction { func, .. }) = expr else { return is_listed(expr) };
    is_planned(expr)
        || is_unsigned(expr)
        || func.inner().is::<ByType>()
        || func.name() == NOW
        || OF_MOMENT.contains(&func.name())
}

/// What a call of such a function is; none: it is none.
pub(crate) fn by_type(expr: &Expr, schema: &DFSchema) -> Result<Option<Expr>> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = expr else { return Ok(listed(expr)) };
    if let Some(planned) = planned(expr).or_else(|| with_sign(expr)) {
        return Ok(Some(planned));
    }
    if func.name() == NOW {
        let DataType::Timestamp(_, zone) = expr.get_type(schema)? else { return Ok(None) };
        return Ok(Some(cast(expr.clone(), DataType::Timestamp(TimeUnit::Microsecond, zone))));
    }
    if OF_MOMENT.contains(&func.name()) {
        return of_day(func, args, schema);
    }
    let (Some(function), [arg]) = (func.inner().downcast_ref::<ByType>(), args.as_slice()) else { return Ok(None) };
    let of = arg.get_type(schema)?;
    Ok(Some(match function.asked {
        Measure::Length => length(arg.clone(), &of)?,
        Measure::Since1970(unit) if of.is_integer() => {
            cast(cast(cast(arg.clone(), DataType::Int64), DataType::Timestamp(unit, None)), moments(unit))
        }
        Measure::Since1970(unit) => match of {
            DataType::Timestamp(of, zone) => since_1970(arg.clone(), unit, of, zone)?,
            DataType::Date32 | DataType::Date64 | DataType::Null => since_1970(arg.clone(), unit, TimeUnit::Microsecond, None)?,
            other => return plan_err!("{} expects a moment or a whole number, and {other} was given", function.name),
        },
    }))
}

/// Such a function of a day, which is the moment at which it begins; none: it is of something else.
fn of_day(func: &Arc<ScalarUDF>, args: &[Expr], schema: &DFSchema) -> Result<Option<Expr>> {
    let [by, day, rest @ ..] = args else { return Ok(None) };
    if day.get_type(schema)? != DataType::Date32 {
        return Ok(None);
    }
    let moment = cast(day.clone(), DataType::Timestamp(TimeUnit::Microsecond, None));
    Ok(Some(func.call([by.clone(), moment].into_iter().chain(rest.iter().cloned()).collect())))
}

fn length(arg: Expr, of: &DataType) -> Result<Expr> {
    Ok(match of {
        of if of.is_string() || of.is_null() => cast(text_length(arg), DataType::Int64),
        of if of.is_binary() => octets(arg),
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => list_length(arg),
        other => return plan_err!("len expects a text, bytes or a list, and {other} was given"),
    })
}

/// How many units a moment is after 1970, which is given in some unit. Milliseconds and microseconds are rounded, as in DuckDB.
fn since_1970(moment: Expr, unit: TimeUnit, of: TimeUnit, zone: Option<Arc<str>>) -> Result<Expr> {
    let counted = |unit| cast(cast(moment, DataType::Timestamp(unit, zone)), DataType::Int64);
    let finer = match (unit, of) {
        (TimeUnit::Millisecond, _) => counted(TimeUnit::Microsecond),
        (TimeUnit::Microsecond, TimeUnit::Nanosecond) => counted(TimeUnit::Nanosecond),
        (unit, _) => return Ok(counted(unit)),
    };
    let half = when(finer.clone().lt(lit(0_i64)), lit(-500_i64)).otherwise(lit(500_i64))?;
    Ok((finer + half) / lit(1_000_i64))
}

/// What a number since 1970 is: moments as SQL's TIMESTAMP has them.
fn moments(unit: TimeUnit) -> DataType {
    let unit = if unit == TimeUnit::Nanosecond { unit } else { TimeUnit::Microsecond };
    DataType::Timestamp(unit, None)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ByType {
    name: &'static str,
    asked: Measure,
    signature: Signature,
}

impl ScalarUDFImpl for ByType {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(match (self.asked, types) {
            (Measure::Since1970(unit), [of]) if of.is_integer() => moments(unit),
            _ => DataType::Int64,
        })
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("{} was not planned", self.name)
    }
}
