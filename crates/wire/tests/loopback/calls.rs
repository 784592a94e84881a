//! Calls that are one question and one answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{DictionaryArray, Int64Array, RecordBatch, RecordBatchOptions, StringViewArray};
use arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef, TimeUnit};
use futures::stream::{self, StreamExt};
use pithead_door::*;
use pithead_model::*;
use pithead_wire::*;

use crate::memory::*;

fn hello(protocol: u32) -> Hello {
    Hello { protocol, release: "0.9.9".into(), extensions: vec![] }
}

fn schema() -> SchemaRef {
    let zone = DataType::Timestamp(TimeUnit::Nanosecond, Some("Europe/Berlin".into()));
    let note = Field::new("note", DataType::Utf8View, true).with_metadata([("unit".to_owned(), "m".to_owned())].into());
    Arc::new(Schema::new(vec![Field::new("at", zone, false), note]).with_metadata([("k".to_owned(), "v".to_owned())].into()))
}

fn manifest(version: u64) -> Manifest {
    let mut partition = Partition::empty(vec![DriveId(7), DriveId(8)]);
    partition.append(loaded());
    let dataset = Dataset {
        id: DatasetId(3),
        schema: schema(),
        metadata: BTreeMap::from([("source".to_owned(), "ünïcode".to_owned())]),
        partitioning: Partitioning::Range {
            column: "at".into(),
            bounds: vec![Value::Text("m".into()), Value::Bytes(vec![0, 255])],
        },
        sort: vec![SortKey { column: "at".into(), descending: true }],
        encoding: "vortex".into(),
        slice_rows: 9,
        slice_bytes: None,
        copies: 2,
        merged: 4,
        partitions: vec![partition],
    };
    Manifest { version, datasets: BTreeMap::from([("t".to_owned(), dataset)]), ..Manifest::empty("main", vec![DriveId(7)]) }
}

#[tokio::test]
async fn first_contact_and_metadata_come_back_as_they_were() {
    let served = served(MemoryDoor::default()).await;
    let client = &served.client;
    assert_eq!(client.hello(hello(PROTOCOL_VERSION)).await.unwrap(), welcome());
    assert_eq!(client.status().await.unwrap(), status());
    assert_eq!(client.poll(SessionId(1)).await.unwrap(), profile());
    client.close(SessionId(u64::MAX)).await.unwrap();
    assert_eq!(*served.door.closed.lock().unwrap(), [SessionId(u64::MAX)]);
    let name: DatasetName = "t".parse().unwrap();
    let loads = [Loads::All, Loads::Only(vec![LoadId(1)]), Loads::AllBut(vec![LoadId(1), LoadId(2)])];
    let discards: Vec<_> = loads
        .into_iter()
        .zip([None, Some(0), Some(7)])
        .map(|(loads, partition)| Discard { name: name.clone(), dataset: DatasetId(3), loads, partition, seen: Some(4) })
        .collect();
    for (index, discard) in discards.iter().enumerate() {
        assert_eq!(client.discard(discard.clone()).await.unwrap(), index as u64 + 1);
    }
    assert_eq!(*served.door.discards.lock().unwrap(), discards);

    assert_eq!(client.manifest("main".into()).await.unwrap(), None);
    client.commit(0, manifest(1)).await.unwrap();
    assert_eq!(client.manifest("main".into()).await.unwrap(), Some(manifest(1)));
    let conflict = client.commit(0, manifest(1)).await.unwrap_err();
    assert_eq!(conflict, Fault::new(Blame::Conflict, "expected version 0, there is 1").hint("plan again"));

    let kept = client.keep_manifest(manifest(9)).await.unwrap();
    assert_eq!(kept, ManifestReceipt { before: 0, version: 9, home: Some(DriveId(7)), home_is_lost: false });
    assert_eq!(*served.door.kept.lock().unwrap(), [manifest(9)]);

    let key = SliceKey { name, dataset: DatasetId(3), load: LoadId(4), partition: 5, number: None };
    let other = SliceKey { load: LoadId(9), ..key.clone() };
    let claim = |runs| client.claim(Claim { runs, version: 4 });
    assert_eq!(claim(vec![key.clone(), other.clone()]).await.unwrap(), [SliceKey { load: LoadId(9), ..key.clone() }]);
    let elsewhere = SliceKey { name: "lab.t".parse().unwrap(), ..other.clone() };
    for wrong in [vec![other.slice(1)], vec![key.clone(), elsewhere], vec![key.clone(); CLAIMED_MAX + 1]] {
        assert_eq!(claim(wrong).await.unwrap_err().blame, Blame::User);
    }
    assert_eq!(client.directory(key.clone()).await.unwrap_err(), Fault::new(Blame::Corrupt, key.to_string()));
}

#[tokio::test]
async fn manifests_with_impossible_copies_are_refused_by_either_end() {
    let served = served(MemoryDoor::default()).await;
    let twice = vec![DriveId(7), DriveId(8), DriveId(7)];
    let many = (0..=COPIES_MAX as u64).map(DriveId).collect();
    for copies in [vec![], twice, many] {
        let mut manifest = manifest(1);
        manifest.datasets.get_mut("t").unwrap().partitions[0].copies = copies;
        for refused in
            [served.client.commit(0, manifest.clone()).await, served.client.keep_manifest(manifest.clone()).await.map(drop)]
        {
            let fault = refused.unwrap_err();
            assert!(fault.blame == Blame::User && fault.message.contains("partition 0"), "{fault:?}");
        }
        *served.door.manifest.lock().unwrap() = Some(manifest);
        let foreign = served.client.manifest("main".into()).await.unwrap_err();
        assert_eq!(foreign.blame, Blame::Device, "what a drive says wrongly is the drive's doing");
        *served.door.manifest.lock().unwrap() = None;
    }
    assert!(served.door.kept.lock().unwrap().is_empty());
}

#[tokio::test]
async fn another_protocol_is_refused_by_either_end() {
    let same = served(MemoryDoor::default()).await;
    let refused = same.client.hello(hello(PROTOCOL_VERSION + 1)).await.unwrap_err();
    assert_eq!(refused.blame, Blame::Unsupported);
    for part in [
        format!("protocol {}", PROTOCOL_VERSION + 1),
        format!("protocol {PROTOCOL_VERSION}"),
        "0.9.9".to_owned(),
        "0.1.0".to_owned(),
    ] {
        assert!(refused.message.contains(&part), "{part:?} is not in {:?}", refused.message);
    }
    let other = served(MemoryDoor { protocol: Some(99), ..Default::default() }).await;
    let refused = other.client.hello(hello(PROTOCOL_VERSION)).await.unwrap_err();
    assert!(refused.blame == Blame::Unsupported && refused.message.contains("protocol 99"));
    assert!(check_hello(&hello(PROTOCOL_VERSION), &welcome()).is_ok() && check_hello(&hello(99), &welcome()).is_err());
}

fn inputs() -> Vec<ShippedInput> {
    let keys = RecordBatch::try_from_iter([("k", Arc::new(Int64Array::from_iter(0..300_000)) as _)]).unwrap();
    let texts: StringViewArray = (0..100).map(|i| Some(format!("a value too long to be inline {i}"))).collect();
    let codes: DictionaryArray<Int32Type> = (0..100).map(|i| if i % 2 == 0 { "even" } else { "odd" }).collect();
    let names = RecordBatch::try_from_iter([("name", Arc::new(texts) as _), ("code", Arc::new(codes) as _)]).unwrap();
    let nothing = Arc::new(Schema::empty());
    let counted =
        RecordBatch::try_new_with_options(nothing.clone(), vec![], &RecordBatchOptions::new().with_row_count(Some(7))).unwrap();
    vec![
        ShippedInput { name: "keys".into(), schema: keys.schema(), batches: vec![keys.clone()] },
        ShippedInput { name: "empty".into(), schema: keys.schema(), batches: vec![] },
        ShippedInput {
            name: "names".into(),
            schema: names.schema(),
            batches: vec![names.slice(3, 4), names.slice(0, 0), names],
        },
        ShippedInput { name: "counted".into(), schema: nothing, batches: vec![counted] },
    ]
}

pub fn open_request(plan: PlanBytes, inputs: Vec<ShippedInput>) -> OpenRequest {
    let part = SlicePart {
        name: "t".parse().unwrap(),
        dataset: DatasetId(3),
        schema: schema(),
        partition: 1,
        runs: vec![(LoadId(1), 2), (LoadId(u64::MAX), 0)],
        sort: vec![SortKey { column: "at".into(), descending: false }],
        passing: Some(0.25),
    };
    let options = SessionOptions {
        adapt: Default::default(),
        threads: 2,
        memory: 1 << 30,
        batch_rows: 8_192,
        level_max: Level::Whole,
        zone_maps: true,
        sample: None,
        time_zone: Some("Europe/Berlin".into()),
        now_ns: i64::MIN,
        extensions: vec!["matches/1".into()],
        host: u64::MAX,
    };
    OpenRequest {
        plan,
        manifest_version: 9,
        parts: vec![part],
        inputs,
        done: vec![SliceSpan { first: 0, count: 1 }],
        schema: schema(),
        whole_partition: true,
        options,
    }
}

#[tokio::test]
async fn open_arrives_whole_with_what_is_shipped() {
    let served = served(MemoryDoor::default()).await;
    let scan = PlanBytes::Scan { dataset: "t".parse().unwrap(), columns: vec!["at".into(), "note".into()] };
    let plan = PlanBytes::Substrait(vec![0, 255, 7].into());
    let granted = served.client.open(open_request(plan.clone(), inputs())).await.unwrap();
    assert!(matches!(granted.reply, Reply::Granted(Granted { session: SessionId(u64::MAX), threads: 2, .. })));
    assert!(granted.link_bytes > 2_400_000, "300,000 keys of 8 bytes were shipped");
    let busy = served.client.open(open_request(scan.clone(), vec![])).await.unwrap();
    assert!(matches!(busy.reply, Reply::Busy { retry_after_ms: 250, .. }) && busy.link_bytes < 4_096);

    let opened = served.door.opened.lock().unwrap();
    assert_eq!(opened[1], open_request(scan, vec![]));
    let (arrived, expected) = (&opened[0], open_request(plan, inputs()));
    assert_eq!((&arrived.plan, &arrived.parts, &arrived.options), (&expected.plan, &expected.parts, &expected.options));
    assert_eq!(arrived.done, expected.done);
    for (arrived, expected) in arrived.inputs.iter().zip(&expected.inputs) {
        assert_eq!((&arrived.name, &arrived.schema), (&expected.name, &expected.schema));
        let rows = |batches: &[RecordBatch]| arrow::compute::concat_batches(&expected.schema, batches).unwrap();
        assert_eq!(rows(&arrived.batches), rows(&expected.batches));
    }
    assert_eq!(fuzz::decode_open(&fuzz::open_bytes(&expected).unwrap()).unwrap().parts, expected.parts);
}

#[tokio::test]
async fn what_is_over_a_bound_is_refused_before_it_is_sent() {
    let served = served(MemoryDoor::default()).await;
    let plan = PlanBytes::Substrait(vec![0; PLAN_BYTES_MAX + 1].into());
    let large = RecordBatch::try_from_iter([("k", Arc::new(Int64Array::from(vec![7; SHIPPED_BYTES_MAX / 8])) as _)]).unwrap();
    let input = ShippedInput { name: "keys".into(), schema: large.schema(), batches: vec![large] };
    for request in [open_request(plan, vec![]), open_request(PlanBytes::Substrait(vec![].into()), vec![input])] {
        assert_eq!(served.client.open(request).await.unwrap_err().blame, Blame::Limit);
    }
    assert!(served.door.opened.lock().unwrap().is_empty());
}

pub fn load_request(schema: SchemaRef) -> LoadRequest {
    LoadRequest {
        load: LoadId(1),
        name: "t".parse().unwrap(),
        dataset: DatasetId(3),
        partition: 4,
        schema,
        metadata: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
        sort: vec![],
        encoding: "arrow".into(),
        slice_rows: 5,
        slice_bytes: None,
    }
}

#[tokio::test]
async fn a_load_arrives_whole() {
    let served = served(MemoryDoor::default()).await;
    let batch = RecordBatch::try_from_iter([("k", Arc::new(Int64Array::from_iter(0..500_000)) as _)]).unwrap();
    let request = load_request(batch.schema());
    let pieces = [batch.slice(0, 3), batch.slice(3, 499_997)].map(Ok);
    assert_eq!(served.client.load(request.clone(), stream::iter(pieces).boxed()).await.unwrap(), loaded());
    let empty = served.client.load(request.clone(), stream::empty().boxed()).await;
    assert_eq!(empty.unwrap(), loaded());

    let loads = served.door.loads.lock().unwrap();
    let (arrived, rows) = &loads[0];
    assert_eq!(arrived, &request);
    assert_eq!(arrow::compute::concat_batches(&batch.schema(), rows.as_ref().unwrap()).unwrap(), batch);
    assert_eq!(loads[1].1, Ok(vec![]));
}

#[tokio::test]
async fn runs_are_merged_within_bounds() {
    let served = served(MemoryDoor::default()).await;
    let request = |runs: u64| MergeRuns { into: load_request(schema()), loads: (0..runs).map(LoadId).collect() };
    let most = request(MERGED_MAX as u64);
    assert_eq!(served.client.merge_runs(most.clone()).await.unwrap(), loaded());
    let fault = served.client.merge_runs(request(MERGED_MAX as u64 + 1)).await.unwrap_err();
    assert!(fault.blame == Blame::User && fault.message.contains("1025 runs"), "{fault:?}");
    assert_eq!(*served.door.merges.lock().unwrap(), [most]);
}

#[tokio::test]
async fn rows_are_marked_by_a_plan_of_any_bytes() {
    let served = served(MemoryDoor::default()).await;
    let plan = (0..=255).chain([0, 255, 16]).collect();
    let request = MarkRun { into: load_request(schema()), load: LoadId(4), plan, time_zone: Some("Europe/Oslo".to_owned()) };
    assert_eq!(served.client.mark_run(request.clone()).await.unwrap(), marked());
    assert_eq!(*served.door.marks.lock().unwrap(), [request]);
}

#[tokio::test]
async fn a_load_whose_rows_fail_is_broken_off_at_the_drive() {
    let served = served(MemoryDoor::default()).await;
    let batch = RecordBatch::try_from_iter([("k", Arc::new(Int64Array::from_iter(0..5)) as _)]).unwrap();
    let fault = Fault::new(Blame::User, "line 7 of a.csv is not a number").hint("look at it");
    let rows = stream::iter([Ok(batch.clone()), Err(fault.clone())]).boxed();
    assert_eq!(served.client.load(load_request(batch.schema()), rows).await.unwrap_err(), fault);
    let loads = served.door.loads.lock().unwrap();
    let (_, rows) = &loads[0];
    assert_eq!(rows.as_ref().unwrap_err().blame, Blame::Cancelled, "rows without an end must not look like all rows");
}

#[tokio::test]
async fn a_load_of_other_columns_than_announced_is_refused() {
    let served = served(MemoryDoor::default()).await;
    let batch = RecordBatch::try_from_iter([("k", Arc::new(Int64Array::from_iter(0..5)) as _)]).unwrap();
    let refused = served.client.load(load_request(schema()), stream::iter([Ok(batch)]).boxed()).await.unwrap_err();
    assert_eq!(refused.blame, Blame::User);
}
