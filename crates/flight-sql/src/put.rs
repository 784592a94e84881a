//! What a client sends rows of: values to bind, and rows to load.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::FlightData;
use futures::stream::{self, StreamExt};
use pithead_door::Batches;
use pithead_model::Fault;
use pithead_wire::{BatchDecoder, Decoded};
use tonic::Streaming;

use crate::error::broken;
use crate::values::Values;

/// The rows of a put, from the message on that its command came with.
pub(crate) struct Put {
    first: Option<FlightData>,
    messages: Streaming<FlightData>,
    decoder: BatchDecoder,
    /// Rows that came before they were asked for.
    ahead: Option<RecordBatch>,
}

impl Put {
    pub(crate) fn new(first: FlightData, messages: Streaming<FlightData>) -> Put {
        Put { first: Some(first), messages, decoder: BatchDecoder::default(), ahead: None }
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
        let mut values = Values::default();
        while let Some(batch) = self.next().await? {
            values.push(batch)?;
        }
        Ok(values)
    }

    /// The rows as they come.
    pub(crate) fn rows(self) -> Batches {
        let next = |put: Option<Put>| async move {
            let mut put = put?;
            match put.next().await.transpose()? {
                Ok(batch) => Some((Ok(batch), Some(put))),
                Err(fault) => Some((Err(fault), None)),
            }
        };
        stream::unfold(Some(self), next).boxed()
    }
}
