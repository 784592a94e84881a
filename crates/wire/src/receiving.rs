//! What a drive's server takes from a client's stream: the rows of a load, the pieces of a run.

use std::time::Duration;

use arrow::array::RecordBatch;
use arrow_flight::FlightData;
use futures::stream::{self, StreamExt};
use pithead_door::{Batches, LoadRequest, Pieces};
use pithead_model::{Blame, Fault};
use tonic::Streaming;

use crate::decode::{BatchDecoder, Decoded};
use crate::error::WireError;
use crate::put::{PutMark, parse_put_mark, with_schema};
use crate::run::run_pieces;

/// How long the sender may pause. One that is gone is found sooner, by keepalive.
pub(crate) const PUT_IDLE_MAX: Duration = Duration::from_secs(300);

/// The next message of a put. A client that is gone ends its stream as one that is done does, so the end is no message.
pub(crate) async fn next_message(messages: &mut Streaming<FlightData>) -> Result<FlightData, Fault> {
    match tokio::time::timeout(PUT_IDLE_MAX, messages.message()).await {
        Ok(Ok(Some(message))) => Ok(message),
        Ok(Ok(None)) => Err(WireError::BrokenOff.into()),
        Ok(Err(status)) => Err(Fault::new(Blame::User, format!("the sender failed: {}", status.message()))),
        Err(_) => Err(Fault::new(Blame::Limit, format!("the sender paused for more than {} s", PUT_IDLE_MAX.as_secs()))),
    }
}

/// The rows of a load. They end with a fault unless the stream says that it is whole.
pub(crate) fn rows(request: LoadRequest, messages: Streaming<FlightData>) -> Batches {
    let state = Some((request, messages, BatchDecoder::default()));
    stream::unfold(state, |state| async move {
        let (request, mut messages, mut decoder) = state?;
        match next_rows(&request, &mut messages, &mut decoder).await.transpose()? {
            Ok(batch) => Some((Ok(batch), Some((request, messages, decoder)))),
            Err(fault) => Some((Err(fault), None)),
        }
    })
    .boxed()
}

async fn next_rows(
    request: &LoadRequest,
    messages: &mut Streaming<FlightData>,
    decoder: &mut BatchDecoder,
) -> Result<Option<RecordBatch>, Fault> {
    loop {
        let message = next_message(messages).await?;
        let mark = parse_put_mark(&message)?;
        if mark == Some(PutMark::End) {
            return Ok(None);
        }
        match (mark, decoder.decode(&message)?) {
            (None, Decoded::Context) => {}
            (Some(PutMark::Rows), Decoded::Batch(batch)) => return Ok(Some(with_schema(batch, &request.schema)?)),
            _ => return Err(WireError::malformed("load", "expected rows").into()),
        }
    }
}

/// The pieces of a run. They end with a fault unless the stream says that it is whole.
pub(crate) fn pieces(messages: Streaming<FlightData>) -> Pieces {
    let messages = stream::unfold(messages, |mut messages| async move { Some((next_message(&mut messages).await, messages)) });
    run_pieces(messages.boxed(), Fault::from)
}
