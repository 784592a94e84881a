//! [`run`]: statements of the query box, run as they would be over the wire, with the first rows of each as JSON.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use futures::StreamExt;
use pithead_host::{Answer, Host, Session};
use pithead_model::Fault;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::caller::PageSession;
use crate::refused::fault_json;
use crate::values::{column_json, rows_json};

/// Rows of a statement that are sent where the request does not say how many, and the most that it may say.
const ROWS: usize = 1_000;
const ROWS_MAX: usize = 10_000;
/// Most bytes of values of one answer, about.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Values that are made into JSON at one time.
const PIECE_VALUES: usize = 1_024;
/// Most statements of one text.
const STATEMENTS_MAX: usize = 100;

/// What is to be run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QueryRequest {
    sql: String,
    /// Rows that are wanted of each statement at most.
    rows: Option<usize>,
}

/// Runs the statements of a text one after the other, until one fails. When nobody waits any more, the one that runs is ended.
pub(crate) async fn run(host: Host, page: Arc<PageSession>, asked: QueryRequest, threads: &Handle) -> Json {
    // Ends its task when it is dropped.
    let mut task = JoinSet::new();
    task.spawn_on(each(host, page, asked), threads);
    match task.join_next().await {
        Some(Ok(answer)) => answer,
        Some(Err(error)) => failed(vec![], &Fault::bug(format!("a statement broke off: {error}")), 0),
        None => failed(vec![], &Fault::bug("a statement without a task"), 0),
    }
}

async fn each(host: Host, page: Arc<PageSession>, asked: QueryRequest) -> Json {
    let mut results = Vec::new();
    let statements = match Session::split(&asked.sql) {
        Ok(statements) if statements.len() > STATEMENTS_MAX => {
            let what = format!("{} statements in one text; at most {STATEMENTS_MAX} are run", statements.len());
            return failed(results, &Fault::invalid(what), 0);
        }
        Ok(statements) => statements,
        Err(fault) => return failed(results, &fault, 0),
    };
    let rows_max = asked.rows.unwrap_or(ROWS).min(ROWS_MAX);
    let (mut bytes_left, mut rest) = (ANSWER_BYTES_MAX, asked.sql.as_str());
    for sql in &statements {
        // Statements are parts of the text, in its order.
        rest = rest.find(sql.as_str()).map_or(rest, |found| &rest[found..]);
        let begins = asked.sql.len() - rest.len();
        rest = rest.strip_prefix(sql.as_str()).unwrap_or(rest);
        match one(&page.session, sql, rows_max, &mut bytes_left).await {
            Ok(mut result) => {
                result["id"] = json!(number(&host, page.connection));
                results.push(result);
            }
            Err(fault) => return failed(results, &fault, asked.sql[..begins].chars().count()),
        }
    }
    json!({ "results": results })
}

/// The number of the page's last statement, by which its plan is found.
fn number(host: &Host, connection: i64) -> Option<u64> {
    host.activity().ended().iter().find(|followed| followed.connection == connection).map(|followed| followed.id)
}

async fn one(session: &Session, sql: &str, rows_max: usize, bytes_left: &mut usize) -> Result<Json, Fault> {
    let started = Instant::now();
    let Answer { schema, mut rows, is_query, changed, .. } = session.run(sql).await?;
    let mut shown = Shown { rows: vec![], rows_max, has_more: false };
    while let Some(batch) = rows.next().await {
        shown.take(&batch?, bytes_left)?;
        if shown.has_more {
            break;
        }
    }
    // Ends it at the drives where rows are left.
    drop(rows);
    let columns: Vec<Json> = schema.fields().iter().map(|field| column_json(field)).collect();
    Ok(json!({
        "is_query": is_query,
        "columns": columns,
        "rows": shown.rows,
        "has_more": shown.has_more,
        "changed": changed,
        "seconds": started.elapsed().as_secs_f64(),
    }))
}

/// The first rows of a statement.
struct Shown {
    rows: Vec<Json>,
    rows_max: usize,
    /// Whether there are others.
    has_more: bool,
}

impl Shown {
    /// Takes rows in pieces, as long as they fit.
    fn take(&mut self, batch: &RecordBatch, bytes_left: &mut usize) -> Result<(), Fault> {
        let piece_rows = (PIECE_VALUES / batch.num_columns().max(1)).max(1);
        for begin in (0..batch.num_rows()).step_by(piece_rows) {
            let piece = batch.slice(begin, piece_rows.min(batch.num_rows() - begin));
            let (rows, bytes) = rows_json(&piece, self.rows_max - self.rows.len()).map_err(Fault::bug)?;
            self.has_more = rows.len() < piece.num_rows() || bytes > *bytes_left;
            if bytes <= *bytes_left {
                *bytes_left -= bytes;
                self.rows.extend(rows);
            }
            if self.has_more {
                break;
            }
        }
        Ok(())
    }
}

/// What was done before a statement failed, and why it did. `begins`: characters before the statement.
fn failed(results: Vec<Json>, fault: &Fault, begins: usize) -> Json {
    let mut error = fault_json(fault);
    error["begins"] = json!(begins);
    json!({ "results": results, "error": error })
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int32Array};

    use super::*;

    fn taken(rows_max: usize, mut bytes_left: usize) -> (usize, bool) {
        let column: ArrayRef = Arc::new(Int32Array::from_iter_values(0..3_000));
        let batch = RecordBatch::try_from_iter([("v", column)]).unwrap();
        let mut shown = Shown { rows: vec![], rows_max, has_more: false };
        shown.take(&batch, &mut bytes_left).unwrap();
        (shown.rows.len(), shown.has_more)
    }

    #[test]
    fn rows_are_taken_as_long_as_they_fit() {
        assert_eq!(taken(5_000, usize::MAX), (3_000, false));
        assert_eq!(taken(3_000, usize::MAX), (3_000, false));
        assert_eq!(taken(2_999, usize::MAX), (2_999, true));
        assert_eq!(taken(0, usize::MAX), (0, true));
        let (rows, has_more) = taken(5_000, 12_000);
        assert!(has_more && rows > 0 && rows < 3_000, "{rows}");
    }

    #[test]
    fn what_is_asked_is_read_strictly() {
        let read = |text: &str| serde_json::from_str::<QueryRequest>(text).is_ok();
        assert!(read(r#"{"sql":"SELECT 1"}"#) && read(r#"{"sql":"","rows":5}"#));
        for wrong in ["", "{}", "[]", r#"{"sql":1}"#, r#"{"sql":"","rows":-1}"#, r#"{"sql":"","x":1}"#, r#"{"sql":"#] {
            assert!(!read(wrong), "{wrong}");
        }
    }
}
