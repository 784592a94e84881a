//! Faults of calls whose arguments are of types that a function does not take. The engine lists all of its signatures, and calls some
//! of these errors internal.

use pithead_model::{Blame, Fault, FaultKind};

/// What stands before and after a call by its types.
const CALL: (&str, &str) = ("No function matches the given name and argument types '", "'. You might need");
/// What stands before and after a function's name, where the engine does not say the types.
const NAME: (&str, &str) = ("Function '", "' failed to match any signature");

/// The engine's names of types and those of SQL. Of several that a type begins with, the first one counts.
const TYPES: [(&str, &str); 30] = [
    ("Utf8", "VARCHAR"),
    ("LargeUtf8", "VARCHAR"),
    ("Dictionary", "VARCHAR"),
    ("Boolean", "BOOLEAN"),
    ("Int8", "TINYINT"),
    ("Int16", "SMALLINT"),
    ("Int32", "INTEGER"),
    ("Int64", "BIGINT"),
    ("UInt8", "UTINYINT"),
    ("UInt16", "USMALLINT"),
    ("UInt32", "UINTEGER"),
    ("UInt64", "UBIGINT"),
    ("Float16", "REAL"),
    ("Float32", "REAL"),
    ("Float64", "DOUBLE"),
    ("Decimal", "DECIMAL"),
    ("Date", "DATE"),
    ("Timestamp", "TIMESTAMP"),
    ("Time", "TIME"),
    ("Interval", "INTERVAL"),
    ("Duration", "INTERVAL"),
    ("Binary", "BLOB"),
    ("LargeBinary", "BLOB"),
    ("FixedSizeBinary", "BLOB"),
    ("List", "LIST"),
    ("LargeList", "LIST"),
    ("FixedSizeList", "LIST"),
    ("Struct", "STRUCT"),
    ("Map", "MAP"),
    ("Null", "NULL"),
];

/// The fault of such an error; none: the message is of another one.
pub(crate) fn of_call(message: &str) -> Option<Fault> {
    let told = between(message, CALL).and_then(|call| {
        let (name, types) = call.strip_suffix(')')?.split_once('(')?;
        Some((name, Some(sql_names(types))))
    });
    let (name, types) = told.or_else(|| Some((between(message, NAME)?, None)))?;
    let what = match types.as_deref() {
        None => format!("{name} does not take values of these types"),
        Some([]) => format!("{name} takes at least one argument, and was given none"),
        Some([one]) => format!("{name} does not take a value of type {one}"),
        Some([first @ .., last]) => format!("{name} does not take values of types {} and {last}", first.join(", ")),
    };
    let fault = Fault::new(Blame::User, what).of_kind(FaultKind::NoFunction);
    let has_texts = types.is_some_and(|types| types.contains(&"VARCHAR"));
    Some(match has_texts {
        true => fault.hint("a text that is a number or a time can be cast, as in CAST(x AS DOUBLE) or CAST(x AS TIMESTAMP)"),
        false => fault,
    })
}

fn between<'a>(message: &'a str, (before, after): (&str, &str)) -> Option<&'a str> {
    let (_, rest) = message.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found)
}

/// The names of types that stand with commas between them.
fn sql_names(types: &str) -> Vec<&'static str> {
    let mut depth = 0;
    let at_commas = types.split(|character: char| {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        character == ',' && depth == 0
    });
    at_commas.map(str::trim).filter(|engines| !engines.is_empty()).map(sql_name).collect()
}

fn sql_name(engines: &str) -> &'static str {
    if engines.starts_with("Timestamp(") && engines.contains('"') {
        return "TIMESTAMP WITH TIME ZONE";
    }
    // `Decimal128` and `Utf8View` have more behind their names than the list has.
    let word = engines.split('(').next().unwrap_or(engines);
    let exact = TYPES.iter().find(|(known, _)| *known == word);
    let found = exact.or_else(|| TYPES.iter().find(|(known, _)| word.starts_with(known)));
    found.map_or("another kind", |(_, sql)| sql)
}

#[cfg(test)]
mod tests {
    use datafusion::execution::context::SessionContext;

    use super::*;
    use crate::fault_from_datafusion;

    #[test]
    fn types_are_those_of_sql() {
        let names = sql_names("Utf8View, Decimal128(15, 2), Timestamp(µs, \"UTC\"), UInt8, List(Int64, field: 'x'), Date32");
        assert_eq!(names, ["VARCHAR", "DECIMAL", "TIMESTAMP WITH TIME ZONE", "UTINYINT", "LIST", "DATE"]);
        assert!(sql_names("").is_empty());
    }

    #[test]
    fn one_sentence_says_what_was_given() {
        let told = |message: &str| of_call(message).map(|fault| fault.message);
        let long = "Error during planning: Internal error: Function 'round' failed to match any signature, errors: many. \
             No function matches the given name and argument types 'round(Utf8View, Int64, Int64)'. You might need to add \
             explicit type casts.\n\tCandidate functions:\n\tround(Any)";
        assert_eq!(told(long).unwrap(), "round does not take values of types VARCHAR, BIGINT and BIGINT");
        let internal = "Internal error: Function 'sum' failed to match any signature, errors: many";
        assert_eq!(told(internal).unwrap(), "sum does not take values of these types");
        assert_eq!(told("Internal error: no column 7"), None);
    }

    /// The engine's words, so that a release that says something else is noticed.
    #[tokio::test]
    async fn calls_that_the_engine_refuses_are_the_users() {
        let context = SessionContext::new_with_state(crate::session_state(&crate::EngineOptions::default()));
        for (sql, name) in [
            ("SELECT sum(a) FROM (VALUES ('x')) AS t(a)", "sum"),
            ("SELECT avg(a) FROM (VALUES ('x')) AS t(a)", "avg"),
            ("SELECT round(a, 1, 2) FROM (VALUES (1.5)) AS t(a)", "round"),
        ] {
            let result = match context.sql(sql).await {
                Ok(frame) => frame.collect().await.map(drop),
                Err(error) => Err(error),
            };
            let fault = fault_from_datafusion(result.expect_err(sql));
            let is_said = fault.message.starts_with(&format!("{name} does not take")) && !fault.message.contains('\n');
            assert!(fault.blame == Blame::User && is_said, "{sql}: {fault}");
        }
    }
}
