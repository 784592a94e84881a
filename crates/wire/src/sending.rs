//! What a client streams to a drive: the rows of a load, the pieces of a run.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use arrow_flight::FlightData;
use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt};
use pithead_door::{Batches, LoadRequest, Pieces};
use pithead_model::{Fault, SliceKey};

use crate::encode::BatchEncoder;
use crate::error::WireError;
use crate::put::{PutCommand, PutMark, put_command, put_end};
use crate::run::{check_run, run_messages};

/// Where a fault of what is sent goes: the drive is only told that the stream broke off.
pub(crate) type Failed = Arc<OnceLock<Fault>>;

/// A load's messages. A fault among the rows goes to `failed` and ends the stream without its end mark.
pub(crate) fn load_messages(
    request: LoadRequest,
    rows: Batches,
    failed: Failed,
) -> Result<impl Stream<Item = FlightData> + Send + 'static, WireError> {
    let first = put_command(&PutCommand::Load(request), Bytes::new())?;
    let sender = LoadSender { rows: Some(rows), encoder: BatchEncoder::new(), queue: VecDeque::from([first]), failed };
    Ok(stream::unfold(sender, |mut sender| async move { sender.next().await.map(|message| (message, sender)) }))
}

/// The messages that put a run. A fault among the pieces goes to `failed` and ends the stream without its end mark.
pub(crate) fn run_put_messages(
    run: SliceKey,
    pieces: Pieces,
    failed: Failed,
) -> Result<impl Stream<Item = FlightData> + Send + 'static, WireError> {
    check_run(&run)?;
    let first = put_command(&PutCommand::Run(run), Bytes::new())?;
    let later = run_messages(pieces).scan(failed, |failed, message| {
        let message = message.map_err(|fault| failed.set(fault)).ok();
        std::future::ready(message)
    });
    Ok(stream::iter([first]).chain(later))
}

struct LoadSender {
    rows: Option<Batches>,
    encoder: BatchEncoder,
    queue: VecDeque<FlightData>,
    failed: Failed,
}

impl LoadSender {
    async fn next(&mut self) -> Option<FlightData> {
        while self.queue.is_empty() {
            let batch = self.rows.as_mut()?.next().await;
            let encoded = match batch {
                None => {
                    self.rows = None;
                    self.queue.push_back(put_end());
                    Ok(())
                }
                Some(Ok(batch)) => self.encoder.encode(&batch, &PutMark::Rows.bytes(), &mut self.queue).map_err(Fault::from),
                Some(Err(fault)) => Err(fault),
            };
            if let Err(fault) = encoded {
                self.rows = None;
                self.queue.clear();
                let _ = self.failed.set(fault);
            }
        }
        self.queue.pop_front()
    }
}
