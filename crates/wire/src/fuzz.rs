//! Decoders as plain functions over bytes, for fuzz targets. Streams are Flight messages one after another, each behind
//! its length as a protobuf varint.

use arrow_flight::{Action, FlightData, Ticket};
use futures::executor::block_on;
use futures::stream::{self, StreamExt, TryStreamExt};
use pithead_model::Fault;
use prost::Message;

use crate::call::Call;
use crate::door::{Event, OpenRequest, RunPiece};
use crate::encode::link_bytes;
use crate::error::WireError;
use crate::event::EventReader;
use crate::put::{OpenReader, PutCommand, encode_open, parse_put};
use crate::run::{RunReader, Wanted, run_messages};

/// What a drive makes of a client's OPEN.
pub fn decode_open(bytes: &[u8]) -> Result<OpenRequest, Fault> {
    let mut messages = split(bytes)?.into_iter();
    let first = messages.next().ok_or(WireError::BrokenOff)?;
    let PutCommand::Open(header) = parse_put(&first)? else {
        return Err(WireError::malformed("OPEN", "it is another put").into());
    };
    let mut reader = OpenReader::new(*header, first)?;
    for message in messages {
        if reader.read(&message)? {
            return Ok(reader.finish());
        }
    }
    Err(WireError::BrokenOff.into())
}

/// OPEN as bytes that [`decode_open`] reads, to seed a fuzzer with.
pub fn open_bytes(request: &OpenRequest) -> Result<Vec<u8>, Fault> {
    Ok(join(&encode_open(request)?))
}

/// What a host makes of a drive's answer to GET.
pub fn decode_events(bytes: &[u8]) -> Result<Vec<Event>, Fault> {
    let mut reader = EventReader::default();
    let mut events = Vec::new();
    for message in split(bytes)? {
        events.extend(reader.read(&message)?);
    }
    Ok(events)
}

/// What a drive makes of an action.
pub fn decode_call(bytes: &[u8]) -> Result<(), Fault> {
    let action = Action::decode(bytes).map_err(|error| WireError::malformed("action", error))?;
    Call::parse(&action)?;
    Ok(())
}

/// What a drive makes of a DoGet's ticket.
pub fn decode_ticket(bytes: &[u8]) -> Result<(), Fault> {
    Wanted::parse(&Ticket::new(bytes.to_vec()))?;
    Ok(())
}

/// What either end makes of a run's messages: all of its pieces, if it is whole.
pub fn decode_run(bytes: &[u8]) -> Result<Vec<RunPiece>, Fault> {
    let mut reader = RunReader::default();
    let mut pieces = Vec::new();
    for message in split(bytes)? {
        match reader.read(message)? {
            Some(piece) => pieces.push(piece),
            None => return Ok(pieces),
        }
    }
    Err(WireError::BrokenOff.into())
}

/// A run as bytes that [`decode_run`] reads, to seed a fuzzer with.
pub fn run_bytes(pieces: Vec<RunPiece>) -> Result<Vec<u8>, Fault> {
    let pieces = stream::iter(pieces.into_iter().map(Ok)).boxed();
    let messages: Vec<FlightData> = block_on(run_messages(pieces).try_collect())?;
    Ok(join(&messages))
}

fn split(mut bytes: &[u8]) -> Result<Vec<FlightData>, WireError> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        messages.push(FlightData::decode_length_delimited(&mut bytes).map_err(|error| WireError::malformed("stream", error))?);
    }
    Ok(messages)
}

pub(crate) fn join<'a>(messages: impl IntoIterator<Item = &'a FlightData>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for message in messages {
        bytes.reserve(link_bytes(message) as usize);
        bytes.extend(message.encode_length_delimited_to_vec());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use std::collections::VecDeque;
    use std::sync::Arc;

    use crate::event::EventWriter;
    use arrow::array::{
        Array, ArrayRef, BooleanArray, Decimal128Array, DictionaryArray, Int64Array, ListArray, RecordBatch, StringArray,
        StringViewArray, StructArray, UnionArray,
    };
    use arrow::datatypes::{DataType, Field, Int32Type, Int64Type, UnionFields};
    use proptest::prelude::*;

    fn batch() -> RecordBatch {
        let odd = |i: i64| i % 2 == 1;
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter((0..20).map(|i| odd(i).then_some(i))));
        let dense = UnionFields::try_new(vec![0], [Arc::new(Field::new("n", DataType::Int64, true))]).unwrap();
        let dense =
            UnionArray::try_new(dense, vec![0; 20].into(), Some((0..20).collect()), vec![Arc::clone(&numbers)]).unwrap();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(BooleanArray::from_iter((0..20).map(|i| Some(odd(i))))),
            Arc::new(Decimal128Array::from_iter_values((0..20).map(i128::from))),
            Arc::new(StringArray::from_iter((0..20).map(|i| odd(i).then(|| format!("é {i}"))))),
            Arc::new(StringViewArray::from_iter((0..20).map(|i| odd(i).then(|| format!("a text that is not inline {i}"))))),
            Arc::new((0..20).map(|i| if odd(i) { "odd" } else { "even" }).collect::<DictionaryArray<Int32Type>>()),
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>((0..20).map(|i| odd(i).then(|| vec![Some(i), None])))),
            Arc::new(StructArray::from(vec![(Arc::new(Field::new("n", DataType::Int64, true)), Arc::clone(&numbers))])),
            Arc::new(dense),
            numbers,
        ];
        RecordBatch::try_from_iter_with_nullable(
            columns.into_iter().enumerate().map(|(i, column)| (format!("c{i}"), column, true)),
        )
        .unwrap()
    }

    fn messages() -> Vec<FlightData> {
        let mut messages = VecDeque::new();
        EventWriter::new().write(Event::Rows { round: 1, batch: batch(), link_bytes: 0 }, &mut messages).unwrap();
        messages.into()
    }

    /// Changes one byte of one field of one message.
    fn change(messages: &mut [FlightData], (message, field, place, value): (usize, u8, usize, u8)) {
        let count = messages.len();
        let message = &mut messages[message % count];
        let field = match field {
            0..=5 => &mut message.data_header,
            6..=8 => &mut message.data_body,
            _ => &mut message.app_metadata,
        };
        let mut bytes = field.to_vec();
        if !bytes.is_empty() {
            let place = place % bytes.len();
            bytes[place] = value;
        }
        *field = bytes.into();
    }

    fn run_pieces() -> Vec<RunPiece> {
        let bytes = Bytes::from_static(b"stored bytes");
        let piece = |number, range: std::ops::Range<usize>| RunPiece { number, total: 12, bytes: bytes.slice(range) };
        vec![piece(None, 0..12), piece(Some(0), 0..5), piece(Some(0), 5..12), piece(Some(1), 0..12)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn changed_messages_are_refused_or_sound(changes in prop::collection::vec((any::<usize>(), 0_u8..10, any::<usize>(), any::<u8>()), 1..6)) {
            let mut messages = messages();
            changes.into_iter().for_each(|it| change(&mut messages, it));
            for event in decode_events(&join(&messages)).into_iter().flatten() {
                if let Event::Rows { batch, .. } = event {
                    for column in batch.columns() {
                        column.to_data().validate_full().unwrap();
                    }
                }
            }
        }

        #[test]
        fn changed_runs_are_refused_or_whole(changes in prop::collection::vec((any::<usize>(), 6_u8..10, any::<usize>(), any::<u8>()), 1..6)) {
            let mut messages: Vec<_> = split(&run_bytes(run_pieces()).unwrap()).unwrap();
            changes.into_iter().for_each(|it| change(&mut messages, it));
            if let Ok(pieces) = decode_run(&join(&messages)) {
                let mut bytes: std::collections::BTreeMap<_, (u64, u64)> = Default::default();
                for piece in pieces {
                    let value = bytes.entry(piece.number).or_default();
                    *value = (piece.total, value.1 + piece.bytes.len() as u64);
                }
                prop_assert!(bytes.contains_key(&None) && bytes.values().all(|(total, sum)| total == sum));
            }
        }

        #[test]
        fn junk_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_open(&bytes);
            let _ = decode_events(&bytes);
            let _ = decode_call(&bytes);
            let _ = decode_run(&bytes);
            let _ = decode_ticket(&bytes);
        }
    }

    #[test]
    fn what_was_not_changed_arrives() {
        let events = decode_events(&join(&messages())).unwrap();
        assert!(matches!(&events[..], [Event::Rows { round: 1, batch: arrived, .. }] if *arrived == batch()));
    }

    #[test]
    fn a_run_that_was_not_changed_arrives() {
        assert_eq!(decode_run(&run_bytes(run_pieces()).unwrap()).unwrap(), run_pieces());
        let cut = run_bytes(run_pieces()).unwrap();
        assert!(decode_run(&cut[..cut.len() - 8]).is_err());
    }

    #[test]
    fn an_open_without_its_end_was_broken_off() {
        let first = messages().remove(0);
        assert!(decode_open(&join([&first])).is_err());
        assert_eq!(decode_open(&[]).unwrap_err().blame, pithead_model::Blame::Cancelled);
    }
}
