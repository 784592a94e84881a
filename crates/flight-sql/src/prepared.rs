//! [`Prepared`]: statements that clients prepare, and bind values to.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use parking_lot::Mutex;
use pithead_host::{Session, Statement};
use pithead_model::Fault;

use crate::apart;
use crate::caller::{Caller, refuse_set};
use crate::error::Refused;
use crate::plain::{answer_schema, schema_held_bytes};
use crate::statement::{self, Ready};
use crate::values::{Values, nulls, parameter_schema};

/// Plans a statement before values are bound to it: the types of its placeholders, and its plan with values of these types. What is known
/// of none is taken for a text, or for a number where a text cannot stand, as after LIMIT.
pub(crate) async fn planned(session: &Arc<Session>, sql: &str) -> Result<(Vec<Option<DataType>>, Statement), Fault> {
    let types = session.placeholders(sql).await?;
    let as_texts = apart::prepared(session, sql, &nulls(&types)?).await;
    if let (Err(_), true) = (&as_texts, types.contains(&None)) {
        let types: Vec<_> = types.iter().cloned().map(|known| known.or(Some(DataType::Int64))).collect();
        if let Ok(statement) = apart::prepared(session, sql, &nulls(&types)?).await {
            return Ok((types, statement));
        }
    }
    Ok((types, as_texts?))
}

/// A statement that was prepared.
pub(crate) struct Prepared {
    sql: String,
    /// Bytes of the plan that it came as, in the place of SQL.
    plan_bytes: usize,
    session: Arc<Session>,
    /// The columns of its rows, as they are sent; none: it has no rows.
    pub(crate) schema: Option<SchemaRef>,
    /// Its placeholders.
    pub(crate) parameters: SchemaRef,
    /// Its plan, with NULL for each placeholder.
    planned: Option<Arc<Statement>>,
    /// What was bound last.
    bound: Mutex<Values>,
}

impl Prepared {
    /// Reads and plans a statement. Nothing is run.
    pub(crate) async fn new(session: Arc<Session>, sql: &str) -> Result<Prepared, Refused> {
        let sql = match Session::split(sql)?.as_slice() {
            [one] => one.clone(),
            _ => return Err(Refused::invalid("expected exactly one SQL statement")),
        };
        refuse_set(&sql)?;
        let (types, statement) = planned(&session, &sql).await?;
        let schema = statement.schema().map(|schema| answer_schema(schema));
        let planned = Some(Arc::new(statement));
        let parameters = parameter_schema(&types);
        Ok(Prepared { sql, plan_bytes: 0, session, schema, parameters, planned, bound: Mutex::default() })
    }

    /// Reads and plans a query that comes as a Substrait plan. Such a one has no placeholders.
    pub(crate) async fn of_plan(session: Arc<Session>, plan: &[u8]) -> Result<Prepared, Refused> {
        let statement = session.prepare_substrait(plan).await?;
        let schema = statement.schema().map(|schema| answer_schema(schema));
        let (parameters, planned) = (parameter_schema(&[]), Some(Arc::new(statement)));
        let (sql, plan_bytes) = (String::new(), plan.len());
        Ok(Prepared { sql, plan_bytes, session, schema, parameters, planned, bound: Mutex::default() })
    }

    /// Bytes that it keeps without values, about.
    pub(crate) fn bytes(&self) -> usize {
        let columns = self.schema.iter().chain([&self.parameters]).map(|schema| schema_held_bytes(schema)).sum::<usize>();
        self.sql.len() + self.plan_bytes + columns + self.planned.as_ref().map_or(0, |planned| planned.bytes())
    }

    /// The same without its plan, where it can be planned anew each time that it runs.
    #[must_use]
    pub(crate) fn without_plan(self) -> Prepared {
        let planned = self.planned.filter(|_| self.plan_bytes > 0);
        Prepared { planned, ..self }
    }

    /// From now on it runs with the rights that its caller has now.
    pub(crate) fn called_by(&self, caller: &Caller) {
        self.session.set_caller(Arc::clone(&caller.identity));
    }

    /// Binds rows of values for the runs to come. `count` is told how many bytes it keeps then, and may refuse that.
    pub(crate) fn bind(&self, values: Values, count: impl FnOnce(usize) -> Result<(), Refused>) -> Result<(), Refused> {
        self.check(&values)?;
        // One who binds at the same time waits, so that what is counted is what is bound.
        let mut bound = self.bound.lock();
        count(self.bytes().saturating_add(values.bytes()))?;
        *bound = values;
        Ok(())
    }

    /// Makes it ready to be answered, with the values that are bound.
    pub(crate) async fn ready(&self) -> Result<Ready, Refused> {
        let values = self.bound.lock().clone();
        let wanted = self.parameters.fields().len();
        if values.rows() == 0 && wanted > 0 {
            return Err(Refused::invalid(format!("the statement has {wanted} parameters, and no values are bound to them")));
        }
        statement::ready(Arc::clone(&self.session), &self.sql, &values, self.planned.clone()).await
    }

    /// Runs it for each row of values; without any, with those that are bound.
    pub(crate) async fn update(&self, values: Values) -> Result<u64, Refused> {
        self.check(&values)?;
        let values = if values.rows() == 0 { self.bound.lock().clone() } else { values };
        match values.rows() == 0 && !self.parameters.fields().is_empty() {
            // No rows were to be inserted.
            true => Ok(0),
            false if self.plan_bytes > 0 => {
                Err(Refused::invalid("a Substrait plan has rows as its answer; expected what changes something"))
            }
            false => statement::update(&self.session, &self.sql, &values).await,
        }
    }

    fn check(&self, values: &Values) -> Result<(), Fault> {
        let wanted = self.parameters.fields().len();
        match values.columns() {
            Some(given) if given != wanted => {
                Err(Fault::invalid(format!("the statement has {wanted} parameters, and rows of {given} values are bound")))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use pithead_door::Door;
    use pithead_fakes::FakeDoor;
    use pithead_host::{Host, HostOptions};

    use super::*;

    /// A regression: a statement was counted as its text, and kept plans over thousands of columns.
    #[tokio::test]
    async fn plans_are_counted_and_can_be_left_out() {
        let drive: Arc<dyn Door> = FakeDoor::new(1);
        let host = Host::connect(vec![drive], HostOptions::default()).await.unwrap();
        let session = Arc::new(host.session());
        let columns: Vec<String> = (0..300).map(|number| format!("c{number} BIGINT")).collect();
        session.run(&format!("CREATE TABLE wide ({})", columns.join(", "))).await.unwrap();
        let prepared = Prepared::new(session, "SELECT * FROM wide").await.unwrap();
        let bytes = prepared.bytes();
        let Ok(Ready::Rows(query)) = prepared.ready().await else { panic!("it is a query") };
        assert!(bytes > 100_000 && query.bytes > 100_000, "{bytes} {}", query.bytes);
        let lean = prepared.without_plan();
        assert!(lean.planned.is_none() && lean.bytes() < bytes / 2, "{} of {bytes}", lean.bytes());
        assert!(matches!(lean.ready().await, Ok(Ready::Rows(_))), "it is planned when it runs");
    }
}
