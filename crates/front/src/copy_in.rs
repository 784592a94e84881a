//! COPY … FROM STDIN: rows from a client into a dataset, by a load: they become visible together at the end, or not at all.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, new_null_array};
use arrow::datatypes::SchemaRef;
use futures::StreamExt;
use pithead_door::Batches;
use pithead_host::{LoadMode, LoadSpec, Right};
use pithead_model::{DatasetName, Fault, PAGE_ROWS};
use tokio::sync::mpsc;

use crate::connection::{Halt, Talk, flush};
use crate::copy::{Copy, CopyFormat, Source};
use crate::copy_binary::BinaryReader;
use crate::copy_rows::{ReadRows, Row, Value};
use crate::copy_text::RowReader;
use crate::error::Complaint;
use crate::lexer::{TokenKind, tokens};
use crate::link::Read;
use crate::message::Message;

/// Bytes of fields after which a batch ends, however few rows it has.
const BATCH_BYTES: usize = 8 << 20;
/// Batches that wait to be sent to the drives.
const BATCHES_MAX: usize = 2;

/// A dataset, its columns, and which of them a row's fields are for.
type CopyTarget = (DatasetName, SchemaRef, Vec<usize>);

impl Talk {
    pub(crate) async fn copy_in(&mut self, copy: &Copy) -> Result<(), Halt> {
        self.check_writes(true)?;
        self.admit()?;
        let target = self.target(copy).await?;
        let columns: Vec<String> = target.2.iter().map(|place| target.1.field(*place).name().clone()).collect();
        match copy.options.format {
            CopyFormat::Binary => self.load(target, true, BinaryReader::new(columns.len())).await,
            CopyFormat::Text | CopyFormat::Csv => {
                self.load(target, false, RowReader::new(copy.options.clone(), &columns)).await
            }
        }
    }

    async fn load<R: ReadRows>(&mut self, target: CopyTarget, is_binary: bool, mut reader: R) -> Result<(), Halt> {
        let (name, schema, places) = target;
        self.link.out.copy(b'G', is_binary, places.len());
        flush(&mut self.link, &self.place.cancel).await?;
        let (sender, receiver) = mpsc::channel::<Result<RecordBatch, Fault>>(BATCHES_MAX);
        let rows: Batches = futures::stream::unfold(receiver, |mut receiver| async {
            let batch = receiver.recv().await?;
            Some((batch, receiver))
        })
        .boxed();
        let host = self.front.host.clone();
        let spec = LoadSpec { mode: LoadMode::Append, ..LoadSpec::new(name, vec![]) };
        let own = Arc::clone(&schema);
        let loading = async move { host.load_batches(spec, own, rows).await };
        tokio::pin!(loading);
        let mut builder = Builder { schema, places, zone: self.settings.zone().0, rows: Vec::new(), bytes: 0 };
        // A load that fails at once ends the reading, too.
        let report = {
            let reading = async {
                let ended = self.read_rows(&mut reader, &mut builder, &sender).await;
                drop(sender);
                ended
            };
            tokio::pin!(reading);
            tokio::select! {
                biased;
                ended = &mut reading => {
                    ended?;
                    (&mut loading).await
                }
                report = &mut loading => report,
            }
        }?;
        self.transaction.wrote();
        self.front.metrics.copied_rows.inc_by(report.rows);
        self.link.out.complete(&format!("COPY {}", report.rows));
        Ok(())
    }

    /// The dataset, its columns, and which of them a row's fields are for.
    async fn target(&mut self, copy: &Copy) -> Result<CopyTarget, Halt> {
        let Source::Table { name, columns } = &copy.source else { return Err(Fault::bug("COPY reads into no table").into()) };
        let name = dataset_name(name, &self.session.domain())?;
        self.session.check(Right::Write, &name.domain)?;
        let snapshot = self.front.host.fleet().snapshot().await?;
        let schema = Arc::clone(&snapshot.readable(&name)?.dataset().schema);
        let place = |column: &String| {
            let found = schema.fields().iter().position(|field| field.name() == column);
            found.ok_or_else(|| Complaint::error("42703", format!("column {column:?} of {name} does not exist")))
        };
        let places = match columns.as_slice() {
            [] => (0..schema.fields().len()).collect(),
            some => some.iter().map(place).collect::<Result<Vec<_>, _>>()?,
        };
        let twice = (1..places.len()).find(|place| places[..*place].contains(&places[*place]));
        match twice {
            Some(place) => Err(Complaint::error("42701", format!("column {:?} is named twice", columns[place])).into()),
            None => Ok((name, schema, places)),
        }
    }

    async fn read_rows<R: ReadRows>(
        &mut self,
        reader: &mut R,
        builder: &mut Builder<R::Field>,
        sender: &mpsc::Sender<Result<RecordBatch, Fault>>,
    ) -> Result<(), Halt> {
        loop {
            let read = tokio::select! {
                biased;
                () = self.place.cancel.asked() => {
                    return Err(Complaint::error("57014", "canceling statement due to user request").into());
                }
                read = self.link.next() => read,
            };
            let message = match read {
                Read::Message(tag, body) => {
                    Message::read(tag, body).map_err(|what| Halt::Last(Complaint::fatal("08P01", what.to_string())))?
                }
                Read::TooLarge { bytes, .. } => {
                    return Err(Complaint::error("54000", format!("a message of {bytes} bytes is too large")).into());
                }
                Read::Malformed(what) => return Err(Halt::Last(Complaint::fatal("08P01", what))),
                Read::Gone => return Err(Halt::Gone),
            };
            match message {
                Message::CopyData(bytes) => {
                    reader.push(&bytes)?;
                    while let Some(row) = reader.next(false)? {
                        builder.add(row);
                        if builder.is_full() {
                            builder.send(sender).await?;
                        }
                    }
                }
                Message::CopyDone => {
                    while let Some(row) = reader.next(true)? {
                        builder.add(row);
                    }
                    return builder.send(sender).await;
                }
                Message::CopyFail(why) => {
                    return Err(Complaint::error("57014", format!("COPY from stdin failed: {why}")).into());
                }
                Message::Flush | Message::Sync => {}
                Message::Terminate => return Err(Halt::Gone),
                _ => return Err(Complaint::error("08P01", "a message that does not belong into COPY").into()),
            }
        }
    }
}

/// The name of a dataset as SQL writes it.
fn dataset_name(text: &str, domain: &str) -> Result<DatasetName, Fault> {
    let mut parts = Vec::new();
    for token in tokens(text) {
        match token.kind {
            TokenKind::Word(words) => parts.extend(words.split('.').filter(|word| !word.is_empty()).map(str::to_owned)),
            TokenKind::Name(name) => parts.push(name),
            _ => return Err(Fault::invalid(format!("expected [domain.]dataset, got {text}"))),
        }
    }
    match parts.as_slice() {
        [name] => DatasetName::new(domain, name.as_str()),
        [.., domain, name] => DatasetName::new(domain.as_str(), name.as_str()),
        [] => Err(Fault::invalid("expected [domain.]dataset")),
    }
}

/// Puts rows together to batches.
struct Builder<V> {
    schema: SchemaRef,
    /// The column of each field.
    places: Vec<usize>,
    zone: String,
    rows: Vec<Row<V>>,
    bytes: usize,
}

impl<V: Value> Builder<V> {
    fn add(&mut self, row: Row<V>) {
        self.bytes += row.iter().flatten().map(Value::length).sum::<usize>();
        self.rows.push(row);
    }

    fn is_full(&self) -> bool {
        self.rows.len() >= PAGE_ROWS || self.bytes >= BATCH_BYTES
    }

    async fn send(&mut self, sender: &mpsc::Sender<Result<RecordBatch, Fault>>) -> Result<(), Halt> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let batch = self.batch()?;
        (self.rows, self.bytes) = (Vec::new(), 0);
        // Where nobody takes it, the load has failed and says why.
        if sender.send(Ok(batch)).await.is_err() {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    fn batch(&self) -> Result<RecordBatch, Complaint> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for (place, field) in self.schema.fields().iter().enumerate() {
            let Some(of_row) = self.places.iter().position(|column| *column == place) else {
                if !field.is_nullable() {
                    return Err(Complaint::error(
                        "23502",
                        format!("column {:?} is NOT NULL, and is not among those of COPY", field.name()),
                    ));
                }
                columns.push(new_null_array(field.data_type(), self.rows.len()));
                continue;
            };
            let values: Vec<Option<&V>> = self.rows.iter().map(|row| row[of_row].as_ref()).collect();
            if !field.is_nullable() && values.iter().any(Option::is_none) {
                return Err(Complaint::error(
                    "23502",
                    format!("column {:?} is NOT NULL, and a row has NULL there", field.name()),
                ));
            }
            let array = V::column(field, &values, &self.zone);
            let named = |complaint: Complaint| Complaint {
                message: format!("column {}: {}", field.name(), complaint.message),
                ..complaint
            };
            columns.push(array.map_err(named)?);
        }
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(|error| Complaint::error("XX000", error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_sql() {
        let name = |text: &str| dataset_name(text, "main").map(|name| name.to_string()).unwrap();
        assert_eq!([name("T"), name("lab.t"), name("lab.\"T t\""), name("\"A\".\"B\"")], ["main.t", "lab.t", "lab.T t", "A.B"]);
    }
}
