//! What is read off the link: Flight messages, Arrow's within them, JSON bodies.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, DictionaryArray, Int64Array, RecordBatch, StringViewArray, UnionArray};
use arrow::datatypes::{DataType, Field, Int32Type, Schema, UnionFields};
use bytes::Bytes;
use pithead_door::{
    Connection, Discard, Event, LoadRequest, Loads, MarkRun, MergeRuns, OpenRequest, PIECE_BYTES_MAX, PartsOutline, PlanBytes,
    PortAt, PortInput, RunApplication, RunPiece, SessionOptions, ShippedInput, SlicePart, SsdletSpec, value_pieces,
};
use pithead_fuzz::{Bound, Outcome, Parts, Run, Seed, Target};
use pithead_model::{
    Annotation, ColumnSummary, Dataset, DatasetId, Directory, DriveId, Fault, Function, FunctionArgument, FunctionKind,
    FunctionType, Level, LoadId, Manifest, Partition, Partitioning, SessionId, SessionProfile, SessionState, SliceEntry,
    SliceKey, SliceSpan, SortKey, Value, View, Volatility,
};
use pithead_wire::fuzz;
use serde_json::json;

use crate::{data, outcome, refused};

pub const NAMES: [&str; 8] =
    ["wire_open", "wire_load", "wire_events", "wire_run", "wire_application", "wire_ticket", "wire_call", "wire_answer"];

/// A message is held as it came, as its parts, and as what it decodes to; JSON makes a value of each two bytes.
const BOUND: Bound = Bound { bytes: 1 << 20, factor: 64 };
const MESSAGES: Parts = Parts { split: fuzz::split_messages, join: fuzz::join_messages, piece: fuzz::MESSAGE_PARTS };
/// The kind of an action, and its body.
const ACTION: Parts = Parts {
    split: |bytes| fuzz::split_action(bytes).map(|(kind, body)| vec![kind.into_bytes(), body]),
    join: |parts| {
        let part = |number: usize| parts.get(number).map(Vec::as_slice).unwrap_or_default();
        fuzz::action_bytes(&String::from_utf8_lossy(part(0)), part(1))
    },
    piece: 2,
};

pub fn targets() -> Vec<Target> {
    let target = |name, parts, seeds, run: Run| Target { name, seeds, parts, bound: BOUND, run };
    vec![
        target("wire_open", MESSAGES, open_seeds(), Box::new(|bytes| rows_of(fuzz::decode_open(bytes).map(input_rows)))),
        target("wire_load", MESSAGES, load_seeds(), Box::new(|bytes| rows_of(fuzz::decode_load(bytes).map(|(_, rows)| rows)))),
        target("wire_events", MESSAGES, event_seeds(), Box::new(|bytes| rows_of(fuzz::decode_events(bytes).map(event_rows)))),
        target("wire_run", MESSAGES, run_seeds(), Box::new(|bytes| outcome(fuzz::decode_run(bytes)))),
        target("wire_application", MESSAGES, application_seeds(), Box::new(application)),
        target("wire_ticket", Parts::WHOLE, ticket_seeds(), Box::new(|bytes| outcome(fuzz::decode_ticket(bytes)))),
        target("wire_call", ACTION, call_seeds(), Box::new(|bytes| outcome(fuzz::decode_call(bytes)))),
        target("wire_answer", ACTION, answer_seeds(), Box::new(answer)),
    ]
}

/// What goes in; what comes out is read of the same bytes, and refuses most of them.
fn application(bytes: &[u8]) -> Outcome {
    if let Err(fault) = fuzz::decode_application_events(bytes)
        && let wrong @ Outcome::Wrong(_) = refused(&fault)
    {
        return wrong;
    }
    outcome(fuzz::decode_application(bytes))
}

fn application_seeds() -> Vec<Seed> {
    let ssdlet = |module: &str| SsdletSpec { module: module.into(), ssdlet: Some("idA".into()), arguments: vec!["7".into()] };
    let at = |ssdlet| PortAt { ssdlet, port: 0 };
    let request = RunApplication {
        name: "words".into(),
        ssdlets: vec![ssdlet("map"), ssdlet("reduce")],
        connections: vec![Connection { from: at(0), to: at(1) }],
        memory: 1 << 20,
        run_ms: Some(1_000),
        window: Some(1 << 18),
    };
    let inputs = vec![PortInput::Batch { port: 0, bytes: Bytes::from_static(b"rows") }, PortInput::End { port: 0 }];
    let said = vec![PortInput::Taken { port: 1, bytes: 9 }, PortInput::Unread { port: 1 }];
    let bytes = |inputs| fuzz::application_bytes(request.clone(), inputs).expect("a valid application");
    vec![Seed::valid("nothing", bytes(vec![])), Seed::valid("rows", bytes(inputs)), Seed::valid("windows", bytes(said))]
}

fn answer(bytes: &[u8]) -> Outcome {
    match fuzz::split_action(bytes) {
        Some((kind, body)) => outcome(fuzz::decode_answer(&kind, &body)),
        None => Outcome::Refused,
    }
}

fn input_rows(request: OpenRequest) -> Vec<RecordBatch> {
    request.inputs.into_iter().flat_map(|input| input.batches).collect()
}

fn event_rows(events: Vec<Event>) -> Vec<RecordBatch> {
    let rows = events.into_iter().filter_map(|event| match event {
        Event::Rows { batch, .. } | Event::Filtered { batch, .. } => Some(batch),
        _ => None,
    });
    rows.collect()
}

/// Rows that were decoded must be sound: kernels trust them.
pub fn rows_of(batches: Result<Vec<RecordBatch>, Fault>) -> Outcome {
    match batches {
        Err(fault) => refused(&fault),
        Ok(batches) => batches.iter().find_map(unsound).map_or(Outcome::Accepted, Outcome::Wrong),
    }
}

/// Arrow IPC whose compressed buffers say that they hold a terabyte each.
pub fn lying_lengths(bytes: &[u8]) -> Vec<u8> {
    let mut lying = bytes.to_vec();
    for at in 8..bytes.len() {
        if bytes[at..].starts_with(&LZ4) || bytes[at..].starts_with(&ZSTD) {
            lying[at - 8..at].copy_from_slice(&(1_u64 << 40).to_le_bytes());
        }
    }
    lying
}

/// What frames start with. Their lengths stand before them.
const LZ4: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// What is wrong with a batch.
pub fn unsound(batch: &RecordBatch) -> Option<String> {
    let fields = batch.schema();
    batch.columns().iter().zip(fields.fields()).find_map(|(column, field)| {
        let invalid = column.to_data().validate_full().err();
        invalid.map(|error| format!("unsound {}: {error}", field.data_type()))
    })
}

/// All types that are stored, and those that travel besides.
pub fn batches() -> Vec<RecordBatch> {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..20));
    let dense = UnionFields::try_new(vec![0], [Arc::new(Field::new("n", DataType::Int64, true))]).unwrap();
    let dense = UnionArray::try_new(dense, vec![0; 20].into(), Some((0..20).collect()), vec![Arc::clone(&numbers)]).unwrap();
    let words = (0..20).map(|row| if row % 3 == 0 { "fizz" } else { "buzz" }).collect::<DictionaryArray<Int32Type>>();
    let texts = StringViewArray::from_iter((0..20).map(|row| (row % 7 != 0).then(|| format!("not inline, number {row}"))));
    let columns: [(&str, ArrayRef, bool); 4] =
        [("n", numbers, false), ("u", Arc::new(dense), true), ("d", Arc::new(words), true), ("t", Arc::new(texts), true)];
    let few = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    vec![few, data::every_type(12, true)]
}

pub fn open_request(plan: PlanBytes, rows: &[RecordBatch]) -> OpenRequest {
    let schema = rows[0].schema();
    let part = SlicePart {
        name: "lab.t".parse().unwrap(),
        dataset: DatasetId(7),
        schema: schema.clone(),
        partition: 3,
        runs: vec![(LoadId(1), 2), (LoadId(2), 40)],
        sort: vec![SortKey { column: "n".into(), descending: true }],
        passing: Some(0.25),
    };
    OpenRequest {
        plan,
        manifest_version: 9,
        parts: vec![part],
        inputs: vec![ShippedInput { name: "keys".into(), schema: schema.clone(), batches: rows.to_vec() }],
        done: vec![SliceSpan { first: 1, count: 3 }],
        schema,
        whole_partition: false,
        options: SessionOptions {
            adapt: Default::default(),
            threads: 2,
            memory: 64 << 20,
            batch_rows: 8_192,
            level_max: Level::Whole,
            zone_maps: true,
            sample: None,
            time_zone: Some("Europe/Zurich".into()),
            now_ns: 1,
            extensions: vec!["pithead_moments/1".into()],
            host: 7,
        },
    }
}

fn open_seeds() -> Vec<Seed> {
    let plans = [
        PlanBytes::Substrait(Bytes::from_static(b"\x0a\x02\x08\x01 any bytes")),
        PlanBytes::Scan { dataset: "lab.t".parse().unwrap(), columns: vec!["n".into(), "d".into()] },
    ];
    let seeds = plans.into_iter().zip(batches()).enumerate();
    seeds
        .map(|(number, (plan, rows))| {
            Seed::valid(format!("open {number}"), fuzz::open_bytes(&open_request(plan, &[rows])).unwrap())
        })
        .collect()
}

fn load_request(rows: &RecordBatch) -> LoadRequest {
    LoadRequest {
        load: LoadId(3),
        name: "lab.t".parse().unwrap(),
        dataset: DatasetId(7),
        partition: 0,
        schema: rows.schema(),
        metadata: Default::default(),
        sort: vec![],
        encoding: "vortex".into(),
        slice_rows: 10,
        slice_bytes: None,
    }
}

fn load_seeds() -> Vec<Seed> {
    let load = |rows: &RecordBatch| fuzz::load_bytes(&load_request(rows), &[rows.clone(), rows.slice(3, 4)]).unwrap();
    batches().iter().enumerate().map(|(number, rows)| Seed::valid(format!("load {number}"), load(rows))).collect()
}

pub fn annotation(round: u32, slices: SliceSpan, rows: u64) -> Annotation {
    Annotation {
        round,
        partition: 0,
        slices: vec![slices],
        level: Level::Whole,
        slices_skipped: 0,
        pages_read: 1,
        pages_skipped: 2,
        pages_sent: 0,
        rows_in: 20,
        rows_out: rows,
        medium_bytes: 4_096,
        batch_bytes: 100,
        cpu_ns: 1,
        scan: Default::default(),
        stored_bytes: 0,
        summarised: 0,
        wall_ns: 2,
        cause: None,
        queue_ms: None,
        retry_after_ms: Some(7),
    }
}

fn profile() -> SessionProfile {
    SessionProfile {
        state: SessionState::Finished,
        rounds: 1,
        slices_total: 3,
        slices_done: 3,
        memory_peak: 1,
        spilled_bytes: 0,
        other_rows_in: 0,
        other_medium_bytes: 0,
        predicted: None,
        link_bytes_per_s: None,
        settled: None,
        calls: vec![],
    }
}

fn outline() -> PartsOutline {
    PartsOutline { encoding: (2, 1), rows: 20_000, body_bytes: 4_000, parts: vec![(0, 100), (700, 50), (3_000, 1_000)] }
}

fn event_seeds() -> Vec<Seed> {
    let seeds = batches().into_iter().enumerate().flat_map(|(number, batch)| {
        let rows = batch.num_rows() as u64;
        let again = batch.slice(2, 5);
        let part = |bytes: &'static [u8]| Event::Stored { round: 2, slice: 3, total: 9, bytes: bytes.into(), link_bytes: 0 };
        let events = vec![
            Event::Filtered { round: 2, batch: again.clone(), link_bytes: 0 },
            part(b"stored"),
            part(b"far"),
            Event::Hints { round: 3, slice: 1, pages: Bytes::from_static(&[5]), parts: outline(), link_bytes: 0 },
            Event::Rows { round: 0, batch, link_bytes: 0 },
            Event::Rows { round: 1, batch: again, link_bytes: 0 },
            Event::Closed { annotation: annotation(0, SliceSpan { first: 0, count: 2 }, rows), link_bytes: 0 },
            Event::Closed { annotation: annotation(1, SliceSpan { first: 2, count: 1 }, 5), link_bytes: 0 },
            Event::Finished { profile: profile(), link_bytes: 0 },
        ];
        let packed = fuzz::packed_event_bytes(events.clone()).unwrap();
        let plain = fuzz::event_bytes(events).unwrap();
        [Seed::valid(format!("events {number}"), plain), Seed::valid(format!("packed events {number}"), packed)]
    });
    seeds.collect()
}

fn run_seeds() -> Vec<Seed> {
    let value = |bytes: usize| Bytes::from_iter((0..bytes).map(|byte| byte as u8));
    let values = [(None, value(70)), (Some(0), value(200)), (Some(1), value(31))];
    let pieces: Vec<RunPiece> = values.into_iter().flat_map(value_pieces).collect();
    let large = RunPiece { number: None, total: 1 << 26, bytes: value(100) };
    let lying = fuzz::run_bytes(vec![RunPiece { total: 100, ..large }]).unwrap();
    let lying = String::from_utf8_lossy(&lying).replace("\"total\":100", "\"total\":999");
    vec![
        Seed::valid("run", fuzz::run_bytes(pieces).unwrap()),
        Seed::valid("two pieces", fuzz::run_bytes(value_pieces((None, value(PIECE_BYTES_MAX + 1))).collect()).unwrap()),
        Seed::hostile("total", lying.into_bytes()),
    ]
}

fn run_key() -> SliceKey {
    SliceKey { name: "lab.t".parse().unwrap(), dataset: DatasetId(1), load: LoadId(2), partition: 3, number: None }
}

fn ticket_seeds() -> Vec<Seed> {
    let run = format!("run:{}", serde_json::to_string(&run_key()).unwrap());
    vec![Seed::valid("session", SessionId(u64::MAX).to_string()), Seed::valid("run", run)]
}

pub fn manifest() -> Manifest {
    let rows = &batches()[0];
    let summary = ColumnSummary {
        min: Some(Value::Int(1)),
        max: Some(Value::Text("z".into())),
        exact: true,
        nulls: 2,
        nulls_unknown: true,
        distinct: 9,
    };
    let run = pithead_model::Run { load: LoadId(1), slices: 2, rows: 100, bytes: 4_096 };
    let partition = Partition { copies: vec![DriveId(1), DriveId(2)], runs: vec![run; 2], columns: vec![summary; 4] };
    let dataset = |partitioning| Dataset {
        id: DatasetId(7),
        schema: rows.schema(),
        metadata: [("unit".to_owned(), "mm".to_owned())].into(),
        partitioning,
        sort: vec![SortKey { column: "n".into(), descending: false }],
        encoding: "vortex".into(),
        slice_rows: 262_144,
        slice_bytes: None,
        copies: 2,
        merged: 3,
        partitions: vec![partition.clone(); 2],
    };
    let datasets = [
        ("h".to_owned(), dataset(Partitioning::Hash { columns: vec!["n".into()] })),
        ("r".to_owned(), dataset(Partitioning::Range { column: "n".into(), bounds: vec![Value::Int(50)] })),
        ("t".to_owned(), dataset(Partitioning::RoundRobin)),
    ];
    Manifest {
        domain: "lab".into(),
        version: 4,
        time_ms: 1_795_514_400_123,
        follows: Some(2),
        history_ms: Some(86_400_000),
        drives: vec![DriveId(1), DriveId(2)],
        lost_homes: vec![],
        datasets: datasets.into(),
        functions: [("hash".to_owned(), function())].into(),
        views: [("v".to_owned(), view())].into(),
        attaching: [("t".to_owned(), [DriveId(3)].into())].into(),
    }
}

fn view() -> View {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
    View { sql: "SELECT n FROM t".into(), domain: "lab".into(), columns: vec!["n".into()], schema }
}

fn function() -> Function {
    Function {
        arguments: vec![FunctionArgument { name: Some("x".into()), of: FunctionType::Bigint }],
        returns: FunctionType::Text,
        volatility: Volatility::Immutable,
        called_on_null: false,
        module: "0f".repeat(32),
        export: "hash".into(),
        kind: FunctionKind::Scalar,
    }
}

pub fn directory() -> Directory {
    let rows = &batches()[0];
    let columns = manifest().datasets["t"].partitions[0].columns.clone();
    let slice = SliceEntry { rows: 20, bytes: 4_096, columns: columns.clone() };
    Directory { schema: rows.schema(), metadata: Default::default(), slices: vec![slice; 3], columns }
}

/// JSON that nests deeper than a stack is.
fn deep() -> Vec<u8> {
    [b"{\"domain\":".to_vec(), b"[".repeat(1 << 20)].concat()
}

fn call_seeds() -> Vec<Seed> {
    let hello = json!({"protocol": pithead_model::PROTOCOL_VERSION, "release": "1", "extensions": [], "encodings": []});
    let discard = Discard {
        name: "lab.t".parse().unwrap(),
        dataset: DatasetId(1),
        loads: Loads::Only(vec![LoadId(1), LoadId(9)]),
        partition: Some(3),
        seen: Some(4),
    };
    let commit = json!({"expected": 3, "manifest": manifest()});
    let merge = MergeRuns { into: load_request(&batches()[0]), loads: vec![LoadId(1), LoadId(9)] };
    let mark = MarkRun { into: load_request(&batches()[0]), load: LoadId(1), plan: vec![0, 0xab, 7], time_zone: None };
    let body = |value: &serde_json::Value| serde_json::to_vec(value).unwrap();
    let mut seeds = vec![
        Seed::valid("status", fuzz::action_bytes("status", b"")),
        Seed::valid("manifest", fuzz::action_bytes("manifest", b"\"lab\"")),
        Seed::valid("poll", fuzz::action_bytes("poll", &body(&json!(SessionId(7))))),
        Seed::valid("commit", fuzz::action_bytes("commit", &body(&commit))),
        Seed::valid("keep", fuzz::action_bytes("keep", &body(&json!(manifest())))),
        Seed::valid("directory", fuzz::action_bytes("directory", &body(&json!(run_key())))),
        Seed::valid("discard", fuzz::action_bytes("discard", &body(&json!(discard)))),
        Seed::valid("hello", fuzz::action_bytes("hello", &body(&hello))),
        Seed::valid("merge", fuzz::action_bytes("merge", &body(&json!(merge)))),
        Seed::valid("mark", fuzz::action_bytes("mark", &body(&json!(mark)))),
        Seed::valid(
            "background",
            fuzz::action_bytes("background", &body(&json!({"limit": {"service": "scrub", "bytes_per_second": 9}}))),
        ),
        Seed::valid("aside", fuzz::action_bytes("aside", &body(&json!({"domain": "lab", "version": 3})))),
        Seed::valid("has manifest", fuzz::action_bytes("has-manifest", &body(&json!({"domain": "lab", "version": 3})))),
        Seed::valid("history", fuzz::action_bytes("history", &body(&json!({"domain": "lab", "pick": {"before": 3}})))),
        Seed::valid("past manifest", fuzz::action_bytes("past-manifest", &body(&json!({"domain": "lab", "version": 3})))),
        Seed::valid("forget history", fuzz::action_bytes("forget-history", &body(&json!("lab")))),
        Seed::valid("drop aside", fuzz::action_bytes("drop-aside", &body(&json!({"domain": "lab", "version": 3})))),
    ];
    seeds.push(Seed::hostile("deep", fuzz::action_bytes("keep", &deep())));
    seeds
}

fn answer_seeds() -> Vec<Seed> {
    let body = |value: &serde_json::Value| serde_json::to_vec(value).unwrap();
    let granted = json!({"granted": {"session": SessionId(1), "threads": 2, "memory": 1}});
    let busy = json!({"busy": {"why": "full", "retry_after_ms": 10}});
    vec![
        Seed::valid("granted", fuzz::action_bytes("open", &body(&granted))),
        Seed::valid("busy", fuzz::action_bytes("open", &body(&busy))),
        Seed::valid("poll", fuzz::action_bytes("poll", &body(&json!(profile())))),
        Seed::valid("manifest", fuzz::action_bytes("manifest", &body(&json!(manifest())))),
        Seed::valid("directory", fuzz::action_bytes("directory", &body(&json!(directory())))),
        Seed::hostile("deep", fuzz::action_bytes("manifest", &deep())),
    ]
}
