//! [`CopyLoad`]: what COPY FROM reads, as a load of batches. It runs where statements do.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, new_null_array};
use arrow::datatypes::{Field, SchemaRef};
use futures::StreamExt;
use pithead_door::Batches;
use pithead_host::{Commitment, Host, LoadMode, LoadReport, LoadSpec};
use pithead_model::{Dataset, DatasetName, Fault, PAGE_ROWS};
use tokio::sync::mpsc;

use crate::copy_rows::{Place, ReadRows, Row, Value};
use crate::error::Complaint;
use crate::large::Room;

/// Bytes of fields after which a batch ends, however few rows it has.
const BATCH_BYTES: usize = 8 << 20;
/// Batches that wait to be sent to the drives.
const BATCHES_MAX: usize = 2;

/// What comes from a client.
pub(crate) enum Part {
    /// Bytes of rows, and the room that they have until all that are whole have been taken.
    Bytes(Vec<u8>, Option<Room>),
    /// There are no more.
    End,
}

/// A load into a dataset.
pub(crate) struct CopyLoad {
    pub(crate) host: Host,
    pub(crate) name: DatasetName,
    /// As it was read.
    pub(crate) dataset: Arc<Dataset>,
    /// The column of each field.
    pub(crate) places: Vec<usize>,
    pub(crate) zone: String,
    pub(crate) commitment: Arc<Commitment>,
}

type Sender = mpsc::Sender<Result<RecordBatch, Fault>>;

impl CopyLoad {
    /// Loads what comes. Where it ends without [`Part::End`], nothing is loaded.
    pub(crate) async fn run<R: ReadRows>(
        self,
        mut reader: R,
        mut parts: mpsc::Receiver<Part>,
    ) -> Result<Result<LoadReport, Complaint>, Fault> {
        let CopyLoad { host, name, dataset, places, zone, commitment } = self;
        let schema = Arc::clone(&dataset.schema);
        let (sender, receiver) = mpsc::channel(BATCHES_MAX);
        let rows: Batches = futures::stream::unfold(receiver, |mut receiver| async {
            let batch = receiver.recv().await?;
            Some((batch, receiver))
        })
        .boxed();
        let spec = LoadSpec { mode: LoadMode::Append, over: Some(dataset), ..LoadSpec::new(name, vec![]) };
        let mut loading = std::pin::pin!(host.load_batches_until(&commitment, spec, Arc::clone(&schema), rows));
        let (rows, whereabouts) = (Vec::new(), Vec::new());
        let mut builder = Builder { schema, places, zone, rows, whereabouts, bytes: 0 };
        let reading = async {
            let read = builder.read_all(&mut reader, &mut parts, &sender).await;
            drop(sender);
            read
        };
        // A load that fails at once ends the reading, too.
        let report = tokio::select! {
            biased;
            read = reading => match read {
                Ok(()) => loading.await,
                Err(complaint) => return Ok(Err(complaint)),
            },
            report = &mut loading => report,
        };
        Ok(Ok(report?))
    }
}

/// Puts rows together to batches.
struct Builder<V> {
    schema: SchemaRef,
    places: Vec<usize>,
    zone: String,
    rows: Vec<Row<V>>,
    /// Where each of the rows is.
    whereabouts: Vec<Place>,
    bytes: usize,
}

impl<V: Value> Builder<V> {
    async fn read_all<R: ReadRows<Field = V>>(
        &mut self,
        reader: &mut R,
        parts: &mut mpsc::Receiver<Part>,
        sender: &Sender,
    ) -> Result<(), Complaint> {
        loop {
            // The reader has the bytes until their rows are taken, and they have their room as long.
            let (is_last, _room) = match parts.recv().await {
                Some(Part::Bytes(bytes, room)) => {
                    reader.push(&bytes)?;
                    (false, room)
                }
                Some(Part::End) => (true, None),
                None => return Err(Complaint::error("57014", "COPY was given up")),
            };
            while let Some(row) = reader.next(is_last)? {
                self.add(row, reader.place());
                if self.is_full() {
                    self.send(sender).await?;
                }
            }
            if is_last {
                return self.send(sender).await;
            }
        }
    }

    fn add(&mut self, row: Row<V>, place: Place) {
        self.whereabouts.push(place);
        self.bytes += row.iter().flatten().map(Value::length).sum::<usize>();
        self.rows.push(row);
    }

    fn is_full(&self) -> bool {
        self.rows.len() >= PAGE_ROWS || self.bytes >= BATCH_BYTES
    }

    async fn send(&mut self, sender: &Sender) -> Result<(), Complaint> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let batch = self.batch()?;
        (self.rows, self.bytes) = (Vec::new(), 0);
        self.whereabouts.clear();
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
            let null = values.iter().position(Option::is_none).filter(|_| !field.is_nullable());
            if let Some(place) = null.and_then(|row| self.whereabouts.get(row)) {
                let what = format!("{place}: column {:?} is NOT NULL, and NULL is given", field.name());
                return Err(Complaint::error("23502", what));
            }
            columns.push(V::column(field, &values, &self.zone).map_err(|complaint| self.located(field, &values, complaint))?);
        }
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(|error| Complaint::error("XX000", error.to_string()))
    }

    /// What is wrong with the first value of a column that is wrong by itself, and where it is.
    fn located(&self, field: &Field, values: &[Option<&V>], of_all: Complaint) -> Complaint {
        let alone = |value: &Option<&V>| V::column(field, std::slice::from_ref(value), &self.zone).err();
        let mut wrong = values.iter().zip(&self.whereabouts).filter_map(|(value, place)| Some((alone(value)?, place)));
        let (complaint, place) = match wrong.next() {
            Some((complaint, place)) => (complaint, place.to_string()),
            None => (of_all, "COPY".to_owned()),
        };
        Complaint { message: format!("{place}, column {}: {}", field.name(), complaint.message), ..complaint }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use arrow::array::AsArray;
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use tokio::time::timeout;

    use super::*;
    use crate::copy::Copy;
    use crate::copy_text::RowReader;
    use crate::large::Large;

    fn builder<V>() -> Builder<V> {
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
        Builder { schema, places: vec![0], zone: "UTC".to_owned(), rows: Vec::new(), whereabouts: Vec::new(), bytes: 0 }
    }

    fn reader() -> RowReader {
        RowReader::new(Copy::read("COPY t FROM STDIN").unwrap().options, &["a".to_owned()])
    }

    #[tokio::test]
    async fn rows_may_lie_across_parts() {
        let (given, mut parts) = mpsc::channel(8);
        let (sender, mut batches) = mpsc::channel(8);
        for bytes in ["1\n2", "3\n", "4"] {
            given.send(Part::Bytes(bytes.as_bytes().to_vec(), None)).await.unwrap();
        }
        given.send(Part::End).await.unwrap();
        builder().read_all(&mut reader(), &mut parts, &sender).await.unwrap();
        let batch = batches.recv().await.unwrap().unwrap();
        assert_eq!(batch.column(0).as_primitive::<Int64Type>().values(), &[1, 23, 4]);
    }

    #[tokio::test]
    async fn a_wrong_value_is_told_with_its_line() {
        let options = || Copy::read("COPY t FROM STDIN CSV").unwrap().options;
        let read = async |text: &str| {
            let (given, mut parts) = mpsc::channel(8);
            let (sender, _batches) = mpsc::channel(8);
            given.send(Part::Bytes(text.as_bytes().to_vec(), None)).await.unwrap();
            given.send(Part::End).await.unwrap();
            let mut reader = RowReader::new(options(), &["a".to_owned()]);
            builder().read_all(&mut reader, &mut parts, &sender).await.unwrap_err().message
        };
        let message = read("1\n\"2\n\"\nbad\n4\nworse\n").await;
        assert!(message.starts_with("COPY, line 4, column a: ") && message.contains("bad"), "{message}");
        let message = read("1\n\"2\n\"\n1,2\n").await;
        assert!(message.starts_with("COPY, line 4: "), "{message}");
    }

    #[tokio::test]
    async fn bytes_have_their_room_until_their_rows_are_taken() {
        const SHORT: Duration = Duration::from_millis(50);
        let share = Large::of(10).share([127, 0, 0, 1].into());
        let (given, mut parts) = mpsc::channel(8);
        let (sender, mut batches) = mpsc::channel(1);
        let room = share.take(10, SHORT).await;
        given.send(Part::Bytes("1\n".repeat(3 * PAGE_ROWS).into_bytes(), room)).await.unwrap();
        given.send(Part::End).await.unwrap();
        let (mut builder, mut reader) = (builder(), reader());
        let mut reading = std::pin::pin!(builder.read_all(&mut reader, &mut parts, &sender));
        assert!(timeout(SHORT, &mut reading).await.is_err(), "nobody takes the second batch");
        assert!(share.take(1, SHORT).await.is_none(), "there are bytes still");
        let taking = async {
            for _ in 0..3 {
                assert_eq!(batches.recv().await.unwrap().unwrap().num_rows(), PAGE_ROWS);
            }
        };
        tokio::join!(reading, taking).0.unwrap();
        assert!(share.take(10, SHORT).await.is_some());
    }

    /// Otherwise what a client has sent before it went would be there.
    #[tokio::test]
    async fn what_breaks_off_is_no_end() {
        let (given, mut parts) = mpsc::channel(8);
        let (sender, mut batches) = mpsc::channel(8);
        given.send(Part::Bytes(b"1\n".to_vec(), None)).await.unwrap();
        drop(given);
        assert!(builder().read_all(&mut reader(), &mut parts, &sender).await.is_err());
        drop(sender);
        assert!(batches.recv().await.is_none(), "no batch was sent");
    }
}
