//! Statements: what a ticket stands for, how it is run, and statements that change something.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use pithead_host::{Answer, Parameters, Session, Statement};
use pithead_model::Fault;

use crate::apart;
use crate::caller::{Caller, refuse_set};
use crate::error::Refused;
use crate::plain::{answer_schema, conform, schema_held_bytes};
use crate::values::{Values, column_names};

/// What bound rows are called as a table; no dataset's name has a blank.
const BOUND: &str = "bound rows";

/// Rows as they come.
pub(crate) type Rows = BoxStream<'static, Result<RecordBatch, Fault>>;

/// A query that is planned: what a ticket stands for.
pub(crate) struct PlannedQuery {
    session: Arc<Session>,
    first: Arc<Statement>,
    sql: String,
    /// Values for further runs, whose rows follow.
    more: Box<dyn Iterator<Item = Result<Parameters, Fault>> + Send>,
    /// The rows of a statement that has run already, since it changes something.
    written: Option<Vec<RecordBatch>>,
    /// The columns of its rows, as they are sent.
    pub(crate) schema: SchemaRef,
    /// Bytes that it keeps, about.
    pub(crate) bytes: usize,
}

/// A statement that is ready to be answered.
pub(crate) enum Ready {
    /// Its rows can be fetched.
    Rows(PlannedQuery),
    /// It changes something, and its rows tell of that: see [`Returning`].
    Returning(Returning),
    /// It has none, and is done: so many rows it inserted, deleted or changed.
    Done(u64),
}

/// A statement that changes something and says RETURNING. Nothing is changed yet: there has to be a place for its rows first.
pub(crate) struct Returning {
    query: PlannedQuery,
    /// Rows of values that it runs for.
    runs: usize,
}

/// Makes a statement ready. A query is planned; one that has no rows is run at once, since clients may never fetch these.
/// `planned`: its plan, where it was planned before, with other values or none.
pub(crate) async fn ready(
    session: Arc<Session>,
    sql: &str,
    values: &Values,
    planned: Option<Arc<Statement>>,
) -> Result<Ready, Refused> {
    refuse_set(sql)?;
    let mut more = values.each();
    let first = match (planned, more.next().transpose()?) {
        (Some(planned), None) => planned,
        (Some(planned), Some(values)) => Arc::new(planned.bind(&session, &values).await?),
        (None, values) => Arc::new(apart::prepared(&session, sql, &values.unwrap_or_default()).await?),
    };
    let Some(schema) = first.schema() else { return Ok(Ready::Done(update(&session, sql, values).await?)) };
    let schema = answer_schema(schema);
    let bytes = values.bytes() + first.bytes() + schema_held_bytes(&schema);
    let writes = first.writes();
    let more = Box::new(more);
    let query = PlannedQuery { session, first, sql: sql.to_owned(), more, written: None, schema, bytes };
    if !writes {
        return Ok(Ready::Rows(query));
    }
    values.check()?;
    Ok(Ready::Returning(Returning { query, runs: values.rows().max(1) }))
}

impl Returning {
    /// Bytes that it keeps before it runs, about.
    pub(crate) fn bytes(&self) -> usize {
        self.query.bytes
    }

    /// Runs it, at once, since clients need not fetch the rows. `count` is told after each run how many bytes are kept by then. Where it
    /// refuses that, there are no further runs; the rows of the last one are kept whatever it says.
    pub(crate) async fn run(self, count: impl Fn(usize) -> Result<(), Fault>) -> Result<PlannedQuery, Refused> {
        let Returning { mut query, runs } = self;
        let mut rows: Vec<RecordBatch> = query.first.run(&query.session).await?.rows.try_collect().await?;
        let mut done = 1;
        loop {
            let bytes = query.bytes + rows.iter().map(RecordBatch::get_array_memory_size).sum::<usize>();
            let counted = count(bytes);
            let Some(values) = query.more.next() else {
                query.bytes = bytes;
                break;
            };
            let partly = |fault: Fault| {
                fault.at(format_args!(
                    "the statement was run for the first {done} of {runs} rows of values, and not for the others"
                ))
            };
            counted.map_err(partly)?;
            let answer = query.session.run_with(&query.sql, &values?).await.map_err(partly)?;
            rows.extend(answer.rows.try_collect::<Vec<_>>().await.map_err(partly)?);
            done += 1;
        }
        query.written = Some(rows);
        Ok(query)
    }
}

impl PlannedQuery {
    /// Runs it for its caller, whose rights may be others by now.
    pub(crate) async fn rows(self, caller: &Caller) -> Result<Rows, Fault> {
        let PlannedQuery { session, first, more, written, schema, .. } = self;
        if let Some(rows) = written {
            return Ok(stream::iter(rows).map(move |batch| conform(&batch, &schema)).boxed());
        }
        session.set_caller(Arc::clone(&caller.identity));
        let Answer { rows, .. } = first.run(&session).await?;
        let further = stream::iter(more).then(move |values| {
            let (session, first) = (Arc::clone(&session), Arc::clone(&first));
            async move { first.run_with(&session, &values?, &Arc::default()).await.map(|answer| answer.rows) }
        });
        let rows = rows.chain(further.try_flatten());
        Ok(rows.map(move |batch| conform(&batch?, &schema)).boxed())
    }
}

/// Runs a statement that changes something, for each row of values. How many rows it inserted, deleted or changed. Many rows of an INSERT
/// become visible together; other statements are run one after the other.
pub(crate) async fn update(session: &Arc<Session>, sql: &str, values: &Values) -> Result<u64, Refused> {
    refuse_set(sql)?;
    if values.rows() > 1
        && let Some(columns) = values.columns()
        && let Some(insert) = Session::insert_from(sql, BOUND, &column_names(columns))?
        && let Some(table) = values.as_table(BOUND)?
    {
        return changed(session.run_with(&insert, &table).await?);
    }
    if values.rows() == 0 {
        return changed(apart::run(session, sql, &Parameters::default()).await?);
    }
    values.check()?;
    let mut sum = 0;
    for row in values.each() {
        sum += changed(apart::run(session, sql, &row?).await?)?;
    }
    Ok(sum)
}

fn changed(answer: Answer) -> Result<u64, Refused> {
    match (answer.is_query, answer.changed) {
        (true, None) => Err(Refused::invalid("the statement has rows as its answer; expected one that changes something")),
        (_, changed) => Ok(changed.unwrap_or(0)),
    }
}
