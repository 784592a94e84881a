//! What a whole drive makes of OPEN with its sub-plan and of a run that is copied to it, and a whole host of what a drive says.

mod lying;
mod rig;

use std::sync::{Arc, LazyLock};

use futures::{StreamExt, stream};
use pithead_door::{Discard, Door, Loads, OpenRequest, PlanBytes, RunPiece};
use pithead_fuzz::{Bound, Outcome, Parts, Run, Seed, Target};
use pithead_model::{DatasetId, Fault, LoadId, Manifest, SliceKey};
use pithead_slice::{HEADER_BYTES, seal};
use pithead_wire::fuzz;

use crate::annotations::half_done;
use crate::link::manifest as some_manifest;
use crate::{outcome, refused};
use rig::DRIVE_MEMORY;
pub use rig::Rig;

pub const NAMES: [&str; 5] = ["drive_plan", "drive_open", "drive_run", "host_events", "host_manifest"];

/// The drive's memory, its caches, and what the engine does not account for.
const BOUND: Bound = Bound { bytes: 192 << 20, factor: 64 };
/// Their sub-plans are what is sent to drives.
const QUERIES: [&str; 14] = [
    "SELECT * FROM t",
    "SELECT n, s FROM t WHERE f > 0.5 AND s LIKE 'text 1%' AND n BETWEEN 3 AND 250 OR d < DATE '1970-02-01'",
    "SELECT s, count(*), sum(n), avg(f), min(d), max(m), stddev(f), count(DISTINCT g) FROM t GROUP BY s",
    "SELECT g, sum(m) AS total FROM t GROUP BY g HAVING sum(m) > 10 ORDER BY total DESC LIMIT 3",
    "SELECT t.n, u.s FROM t JOIN u ON t.n = u.n WHERE u.f < 0.3",
    "SELECT count(*) FROM t WHERE n IN (SELECT n FROM u WHERE s = 'text 3') AND g NOT IN (1, 2, 5, 7)",
    "SELECT t.g, u.g, count(*) FROM t LEFT JOIN u ON t.n = u.n AND t.g < u.g GROUP BY t.g, u.g",
    "SELECT CASE WHEN n % 2 = 0 THEN 'even' ELSE upper(s) END AS p, extract(year FROM d), m * 2 + 1 FROM t WHERE NOT (f IS NULL)",
    "SELECT n FROM t ORDER BY f DESC, n LIMIT 7",
    "SELECT DISTINCT g, s FROM t WHERE length(s) > 5 AND substr(s, 1, 4) = 'text'",
    "SELECT sum(CASE WHEN s LIKE '%9' THEN m ELSE 0 END) / sum(m) FROM t WHERE d >= DATE '1970-01-10'",
    "SELECT s FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.n = t.n AND u.g <> t.g)",
    "SELECT var_pop(f), corr(f, CAST(n AS DOUBLE)), bit_and(n), bool_or(n > 3) FROM t WHERE regexp_like(s, 't.x')",
    "SELECT * FROM nested WHERE \"0 Int64\" IS NOT NULL",
];

pub fn targets(rig: &Arc<LazyLock<Arc<Rig>>>) -> Vec<Target> {
    let rig: &Arc<Rig> = rig;
    let opens = recorded(rig);
    let open_seeds: Vec<Seed> = opens
        .iter()
        .enumerate()
        .map(|(number, open)| Seed::valid(format!("{number}"), fuzz::open_bytes(open).unwrap()))
        .collect();
    let on = |run: fn(&Rig, &[u8]) -> Outcome| -> Run {
        let rig = Arc::clone(rig);
        Box::new(move |bytes| run(&rig, bytes))
    };
    let target = |name, parts, seeds, run| Target { name, seeds, parts, bound: BOUND, run };
    let messages = || Parts { split: fuzz::split_messages, join: fuzz::join_messages, piece: fuzz::MESSAGE_PARTS };
    let plans = opens.iter().enumerate().filter_map(|(number, open)| match &open.plan {
        PlanBytes::Substrait(plan) => Some(Seed::valid(format!("{number}"), [&[number as u8], &plan[..]].concat())),
        PlanBytes::Scan { .. } => None,
    });
    let half_done = opens.iter().enumerate().filter_map(|(number, open)| {
        let plan = half_done(open)?;
        Some(Seed::valid(format!("{number}, half done"), [&[number as u8], &plan[..]].concat()))
    });
    let plans = plans.chain(half_done).chain(deep_plans(&opens)).collect();
    let planned = (Arc::clone(rig), opens.clone());
    let open_with: Run = Box::new(move |bytes| open_with(&planned.0, &planned.1, bytes));
    vec![
        target("drive_plan", PLAN, plans, open_with),
        target("drive_open", messages(), open_seeds, on(open)),
        target("drive_run", Parts { join: join_run, ..messages() }, run_seeds(rig), on(copied)),
        target("host_events", Parts { split: split_answer, join: join_answer, ..messages() }, answer_seeds(rig), on(answered)),
        target("host_manifest", Parts::WHOLE, manifest_seeds(rig), on(catalogued)),
    ]
}

/// The OPENs of all queries.
fn recorded(rig: &Rig) -> Vec<OpenRequest> {
    QUERIES.iter().for_each(|sql| assert_eq!(rig.query(sql), Ok(None), "{sql}"));
    let mut opens = rig.door.take_opens();
    // One at a time, whatever the machine.
    opens.iter_mut().for_each(|open| open.options.threads = 1);
    opens
}

fn open(rig: &Rig, bytes: &[u8]) -> Outcome {
    match fuzz::decode_open(bytes) {
        Ok(request) => rig.session(request),
        Err(fault) => refused(&fault),
    }
}

/// The number of an OPEN, and the sub-plan that takes the place of its own.
const PLAN: Parts = Parts {
    split: |bytes| bytes.split_first().map(|(open, plan)| vec![vec![*open], plan.to_vec()]),
    join: |parts| parts.concat(),
    piece: 2,
};

/// Plans that nest or repeat what protobuf lets them: relations, expressions, and very many arguments of one function.
fn deep_plans(opens: &[OpenRequest]) -> Vec<Seed> {
    let Some((number, plan)) = opens.iter().enumerate().find_map(|(number, open)| match &open.plan {
        PlanBytes::Substrait(plan) => Some((number as u8, plan)),
        PlanBytes::Scan { .. } => None,
    }) else {
        return Vec::new();
    };
    let seed = |name: &str, plan: Vec<u8>| Seed::hostile(name, [vec![number], plan].concat());
    // A message in its own first field, again and again.
    let mut nested = vec![0x08, 1];
    for _ in 0..2_000 {
        nested = [vec![0x0a], length(nested.len()), nested].concat();
    }
    vec![
        seed("nested", nested),
        seed("a relation a thousand times", plan.repeat(1_000)),
        seed("unknown fields", [&plan[..], &[0xfa, 0x7f, 2, 1, 1].repeat(200_000)].concat()),
    ]
}

fn length(mut bytes: usize) -> Vec<u8> {
    let mut varint = Vec::new();
    while bytes >= 0x80 {
        varint.push(bytes as u8 | 0x80);
        bytes >>= 7;
    }
    varint.push(bytes as u8);
    varint
}

fn open_with(rig: &Rig, opens: &[OpenRequest], bytes: &[u8]) -> Outcome {
    let Some((number, plan)) = bytes.split_first() else { return Outcome::Refused };
    match opens.get(usize::from(*number)) {
        Some(open) => rig.session(OpenRequest { plan: PlanBytes::Substrait(plan.to_vec().into()), ..open.clone() }),
        None => Outcome::Refused,
    }
}

fn run_key(dataset: DatasetId, load: LoadId) -> SliceKey {
    SliceKey { name: "copies".parse().unwrap(), dataset, load, partition: 0, number: None }
}

/// The runs that the drive has, as it sends them.
fn run_seeds(rig: &Rig) -> Vec<Seed> {
    let seed = |name: &str, run: SliceKey| {
        let pieces = rig.runtime.block_on(async { rig.drive.read_run(run).await.unwrap().collect::<Vec<_>>().await });
        let pieces = pieces.into_iter().collect::<Result<Vec<RunPiece>, Fault>>().unwrap();
        Seed::valid(name, fuzz::run_bytes(pieces).unwrap())
    };
    let manifest = rig.door.manifest_now(&rig.runtime);
    let runs = manifest.datasets.iter().flat_map(|(name, dataset)| {
        let key = |run: &pithead_model::Run| SliceKey { name: name.parse().unwrap(), ..run_key(dataset.id, run.load) };
        dataset.partitions[0].runs.iter().map(move |run| (name, key(run)))
    });
    runs.map(|(name, key)| seed(name, key)).collect()
}

/// Lengths and slices' checksums hold.
fn join_run(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut parts = parts.to_vec();
    for message in parts.chunks_mut(fuzz::MESSAGE_PARTS) {
        let [_, _, body, mark] = message else { continue };
        if let Some(header) = body.first_chunk::<HEADER_BYTES>() {
            let number = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
            let long = |at: usize| (0..4).fold(0_u64, |long, word| long | u64::from(number(at + 2 * word)) << (16 * word));
            if header.starts_with(b"PITHSLCE") {
                *body = seal((number(10), number(12)), long(16), long(40) as u32, &body[HEADER_BYTES..]);
            }
        }
        if let Ok(mut value) = serde_json::from_slice::<serde_json::Value>(mark)
            && let Some(total) = value.pointer_mut("/piece/total")
        {
            *total = body.len().into();
            *mark = serde_json::to_vec(&value).unwrap_or_default();
        }
    }
    fuzz::join_messages(&parts)
}

/// A run that is copied to the drive, then read by a session, and deleted.
fn copied(rig: &Rig, bytes: &[u8]) -> Outcome {
    let pieces = match fuzz::decode_run(bytes) {
        Ok(pieces) => pieces,
        Err(fault) => return refused(&fault),
    };
    let run = run_key(DatasetId(9), LoadId(1));
    let discard = Discard { name: run.name.clone(), dataset: run.dataset, loads: Loads::All, partition: None, seen: None };
    let pieces = stream::iter(pieces.into_iter().map(Ok)).boxed();
    let (directory, summary) = match rig.runtime.block_on(async {
        rig.drive.write_run(run.clone(), pieces).await?;
        let directory = rig.drive.directory(run.clone()).await?;
        let summary = (directory.rows(), directory.bytes());
        Ok((directory, summary))
    }) {
        Ok(found) => found,
        Err(fault) => return refused(&fault),
    };
    let outcome_of = rig.session(scan(&run, &directory.schema, directory.slices.len() as u32));
    match rig.runtime.block_on(rig.drive.discard(discard)) {
        Err(fault) => refused(&fault),
        Ok(_) if summary.0 == 0 => Outcome::Wrong("a run without rows is kept".to_owned()),
        Ok(_) => outcome_of,
    }
}

fn scan(run: &SliceKey, schema: &arrow::datatypes::SchemaRef, slices: u32) -> OpenRequest {
    let columns = schema.fields().iter().map(|field| field.name().clone()).collect();
    OpenRequest {
        plan: PlanBytes::Scan { dataset: run.name.clone(), columns },
        manifest_version: 1,
        parts: vec![pithead_door::SlicePart {
            name: run.name.clone(),
            dataset: run.dataset,
            schema: Arc::clone(schema),
            partition: run.partition,
            runs: vec![(run.load, slices)],
            sort: vec![],
            passing: None,
        }],
        inputs: vec![],
        done: vec![],
        schema: Arc::clone(schema),
        whole_partition: false,
        options: pithead_door::SessionOptions {
            adapt: Default::default(),
            threads: 1,
            memory: DRIVE_MEMORY / 2,
            batch_rows: 8_192,
            level_max: pithead_model::Level::Whole,
            zone_maps: true,
            sample: None,
            time_zone: None,
            now_ns: 0,
            extensions: vec![],
            host: 7,
        },
    }
}

/// The query's number, then the messages.
fn split_answer(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (query, messages) = bytes.split_first()?;
    let mut parts = fuzz::split_messages(messages)?;
    parts.extend([vec![*query], vec![], vec![], vec![]]);
    Some(parts)
}

fn join_answer(parts: &[Vec<u8>]) -> Vec<u8> {
    let messages = parts.len().saturating_sub(fuzz::MESSAGE_PARTS);
    let query = parts.get(messages).and_then(|part| part.first()).copied().unwrap_or(0);
    [vec![query], fuzz::join_messages(&parts[..messages])].concat()
}

/// Each query's answer by the drive at each level, for those that ask the drive once.
fn answer_seeds(rig: &Rig) -> Vec<Seed> {
    let mut seeds = Vec::new();
    for ((number, sql), level) in QUERIES.iter().enumerate().flat_map(|query| ["3", "2", "1", "0"].map(|level| (query, level)))
    {
        rig.door.record_events(true);
        assert_eq!(rig.query_at(level, sql), Ok(None), "{sql}");
        rig.door.record_events(false);
        let mut answers = rig.door.take_events();
        if answers.len() == 1 {
            let events = fuzz::event_bytes(answers.remove(0)).unwrap();
            seeds.push(Seed::valid(format!("{number} at level {level}"), [vec![number as u8], events].concat()));
        }
    }
    rig.door.take_opens();
    seeds
}

/// A query that is answered so.
fn answered(rig: &Rig, bytes: &[u8]) -> Outcome {
    let Some((query, messages)) = bytes.split_first() else { return Outcome::Refused };
    let events = match fuzz::decode_events(messages) {
        Ok(events) => events,
        Err(fault) => return refused(&fault),
    };
    rig.door.answer_with(Some(events));
    let done = rig.query(QUERIES[usize::from(*query) % QUERIES.len()]);
    rig.door.answer_with(None);
    rig.door.take_opens();
    told(done)
}

fn told(done: Result<Option<String>, Fault>) -> Outcome {
    match done {
        Ok(None) => Outcome::Accepted,
        Ok(Some(wrong)) => Outcome::Wrong(wrong),
        Err(fault) => refused(&fault),
    }
}

fn manifest_seeds(rig: &Rig) -> Vec<Seed> {
    let json = |manifest: &Manifest| serde_json::to_vec(manifest).unwrap();
    let real = rig.door.manifest_now(&rig.runtime);
    let mut foreign = some_manifest();
    (foreign.domain, foreign.drives) = (real.domain.clone(), real.drives.clone());
    let partitions = foreign.datasets.values_mut().flat_map(|dataset| &mut dataset.partitions);
    partitions.for_each(|partition| partition.copies.clone_from(&real.drives));
    vec![Seed::valid("real", json(&real)), Seed::hostile("foreign", json(&foreign))]
}

/// Queries over what a drive says there is.
fn catalogued(rig: &Rig, bytes: &[u8]) -> Outcome {
    if let Err(fault) = fuzz::decode_answer("manifest", bytes) {
        return refused(&fault);
    }
    let Ok(manifest) = serde_json::from_slice::<Manifest>(bytes) else { return Outcome::Refused };
    rig.door.catalogue_with(Some(manifest));
    let listed = rig.runtime.block_on(rig.host.fleet().datasets());
    let mut done = outcome(listed);
    for sql in ["EXPLAIN SELECT t.g, sum(t.m) FROM t JOIN u ON t.n = u.n GROUP BY t.g", QUERIES[3], QUERIES[4]] {
        match told(rig.query(sql)) {
            wrong @ Outcome::Wrong(_) => done = wrong,
            Outcome::Refused if done == Outcome::Accepted => done = Outcome::Refused,
            _ => {}
        }
    }
    rig.door.catalogue_with(None);
    rig.door.take_opens();
    done
}
