//! Parts of a moment that DuckDB knows and the engine does not: `century`, `decade`, `millennium`, `era`, `isoyear`, `yearweek`,
//! `millisecond` and `microsecond`, also as the unit of `date_part` and EXTRACT.
//!
//! The analyser puts into their place what they are of the engine's parts, so that no drive knows them.

use arrow::datatypes::DataType;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, cast, lit, when,
};

use crate::far_moments::part_of;

/// Such a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    /// So many years; the first of them begins with the year 1, or ends with the year 0, which is the one before.
    Years(i64),
    Decade,
    /// 1 since the year 1, else 0.
    Era,
    /// The year of the week, with the week's number as two more digits.
    YearWeek,
    /// A part that the engine has under this name.
    Known(&'static str),
}

const PARTS: [(&str, Part); 8] = [
    ("century", Part::Years(100)),
    ("decade", Part::Decade),
    ("era", Part::Era),
    ("isoyear", Part::Known("isoyear")),
    ("microsecond", Part::Known("microsecond")),
    ("millennium", Part::Years(1_000)),
    ("millisecond", Part::Known("millisecond")),
    ("yearweek", Part::YearWeek),
];
const DATE_PART: &str = "date_part";

pub(crate) fn moment_parts_udfs() -> impl Iterator<Item = ScalarUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    PARTS.into_iter().map(move |(name, part)| ScalarUDF::new_from_impl(MomentPart { name, part, signature: signature.clone() }))
}

/// The part that an expression asks for, of what, and whether the engine's function is called; none: it is none of these.
fn asked(expr: &Expr) -> Option<(Part, &Expr, bool)> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = expr else { return None };
    if let (Some(function), [moment]) = (func.inner().downcast_ref::<MomentPart>(), &args[..]) {
        return Some((function.part, moment, false));
    }
    let [Expr::Literal(unit, _), moment] = &args[..] else { return None };
    let unit = unit.try_as_str().flatten().filter(|_| func.name() == DATE_PART)?.to_lowercase();
    let (_, part) = PARTS.into_iter().find(|(name, part)| *name == unit && !matches!(part, Part::Known(_)))?;
    Some((part, moment, true))
}

/// Whether an expression is such a part.
pub(crate) fn is_moment_part(expr: &Expr) -> bool {
    asked(expr).is_some()
}

/// What such a part is of the engine's parts, each of which `shown` puts into the session's zone; none: it is none of these.
pub(crate) fn moment_part(expr: &Expr, shown: impl Fn(Expr) -> Result<Expr>) -> Result<Option<Expr>> {
    let Some((part, moment, is_engines)) = asked(expr) else { return Ok(None) };
    let known = |name: &str| -> Result<Expr> { Ok(cast(shown(part_of(name, moment.clone()))?, DataType::Int64)) };
    let found = match part {
        Part::Known(name) => known(name)?,
        Part::Decade => known("year")? / lit(10_i64),
        Part::Era => {
            let year = known("year")?;
            when(year.clone().gt(lit(0_i64)), lit(1_i64)).when(year.is_not_null(), lit(0_i64)).end()?
        }
        Part::Years(years) => {
            let (year, one) = (known("year")?, lit(1_i64));
            let since = (year.clone() - one.clone()) / lit(years) + one.clone();
            when(year.clone().gt(lit(0_i64)), since).otherwise(year / lit(years) - one)?
        }
        Part::YearWeek => {
            let (year, week) = (known("isoyear")?, known("week")?);
            let digits = year.clone() * lit(100_i64);
            when(year.gt(lit(0_i64)), digits.clone() + week.clone()).otherwise(digits - week)?
        }
    };
    // The engine's function gives fewer bits.
    Ok(Some(if is_engines { cast(found, DataType::Int32) } else { found }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct MomentPart {
    name: &'static str,
    part: Part,
    signature: Signature,
}

impl ScalarUDFImpl for MomentPart {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("{} was not planned", self.name)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    /// The numbers of the one row that a query has, in a zone.
    async fn numbers(sql: &str, zone: Option<&str>) -> Vec<Option<i64>> {
        let options = EngineOptions { time_zone: zone.map(str::to_owned), ..EngineOptions::default() };
        let context = SessionContext::new_with_state(session_state(&options));
        let batches = context.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")).collect().await.unwrap();
        let number = |column: &arrow::array::ArrayRef| {
            let column = arrow::compute::cast(column, &super::DataType::Int64).unwrap();
            column.as_primitive::<Int64Type>().iter().next().unwrap()
        };
        batches[0].columns().iter().map(number).collect()
    }

    #[tokio::test]
    async fn parts_are_those_of_duckdb() {
        let all = "century(d), decade(d), millennium(d), era(d), isoyear(d), yearweek(d)";
        for (day, expected) in [
            ("'2000-01-01'", [20, 200, 2, 1, 1999, 199_952]),
            ("'2001-01-01'", [21, 200, 3, 1, 2001, 200_101]),
            ("'2021-01-01'", [21, 202, 3, 1, 2020, 202_053]),
            ("'2024-12-30'", [21, 202, 3, 1, 2025, 202_501]),
            ("'0001-01-01'", [1, 0, 1, 1, 1, 101]),
        ] {
            let found = numbers(&format!("SELECT {all} FROM (SELECT DATE {day} AS d)"), None).await;
            assert_eq!(found, expected.map(Some), "{day}");
        }
        let before = format!("SELECT {all} FROM (SELECT DATE '0001-01-01' - INTERVAL '400 days' AS d)");
        assert_eq!(numbers(&before, None).await, [-1, 0, -1, 0, -1, -147].map(Some));
        assert_eq!(numbers(&format!("SELECT {all} FROM (SELECT NULL::date AS d)"), None).await, [None; 6]);
        let units = "SELECT date_part('century', d), extract(MILLENNIUM FROM d), date_part('yearweek', d), date_part('decade', d),                      millisecond(m), microsecond(m) FROM (SELECT DATE '2001-01-01' AS d, TIMESTAMP '2001-01-01 00:00:01.5' AS m)";
        assert_eq!(numbers(units, None).await, [21, 3, 200_101, 200, 1_500, 1_500_000].map(Some));
    }

    #[tokio::test]
    async fn parts_of_moments_are_those_in_the_sessions_zone() {
        let sql = "SELECT century(m), millennium(m) FROM (SELECT TIMESTAMPTZ '2000-12-31 20:00:00+00' AS m)";
        assert_eq!(numbers(sql, None).await, [20, 2].map(Some));
        assert_eq!(numbers(sql, Some("Asia/Tokyo")).await, [21, 3].map(Some));
    }
}
