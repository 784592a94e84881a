//! What a client sends rows of: values to bind, and rows to load.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::FlightData;
use futures::stream::{self, StreamExt};
use pithead_door::{Batches, batch_bytes};
use pithead_model::Fault;
use pithead_wire::{BatchDecoder, Decoded};
use tonic::Streaming;

use crate::error::broken;
use crate::values::{VALUES_BYTES_MAX, Values, too_many};

/// Bytes of rows that are handed on at a time, about. A client's batches may be much larger, and what takes them in counts them by number.
const PIECE_BYTES: usize = 8 << 20;

/// The rows of a put, from the message on that its command came with.
pub(crate) struct Put {
    first: Option<FlightData>,
    messages: Streaming<FlightData>,
    decoder: BatchDecoder,
    /// Rows that came before they were asked for.
    ahead: Option<RecordBatch>,
    /// Most bytes of a message, where its rows are kept.
    kept_bytes_max: Option<usize>,
}

impl Put {
    pub(crate) fn new(first: FlightData, messages: Streaming<FlightData>) -> Put {
        Put { first: Some(first), messages, decoder: BatchDecoder::default(), ahead: None, kept_bytes_max: None }
    }

    /// The columns of the rows; none: the put has no rows.
    pub(crate) async fn schema(&mut self) -> Result<Option<SchemaRef>, Fault> {
        while self.decoder.schema_ref().is_none() {
            match self.next().await? {
                Some(batch) => self.ahead = Some(batch),
                None => break,
            }
        }
        Ok(self.decoder.schema_ref().cloned())
    }

    /// The next rows; none: there are no more.
    async fn next(&mut self) -> Result<Option<RecordBatch>, Fault> {
        if let Some(batch) = self.ahead.take() {
            return Ok(Some(batch));
        }
        let before = self.decoder.schema_ref().cloned();
        loop {
            let message = match self.first.take() {
                Some(first) => first,
                None => match self.messages.message().await.map_err(|status| broken(&status))? {
                    Some(message) => message,
                    None => return Ok(None),
                },
            };
            if self.kept_bytes_max.is_some_and(|most| message.data_body.len() > most) {
                return Err(too_many());
            }
            match self.decoder.read(&message)? {
                Decoded::Batch(batch) => return Ok(Some(batch)),
                Decoded::Nothing | Decoded::Context => {}
            }
            if before.is_some() && self.decoder.schema_ref() != before.as_ref() {
                return Err(Fault::invalid("a second schema came within one stream of rows"));
            }
        }
    }

    /// All rows, as values to bind.
    pub(crate) async fn values(mut self) -> Result<Values, Fault> {
        self.kept_bytes_max = Some(VALUES_BYTES_MAX);
        let mut values = Values::default();
        while let Some(batch) = self.next().await? {
            values.push(&batch)?;
        }
        Ok(values)
    }

    /// The rows as they come, in pieces. The next message is not asked for before all pieces of the last one are taken: until then its bytes
    /// count as being received, which is bounded.
    pub(crate) fn rows(self) -> Batches {
        let next = |put: Option<Put>| async move {
            let mut put = put?;
            match put.next().await.transpose()? {
                Ok(batch) => Some((Ok(batch), Some(put))),
                Err(fault) => Some((Err(fault), None)),
            }
        };
        stream::unfold(Some(self), next).flat_map(|batch| stream::iter(pieces(batch))).boxed()
    }
}

/// The rows of a batch in pieces that are not large.
fn pieces(batch: Result<RecordBatch, Fault>) -> Vec<Result<RecordBatch, Fault>> {
    let whole = match batch {
        Ok(batch) if batch_bytes(&batch) > PIECE_BYTES && batch.num_rows() > 1 => batch,
        other => return vec![other],
    };
    let (rows, count) = (whole.num_rows(), batch_bytes(&whole).div_ceil(PIECE_BYTES));
    let each = rows.div_ceil(count).max(1);
    (0..rows).step_by(each).map(|start| Ok(whole.slice(start, each.min(rows - start)))).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array};
    use arrow::compute::concat_batches;

    use super::*;

    fn batch(rows: usize) -> RecordBatch {
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
        RecordBatch::try_from_iter([("x", values)]).unwrap()
    }

    #[test]
    fn large_batches_are_handed_on_in_pieces() {
        let whole = batch(PIECE_BYTES / 8 * 3 + 1);
        let parts = pieces(Ok(whole.clone())).into_iter().collect::<Result<Vec<_>, _>>().unwrap();
        assert!(parts.len() == 4 && parts.iter().all(|part| batch_bytes(part) <= PIECE_BYTES), "{}", parts.len());
        assert_eq!(concat_batches(&whole.schema(), &parts).unwrap(), whole);
        for small in [0, 1, 1_000] {
            assert_eq!(pieces(Ok(batch(small))), [Ok(batch(small))]);
        }
        assert!(pieces(Err(Fault::invalid("no"))).pop().unwrap().is_err());
    }
}
