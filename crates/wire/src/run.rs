//! A run on its way from drive to drive: its stored values in pieces, one piece a Flight message, the same for DoGet and
//! DoPut. Both ends check the order and the bounds of pieces, so that neither takes more than was said.

use arrow_flight::{FlightData, Ticket};
use futures::stream::{self, BoxStream, Stream, StreamExt};
use pithead_door::{PieceOrder, Pieces, RunPiece};
use pithead_model::{DatasetName, Fault, SessionId, SliceKey};
use serde::{Deserialize, Serialize};

use crate::error::WireError;
use crate::json::{from_json, json};

/// What a DoGet ticket starts with that asks for a run. A session's id holds no colon.
const RUN_TICKET: &str = "run:";

/// The metadata of a run's messages.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RunMark {
    /// The next bytes of a value.
    Piece { number: Option<u32>, total: u64 },
    /// The run is whole. A stream that ends without was broken off.
    End,
}

/// What a DoGet asks for.
#[derive(Debug, PartialEq)]
pub(crate) enum TicketTarget {
    /// A session's events.
    Session(SessionId),
    /// A run as it is stored.
    Run(SliceKey),
}

impl TicketTarget {
    pub(crate) fn ticket(&self) -> Result<Ticket, WireError> {
        Ok(match self {
            TicketTarget::Session(session) => Ticket::new(session.to_string()),
            TicketTarget::Run(run) => Ticket::new([RUN_TICKET.as_bytes(), &json(run)?].concat()),
        })
    }

    pub(crate) fn parse(ticket: &Ticket) -> Result<TicketTarget, WireError> {
        let text = std::str::from_utf8(&ticket.ticket).map_err(|error| WireError::malformed("ticket", error))?;
        match text.strip_prefix(RUN_TICKET) {
            Some(run) => {
                let run = from_json("ticket", run.as_bytes())?;
                check_run(&run)?;
                Ok(TicketTarget::Run(run))
            }
            None => {
                text.parse().map(TicketTarget::Session).map_err(|fault: Fault| WireError::malformed("ticket", fault.message))
            }
        }
    }
}

/// Refuses a key that names no run: one of a single slice, or whose names could be read as another key.
pub(crate) fn check_run(run: &SliceKey) -> Result<(), WireError> {
    if let Some(number) = run.number {
        return Err(WireError::malformed("run", format!("expected the key of a metadata slice, got that of slice {number}")));
    }
    check_name(&run.name)
}

/// Refuses a name that was not made by [`DatasetName::new`], since keys of the store are made of it.
pub(crate) fn check_name(name: &DatasetName) -> Result<(), WireError> {
    match DatasetName::new(name.domain.as_str(), name.dataset.as_str()) {
        Ok(_) => Ok(()),
        Err(fault) => Err(WireError::malformed("name", fault.message)),
    }
}

/// Reads messages back into pieces.
#[derive(Debug, Default)]
pub(crate) struct RunReader {
    order: PieceOrder,
}

impl RunReader {
    /// Takes the next message. None: the run is whole.
    pub(crate) fn read(&mut self, data: FlightData) -> Result<Option<RunPiece>, WireError> {
        match from_json("mark", &data.app_metadata)? {
            RunMark::Piece { number, total } => {
                let piece = RunPiece { number, total, bytes: data.data_body };
                self.order.take(&piece)?;
                Ok(Some(piece))
            }
            RunMark::End => {
                self.order.finish()?;
                Ok(None)
            }
        }
    }
}

/// A piece as a message.
fn piece_message(piece: RunPiece) -> Result<FlightData, WireError> {
    let mark = json(&RunMark::Piece { number: piece.number, total: piece.total })?;
    Ok(FlightData::new().with_app_metadata(mark).with_data_body(piece.bytes))
}

fn end_message() -> Result<FlightData, WireError> {
    Ok(FlightData::new().with_app_metadata(json(&RunMark::End)?))
}

/// A run's messages, checked on their way out. After a fault there is nothing more, least of all the end.
pub(crate) fn run_messages(pieces: Pieces) -> BoxStream<'static, Result<FlightData, Fault>> {
    let state = Some((pieces, PieceOrder::default()));
    stream::unfold(state, |state| async move {
        let (mut pieces, mut order) = state?;
        let message = match pieces.next().await {
            Some(piece) => piece.and_then(|piece| {
                order.take(&piece)?;
                Ok(piece_message(piece)?)
            }),
            None => return Some((order.finish().and_then(|()| Ok(end_message()?)), None)),
        };
        let more = message.is_ok().then_some((pieces, order));
        Some((message, more))
    })
    .boxed()
}

/// The pieces of a run from its messages, as `next` yields them. They end with a fault unless the stream says that the run is
/// whole. `blame` says whose doing a wrong message is.
pub(crate) fn run_pieces<S>(messages: S, blame: impl Fn(WireError) -> Fault + Send + 'static) -> Pieces
where
    S: Stream<Item = Result<FlightData, Fault>> + Send + Unpin + 'static,
{
    let state = Some((messages, RunReader::default(), blame));
    stream::unfold(state, |state| async move {
        let (mut messages, mut reader, blame) = state?;
        let message = match messages.next().await {
            Some(Ok(message)) => message,
            Some(Err(fault)) => return Some((Err(fault), None)),
            None => return Some((Err(blame(WireError::BrokenOff)), None)),
        };
        match reader.read(message).transpose()? {
            Ok(piece) => Some((Ok(piece), Some((messages, reader, blame)))),
            Err(error) => Some((Err(blame(error)), None)),
        }
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use futures::executor::block_on;
    use pithead_model::{Blame, DatasetId, LoadId};
    use proptest::prelude::*;

    fn piece(number: Option<u32>, total: u64, bytes: usize) -> RunPiece {
        RunPiece { number, total, bytes: Bytes::from(vec![7; bytes]) }
    }

    #[test]
    fn tickets_come_back_and_others_are_refused() {
        let name: DatasetName = "t".parse().unwrap();
        let run = SliceKey { name, dataset: DatasetId(1), load: LoadId(2), partition: 3, number: None };
        for wanted in [TicketTarget::Session(SessionId(u64::MAX)), TicketTarget::Run(run.clone())] {
            assert_eq!(TicketTarget::parse(&wanted.ticket().unwrap()).unwrap(), wanted);
        }
        let hostile = SliceKey { name: DatasetName { domain: "a/b".into(), dataset: "t".into() }, ..run.clone() };
        for wanted in [TicketTarget::Run(run.slice(0)), TicketTarget::Run(hostile)] {
            assert!(TicketTarget::parse(&wanted.ticket().unwrap()).is_err(), "{wanted:?}");
        }
        for text in ["", "run:", "run:7", "ran:7", "\u{e9}"] {
            assert!(TicketTarget::parse(&Ticket::new(text)).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_sender_stops_at_the_first_wrong_piece() {
        let sent = [piece(None, 1, 1), piece(Some(3), 1, 1), piece(Some(0), 1, 1)].map(Ok);
        let messages: Vec<_> = block_on(run_messages(stream::iter(sent).boxed()).collect());
        assert!(matches!(&messages[..], [Ok(_), Err(fault)] if fault.blame == Blame::User), "{messages:?}");
        let unfinished = [Ok(piece(None, 2, 1))];
        let messages: Vec<_> = block_on(run_messages(stream::iter(unfinished).boxed()).collect());
        assert!(matches!(&messages[..], [Ok(_), Err(_)]), "no end goes after a run that is not whole");
    }

    /// Cuts values into pieces as a sender may.
    fn cut(values: &[Vec<u8>], cut_at: usize) -> Vec<RunPiece> {
        let parts = values.iter().enumerate().flat_map(|(index, value)| {
            let number = index.checked_sub(1).map(|number| number as u32);
            let value = Bytes::from(value.clone());
            let total = value.len() as u64;
            let starts = (0..value.len()).step_by(cut_at);
            starts.map(move |start| RunPiece { number, total, bytes: value.slice(start..(start + cut_at).min(value.len())) })
        });
        parts.collect()
    }

    proptest! {
        #[test]
        fn what_arrives_is_what_was_sent_or_a_fault(
            values in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 1..5),
            cut_at in 1_usize..20,
            lost in any::<prop::sample::Index>(),
            twice in any::<bool>(),
        ) {
            let sent = cut(&values, cut_at);
            let messages: Vec<_> = block_on(run_messages(stream::iter(sent.clone().into_iter().map(Ok)).boxed()).collect());
            let read = |messages: Vec<Result<FlightData, Fault>>| {
                let pieces = run_pieces(stream::iter(messages), Fault::from);
                block_on(pieces.collect::<Vec<_>>()).into_iter().collect::<Result<Vec<_>, Fault>>()
            };
            prop_assert_eq!(read(messages.clone()), Ok(sent.clone()));
            // One message lost or doubled is never a run of other bytes.
            let mut hurt = messages;
            let at = lost.index(hurt.len());
            if twice {
                hurt.insert(at, hurt[at].clone());
            } else {
                drop(hurt.remove(at));
            }
            // Two that the order alone cannot tell: what follows the end, and a last slice that never came. The metadata
            // slice tells the drive how many there are.
            let end_doubled = twice && at + 2 == hurt.len();
            let last_slice_lost = !twice && at > 0 && at + 1 == sent.len() && sent[at].total == sent[at].bytes.len() as u64;
            prop_assert_eq!(read(hurt).is_ok(), end_doubled || last_slice_lost);
        }
    }
}
