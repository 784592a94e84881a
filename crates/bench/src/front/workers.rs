//! TPC-H with all of its work left to the host: by one host alone, and by hosts that divide it among workers, where that host and each
//! worker have half a core.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Instant;

use arrow::array::{AsArray, RecordBatch};
use pithead_embed::{EmbedOptions, Target, connect};
use pithead_model::Fault;
use pithead_observe::ProcessUse;
use serde::Serialize;

use super::flight::{Client, asked, client};
use super::half::Half;
use super::serving::{Process, Serving};
use crate::QUERIES;
use crate::answers::difference;
use crate::demo::{Layout, load};
use crate::drives::DriveProcesses;
use crate::report::{ratio, seconds, table};
use crate::tables::generate;
use crate::timing::Spread;

/// Queries of large joins and aggregates: what is left to the host is most of their work.
const HEAVY: [&str; 8] = ["Q3", "Q5", "Q7", "Q9", "Q10", "Q13", "Q18", "Q21"];
/// How many workers hosts have. With one, nothing is divided: the host alone stands for that. The drives are as many as the most, so that
/// each worker has a partition of its own.
const COUNTS: [usize; 2] = [2, 4];
const DRIVES: usize = 4;
/// Drives send columns, the order of joins is the same everywhere, and nothing that was kept of earlier runs answers.
const SETTINGS: [(&str, &str); 4] = [
    ("pithead.pushdown", "off"),
    ("pithead.join_filters", "off"),
    ("pithead.summary_cache", "off"),
    ("pithead.slice_cache", "0"),
];

/// What was measured.
#[derive(Debug, Serialize)]
pub(super) struct Divided {
    pub(super) scale: f64,
    pub(super) cores: usize,
    pub(super) queries: Vec<DividedQuery>,
}

/// One query.
#[derive(Debug, Serialize)]
pub(super) struct DividedQuery {
    pub(super) name: &'static str,
    /// By a host alone that has half a core.
    pub(super) alone: Spread,
    /// Seconds of CPU of the host alone and of the drives, of the run in the middle.
    pub(super) cpu_seconds: f64,
    /// By hosts with 2 and 4 workers of half a core each.
    pub(super) among: Vec<Among>,
}

/// What one number of workers took.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Among {
    pub(super) workers: usize,
    /// Whether the query is divided at all. If not, its host runs it, with all that the machine has.
    pub(super) is_divided: bool,
    pub(super) seconds: Spread,
    /// Seconds of the host alone over these, run by run.
    pub(super) gain: Spread,
}

impl Divided {
    /// How much sooner all queries that are divided among so many workers are there: the sum of the host's seconds over that of theirs.
    pub(super) fn gain(&self, workers: usize) -> Option<f64> {
        let among = |query: &DividedQuery| query.among.iter().find(|it| it.workers == workers && it.is_divided).cloned();
        let both = self.queries.iter().filter_map(|query| Some((query.alone.median, among(query)?.seconds.median)));
        let (alone, far) = both.fold((0.0, 0.0), |sum, (alone, far)| (sum.0 + alone, sum.1 + far));
        (far > 0.0).then(|| alone / far)
    }

    /// The most that this gain can be here: with all work the same, and every core at work from the first to the last moment.
    pub(super) fn gain_max(&self) -> f64 {
        let (alone, cpu) =
            self.queries.iter().fold((0.0, 0.0), |sum, query| (sum.0 + query.alone.median, sum.1 + query.cpu_seconds));
        alone * self.cores as f64 / cpu
    }

    /// A table, and what it means.
    pub(super) fn text(&self) -> String {
        let header = ["TPC-H", "alone s", "CPU s", "2 workers s", "gain", "4 workers s", "gain"];
        let spread = |it: Spread, text: fn(f64) -> String| format!("{} ({}–{})", text(it.median), text(it.min), text(it.max));
        let among = |it: &Among| match it.is_divided {
            true => [spread(it.seconds, seconds), spread(it.gain, ratio)],
            false => ["not divided".to_owned(), "–".to_owned()],
        };
        let row = |query: &DividedQuery| {
            let first = [query.name.to_owned(), spread(query.alone, seconds), seconds(query.cpu_seconds)];
            first.into_iter().chain(query.among.iter().flat_map(among)).collect()
        };
        let rows: Vec<Vec<String>> = self.queries.iter().map(row).collect();
        let told = format!(
            "scale {}, push-down off; the host alone and each worker have half a core, drives and the hosts of workers what is left.\n\
             gain: seconds of the host alone over those with workers, median (min–max). Four workers want two cores, and drives and\n\
             their host take theirs from the same {}: from CPU seconds, the gain can be {} at most here.",
            self.scale,
            self.cores,
            ratio(self.gain_max())
        );
        table(&header, &rows) + "\n" + &told
    }
}

/// Drives, a host alone, workers, and hosts that have 2 and 4 of them.
struct Fleet {
    /// In the order in which they are to end.
    hosts: Vec<(usize, Serving)>,
    alone: Serving,
    _workers: Vec<Process>,
    drives: DriveProcesses,
    _halves: Vec<Half>,
}

impl Fleet {
    async fn start(directory: &Path, tables: &Path) -> Result<Fleet, Fault> {
        let halves = (0..=DRIVES).map(|number| Half::new(&number.to_string())).collect::<Result<Vec<_>, _>>()?;
        let drives = DriveProcesses::start(directory, DRIVES, &[])?;
        let addresses = drives.addresses();
        let engine = connect(&Target::Drives(addresses.clone()), &EmbedOptions::default()).await?;
        let loaded = load(&engine, tables, Layout::Default).await;
        engine.shutdown().await;
        loaded?;
        let at = ["--threads".to_owned(), "1".to_owned(), "--drives".to_owned(), addresses.join(",")];
        let at: Vec<&OsStr> = at.iter().map(AsRef::as_ref).collect();
        let (mut workers, mut places) = (Vec::new(), Vec::new());
        for half in halves.iter().skip(1) {
            let (worker, address) = Process::start(&[&["--worker".as_ref()], at.as_slice()].concat(), |_| {})?;
            half.take(worker.id())?;
            workers.push(worker);
            places.push(address);
        }
        let host = |count: &usize| {
            let places = places[..*count].join(",");
            Ok((*count, Serving::start_with(&[at.as_slice(), &["--workers".as_ref(), places.as_ref()]].concat())?))
        };
        let hosts = COUNTS.iter().map(host).collect::<Result<Vec<_>, Fault>>()?;
        let alone = Serving::start_with(&at)?;
        halves[0].take(alone.id())?;
        Ok(Fleet { hosts, alone, _workers: workers, drives, _halves: halves })
    }

    /// CPU of the host alone and of the drives so far.
    fn cpu_seconds(&self) -> f64 {
        let processes = self.drives.ids().into_iter().chain([self.alone.id()]);
        processes.map(|process| ProcessUse::of_process(process).cpu_seconds).sum()
    }
}

/// One that is asked, and what it took so far.
struct Way {
    workers: Option<usize>,
    client: Client,
    seconds: Vec<f64>,
}

impl Way {
    async fn new(workers: Option<usize>, serving: &Serving) -> Result<Way, Fault> {
        let mut client = client(&serving.flight).await?;
        SETTINGS.iter().for_each(|(name, value)| client.set_header(*name, *value));
        Ok(Way { workers, client, seconds: vec![] })
    }

    async fn is_divided(&mut self, sql: &str) -> Result<bool, Fault> {
        let Some(workers) = self.workers else { return Ok(false) };
        let plan = asked(&mut self.client, &format!("EXPLAIN {sql}")).await?;
        let lines = plan.iter().flat_map(|batch| batch.column(0).as_string::<i32>().iter().flatten());
        Ok(lines.into_iter().any(|line| line.contains(&format!("among {workers} workers"))))
    }
}

/// Measures; none, with a line that says why, where this machine cannot give half a core.
pub(super) async fn divided(directory: &Path, tables: &Path, (scale, runs): (f64, usize)) -> Result<Option<Divided>, Fault> {
    if let Err(fault) = Half::new("try") {
        println!("no workers: half a core cannot be given to a process, which takes root and cgroups: {}", fault.message);
        return Ok(None);
    }
    generate(tables, scale)?;
    let fleet = Fleet::start(directory, tables).await?;
    let mut ways = vec![Way::new(None, &fleet.alone).await?];
    for (workers, host) in &fleet.hosts {
        ways.push(Way::new(Some(*workers), host).await?);
    }
    let mut queries = Vec::new();
    for query in QUERIES.iter().filter(|query| HEAVY.contains(&query.name)) {
        let measured = measured(&fleet, &mut ways, query.statement(), runs).await.map_err(|fault| fault.at(query.name))?;
        queries.push(DividedQuery { name: query.name, ..measured });
    }
    drop(ways);
    let Fleet { hosts, alone, _workers: workers, drives, _halves: halves } = fleet;
    drop((hosts, alone, workers));
    drives.stop()?;
    drop(halves);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Some(Divided { scale, cores, queries }))
}

/// Asks all in turns. The first turn does not count, but its answers have to be the same.
async fn measured(fleet: &Fleet, ways: &mut [Way], sql: &str, runs: usize) -> Result<DividedQuery, Fault> {
    let (mut first, mut cpu): (Option<Vec<RecordBatch>>, Vec<f64>) = (None, vec![]);
    let mut are_divided = Vec::new();
    for way in ways.iter_mut() {
        way.seconds.clear();
        let answer = asked(&mut way.client, sql).await?;
        match &first {
            None => first = Some(answer),
            Some(first) => {
                if let Some(what) = difference(first, &answer)? {
                    return Err(Fault::bug(format!("another answer among {:?} workers: {what}", way.workers)));
                }
            }
        }
        are_divided.push(way.is_divided(sql).await?);
    }
    for _ in 0..runs {
        for way in ways.iter_mut() {
            let (started, before) = (Instant::now(), fleet.cpu_seconds());
            asked(&mut way.client, sql).await?;
            way.seconds.push(started.elapsed().as_secs_f64());
            if way.workers.is_none() {
                cpu.push(fleet.cpu_seconds() - before);
            }
        }
    }
    let alone = &ways[0].seconds;
    let among = ways.iter().zip(are_divided).filter_map(|(way, is_divided)| {
        let gain = alone.iter().zip(&way.seconds).map(|(alone, far)| alone / far).collect();
        let workers = way.workers?;
        Some(Among { workers, is_divided, seconds: Spread::of(way.seconds.clone()), gain: Spread::of(gain) })
    });
    let among = among.collect();
    Ok(DividedQuery { name: "", alone: Spread::of(alone.clone()), cpu_seconds: Spread::of(cpu).median, among })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_are_of_queries_that_are_divided() {
        let flat = |seconds: f64| Spread::of(vec![seconds]);
        let among = |workers, is_divided, seconds: f64| Among { workers, is_divided, seconds: flat(seconds), gain: flat(1.0) };
        let query = |alone, among| DividedQuery { name: "Q3", alone: flat(alone), cpu_seconds: 2.0, among };
        let divided = Divided {
            scale: 1.0,
            cores: 2,
            queries: vec![
                query(8.0, vec![among(2, false, 1.0), among(4, true, 2.0)]),
                query(4.0, vec![among(2, false, 1.0), among(4, true, 2.0)]),
                query(9.0, vec![among(2, false, 1.0), among(4, false, 9.0)]),
            ],
        };
        assert_eq!((divided.gain(2), divided.gain(4), divided.gain_max()), (None, Some(3.0), 7.0));
        assert!(divided.text().contains("not divided") && divided.text().contains("at most"));
    }
}
