//! What an error of DataFusion is about. Where its variant does not say, its words do; nowhere else are words looked at.

use arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use pithead_model::FaultKind;

/// What the engine and its libraries say where an error is nothing but text. The first that an error's text has decides.
const WORDS: [(&str, FaultKind); 22] = [
    ("table '", FaultKind::NoTable),
    ("No field named", FaultKind::NoColumn),
    ("Invalid function", FaultKind::NoFunction),
    ("No function matches", FaultKind::NoFunction),
    ("does not support zero arguments", FaultKind::NoFunction),
    ("Divide by zero", FaultKind::DivideByZero),
    ("divide by zero", FaultKind::DivideByZero),
    ("division by zero", FaultKind::DivideByZero),
    ("Overflow", FaultKind::OutOfRange),
    ("overflow", FaultKind::OutOfRange),
    ("out of range", FaultKind::OutOfRange),
    ("too large to store", FaultKind::OutOfRange),
    ("declared as non-nullable", FaultKind::NotNull),
    ("Cannot cast", FaultKind::WrongValue),
    ("does not stand for", FaultKind::WrongValue),
    ("Cast error", FaultKind::WrongValue),
    ("Error parsing", FaultKind::WrongValue),
    ("Parser error", FaultKind::WrongValue),
    ("Ambiguous", FaultKind::AmbiguousColumn),
    ("ambiguous", FaultKind::AmbiguousColumn),
    ("GROUP BY", FaultKind::NotGrouped),
    ("sql parser error", FaultKind::Syntax),
];

/// The kind of an error whose text is `message`.
pub(crate) fn kind(error: &DataFusionError, message: &str) -> FaultKind {
    match error {
        DataFusionError::SQL(..) => FaultKind::Syntax,
        DataFusionError::SchemaError(error, _) => match **error {
            SchemaError::FieldNotFound { .. } => FaultKind::NoColumn,
            SchemaError::AmbiguousReference { .. } => FaultKind::AmbiguousColumn,
            _ => FaultKind::Other,
        },
        DataFusionError::ResourcesExhausted(_) => FaultKind::Memory,
        DataFusionError::ArrowError(error, _) => of_arrow(error, message),
        DataFusionError::Plan(_) | DataFusionError::Configuration(_) | DataFusionError::Execution(_) => of_words(message),
        DataFusionError::Collection(errors) => errors.first().map_or(FaultKind::Other, |first| kind(first, message)),
        _ => FaultKind::Other,
    }
}

fn of_arrow(error: &ArrowError, message: &str) -> FaultKind {
    match error {
        ArrowError::DivideByZero => FaultKind::DivideByZero,
        ArrowError::ArithmeticOverflow(_) => FaultKind::OutOfRange,
        ArrowError::MemoryError(_) => FaultKind::Memory,
        // A cast that fails for the size of a number is an error of casts as well.
        ArrowError::CastError(_)
        | ArrowError::ParseError(_)
        | ArrowError::ComputeError(_)
        | ArrowError::InvalidArgumentError(_)
        | ArrowError::CsvError(_)
        | ArrowError::JsonError(_) => of_words(message),
        _ => FaultKind::Other,
    }
}

fn of_words(message: &str) -> FaultKind {
    WORDS.iter().find(|(text, _)| message.contains(text)).map_or(FaultKind::Other, |(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault_from_datafusion;
    use datafusion::execution::context::SessionContext;

    #[test]
    fn variants_say_the_kind() {
        let arrow = |error| DataFusionError::ArrowError(Box::new(error), None);
        for (error, kind) in [
            (arrow(ArrowError::DivideByZero).context("while dividing"), FaultKind::DivideByZero),
            (arrow(ArrowError::ArithmeticOverflow("1 + 1".into())), FaultKind::OutOfRange),
            (arrow(ArrowError::CastError("'x' is no number".into())), FaultKind::WrongValue),
            (arrow(ArrowError::CastError("Overflowing on 1000".into())), FaultKind::OutOfRange),
            (DataFusionError::ResourcesExhausted("no room".into()), FaultKind::Memory),
            (DataFusionError::Internal("overflow".into()), FaultKind::Other),
        ] {
            assert_eq!(fault_from_datafusion(error).kind, kind);
        }
    }

    /// The engine's words, so that a release that says something else is noticed.
    #[tokio::test]
    async fn statements_fail_by_kind() {
        let context = SessionContext::new_with_state(crate::session_state(&crate::EngineOptions::default()));
        for (sql, kind) in [
            ("SELEC 1", FaultKind::Syntax),
            ("SELECT * FROM absent", FaultKind::NoTable),
            ("SELECT b FROM (VALUES (1)) AS t(a)", FaultKind::NoColumn),
            ("SELECT nothing(1)", FaultKind::NoFunction),
            ("SELECT a FROM (VALUES (1)) AS t(a), (VALUES (1)) AS s(a)", FaultKind::AmbiguousColumn),
            ("SELECT a, b, count(*) FROM (VALUES (1, 2)) AS t(a, b) GROUP BY a", FaultKind::NotGrouped),
            ("SELECT 1 / (a - a) FROM (VALUES (1), (2)) AS t(a)", FaultKind::DivideByZero),
            ("SELECT a + 9223372036854775807 FROM (VALUES (1), (2)) AS t(a)", FaultKind::OutOfRange),
            ("SELECT sum(a) FROM (VALUES (9223372036854775807), (2)) AS t(a)", FaultKind::OutOfRange),
            ("SELECT CAST(a AS INT) FROM (VALUES ('x'), ('y')) AS t(a)", FaultKind::WrongValue),
            ("SELECT CAST(a AS TIMESTAMP) FROM (VALUES ('x'), ('y')) AS t(a)", FaultKind::WrongValue),
        ] {
            let result = match context.sql(sql).await {
                Ok(frame) => frame.collect().await.map(drop),
                Err(error) => Err(error),
            };
            let fault = fault_from_datafusion(result.expect_err(sql));
            assert_eq!(fault.kind, kind, "{sql}: {fault}");
        }
    }
}
