//! Decoders as plain functions over bytes, for fuzz targets. Streams are Flight messages one after another, each behind
//! its length as a protobuf varint.

use std::collections::VecDeque;

use arrow::array::RecordBatch;
use arrow_flight::{Action, FlightData, FlightDescriptor, Ticket};
use bytes::Bytes;
use futures::executor::block_on;
use futures::stream::{self, StreamExt, TryStreamExt};
use pithead_door::{Attachments, check_attachments, check_columns};
use pithead_door::{DriveStatus, Event, Granted, LoadRequest, OpenRequest, RunPiece, Welcome};
use pithead_door::{PortInput, RunApplication};
use pithead_model::{Directory, Fault, Manifest, Reply, SessionProfile};
use prost::Message;

use crate::application::{parse_event, parse_input, parse_started, run_messages as application_messages};
use crate::call::{Call, check_manifest};
use crate::decode::{BatchDecoder, Decoded};
use crate::encode::{BatchEncoder, link_bytes};
use crate::error::WireError;
use crate::event::{EventReader, EventWriter};
use crate::exchange::{ExchangeCommand, parse_exchange};
use crate::json::from_json;
use crate::packing::pack;
use crate::put::{OpenReader, PutCommand, PutMark, encode_open, parse_put, parse_put_mark, put_command, put_end, with_schema};
use crate::run::{RunReader, TicketTarget, run_messages};

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

/// What a drive makes of an application's messages.
pub fn decode_application(bytes: &[u8]) -> Result<(RunApplication, Vec<PortInput>), Fault> {
    let mut messages = split(bytes)?.into_iter();
    let ExchangeCommand::Run(request) = parse_exchange(&messages.next().ok_or(WireError::BrokenOff)?)? else {
        return Err(WireError::malformed("run", "it is another exchange").into());
    };
    let mut inputs = Vec::new();
    for message in messages {
        match parse_input(message)? {
            Some(input) => inputs.push(input),
            None => return Ok((request, inputs)),
        }
    }
    Err(WireError::BrokenOff.into())
}

/// An application as bytes that [`decode_application`] reads, to seed a fuzzer with.
pub fn application_bytes(request: RunApplication, inputs: Vec<PortInput>) -> Result<Vec<u8>, Fault> {
    let inputs = stream::iter(inputs.into_iter().map(Ok)).boxed();
    let messages: Vec<FlightData> = block_on(application_messages(request, inputs, Default::default())?.collect());
    Ok(join(&messages))
}

/// What a host makes of a drive's messages of an application.
pub fn decode_application_events(bytes: &[u8]) -> Result<(), Fault> {
    let mut messages = split(bytes)?.into_iter();
    parse_started(&messages.next().ok_or(WireError::BrokenOff)?)?;
    messages.try_for_each(|message| parse_event(message).map(drop))?;
    Ok(())
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
    TicketTarget::parse(&Ticket::new(bytes.to_vec()))?;
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

/// A load's rows as bytes that [`decode_load`] reads, to seed a fuzzer with.
pub fn load_bytes(request: &LoadRequest, rows: &[RecordBatch]) -> Result<Vec<u8>, Fault> {
    let mut messages = VecDeque::from([put_command(&PutCommand::Load(request.clone()), Bytes::new())?]);
    let mut encoder = BatchEncoder::new();
    rows.iter().try_for_each(|batch| encoder.encode(batch, &PutMark::Rows.bytes(), &mut messages))?;
    messages.push_back(put_end());
    Ok(join(&messages))
}

/// What a drive makes of a client's load.
pub fn decode_load(bytes: &[u8]) -> Result<(LoadRequest, Vec<RecordBatch>), Fault> {
    let mut messages = split(bytes)?.into_iter();
    let first = messages.next().ok_or(WireError::BrokenOff)?;
    let PutCommand::Load(request) = parse_put(&first)? else {
        return Err(WireError::malformed("load", "it is another put").into());
    };
    let (mut decoder, mut rows) = (BatchDecoder::default(), Vec::new());
    for message in messages {
        match (parse_put_mark(&message)?, decoder.decode(&message)?) {
            (Some(PutMark::End), _) => return Ok((request, rows)),
            (None, Decoded::Context) => {}
            (Some(PutMark::Rows), Decoded::Batch(batch)) => rows.push(with_schema(batch, &request.schema)?),
            _ => return Err(WireError::malformed("load", "expected rows").into()),
        }
    }
    Err(WireError::BrokenOff.into())
}

/// GET's answer as bytes that [`decode_events`] reads, to seed a fuzzer with.
pub fn event_bytes(events: Vec<Event>) -> Result<Vec<u8>, Fault> {
    let (mut writer, mut messages) = (EventWriter::new(), VecDeque::new());
    events.into_iter().try_for_each(|event| writer.write(event, &mut messages))?;
    Ok(join(&messages))
}

/// The same with compressed rows.
pub fn packed_event_bytes(events: Vec<Event>) -> Result<Vec<u8>, Fault> {
    let mut messages = split(&event_bytes(events)?)?;
    for message in messages.iter_mut().filter(|message| !message.data_header.is_empty() && !message.app_metadata.is_empty()) {
        let mark = from_json("mark", &message.app_metadata)?;
        pack(message, &mark)?;
    }
    Ok(join(&messages))
}

/// An action as bytes that [`decode_call`] reads, to seed a fuzzer with.
pub fn action_bytes(kind: &str, body: &[u8]) -> Vec<u8> {
    Action::new(kind.to_owned(), body.to_vec()).encode_to_vec()
}

/// The kind and the body of an action; none where the bytes are no action.
pub fn split_action(bytes: &[u8]) -> Option<(String, Vec<u8>)> {
    let action = Action::decode(bytes).ok()?;
    Some((action.r#type, action.body.to_vec()))
}

/// What a host makes of the body of a drive's answer to a call of this kind.
pub fn decode_answer(kind: &str, body: &[u8]) -> Result<(), Fault> {
    match kind {
        "hello" => from_json::<Welcome>("welcome", body).map(|_| ())?,
        "open" => from_json::<Reply<Granted>>("answer to OPEN", body).map(|_| ())?,
        "poll" => from_json::<SessionProfile>("answer", body).map(|_| ())?,
        "status" => from_json::<DriveStatus>("answer", body).map(|_| ())?,
        "manifest" => from_json::<Option<Manifest>>("answer", body)?.iter().try_for_each(check_manifest)?,
        "attached" => from_json::<Option<Attachments>>("answer", body)?.iter().try_for_each(check_attachments)?,
        "has-manifest" => from_json::<bool>("answer", body).map(|_| ())?,
        "directory" => check_columns(&from_json::<Directory>("answer", body)?.schema)?,
        other => return Err(WireError::malformed("answer", format!("{other:?} is no call")).into()),
    }
    Ok(())
}

/// Parts of a message: the command in its descriptor, its Arrow header, its body, its metadata.
pub const MESSAGE_PARTS: usize = 4;

/// The parts of all messages of a stream, [`MESSAGE_PARTS`] of each; none where the bytes are no stream.
pub fn split_messages(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let parts = |message: FlightData| {
        let command = message.flight_descriptor.map(|descriptor| descriptor.cmd).unwrap_or_default();
        [command, message.data_header, message.data_body, message.app_metadata].map(|part| part.to_vec())
    };
    Some(split(bytes).ok()?.into_iter().flat_map(parts).collect())
}

/// A stream of messages of these parts.
pub fn join_messages(parts: &[Vec<u8>]) -> Vec<u8> {
    let part = |message: &[Vec<u8>], number: usize| Bytes::from(message.get(number).cloned().unwrap_or_default());
    let messages = parts.chunks(MESSAGE_PARTS).map(|message| {
        let command = part(message, 0);
        FlightData {
            flight_descriptor: (!command.is_empty()).then(|| FlightDescriptor::new_cmd(command)),
            data_header: part(message, 1),
            data_body: part(message, 2),
            app_metadata: part(message, 3),
        }
    });
    join(&messages.collect::<Vec<_>>())
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
    use std::sync::Arc;

    use arrow::array::{
        Array, ArrayRef, BooleanArray, Decimal128Array, DictionaryArray, Int64Array, ListArray, StringArray, StringViewArray,
        StructArray, UnionArray,
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

    /// Rows that come out are sound.
    fn check(messages: &[FlightData]) {
        for event in decode_events(&join(messages)).into_iter().flatten() {
            if let Event::Rows { batch, .. } = event {
                for column in batch.columns() {
                    column.to_data().validate_full().unwrap();
                }
            }
        }
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
            let packed = packed_event_bytes(vec![Event::Rows { round: 1, batch: batch(), link_bytes: 0 }]).unwrap();
            for mut messages in [messages(), split(&packed).unwrap()] {
                changes.iter().for_each(|it| change(&mut messages, *it));
                check(&messages);
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
