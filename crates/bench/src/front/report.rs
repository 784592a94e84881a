//! What was measured of the protocols for clients, for people and for programs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::attached::{Attached, AttachedQuery, Figure, Way};
use super::flight::FlightFetch;
use super::points::Points;
use super::workers::Divided;
use super::{FLIGHT, PITHEAD, POSTGRES, POSTGRESQL};
use crate::machine::Machine;
use crate::report::{megabytes, ratio, seconds, table};
use crate::timing::Spread;

/// The way to fetch that counts: what a program does that knows nothing of us.
const PLAIN: &str = "psycopg";

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) runs: usize,
    /// Rows of the table that PostgreSQL has, too.
    pub(super) rows: u64,
    pub(super) clients: usize,
    /// Of each run of lookups.
    pub(super) seconds: u64,
    /// None: it was not found.
    pub(super) postgresql: Option<String>,
    pub(super) flight_fetch: FlightFetch,
    /// None: there is no Python with clients.
    pub(super) fetch: Option<Fetch>,
    pub(super) points: Vec<Points>,
    /// None: it was left out.
    pub(super) attached: Option<Attached>,
    /// None: it was left out, or this machine cannot give half a core.
    pub(super) workers: Option<Divided>,
    pub(super) summary: FrontSummary,
}

/// What was measured, where hosts with workers are the only part.
#[derive(Debug, Serialize)]
pub(super) struct WorkersReport {
    pub(super) machine: Machine,
    pub(super) runs: usize,
    pub(super) workers: Option<Divided>,
    pub(super) summary: WorkersSummary,
}

/// The figures of hosts with workers: seconds of a host alone that has half a core over those with workers of half a core each.
#[derive(Debug, Serialize)]
pub(super) struct WorkersSummary {
    workers_2_gain: Option<f64>,
    workers_4_gain: Option<f64>,
    /// The most that this machine could give.
    workers_gain_max: Option<f64>,
}

impl WorkersSummary {
    pub(super) fn of(divided: Option<&Divided>) -> WorkersSummary {
        let gain = |workers| divided.and_then(|divided| divided.gain(workers));
        WorkersSummary { workers_2_gain: gain(2), workers_4_gain: gain(4), workers_gain_max: divided.map(Divided::gain_max) }
    }
}

impl WorkersReport {
    /// The table, and the summary.
    pub(super) fn text(&self) -> String {
        let workers = self.workers.as_ref().map(Divided::text);
        let summary = serde_json::to_string_pretty(&self.summary).unwrap_or_default();
        [workers, Some(summary)].into_iter().flatten().collect::<Vec<_>>().join("\n\n")
    }
}

/// Fetches of all rows, by the client's way.
#[derive(Debug, Serialize)]
pub(super) struct Fetch {
    pub(super) clients: String,
    pub(super) ways: BTreeMap<String, FetchWay>,
}

/// One client's way, by both servers.
#[derive(Debug, Serialize)]
pub(super) struct FetchWay {
    pub(super) pithead_seconds: Spread,
    pub(super) postgresql_seconds: Option<Spread>,
}

/// What the script says.
#[derive(Debug, Deserialize)]
pub(super) struct FetchAnswer {
    version: String,
    pub(super) rows: u64,
    /// Of each run, by way and server.
    seconds: BTreeMap<String, BTreeMap<String, Vec<f64>>>,
    /// Ways by which the servers' answers were not the same.
    pub(super) different: Vec<String>,
}

/// The figures that later versions are compared by.
#[derive(Debug, Serialize)]
pub(super) struct FrontSummary {
    /// Bytes a second by Flight SQL over those of a bare stream of the same batches.
    fetch_share_of_flight: f64,
    /// Gigabytes of Arrow a second.
    flight_gb_s: f64,
    /// Seconds over PostgreSQL's, by psycopg.
    pg_fetch_vs_postgresql: Option<f64>,
    /// Lookups a second by PostgreSQL's protocol.
    pg_points_per_s: Option<f64>,
    pg_point_p99_ms: Option<f64>,
    /// The same over PostgreSQL's own.
    pg_point_vs_postgresql: Option<f64>,
    flight_points_per_s: Option<f64>,
    flight_point_p99_ms: Option<f64>,
    /// TPC-H by a DuckDB that has tables attached: bytes over those of Quack.
    bytes_vs_quack_attached: Option<f64>,
    seconds_vs_quack_attached: Option<f64>,
    /// TPC-H by a DuckDB that sends whole queries: seconds over those of Quack.
    seconds_vs_quack_query: Option<f64>,
    bytes_vs_quack_query: Option<f64>,
    #[serde(flatten)]
    workers: WorkersSummary,
}

const SECONDS: Figure = |taken| taken.seconds.median;
const BYTES: Figure = |taken| taken.bytes.median;

impl Fetch {
    /// Of what the script says.
    pub(super) fn of(answer: FetchAnswer) -> Fetch {
        let way = |(name, mut servers): (String, BTreeMap<String, Vec<f64>>)| {
            let postgresql_seconds = servers.remove(POSTGRESQL).map(Spread::of);
            let pithead_seconds = Spread::of(servers.remove(PITHEAD).unwrap_or_default());
            (name, FetchWay { pithead_seconds, postgresql_seconds })
        };
        Fetch { clients: answer.version, ways: answer.seconds.into_iter().map(way).collect() }
    }
}

impl FetchWay {
    fn ratio(&self) -> Option<f64> {
        Some(self.pithead_seconds.median / self.postgresql_seconds?.median)
    }
}

impl FrontSummary {
    pub(super) fn of(
        flight: &FlightFetch,
        fetch: Option<&Fetch>,
        points: &[Points],
        attached: Option<&Attached>,
        workers: WorkersSummary,
    ) -> FrontSummary {
        let of = |server: &str, protocol: &str| points.iter().find(|it| it.server == server && it.protocol == protocol);
        let (own, theirs, by_flight) = (of(PITHEAD, POSTGRES), of(POSTGRESQL, POSTGRES), of(PITHEAD, FLIGHT));
        let query = |figure| attached?.ratio(figure, |query| &query.pithead_query, |query| &query.quack_query);
        let tables = |figure| attached?.ratio(figure, |query| &query.pithead_attached, |query| &query.quack_attached);
        FrontSummary {
            fetch_share_of_flight: flight.share(),
            flight_gb_s: flight.arrow_bytes as f64 / 1e9 / flight.pithead_seconds.median,
            pg_fetch_vs_postgresql: fetch.and_then(|fetch| fetch.ways.get(PLAIN)?.ratio()),
            pg_points_per_s: own.map(|it| it.per_s.median),
            pg_point_p99_ms: own.map(|it| it.p99_ms.median),
            pg_point_vs_postgresql: own.zip(theirs).map(|(own, theirs)| own.per_s.median / theirs.per_s.median),
            flight_points_per_s: by_flight.map(|it| it.per_s.median),
            flight_point_p99_ms: by_flight.map(|it| it.p99_ms.median),
            bytes_vs_quack_attached: tables(BYTES),
            seconds_vs_quack_attached: tables(SECONDS),
            seconds_vs_quack_query: query(SECONDS),
            bytes_vs_quack_query: query(BYTES),
            workers,
        }
    }
}

impl Report {
    /// Tables of all parts, and the summary.
    pub(super) fn text(&self) -> String {
        let fetch = self.fetch.as_ref().map(|fetch| self.by_client(fetch));
        let attached = self.attached.as_ref().map(by_query);
        let summary = serde_json::to_string_pretty(&self.summary).unwrap_or_default();
        let workers = self.workers.as_ref().map(Divided::text);
        let parts = [Some(self.by_flight()), fetch, Some(self.lookups()), attached, workers, Some(summary)];
        parts.into_iter().flatten().collect::<Vec<_>>().join("\n\n")
    }

    fn by_flight(&self) -> String {
        let FlightFetch { rows, arrow_bytes, pithead_seconds, bare_seconds } = &self.flight_fetch;
        let row = |name: &str, taken: &Spread| {
            let rate = megabytes((*arrow_bytes as f64 / taken.median) as u64);
            vec![name.to_owned(), spread(*taken, seconds), rate]
        };
        let title = format!("{rows} rows, {} MB of Arrow", megabytes(*arrow_bytes));
        table(
            &[&title, "s", "MB/s"],
            &[row("pithead, Flight SQL", pithead_seconds), row("bare Flight, from memory", bare_seconds)],
        )
    }

    fn by_client(&self, fetch: &Fetch) -> String {
        let row = |(name, way): (&String, &FetchWay)| {
            let theirs = way.postgresql_seconds.map_or_else(missing, |taken| spread(taken, seconds));
            vec![name.clone(), spread(way.pithead_seconds, seconds), theirs, way.ratio().map_or_else(missing, ratio)]
        };
        let title = format!("{} rows", self.rows);
        let header = [title.as_str(), "pithead s", "PostgreSQL s", "of PostgreSQL's"];
        let rows: Vec<Vec<String>> = fetch.ways.iter().map(row).collect();
        let told = format!("median (min–max) of {}; {}", self.runs, fetch.clients);
        table(&header, &rows) + "\n" + &told
    }

    fn lookups(&self) -> String {
        let row = |it: &Points| {
            let name = format!("{}, {}", it.server, it.protocol);
            let figures = [spread(it.per_s, whole), spread(it.p50_ms, seconds), spread(it.p99_ms, seconds)];
            [vec![name], figures.to_vec()].concat()
        };
        let rows: Vec<Vec<String>> = self.points.iter().map(row).collect();
        table(&[&format!("{} clients", self.clients), "lookups/s", "p50 ms", "p99 ms"], &rows)
    }
}

fn by_query(attached: &Attached) -> String {
    let cells = |way: &Way| {
        let taken = way.taken;
        [taken.map_or_else(missing, |it| seconds(it.seconds.median)), taken.map_or_else(missing, |it| mb(it.bytes.median))]
    };
    let ways = |query: &AttachedQuery| {
        let AttachedQuery { pithead_query, pithead_attached, quack_query, quack_attached, .. } = query;
        [pithead_query, quack_query, pithead_attached, quack_attached].map(Way::clone)
    };
    let row = |query: &AttachedQuery| [vec![query.name.to_owned()], ways(query).iter().flat_map(cells).collect()].concat();
    let rows: Vec<Vec<String>> = attached.queries.iter().map(row).collect();
    let header = ["TPC-H", "query s", "MB", "Quack query s", "MB", "attached s", "MB", "Quack attached s", "MB"];
    let mut text = table(&header, &rows);
    let names = ["query", "Quack, query", "attached", "Quack, attached"];
    // Of each reason, the queries that are left out for it.
    let mut reasons: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
    for query in &attached.queries {
        for (name, way) in names.iter().zip(ways(query)) {
            way.note.into_iter().for_each(|note| reasons.entry((name, note)).or_default().push(query.name));
        }
    }
    for ((name, note), queries) in reasons {
        text += &format!("\nnot by {name}: {}: {note}", queries.join(", "));
    }
    text
}

fn mb(bytes: f64) -> String {
    megabytes(bytes as u64)
}

fn missing() -> String {
    "–".to_owned()
}

fn whole(figure: f64) -> String {
    format!("{figure:.0}")
}

fn spread(spread: Spread, text: fn(f64) -> String) -> String {
    format!("{} ({}–{})", text(spread.median), text(spread.min), text(spread.max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_of_what_was_measured() {
        let flat = |seconds: f64| Spread::of(vec![seconds]);
        let flight = FlightFetch { rows: 10, arrow_bytes: 3_000_000_000, pithead_seconds: flat(2.0), bare_seconds: flat(1.5) };
        let said = r#"{"version": "v", "rows": 10, "different": [], "seconds":
            {"psycopg": {"pithead": [3.0, 1.0, 2.0], "postgresql": [4.0]}, "asyncpg": {"pithead": [1.0]}}}"#;
        let fetch = Fetch::of(serde_json::from_str(said).unwrap());
        let points =
            |server, per_s| Points { server, protocol: POSTGRES, per_s: flat(per_s), p50_ms: flat(1.0), p99_ms: flat(9.0) };
        let points = [points(PITHEAD, 500.0), points(POSTGRESQL, 1_000.0)];
        let summary = FrontSummary::of(&flight, Some(&fetch), &points, None, WorkersSummary::of(None));
        assert_eq!((summary.fetch_share_of_flight, summary.flight_gb_s), (0.75, 1.5));
        assert_eq!((summary.pg_fetch_vs_postgresql, summary.pg_point_vs_postgresql), (Some(0.5), Some(0.5)));
        assert_eq!((summary.flight_points_per_s, summary.seconds_vs_quack_query), (None, None));
        assert_eq!(fetch.ways["asyncpg"].ratio(), None);
    }
}
