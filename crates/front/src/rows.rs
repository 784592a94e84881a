//! Rows on their way to a client: one batch in memory, and as many bytes as are sent at once.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use futures::StreamExt;
use futures::stream::BoxStream;
use pithead_host::{ORIGIN, converted};
use pithead_model::{Blame, Fault};
use pithead_pg_catalog::{modifier, pg_type};

use crate::cancel::Cancel;
use crate::columns::{Column, length_of};
use crate::connection::{Halt, during, flush};
use crate::link::Link;
use crate::reply::{Described, Replies, end_length};
use crate::{binary, text};

/// The rows of an answer, as far as they are not sent yet.
pub(crate) struct Rows {
    schema: SchemaRef,
    stream: BoxStream<'static, Result<RecordBatch, Fault>>,
    batch: Option<Batch>,
    /// Whether they tell of a change that was sent.
    is_sent: bool,
    /// Rows that were sent.
    pub(crate) sent: u64,
}

/// A batch, of which some rows were sent.
struct Batch {
    columns: Vec<Column>,
    rows: usize,
    next: usize,
}

/// Writes one row as a message.
pub(crate) trait WriteRow {
    fn write(&mut self, out: &mut Replies, columns: &[Column], row: usize);
}

impl Rows {
    /// Rows whose columns were told as `schema` has them.
    pub(crate) fn new(schema: SchemaRef, stream: BoxStream<'static, Result<RecordBatch, Fault>>) -> Rows {
        Rows { schema, stream, batch: None, is_sent: false, sent: 0 }
    }

    /// The same, of a statement that has sent what it changes: who cancels its rows is told that the change stays.
    pub(crate) fn of_what_was_sent(self, is_sent: bool) -> Rows {
        Rows { is_sent, ..self }
    }

    /// Whether they tell of a change that was sent, so that no time bounds them.
    pub(crate) fn is_sent(&self) -> bool {
        self.is_sent
    }

    /// Sends at most `limit` rows. Whether all have been sent.
    pub(crate) async fn send(
        &mut self,
        link: &mut Link,
        cancel: &Cancel,
        limit: u64,
        writer: &mut impl WriteRow,
    ) -> Result<bool, Halt> {
        let done = self.send_some(link, cancel, limit, writer).await;
        match done {
            // The change itself cannot be cancelled any more.
            Err(Halt::Fault(fault)) if self.is_sent && fault.blame == Blame::Cancelled => {
                let message = format!("{}: what it has changed stays, and its rows are not all sent", fault.message);
                Err(Halt::Fault(Fault { message, ..fault }))
            }
            done => done,
        }
    }

    async fn send_some(
        &mut self,
        link: &mut Link,
        cancel: &Cancel,
        limit: u64,
        writer: &mut impl WriteRow,
    ) -> Result<bool, Halt> {
        let mut left = limit;
        loop {
            let Some(batch) = &mut self.batch else {
                match during(link, cancel, self.stream.next()).await? {
                    None => return Ok(true),
                    Some(batch) => self.batch = Some(Batch::of(&self.schema, &batch?)?),
                }
                continue;
            };
            while batch.next < batch.rows && left > 0 {
                writer.write(&mut link.out, &batch.columns, batch.next);
                batch.next += 1;
                self.sent += 1;
                left -= 1;
                if link.is_full() {
                    flush(link, cancel).await?;
                }
            }
            if batch.next == batch.rows {
                self.batch = None;
            }
            if left == 0 {
                return Ok(false);
            }
        }
    }
}

impl Batch {
    fn of(schema: &Schema, batch: &RecordBatch) -> Result<Batch, Fault> {
        let given = batch.schema();
        let column = |((told, given), array): ((&FieldRef, &FieldRef), &ArrayRef)| {
            // The client was told a type before the values of parameters were known. Decimals of all widths are one type.
            match array.data_type() == told.data_type() || pg_type(told) == pg_type(given) {
                true => Column::of(given, array),
                false => Column::of(told, &as_told(told, array)?),
            }
        };
        if schema.fields().len() != batch.num_columns() {
            return Err(Fault::bug("a batch has other columns than its statement"));
        }
        let fields = schema.fields().iter().zip(given.fields());
        let columns = fields.zip(batch.columns()).map(column).collect::<Result<_, _>>()?;
        Ok(Batch { columns, rows: batch.num_rows(), next: 0 })
    }
}

/// Values as the type that the client was told; an error where one is not the same there.
fn as_told(told: &Field, array: &ArrayRef) -> Result<ArrayRef, Fault> {
    converted(array, told.data_type()).ok_or_else(|| {
        let what = format!(
            "column {} was told to the client as {} and has values of the type {}, as the parameters make them",
            told.name(),
            told.data_type(),
            array.data_type()
        );
        Fault::new(Blame::Unsupported, what).hint("say the types of parameters where they stand, as in $1::numeric")
    })
}

/// Rows as DataRow messages.
pub(crate) struct DataRows {
    pub(crate) binary: Vec<bool>,
    pub(crate) zone: Tz,
}

impl WriteRow for DataRows {
    fn write(&mut self, out: &mut Replies, columns: &[Column], row: usize) {
        out.message(b'D', |out| {
            out.extend_from_slice(&(columns.len() as u16).to_be_bytes());
            for (column, binary) in columns.iter().zip(&self.binary) {
                if column.is_null(row) {
                    out.extend_from_slice(&(-1_i32).to_be_bytes());
                    continue;
                }
                let start = out.len();
                out.extend_from_slice(&[0; 4]);
                match binary {
                    true => binary::write(out, column, row),
                    false => text::write(out, column, row, &self.zone),
                }
                end_length(out, start, false);
            }
        });
    }
}

/// Rows that nobody wants.
pub(crate) struct NoRows;

impl WriteRow for NoRows {
    fn write(&mut self, _: &mut Replies, _: &[Column], _: usize) {}
}

/// The columns of a schema as clients are told of them.
pub(crate) fn described(schema: &Schema, binary: &[bool]) -> Vec<Described> {
    let one = |(field, binary): (&Arc<Field>, &bool)| {
        let oid = pg_type(field);
        let modifier = modifier(field.data_type());
        let (table, number) = origin(field).unwrap_or_default();
        Described { name: field.name().clone(), table, number, oid, length: length_of(oid), modifier, binary: *binary }
    };
    schema.fields().iter().zip(binary).map(one).collect()
}

/// The number of the table that a column is of, and its number there; none: it is computed, or that is not known.
fn origin(field: &Field) -> Option<(u32, i16)> {
    let (table, number) = field.metadata().get(ORIGIN)?.split_once('.')?;
    Some((table.parse().ok()?, number.parse().ok()?))
}

/// The formats of so many columns, from codes as Bind gives them: none is text for all, one is for all.
pub(crate) fn formats(codes: &[i16], columns: usize) -> Option<Vec<bool>> {
    if codes.iter().any(|code| !(0..=1).contains(code)) {
        return None;
    }
    match codes {
        [] => Some(vec![false; columns]),
        [code] => Some(vec![*code == 1; columns]),
        codes if codes.len() == columns => Some(codes.iter().map(|code| *code == 1).collect()),
        _ => None,
    }
}
