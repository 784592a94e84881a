//! Calls of functions that are there, and cannot be called so: for want of their name, the planner proposes that of another function.

use std::ops::ControlFlow;

use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{Expr, Function, FunctionArguments, Statement as Sql};
use pithead_model::{Blame, Fault, FaultKind};
use pithead_syntax::expressions;

use super::macros::EXPRESSIONS;

/// What the functions of differences in time take.
const DIFFERENCE: &str = "a unit in quotes (year, quarter, month, week, day, hour, minute or second) and two moments";

/// Says what is wrong with the first of such calls that are left once all others are expanded.
pub(super) fn refuse(state: &SessionState, sql: &Sql) -> Result<()> {
    let wrong = expressions(sql, |expr| match expr {
        Expr::Function(function) => misfit(state, function).map_or(ControlFlow::Continue(()), ControlFlow::Break),
        _ => ControlFlow::Continue(()),
    });
    match wrong {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(fault) => Err(DataFusionError::External(Box::new(fault))),
    }
}

fn misfit(state: &SessionState, function: &Function) -> Option<Fault> {
    let [name] = &function.name.0[..] else { return None };
    let name = name.as_ident()?.value.to_lowercase();
    let name = name.as_str();
    if state.scalar_functions().contains_key(name) || state.aggregate_functions().contains_key(name) {
        return None;
    }
    if state.window_functions().contains_key(name) {
        let message = format!("{name} is a window function and needs OVER (…)");
        let hint = format!("write {name}(…) OVER (ORDER BY …), or OVER () where the order does not matter");
        return function.over.is_none().then(|| Fault::new(Blame::User, message).hint(hint));
    }
    let given = match &function.args {
        FunctionArguments::List(list) => list.args.len(),
        _ => 0,
    };
    let wanted = match name {
        "date_diff" | "datediff" => DIFFERENCE.to_owned(),
        _ => {
            let counts = EXPRESSIONS.iter().filter(|(known, ..)| *known == name).map(|(_, count, _)| *count);
            let mut counts: Vec<usize> = counts.collect();
            if name == "time_bucket" {
                counts.insert(0, 2);
            }
            if counts.contains(&given) {
                return Some(bare(name));
            }
            arguments(&counts)?
        }
    };
    let message = format!("{name} takes {wanted}; it was given {}", arguments(&[given])?);
    Some(Fault::new(Blame::User, message).of_kind(FaultKind::NoFunction))
}

/// A call whose arguments are right in number, with something else in it.
fn bare(name: &str) -> Fault {
    let message = format!("{name} takes no DISTINCT, ORDER BY, FILTER, OVER or names of arguments here");
    Fault::new(Blame::Unsupported, message).hint("compute it in a subquery, without them, and go on from its column")
}

/// Numbers of arguments in words; none: there are no numbers.
fn arguments(counts: &[usize]) -> Option<String> {
    let last = *counts.last()?;
    let all: Vec<String> = counts.iter().map(usize::to_string).collect();
    Some(format!("{} argument{}", all.join(" or "), if last == 1 { "" } else { "s" }))
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;
    use pithead_functions::fault_from_datafusion;

    use super::*;
    use crate::dialect::macros;

    #[test]
    fn calls_that_cannot_be_say_what_could() {
        let state = SessionContext::new().state();
        let told = |sql: &str| {
            let mut sql = Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0);
            macros::expand(&state, &mut sql);
            refuse(&state, &sql).map_err(|error| fault_from_datafusion(error).message)
        };
        for (sql, expected) in [
            ("SELECT date_diff('eon', a, b) FROM t", "date_diff takes a unit in quotes"),
            ("SELECT arg_max(a, b, 3, 4) FROM t", "arg_max takes 2 or 3 arguments; it was given 4 arguments"),
            ("SELECT regexp_extract(a, b, 1, 'i') FROM t", "regexp_extract takes 2 or 3 arguments; it was given 4 arguments"),
            ("SELECT year() FROM t", "year takes 1 argument; it was given 0 arguments"),
            ("SELECT year(a) OVER () FROM t", "year takes no DISTINCT"),
            ("SELECT 1 FROM t WHERE row_number() > 1", "row_number is a window function and needs OVER"),
            ("SELECT lag(a) FROM t", "lag is a window function and needs OVER"),
        ] {
            let message = told(sql).unwrap_err();
            assert!(message.starts_with(expected), "{sql}: {message}");
        }
        for sql in [
            "SELECT date_diff('day', a, b), arg_max(a, b), first_value(a), nothing(a) FROM t",
            "SELECT row_number() OVER (), lag(a) OVER (ORDER BY a) FROM t",
        ] {
            assert_eq!(told(sql), Ok(()), "{sql}");
        }
    }
}
