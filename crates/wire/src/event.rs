//! What GET yields, as Flight messages.

use std::collections::VecDeque;

use arrow_flight::FlightData;
use futures::FutureExt;
use futures::stream::{self, BoxStream, StreamExt};
use pithead_door::{Event, Events, HINT_BYTES_MAX, PIECE_BYTES_MAX};
use pithead_model::Fault;

use crate::decode::{BatchDecoder, Decoded};
use crate::encode::{BatchEncoder, link_bytes};
use crate::error::WireError;
use crate::json::{check_bound, from_json, json};
use crate::mark::Mark;
use crate::packing::{Packer, unpacked};

/// Encodes what GET yields.
pub(crate) struct EventWriter(BatchEncoder);

impl EventWriter {
    pub(crate) fn new() -> Self {
        Self(BatchEncoder::new())
    }

    /// Appends an event's messages.
    pub(crate) fn write(&mut self, event: Event, out: &mut VecDeque<FlightData>) -> Result<(), WireError> {
        let mark = match &event {
            Event::Rows { round, .. } => json(&Mark::Round(*round))?,
            Event::Filtered { round, .. } => json(&Mark::Filtered(*round))?,
            Event::Stored { round, slice, total, .. } => json(&Mark::Stored { round: *round, slice: *slice, total: *total })?,
            Event::Hints { round, slice, parts, .. } => {
                json(&Mark::Hints { round: *round, slice: *slice, parts: parts.clone() })?
            }
            Event::Closed { annotation, .. } => json(&Mark::Closed(annotation.clone()))?,
            Event::Finished { profile, .. } => json(&Mark::Finished(profile.clone()))?,
        };
        match event {
            Event::Rows { batch, .. } | Event::Filtered { batch, .. } => self.0.encode(&batch, &mark, out),
            Event::Stored { bytes, .. } => {
                check_bound("a piece of a slice", bytes.len(), PIECE_BYTES_MAX)?;
                out.push_back(FlightData::new().with_app_metadata(mark).with_data_body(bytes));
                Ok(())
            }
            Event::Hints { pages, .. } => {
                check_bound("a bitmap of pages", pages.len(), HINT_BYTES_MAX)?;
                out.push_back(FlightData::new().with_app_metadata(mark).with_data_body(pages));
                Ok(())
            }
            Event::Closed { .. } | Event::Finished { .. } => {
                out.push_back(FlightData::new().with_app_metadata(mark));
                Ok(())
            }
        }
    }
}

/// GET's messages: each event is encoded when the one before has left.
pub(crate) fn event_messages(events: Events, packer: Packer) -> BoxStream<'static, Result<FlightData, Fault>> {
    let sending = Sending { events, writer: EventWriter::new(), packer, queue: VecDeque::new() };
    stream::unfold(sending, |mut sending| async move { sending.next().await.map(|message| (message, sending)) }).boxed()
}

/// An answer to GET on its way.
struct Sending {
    events: Events,
    writer: EventWriter,
    packer: Packer,
    queue: VecDeque<FlightData>,
}

impl Sending {
    async fn next(&mut self) -> Option<Result<FlightData, Fault>> {
        while self.queue.is_empty() {
            let (event, waited) = match self.events.next().now_or_never() {
                Some(event) => (event?, true),
                None => (self.events.next().await?, false),
            };
            if let Err(fault) = event.and_then(|event| Ok(self.write(event, waited)?)) {
                self.queue.clear();
                return Some(Err(fault));
            }
        }
        self.queue.pop_front().map(Ok)
    }

    /// `waited`: for the link.
    fn write(&mut self, event: Event, waited: bool) -> Result<(), WireError> {
        let rows = Mark::rows(&event);
        self.writer.write(event, &mut self.queue)?;
        rows.map_or(Ok(()), |mark| self.packer.pack(waited, &mut self.queue, &mark))
    }
}

/// Reads GET's messages back into events.
#[derive(Default)]
pub(crate) struct EventReader {
    decoder: BatchDecoder,
    link_bytes: u64,
    finished: bool,
}

impl EventReader {
    /// Takes the next message. Schemas and dictionaries are no events; their bytes count with the next one.
    pub(crate) fn read(&mut self, data: &FlightData) -> Result<Option<Event>, WireError> {
        if self.finished {
            return Err(WireError::malformed("GET", "more follows the session's end"));
        }
        self.link_bytes += link_bytes(data);
        let mark = parse_mark(data)?;
        if let Some(Mark::Packed { round, filtered, bytes }) = mark {
            let data = FlightData { data_body: unpacked(&data.data_body, bytes)?, ..data.clone() };
            let mark = if filtered { Mark::Filtered(round) } else { Mark::Round(round) };
            return self.event(&data, Some(mark));
        }
        self.event(data, mark)
    }

    fn event(&mut self, data: &FlightData, mark: Option<Mark>) -> Result<Option<Event>, WireError> {
        let event = match (self.decoder.decode(data)?, mark) {
            (Decoded::Context, None) => return Ok(None),
            (Decoded::Batch(batch), Some(Mark::Round(round))) => Event::Rows { round, batch, link_bytes: self.link_bytes },
            (Decoded::Batch(batch), Some(Mark::Filtered(round))) => {
                Event::Filtered { round, batch, link_bytes: self.link_bytes }
            }
            (Decoded::Nothing, Some(Mark::Stored { round, slice, total })) => {
                check_bound("a piece of a slice", data.data_body.len(), PIECE_BYTES_MAX)?;
                let bytes = data.data_body.clone();
                Event::Stored { round, slice, total, bytes, link_bytes: self.link_bytes }
            }
            (Decoded::Nothing, Some(Mark::Hints { round, slice, parts })) => {
                check_bound("a bitmap of pages", data.data_body.len(), HINT_BYTES_MAX)?;
                parts.check().map_err(|fault| WireError::malformed("GET", fault.message))?;
                let pages = data.data_body.clone();
                Event::Hints { round, slice, pages, parts, link_bytes: self.link_bytes }
            }
            (Decoded::Nothing, Some(Mark::Closed(annotation))) => Event::Closed { annotation, link_bytes: self.link_bytes },
            (Decoded::Nothing, Some(Mark::Finished(profile))) => Event::Finished { profile, link_bytes: self.link_bytes },
            _ => return Err(WireError::malformed("GET", "the mark of a message does not fit what it holds")),
        };
        self.link_bytes = 0;
        self.finished = matches!(event, Event::Finished { .. });
        Ok(Some(event))
    }

    /// Whether the session's end was read.
    pub(crate) fn finished(&self) -> bool {
        self.finished
    }

    /// Counts bytes with the next event.
    pub(crate) fn count(&mut self, bytes: u64) {
        self.link_bytes += bytes;
    }
}

fn parse_mark(data: &FlightData) -> Result<Option<Mark>, WireError> {
    if data.app_metadata.is_empty() { Ok(None) } else { from_json("mark", &data.app_metadata).map(Some) }
}

#[cfg(test)]
mod tests;
