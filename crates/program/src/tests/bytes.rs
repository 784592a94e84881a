//! Rows, batches and declarations as bytes.

use std::sync::Arc;

use arrow::array::{Int32Array, Int64Array, StringArray};
use arrow::ipc::root_as_message;
use arrow::ipc::writer::StreamWriter;
use arrow::record_batch::RecordBatch;
use proptest::prelude::*;

use crate::arrow_port::{check_stream, to_ipc};
use crate::budget::Budget;
use crate::channel::{Channel, Got, Put, Reader, Writer};
use crate::signature::check_rows;
use crate::{Declared, Limits, Signature, Type, Value, decode_rows, encode_row};

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(Value::Bool),
        any::<i16>().prop_map(Value::I16),
        any::<i64>().prop_map(Value::I64),
        any::<u32>().prop_map(Value::U32),
        (-1e300..1e300).prop_map(Value::F64),
        ".{0,20}".prop_map(Value::String),
        proptest::collection::vec(any::<u8>(), 0..20).prop_map(Value::Bytes),
    ]
}

proptest! {
    #[test]
    fn rows_come_back(row in proptest::collection::vec(value(), 1..8), count in 1_usize..5) {
        let types: Vec<Type> = row.iter().map(Value::of).collect();
        let mut bytes = Vec::new();
        for _ in 0..count {
            encode_row(&row, &mut bytes);
        }
        prop_assert_eq!(check_rows(&types, &bytes), Ok(count));
        prop_assert_eq!(decode_rows(&types, &bytes), Ok(vec![row; count]));
        let text = Signature::Rows(types.clone()).to_string();
        prop_assert_eq!(text.parse(), Ok(Signature::Rows(types)));
    }

    #[test]
    fn garbage_is_either_rows_or_refused(types in proptest::collection::vec(value(), 1..4), bytes: Vec<u8>) {
        let types: Vec<Type> = types.iter().map(Value::of).collect();
        let checked = check_rows(&types, &bytes);
        let decoded = decode_rows(&types, &bytes);
        prop_assert_eq!(checked.ok(), decoded.ok().map(|rows| rows.len()));
    }

    #[test]
    fn garbage_is_no_stream_of_batches(at in 0_usize..600, byte: u8, cut in 0_usize..600) {
        let mut bytes = to_ipc(&batch()).unwrap().to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        bytes.truncate(bytes.len() - cut.min(bytes.len()));
        // Either way it returns, and neither panics nor takes memory beyond the bytes.
        let _ = check_stream(&bytes);
    }

    #[test]
    fn declarations_are_parsed_or_refused(bytes: Vec<u8>, text in "(name|input|output|argument|x) [a-z0-9, ]{0,12}\n") {
        let _ = Declared::parse(&bytes);
        let _ = Declared::parse(text.as_bytes());
    }
}

fn batch() -> RecordBatch {
    let numbers = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
    let names = Arc::new(StringArray::from(vec!["a", "bc", ""]));
    RecordBatch::try_from_iter([("n", numbers as _), ("s", names as _)]).unwrap()
}

#[test]
fn a_declaration_says_what_is_wrong_with_it() {
    let error = |text: &str| Declared::parse(text.as_bytes()).unwrap_err();
    assert_eq!(error("input i64\n"), "a declaration has no name");
    assert_eq!(
        error("name a\ninput int\n"),
        "the line \"input int\" of a declaration: no type is called \"int\"; the types are bool, i8, i16, i32, i64, u8, u16, u32, u64, \
         f32, f64, string, bytes"
    );
    assert!(error(&format!("name a\ninput {}\n", vec!["i64"; 65].join(","))).ends_with("a row has at most 64 columns, not 65"));
    let good = Declared::parse(b"name idMapper\nargument file\nargument u32\noutput string,u32\ninput arrow\n").unwrap();
    assert_eq!((good.outputs[0].to_string().as_str(), good.inputs[0].to_string().as_str()), ("string,u32", "arrow"));
}

fn channel(signature: &str) -> Arc<Channel> {
    Channel::new(signature.parse().unwrap(), 1000)
}

/// What an application may hold.
fn budget(memory_bytes_max: u64) -> Arc<Budget> {
    Budget::new(Limits { memory_bytes_max, ..Limits::default() })
}

/// Whether an application put bytes there; none: nobody reads.
fn putting(channel: &Channel) -> impl Fn(Vec<u8>) -> Option<bool> {
    let budget = budget(1 << 20);
    move |bytes| match channel.try_put(bytes, &budget).unwrap() {
        Put::Done => Some(true),
        Put::Full(_) => Some(false),
        Put::Closed => None,
    }
}

#[test]
fn small_batches_are_joined_and_the_queue_is_bounded() {
    let channel = channel("bytes");
    let (reader, writer) = (Reader::new(Arc::clone(&channel)), Writer::new(Arc::clone(&channel)));
    let put = putting(&channel);
    for _ in 0..100 {
        assert_eq!(put(vec![7; 10]), Some(true));
    }
    assert_eq!(put(vec![7; 10]), Some(false));
    assert_eq!(channel.try_get(10), Got::Larger(1000));
    assert_eq!(channel.try_get(1000), Got::Batch(vec![7; 1000]));
    assert_eq!(channel.try_get(1000), Got::Empty);
    assert_eq!(put(vec![7; 5000]), Some(true), "one batch of any size fits");
    writer.finish();
    assert_eq!(channel.try_get(5000), Got::Batch(vec![7; 5000]));
    assert_eq!(channel.try_get(5000), Got::End);
    drop(reader);
    assert_eq!(put(vec![7; 10]), None);
}

#[test]
fn what_waits_counts_as_memory_until_it_is_taken_or_cut_off() {
    let (channel, budget) = (channel("bytes"), budget(1000));
    let (_reader, writer) = (Reader::new(Arc::clone(&channel)), Writer::new(Arc::clone(&channel)));
    let put = |bytes| channel.try_put(vec![7; bytes], &budget);
    for _ in 0..2 {
        assert_eq!(put(400), Ok(Put::Done));
        let held = budget.hold(300).unwrap();
        assert!(put(301).is_err(), "the application may hold 1000 bytes");
        assert_eq!(put(300), Ok(Put::Done));
        assert!(budget.hold(1).is_err());
        assert_eq!(put(301), Ok(Put::Full(vec![7; 301])), "it would only have to wait");
        assert_eq!(channel.try_get(1000), Got::Batch([7; 700].into()));
        drop(held);
    }
    assert_eq!(put(1000), Ok(Put::Done));
    drop(writer);
    assert!(budget.hold(1000).is_ok(), "what was cut off is gone");
}

/// Batches that nobody was to read were charged until the application ended.
#[test]
fn what_nobody_will_read_does_not_count() {
    let (channel, budget) = (channel("bytes"), budget(1000));
    let readers = [Reader::new(Arc::clone(&channel)), Reader::new(Arc::clone(&channel))];
    let _writer = Writer::new(Arc::clone(&channel));
    assert_eq!(channel.try_put(vec![7; 1000], &budget), Ok(Put::Done));
    let [first, last] = readers;
    drop(first);
    assert!(budget.hold(1).is_err(), "somebody may read it");
    drop(last);
    let _held = budget.hold(1000).expect("it is gone");
    assert_eq!(channel.try_put(vec![7; 1000], &budget), Ok(Put::Closed), "nobody needs memory for it");
}

#[test]
fn each_application_pays_for_what_it_puts() {
    let (channel, budgets) = (channel("bytes"), [budget(10), budget(10)]);
    let (_reader, _writer) = (Reader::new(Arc::clone(&channel)), Writer::new(Arc::clone(&channel)));
    for budget in &budgets {
        assert_eq!(channel.try_put(vec![7; 10], budget), Ok(Put::Done));
        assert!(channel.try_put(vec![7; 1], budget).is_err());
    }
    assert_eq!(channel.try_get(1000), Got::Batch([7; 10].into()));
    assert!(budgets[0].hold(10).is_ok() && budgets[1].hold(1).is_err());
}

#[test]
fn a_writer_that_is_lost_cuts_the_stream() {
    let channel = channel("bytes");
    let (_reader, writer) = (Reader::new(Arc::clone(&channel)), Writer::new(Arc::clone(&channel)));
    assert_eq!(putting(&channel)(vec![0; 4]), Some(true));
    drop(writer);
    assert_eq!(channel.try_get(1000), Got::Cut(Arc::from("the stream was cut off: an SSDlet that writes to it was lost")));
}

#[test]
fn record_batches_are_checked() {
    let channel = channel("arrow");
    let ipc = to_ipc(&batch()).unwrap();
    assert_eq!(channel.check(&ipc), Ok(()));
    assert_eq!(check_stream(&ipc[..ipc.len() - 12]), Err("it is no Arrow IPC stream: a message is cut off".to_owned()));
    let other = to_ipc(&batch().project(&[0]).unwrap()).unwrap();
    assert!(channel.check(&other).unwrap_err().starts_with("its batches are of different schemas: "));
    assert!(channel.check(b"").unwrap_err().starts_with("a batch has 1 to "));
}

#[test]
fn compressed_record_batches_are_refused() {
    let options = arrow::ipc::writer::IpcWriteOptions::default();
    let options = options.try_with_compression(Some(arrow::ipc::CompressionType::LZ4_FRAME)).unwrap();
    let mut writer = arrow::ipc::writer::StreamWriter::try_new_with_options(Vec::new(), &batch().schema(), options).unwrap();
    writer.write(&batch()).unwrap();
    let error = check_stream(&writer.into_inner().unwrap()).unwrap_err();
    assert_eq!(error, "its Arrow record batch is compressed; ports take it uncompressed");
}

/// A stream of two columns, and where the places of their buffers are written in it: 16 bytes for each.
fn two_columns() -> (Vec<u8>, std::ops::Range<usize>) {
    let numbers = || Arc::new(Int32Array::from((0..1000).collect::<Vec<_>>()));
    let bytes = to_ipc(&RecordBatch::try_from_iter([("a", numbers() as _), ("b", numbers() as _)]).unwrap()).unwrap().to_vec();
    let length = |at: usize| u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize;
    let at = 8 + length(0);
    let message = root_as_message(&bytes[at + 8..at + 8 + length(at)]).unwrap();
    let buffers = message.header_as_record_batch().unwrap().buffers().unwrap();
    let from = buffers.bytes().as_ptr() as usize - bytes.as_ptr() as usize;
    let places = from..from + buffers.bytes().len();
    (bytes, places)
}

/// Each of a thousand columns was the same fifteen megabytes, and Arrow's reader took a copy of each.
#[test]
fn buffers_neither_overlap_nor_lie_askew() {
    let (bytes, places) = two_columns();
    assert!(check_stream(&bytes).is_ok() && places.len() == 4 * 16, "{places:?}");
    let data = [1, 3].map(|buffer| places.start + buffer * 16);
    let patched = |at: usize, offset: i64, length: i64| {
        let mut bytes = bytes.clone();
        bytes[at..at + 8].copy_from_slice(&offset.to_le_bytes());
        bytes[at + 8..at + 16].copy_from_slice(&length.to_le_bytes());
        bytes
    };
    for (at, offset, length) in
        [(data[0], 1, 4000), (data[1], 8, 8000), (data[1], -8, 8), (data[0], 0, -8), (data[1], i64::MAX - 7, 8)]
    {
        let wrong = patched(at, offset, length);
        let error = check_stream(&wrong).unwrap_err();
        assert!(
            error.starts_with(&format!("it is no Arrow IPC stream: a buffer of {length} bytes at {offset} in a ")),
            "{error}"
        );
        assert!(channel("arrow").check(&wrong).is_err() && crate::from_ipc(&wrong).is_err());
    }
}

#[test]
fn a_batch_of_a_port_is_one_record_batch_with_rows() {
    let stream = |batches: &[RecordBatch]| {
        let mut writer = StreamWriter::try_new(Vec::new(), &batch().schema()).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        writer.into_inner().unwrap()
    };
    let error = |batches: &[RecordBatch]| check_stream(&stream(batches)).unwrap_err();
    assert!(check_stream(&stream(&[batch()])).is_ok());
    assert_eq!(error(&[]), "it is a stream of 0 record batches; a batch of a port is one");
    assert_eq!(error(&[batch(), batch()]), "it is a stream of 2 record batches; a batch of a port is one");
    assert_eq!(error(&[batch().slice(0, 0)]), "its record batch has no row; a batch of a port has one at least");
    assert_eq!(crate::from_ipc(&stream(&[batch(), batch()])).unwrap().len(), 2);
}

#[test]
fn a_schema_has_so_many_fields() {
    let of = |fields: usize| {
        let one = Arc::new(Int32Array::from(vec![1])) as arrow::array::ArrayRef;
        let columns = (0..fields).map(|field| (format!("f{field}"), Arc::clone(&one)));
        to_ipc(&RecordBatch::try_from_iter(columns).unwrap()).unwrap()
    };
    assert!(check_stream(&of(4096)).is_ok());
    assert_eq!(check_stream(&of(4097)).unwrap_err(), "its schema has more than 4096 fields, nested ones counted");
}
