//! Sub-plans that say of themselves what was executed of them: read and written here by nothing but the published schema
//! (`docs/reference/annotation.proto`), as another engine would, and taken up by drives and arrays where others stopped.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{SchemaRef, UInt64Type};
use futures::StreamExt;
use pithead_door::{Door, Event, OpenRequest, PlanBytes, SessionOptions, SlicePart};
use pithead_e2e::tpch::spec;
use pithead_e2e::{DriveProcess, bag_difference, block_on, collect, load, pithead, table};
use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_host::{LoadSpec, Session};
use pithead_model::{Blame, DatasetName, Fault, Level, Reply};
use pithead_wire::FlightDoor;
use prost::Message;
use serde_json::{Value, json};
use tempfile::TempDir;

use schema::{AdvancedExtension, Any, Executed, Plan, Progress, Rounds, Run, Span};

/// More than any limit that a host or drive has for a peer that is silent.
const LIMIT: Duration = Duration::from_secs(90);
const ROWS: &str = "SELECT l_orderkey, l_comment FROM lineitem WHERE l_quantity < 20";
const GROUPS: &str = "SELECT l_returnflag, sum(l_quantity) FROM lineitem WHERE l_orderkey % 3 = 0 GROUP BY l_returnflag";
const PROGRESS: &str = "type.googleapis.com/pithead.annotation.v1.Progress";
const ROUNDS: &str = "type.googleapis.com/pithead.annotation.v1.Rounds";

/// As far as it is needed, the published schema, and what Substrait has around it.
mod schema {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Plan {
        #[prost(bytes = "vec", repeated, tag = "3")]
        pub relations: Vec<Vec<u8>>,
        #[prost(message, optional, tag = "4")]
        pub advanced_extensions: Option<AdvancedExtension>,
        #[prost(string, repeated, tag = "5")]
        pub expected_type_urls: Vec<String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct AdvancedExtension {
        #[prost(message, repeated, tag = "1")]
        pub optimization: Vec<Any>,
        #[prost(message, optional, tag = "2")]
        pub enhancement: Option<Any>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Any {
        #[prost(string, tag = "1")]
        pub type_url: String,
        #[prost(bytes = "vec", tag = "2")]
        pub value: Vec<u8>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Progress {
        #[prost(string, tag = "1")]
        pub domain: String,
        #[prost(string, tag = "2")]
        pub dataset: String,
        #[prost(fixed64, tag = "3")]
        pub incarnation: u64,
        #[prost(uint64, tag = "4")]
        pub manifest_version: u64,
        #[prost(uint32, tag = "5")]
        pub partition: u32,
        #[prost(message, repeated, tag = "6")]
        pub runs: Vec<Run>,
        #[prost(bool, tag = "7")]
        pub whole_partition: bool,
        #[prost(message, repeated, tag = "8")]
        pub executed: Vec<Executed>,
        #[prost(message, repeated, tag = "9")]
        pub left: Vec<Span>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Run {
        #[prost(fixed64, tag = "1")]
        pub load: u64,
        #[prost(uint32, tag = "2")]
        pub slices: u32,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Span {
        #[prost(uint32, tag = "1")]
        pub first: u32,
        #[prost(uint32, tag = "2")]
        pub count: u32,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Executed {
        #[prost(int32, optional, tag = "1")]
        pub level: Option<i32>,
        #[prost(message, repeated, tag = "2")]
        pub slices: Vec<Span>,
        #[prost(uint32, repeated, tag = "3")]
        pub operators: Vec<u32>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Rounds {
        #[prost(string, tag = "1")]
        pub cse: String,
        #[prost(message, repeated, tag = "2")]
        pub rounds: Vec<Round>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Round {
        #[prost(message, repeated, tag = "3")]
        pub slices: Vec<Span>,
        #[prost(uint64, tag = "7")]
        pub rows_out: u64,
    }
}

async fn attach(addresses: Vec<String>) -> Engine {
    let connected = tokio::time::timeout(LIMIT, connect(&Target::Drives(addresses), &EmbedOptions::default())).await;
    connected.expect("an answer within the limit").unwrap_or_else(|fault| panic!("connecting: {fault}"))
}

async fn load_lineitem(engine: &Engine, partitions: usize, copies: usize) {
    let spec = LoadSpec { partitions: Some(partitions), copies: Some(copies), ..spec("lineitem", "vortex") };
    load(engine, spec).await.unwrap_or_else(|fault| panic!("loading: {fault}"));
}

async fn batches(session: &Session, statement: &str) -> (SchemaRef, Vec<RecordBatch>) {
    let mut answer = session.run(statement).await.unwrap_or_else(|fault| panic!("{statement}: {fault}"));
    let mut batches = Vec::new();
    while let Some(batch) = answer.rows.next().await {
        batches.push(batch.unwrap_or_else(|fault| panic!("{statement}: {fault}")));
    }
    (answer.schema, batches)
}

/// The plans that a statement answers with, and how many slices of each are done.
async fn plans(session: &Session, statement: &str) -> Vec<(Vec<u8>, u64)> {
    let (_, batches) = batches(session, statement).await;
    let rows = batches.iter().flat_map(|batch| {
        let plans = batch.column_by_name("plan").expect("a column of plans").as_binary::<i32>();
        let done = batch.column_by_name("done").expect("a column of counts").as_primitive::<UInt64Type>();
        (0..batch.num_rows()).map(move |row| {
            assert!(plans.is_valid(row), "Substrait carries it");
            (plans.value(row).to_vec(), done.value(row))
        })
    });
    rows.collect()
}

fn read(plan: &[u8]) -> (Plan, Progress, Rounds) {
    let plan = Plan::decode(plan).expect("it is protobuf");
    let extension = plan.advanced_extensions.clone().expect("it is annotated");
    let enhancement = extension.enhancement.expect("what is done must not be ignored");
    assert_eq!(enhancement.type_url, PROGRESS);
    let cost = extension.optimization.iter().find(|any| any.type_url == ROUNDS).expect("it has cost something");
    let (progress, rounds) = (Progress::decode(&*enhancement.value), Rounds::decode(&*cost.value));
    (plan, progress.expect("as published"), rounds.expect("as published"))
}

fn count(spans: &[Span]) -> u32 {
    spans.iter().map(|span| span.count).sum()
}

#[test]
fn a_plan_says_what_was_executed_of_it() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let processes = DriveProcess::start_many(directory.path(), 2, &[]);
        let engine = attach(processes.iter().map(|process| process.address().to_owned()).collect()).await;
        load_lineitem(&engine, 2, 1).await;
        let session = engine.host.session();
        collect(&session, "SET pithead.summary_cache = off").await.unwrap();
        for level in [3, 2, 0] {
            collect(&session, &format!("SET pithead.level = {level}")).await.unwrap();
            let plans = plans(&session, &format!("EXPLAIN (ANALYZE, FORMAT SUBSTRAIT) {GROUPS}")).await;
            assert_eq!(plans.len(), 2, "one a partition");
            for (number, (plan, done)) in (0..).zip(&plans) {
                let (plan, progress, rounds) = read(plan);
                assert_eq!(plan.expected_type_urls, [PROGRESS, ROUNDS]);
                assert_eq!((progress.domain.as_str(), progress.dataset.as_str()), ("main", "lineitem"));
                assert_eq!((progress.partition, progress.left.len(), progress.whole_partition), (number, 0, false));
                let slices: u32 = progress.runs.iter().map(|run| run.slices).sum();
                let executed: u32 = progress.executed.iter().map(|executed| count(&executed.slices)).sum();
                assert!(slices > 10 && executed == slices && *done == u64::from(slices), "{progress:?}");
                assert_eq!(rounds.rounds.iter().map(|round| count(&round.slices)).sum::<u32>(), slices);
                assert!(processes.iter().any(|process| process.address() == rounds.cse), "{rounds:?}");
                for executed in &progress.executed {
                    assert_eq!(executed.level, Some(level), "{progress:?}");
                    // An aggregate over a scan with a filter; level 2 is the scan with the filter, wherever that is written.
                    let expected = [0..=0, 0..=0, 1..=2, 2..=9][level as usize].clone();
                    assert!(expected.contains(&executed.operators.len()), "{progress:?}");
                }
            }
        }
        // Rows that a filter lets through are counted by the rounds, too.
        collect(&session, "SET pithead.level = 3").await.unwrap();
        let expected = collect(&session, &format!("SELECT count(*) FROM ({ROWS})")).await.unwrap().rows;
        let plans = plans(&session, &format!("EXPLAIN ANALYZE FORMAT SUBSTRAIT {ROWS}")).await;
        let rows: u64 = plans.iter().flat_map(|(plan, _)| read(plan).2.rounds).map(|round| round.rows_out).sum();
        assert_eq!(rows.to_string(), expected[0][0]);
    });
}

/// A session that is begun by one drive or array, stopped, and gone on with by another, with an annotation that is made by hand.
#[test]
fn another_drive_goes_on_with_an_annotated_plan() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let processes = DriveProcess::start_many(directory.path(), 2, &[]);
        let engine = attach(processes.iter().map(|process| process.address().to_owned()).collect()).await;
        load_lineitem(&engine, 1, 2).await;
        let doors = [0, 1].map(|number: usize| FlightDoor::connect(processes[number].address()).unwrap());
        goes_on(&engine, &doors[0], &doors[1]).await;
    });
}

#[test]
fn an_array_goes_on_with_an_annotated_plan() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let drives = DriveProcess::start_many(directory.path(), 2, &[]);
        let array = DriveProcess::start_array(&directory.path().join("array"), &drives, &[]);
        let engine = attach(vec![array.address().to_owned()]).await;
        load_lineitem(&engine, 1, 1).await;
        let door = FlightDoor::connect(array.address()).unwrap();
        goes_on(&engine, &door, &door).await;
    });
}

#[test]
fn plans_are_written_to_a_folder_and_shown() {
    let directory = TempDir::new().unwrap();
    let run = |arguments: &[&str]| -> String {
        let mut command = Command::new(pithead());
        command.args(arguments).env("PITHEAD_DATA", directory.path().join("data")).env_remove("PITHEAD_DRIVES");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["sql", "--create", "-q", "-c", "CREATE TABLE t AS SELECT value, value % 7 AS a FROM range(100000)"]);
    let plans = directory.path().join("plans");
    let statements = "SELECT a, count(*) FROM t GROUP BY a; SELECT 1; EXPLAIN SELECT sum(value) FROM t WHERE a > 3";
    run(&["sql", "-q", "--plans", &plans.display().to_string(), "-c", statements]);
    let of = |name: &str| plans.join(name).display().to_string();
    let told: Value =
        serde_json::from_str(&run(&["inspect", "plan", &of("1-sub-plan-1-partition-0.binpb"), "--json"])).unwrap();
    assert_eq!((&told["domain"], &told["dataset"], &told["left"]), (&json!("main"), &json!("t"), &json!([])));
    assert_eq!(told["executed"][0]["slices"], json!([[0, told["runs"][0]["slices"]]]), "{told}");
    let shown = run(&["inspect", "plan", &of("1-sub-plan-1-partition-0.binpb")]);
    assert!(shown.contains("3, whole") && shown.contains("main.t"), "{shown}");
    // What was only planned is a plan without an annotation; a statement without sub-plans has no number.
    assert!(run(&["inspect", "plan", &of("2-sub-plan-1.binpb")]).contains("no annotation"));
}

async fn goes_on(engine: &Engine, first: &FlightDoor, second: &FlightDoor) {
    let session = engine.host.session();
    let planned = plans(&session, &format!("EXPLAIN FORMAT SUBSTRAIT {ROWS}")).await;
    let [(plan, 0)] = planned.as_slice() else { panic!("one sub-plan that has not run") };
    assert_eq!(Plan::decode(plan.as_slice()).unwrap().advanced_extensions, None);
    let (schema, rows) = batches(&session, ROWS).await;
    let expected = table(&schema, &rows);
    let request = request(engine, plan, &schema).await;
    let part = &request.parts[0];
    let slices: u32 = part.runs.iter().map(|(_, slices)| slices).sum();

    let begun = run(first, request.clone(), slices as usize / 2).await.unwrap();
    assert!(begun.slices.len() >= slices as usize / 2 && begun.slices.len() < slices as usize, "{:?}", begun.slices);
    let spans = |is_done: bool| -> Vec<Span> {
        let slices = (0..slices).filter(|slice| begun.slices.contains(slice) == is_done);
        slices.map(|first| Span { first, count: 1 }).collect()
    };
    let progress = Progress {
        domain: part.name.domain.clone(),
        dataset: part.name.dataset.clone(),
        incarnation: part.dataset.0,
        manifest_version: request.manifest_version,
        partition: 0,
        runs: part.runs.iter().map(|(load, slices)| Run { load: load.0, slices: *slices }).collect(),
        whole_partition: false,
        executed: vec![Executed { level: Some(3), slices: spans(true), operators: vec![] }],
        left: spans(false),
    };
    let annotated = |progress: &Progress| with_plan(&request, annotate(plan, PROGRESS, progress));
    let rest = run(second, annotated(&progress), usize::MAX).await.unwrap();
    assert!(rest.slices.iter().all(|slice| !begun.slices.contains(slice)), "a slice twice: {:?}", rest.slices);
    assert_eq!(begun.slices.len() + rest.slices.len(), slices as usize);
    let both: Vec<RecordBatch> = begun.batches.into_iter().chain(rest.batches).collect();
    assert_eq!(bag_difference(&table(&schema, &both), &expected), None);

    let refused = async |request: OpenRequest, blame: Blame, part: &str| {
        let fault = run(second, request, usize::MAX).await.map(|ran| ran.slices).expect_err(part);
        assert!(fault.blame == blame && fault.message.contains(part), "{part}: {}: {fault}", fault.blame);
    };
    let with = |change: &dyn Fn(&mut Progress)| {
        let mut changed = progress.clone();
        change(&mut changed);
        annotated(&changed)
    };
    refused(with(&|lie| lie.dataset = "orders".to_owned()), Blame::User, "main.orders").await;
    refused(with(&|lie| lie.partition = 1), Blame::User, "partition").await;
    refused(with(&|lie| lie.runs[0].slices += 1), Blame::User, "runs").await;
    refused(with(&|lie| lie.left.push(Span { first: slices, count: 1 })), Blame::User, "slices from").await;
    refused(with(&|lie| lie.executed[0].slices.push(lie.left[0].clone())), Blame::User, "twice").await;
    refused(with(&|lie| lie.left.truncate(1)), Blame::User, "neither").await;
    let foreign = annotate(plan, "example.org/their.Progress", &progress);
    refused(with_plan(&request, foreign), Blame::Unsupported, "their.Progress").await;
}

fn annotate(plan: &[u8], type_url: &str, progress: &Progress) -> Vec<u8> {
    let enhancement = Some(Any { type_url: type_url.to_owned(), value: progress.encode_to_vec() });
    let advanced_extensions = Some(AdvancedExtension { optimization: vec![], enhancement });
    [plan, &Plan { advanced_extensions, ..Plan::default() }.encode_to_vec()].concat()
}

fn with_plan(request: &OpenRequest, plan: Vec<u8>) -> OpenRequest {
    OpenRequest { plan: PlanBytes::Substrait(plan.into()), ..request.clone() }
}

/// What a host would send for the first partition.
async fn request(engine: &Engine, plan: &[u8], schema: &SchemaRef) -> OpenRequest {
    let name: DatasetName = "lineitem".parse().unwrap();
    let snapshot = engine.host.fleet().snapshot().await.unwrap();
    let (manifest, dataset) = snapshot.dataset(&name).expect("it is loaded");
    OpenRequest {
        plan: PlanBytes::Substrait(plan.to_vec().into()),
        manifest_version: manifest.version,
        parts: vec![SlicePart {
            name,
            dataset: dataset.id,
            schema: Arc::clone(&dataset.schema),
            partition: 0,
            runs: dataset.partitions[0].runs.iter().map(|run| (run.load, run.slices)).collect(),
            sort: dataset.sort.clone(),
            passing: None,
        }],
        inputs: vec![],
        done: vec![],
        schema: Arc::clone(schema),
        whole_partition: false,
        options: SessionOptions {
            adapt: Default::default(),
            threads: 1,
            memory: 64 << 20,
            batch_rows: 8_192,
            level_max: Level::Whole,
            zone_maps: true,
            sample: None,
            time_zone: None,
            now_ns: 0,
            extensions: vec![],
            host: 0,
        },
    }
}

/// What came of closed rounds.
struct Ran {
    batches: Vec<RecordBatch>,
    slices: Vec<u32>,
}

/// Runs a session until so many slices are done, or to its end.
async fn run(door: &FlightDoor, request: OpenRequest, slices_max: usize) -> Result<Ran, Fault> {
    let Reply::Granted(granted) = door.open(request).await?.reply else { panic!("nobody else asks") };
    let mut events = door.get(granted.session).await?;
    let (mut ran, mut open) = (Ran { batches: vec![], slices: vec![] }, Vec::new());
    while ran.slices.len() < slices_max {
        match events.next().await {
            None | Some(Ok(Event::Finished { .. })) => break,
            Some(Ok(Event::Rows { round, batch, .. })) => open.push((round, batch)),
            Some(Ok(Event::Closed { annotation, .. })) => {
                let (closed, others): (Vec<_>, Vec<_>) = open.into_iter().partition(|(round, _)| *round == annotation.round);
                ran.batches.extend(closed.into_iter().map(|(_, batch)| batch));
                ran.slices.extend(annotation.slices.iter().flat_map(|span| span.first..span.first + span.count));
                open = others;
            }
            Some(Ok(other)) => panic!("slices are taken whole: {other:?}"),
            Some(Err(fault)) => return Err(fault),
        }
    }
    drop(events);
    door.close(granted.session).await?;
    Ok(ran)
}
