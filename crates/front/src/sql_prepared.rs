//! PREPARE and EXECUTE of SQL: statements that a connection prepares by their names, which it shares with those of the protocol.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use futures::StreamExt;
use pithead_host::{Parameters, converted};
use pithead_pg_catalog::type_named;

use crate::bind::parameters;
use crate::connection::{Halt, Talk, during};
use crate::decode::parameter;
use crate::decode_text::arrow_type;
use crate::error::Complaint;
use crate::kind::StatementKind;
use crate::lexer::{Token, TokenKind};
use crate::portal::{Prepared, Started, Taking};
use crate::sql_state::{KNOWN_STATEMENT, NOT_SUPPORTED, SYNTAX, UNKNOWN_STATEMENT};
use crate::work::in_own_task;
use crate::zoned::{in_zone, zone_matters};

/// PREPARE.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Prepare {
    pub(crate) name: String,
    /// The types of its first parameters, as they are written.
    pub(crate) types: Vec<String>,
    pub(crate) sql: String,
}

/// EXECUTE.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ExecutePrepared {
    pub(crate) name: String,
    /// Its values, as SQL with commas between them.
    pub(crate) values: String,
}

/// What is in the parentheses that come first, by the places of the tokens, and what follows them.
fn parenthesised(rest: &[Token]) -> Result<(&[Token], &[Token]), Complaint> {
    let mut depth = 0_usize;
    for (place, token) in rest.iter().enumerate() {
        match token.kind {
            TokenKind::Sign('(') => depth += 1,
            TokenKind::Sign(')') if depth == 1 => return Ok((&rest[1..place], &rest[place + 1..])),
            TokenKind::Sign(')') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Err(Complaint::error(SYNTAX, "a parenthesis is not closed"))
}

impl Prepare {
    /// Reads `PREPARE name [(type, …)] AS statement`; `sql` and its tokens follow the first word.
    pub(crate) fn read(sql: &str, rest: &[Token]) -> Result<Prepare, Complaint> {
        let wrong = || Complaint::error(SYNTAX, "expected PREPARE name [(type, …)] AS statement");
        let [name, others @ ..] = rest else { return Err(wrong()) };
        let has_types = others.first().is_some_and(|token| token.is_sign('('));
        let (types, others) = if has_types { parenthesised(others)? } else { (&[][..], others) };
        let [first, ..] = others else { return Err(wrong()) };
        if !first.is("as") || !matches!(name.kind, TokenKind::Word(_) | TokenKind::Name(_)) {
            return Err(wrong());
        }
        let text = |tokens: &[Token]| match tokens {
            [first, .., last] => sql[first.start..last.end].to_owned(),
            [one] => sql[one.start..one.end].to_owned(),
            [] => String::new(),
        };
        let statement = sql[first.end..].trim().trim_end_matches(';').to_owned();
        let types = listed(types).into_iter().map(text).collect();
        Ok(Prepare { name: name.text(), types, sql: statement })
    }
}

/// The parts between commas that are in no parentheses.
fn listed(tokens: &[Token]) -> Vec<&[Token]> {
    if tokens.is_empty() {
        return Vec::new();
    }
    let mut depth = 0_usize;
    let parts = tokens.split(|token| {
        match token.kind {
            TokenKind::Sign('(') => depth += 1,
            TokenKind::Sign(')') => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && token.is_sign(',')
    });
    parts.collect()
}

impl ExecutePrepared {
    /// Reads `EXECUTE name [(value, …)]`; `sql` and its tokens follow the first word.
    pub(crate) fn read(sql: &str, rest: &[Token]) -> Result<ExecutePrepared, Complaint> {
        let wrong = || Complaint::error(SYNTAX, "expected EXECUTE name [(value, …)]");
        let [name, others @ ..] = rest else { return Err(wrong()) };
        let others: Vec<Token> = others.iter().filter(|token| !token.is_sign(';')).cloned().collect();
        let values = match others.as_slice() {
            [] => String::new(),
            [first, ..] if first.is_sign('(') => match parenthesised(&others)? {
                ([begin, .., end], []) => sql[begin.start..end.end].to_owned(),
                ([one], []) => sql[one.start..one.end].to_owned(),
                ([], []) => String::new(),
                _ => return Err(wrong()),
            },
            _ => return Err(wrong()),
        };
        Ok(ExecutePrepared { name: name.text(), values })
    }
}

impl Talk {
    /// PREPARE.
    pub(crate) async fn prepare_by_name(&mut self, prepare: &Prepare) -> Result<(), Halt> {
        if self.statements.contains_key(&prepare.name) {
            let what = format!("prepared statement {:?} already exists", prepare.name);
            return Err(Complaint::error(KNOWN_STATEMENT, what).into());
        }
        let type_of =
            |name: &String| type_named(name).ok_or_else(|| Complaint::error("42704", format!("type {name:?} does not exist")));
        let types = prepare.types.iter().map(type_of).collect::<Result<Vec<u32>, Complaint>>()?;
        self.check_statements(&prepare.name, &prepare.sql)?;
        let mut prepared = self.prepared(prepare.sql.clone(), types).await?;
        if !matches!(prepared.kind, StatementKind::Statement { .. }) {
            return Err(Complaint::error(SYNTAX, "PREPARE takes a query, or a statement that writes").into());
        }
        prepared.by_sql = true;
        self.statements.insert(prepare.name.clone(), Arc::new(prepared));
        Ok(())
    }

    /// The statement that EXECUTE runs.
    pub(crate) fn prepared_by_name(&self, execute: &ExecutePrepared) -> Result<Arc<Prepared>, Complaint> {
        let found = self.statements.get(&execute.name).cloned();
        let found = found.filter(|prepared| !matches!(prepared.kind, StatementKind::Execute(_) | StatementKind::Prepare(_)));
        found
            .ok_or_else(|| Complaint::error(UNKNOWN_STATEMENT, format!("prepared statement {:?} does not exist", execute.name)))
    }

    /// EXECUTE.
    pub(crate) async fn execute_by_name(&mut self, execute: &ExecutePrepared, taking: Taking) -> Result<Started, Halt> {
        let prepared = self.prepared_by_name(execute)?;
        let StatementKind::Statement { tag, writes } = prepared.kind else {
            return Err(Complaint::error(NOT_SUPPORTED, "EXECUTE runs queries, and statements that write").into());
        };
        let values = self.values(&execute.values).await?;
        if values.len() != prepared.types.len() {
            let what = format!(
                "wrong number of parameters for prepared statement {:?}: {} are given, and it has {}",
                execute.name,
                values.len(),
                prepared.types.len()
            );
            return Err(Complaint::error(SYNTAX, what).into());
        }
        let (wanted, zone) = (prepared.types.iter().zip(&prepared.inferred), self.settings.zone().0);
        let row = values.into_iter().zip(wanted);
        let row = row.map(|(value, (oid, inferred))| fitted(&value, *oid, inferred.as_ref(), &zone));
        let values = parameters(row.collect::<Result<Vec<_>, Complaint>>()?)?;
        self.start_at_host((&prepared.sql, tag, writes), Some(&prepared), &values, taking).await
    }

    /// The values of expressions, each as an array of one.
    async fn values(&mut self, expressions: &str) -> Result<Vec<ArrayRef>, Halt> {
        if expressions.is_empty() {
            return Ok(Vec::new());
        }
        let (session, sql) = (Arc::clone(&self.session), format!("SELECT {expressions}"));
        let asking = in_own_task(&self.entrance.work, async move {
            let mut rows = session.run_with(&sql, &Parameters::default()).await?.rows;
            rows.next().await.transpose()
        });
        let row = during(&mut self.link, &self.place.cancel, asking).await??;
        let row = row.filter(|row| row.num_rows() == 1);
        let row = row.ok_or_else(|| Complaint::error(SYNTAX, "the values of EXECUTE are not one row"))?;
        Ok(row.columns().to_vec())
    }
}

/// A value as the type that its parameter has. A text is read as one that a client gives. Where the statement wants a moment of another
/// kind than the parameter is, it makes it itself, by the session's zone.
fn fitted(value: &ArrayRef, oid: u32, inferred: Option<&DataType>, zone: &str) -> Result<ArrayRef, Complaint> {
    let own = arrow_type(oid).unwrap_or(DataType::Utf8);
    let wanted = inferred.filter(|inferred| !zone_matters(&own, inferred, zone)).cloned().unwrap_or(own);
    if value.is_null(0) || value.data_type().is_null() {
        return Ok(new_null_array(&wanted, 1));
    }
    if let Ok(text) = cast(value, &DataType::Utf8)
        && matches!(value.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
    {
        return parameter(oid, inferred, false, Some(text.as_string::<i32>().value(0).as_bytes()), zone);
    }
    let both = |is: fn(&DataType) -> bool| is(value.data_type()) && is(&wanted);
    let is_alike = value.data_type() == &wanted || wanted == DataType::Utf8;
    let is_alike = is_alike || both(DataType::is_numeric) || both(DataType::is_temporal) || both(DataType::is_nested);
    let made = match wanted != DataType::Utf8 && zone_matters(value.data_type(), &wanted, zone) {
        _ if !is_alike => None,
        true => in_zone(value, &wanted, zone),
        false => converted(value, &wanted),
    };
    made.ok_or_else(|| Complaint::error("42804", format!("a value of the type {} is no {wanted}", value.data_type())))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringArray, TimestampMicrosecondArray};
    use arrow::datatypes::{Int32Type, TimeUnit, TimestampMicrosecondType};

    use super::*;
    use crate::kind::kind;

    #[test]
    fn statements_are_read() {
        let Ok(StatementKind::Prepare(prepare)) = kind("PREPARE \"P 1\" (int, numeric(10, 2), text[]) AS SELECT $1 AS a;")
        else {
            panic!("it is no PREPARE")
        };
        let types = ["int", "numeric(10, 2)", "text[]"].map(str::to_owned).to_vec();
        assert_eq!(*prepare, Prepare { name: "P 1".into(), types, sql: "SELECT $1 AS a".into() });
        let execute = |sql: &str| match kind(sql) {
            Ok(StatementKind::Execute(execute)) => Some((execute.name, execute.values)),
            _ => None,
        };
        assert_eq!(execute("EXECUTE p;"), Some(("p".into(), String::new())));
        assert_eq!(execute("execute p (1, f(2, ')'))"), Some(("p".into(), "1, f(2, ')')".into())));
        assert_eq!(execute("execute p ()"), Some(("p".into(), String::new())));
        for wrong in ["PREPARE", "PREPARE p SELECT 1", "PREPARE p (int AS SELECT 1", "EXECUTE", "EXECUTE p (1", "EXECUTE p 1"] {
            assert!(kind(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn values_are_of_the_types_of_parameters() {
        let value: ArrayRef = Arc::new(Int64Array::from(vec![7]));
        let small = fitted(&value, 20, Some(&DataType::Int32), "UTC").unwrap();
        assert_eq!(small.as_primitive::<Int32Type>().value(0), 7);
        assert!(fitted(&value, 1082, None, "UTC").is_err());
        // A regression: a wall time was taken for UTC's, whatever the zone.
        let wall_time: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![7_200_000_000]));
        let moment = fitted(&wall_time, 1184, None, "+02:00").unwrap();
        assert_eq!(moment.as_primitive::<TimestampMicrosecondType>().value(0), 0);
        let wanted = DataType::Timestamp(TimeUnit::Microsecond, None);
        assert_eq!(fitted(&moment, 1184, Some(&wanted), "+02:00").unwrap().data_type(), moment.data_type());
        assert_eq!(&fitted(&moment, 1114, Some(&wanted), "+02:00").unwrap(), &wall_time);
        let text: ArrayRef = Arc::new(StringArray::from(vec!["2024-02-29 12:00:00"]));
        assert_eq!(fitted(&text, 1082, None, "UTC").unwrap().data_type(), &DataType::Date32);
    }
}
