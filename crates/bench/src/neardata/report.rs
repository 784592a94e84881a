//! What was measured, for people and for programs.

use pithead_model::{Blame, Fault};
use serde::Serialize;

use super::runner::Ready;
use crate::machine::Machine;
use crate::report::{megabytes, ratio, seconds, table};
use crate::timing::Spread;

/// Names of Biscuit's query, by what DuckDB has.
pub(super) const BISCUIT: &str = "Biscuit";
pub(super) const BISCUIT_SORTED: &str = "Biscuit, sorted";
/// Queries that the best ratio is told of.
const BEST: usize = 5;
/// Rates that the summary's figures are of, bits a second.
const GIGABIT: f64 = 1e9;
const HUNDRED_MEGABIT: f64 = 1e8;

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) scale: f64,
    pub(super) drives: usize,
    /// Threads of the host, and of DuckDB.
    pub(super) threads: usize,
    /// Which cores the processes ran on.
    pub(super) cores: &'static str,
    pub(super) link: &'static str,
    pub(super) congestion_control: &'static str,
    pub(super) pithead: Ready,
    pub(super) duckdb: Ready,
    pub(super) quack: String,
    pub(super) rates: Vec<RateReport>,
    pub(super) summary: NeardataSummary,
}

/// All queries across a link of one rate.
#[derive(Debug, Serialize)]
pub(super) struct RateReport {
    pub(super) rate: String,
    pub(super) bits_per_second: f64,
    /// Runs of each query with push-down, of which the median counts.
    pub(super) runs: usize,
    /// The same without push-down and of DuckDB, which take long on a slow link.
    pub(super) runs_off_and_duckdb_http: usize,
    /// The most that any run got through the link: what the shaping really gives.
    pub(super) peak_bits_per_second: f64,
    pub(super) queries: Vec<QueryReport>,
}

/// One query in all ways.
#[derive(Debug, Serialize)]
pub(super) struct QueryReport {
    pub(super) name: &'static str,
    /// Whether it is one of TPC-H's, whose totals count.
    #[serde(skip)]
    pub(super) tpch: bool,
    pub(super) rows: usize,
    pub(super) on: Way,
    pub(super) off: Way,
    pub(super) duckdb_http: Way,
    /// Push-down to one drive, which has everything.
    pub(super) one_drive: Way,
    /// DuckDB as a server, by Quack, that is sent the whole query.
    pub(super) quack_query: Way,
    /// The same server's tables, attached; none: it does not answer the query so.
    pub(super) quack_attached: Option<Way>,
    /// Seconds without push-down against with, medians.
    pub(super) vs_off: f64,
    /// Seconds of DuckDB against Pithead's with push-down, medians.
    pub(super) vs_duckdb_http: f64,
    pub(super) answers_equal: bool,
}

/// A query's runs in one way.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Way {
    pub(super) seconds: Spread,
    /// Over the link, both ways.
    pub(super) link_bytes: Spread,
}

/// A query's runs in all ways.
pub(super) struct Ways {
    pub(super) on: Way,
    pub(super) off: Way,
    pub(super) duckdb_http: Way,
    pub(super) one_drive: Way,
    pub(super) quack_query: Way,
    pub(super) quack_attached: Option<Way>,
}

/// The figures that later versions are compared by. Those without another rate in their name are of 1 Gbit/s; None: that rate
/// was not measured.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct NeardataSummary {
    total_vs_duckdb_http: Option<f64>,
    top5_vs_duckdb_http: Option<f64>,
    worst_vs_duckdb_http: Option<f64>,
    total_vs_off: Option<f64>,
    worst_vs_off: Option<f64>,
    /// Biscuit's query against DuckDB on lineitem as TPC-H makes it; and sorted by the day that is looked for, as ours is.
    biscuit_filter: Option<f64>,
    biscuit_filter_sorted: Option<f64>,
    link_bytes_vs_duckdb_http: Option<f64>,
    link_bytes_vs_off: Option<f64>,
    /// Our seconds with push-down over Quack's with attached tables, of the queries that it answers so.
    seconds_vs_quack_attached: Option<f64>,
    quack_attached_answers: Option<usize>,
    /// With one drive, our seconds and bytes over those of Quack that is sent whole queries.
    seconds_one_drive_vs_quack_query: Option<f64>,
    bytes_one_drive_vs_quack_query: Option<f64>,
    total_vs_duckdb_http_100m: Option<f64>,
    top5_vs_duckdb_http_100m: Option<f64>,
    worst_vs_off_100m: Option<f64>,
    answers_equal: bool,
}

impl QueryReport {
    /// Puts the ways side by side.
    pub(super) fn new(name: &'static str, tpch: bool, rows: usize, ways: Ways, answers_equal: bool) -> Self {
        let Ways { on, off, duckdb_http, one_drive, quack_query, quack_attached } = ways;
        let vs_off = off.seconds.median / on.seconds.median;
        let vs_duckdb_http = duckdb_http.seconds.median / on.seconds.median;
        Self {
            name,
            tpch,
            rows,
            on,
            off,
            duckdb_http,
            one_drive,
            quack_query,
            quack_attached,
            vs_off,
            vs_duckdb_http,
            answers_equal,
        }
    }
}

impl RateReport {
    fn tpch(&self) -> impl Iterator<Item = &QueryReport> + Clone {
        self.queries.iter().filter(|query| query.tpch)
    }

    /// A figure of TPC-H's queries, added up, in two ways, the second over the first.
    fn total(&self, more: fn(&QueryReport) -> f64, less: fn(&QueryReport) -> f64) -> f64 {
        self.tpch().map(more).sum::<f64>() / self.tpch().map(less).sum::<f64>()
    }

    /// Our seconds over Quack's with attached tables, and of how many queries.
    fn beside_attached(&self) -> (f64, usize) {
        let answered: Vec<(f64, f64)> =
            self.tpch().filter_map(|query| Some((on_seconds(query), query.quack_attached?.seconds.median))).collect();
        let total = |of: fn(&(f64, f64)) -> f64| answered.iter().map(of).sum::<f64>();
        (total(|(ours, _)| *ours) / total(|(_, theirs)| *theirs), answered.len())
    }

    fn worst(&self, of: fn(&QueryReport) -> f64) -> f64 {
        self.tpch().map(of).fold(f64::INFINITY, f64::min)
    }

    /// DuckDB's total over ours, of the queries where the ratio is best.
    fn best(&self) -> f64 {
        let mut queries: Vec<&QueryReport> = self.tpch().collect();
        queries.sort_by(|a, b| b.vs_duckdb_http.total_cmp(&a.vs_duckdb_http));
        queries.truncate(BEST);
        let total = |of: fn(&QueryReport) -> f64| queries.iter().map(|query| of(query)).sum::<f64>();
        total(duckdb_seconds) / total(on_seconds)
    }

    fn text(&self) -> String {
        let header = ["query", "rows", "MB on", "MB off", "MB DuckDB", "s on", "s off", "s DuckDB", "vs off", "vs DuckDB"];
        let row = |query: &QueryReport| {
            let ways = [&query.on, &query.off, &query.duckdb_http];
            let rows = if query.answers_equal { query.rows.to_string() } else { "DIFFER".to_owned() };
            let bytes = ways.map(|way| megabytes(way.link_bytes.median as u64));
            let taken = ways.map(|way| spread(&way.seconds));
            let ratios = [ratio(query.vs_off), ratio(query.vs_duckdb_http)];
            [query.name.to_owned(), rows].into_iter().chain(bytes).chain(taken).chain(ratios).collect()
        };
        let mut rows: Vec<Vec<String>> = self.queries.iter().map(row).collect();
        rows.push(self.total_row());
        let runs = match self.runs_off_and_duckdb_http {
            runs if runs == self.runs => format!("median (min–max) of {runs}"),
            runs => format!("median (min–max) of {} with push-down, of {runs} in the other ways", self.runs),
        };
        format!(
            "link shaped to {}; {runs}; at most {:.0} Mbit/s were seen\n{}\n{}",
            self.rate,
            self.peak_bits_per_second / 1e6,
            table(&header, &rows),
            self.quack_text()
        )
    }

    /// Beside DuckDB as a server.
    fn quack_text(&self) -> String {
        let header = ["query", "MB one drive", "MB Quack", "MB attached", "s one drive", "s Quack", "s attached"];
        let row = |query: &QueryReport| {
            let ways = [Some(query.one_drive), Some(query.quack_query), query.quack_attached];
            let bytes = ways.map(|way| way.map_or("-".to_owned(), |way| megabytes(way.link_bytes.median as u64)));
            let taken = ways.map(|way| way.map_or("-".to_owned(), |way| spread(&way.seconds)));
            [query.name.to_owned()].into_iter().chain(bytes).chain(taken).collect()
        };
        table(&header, &self.queries.iter().map(row).collect::<Vec<Vec<String>>>())
    }

    fn total_row(&self) -> Vec<String> {
        let sum = |of: fn(&QueryReport) -> f64| self.tpch().map(of).sum::<f64>();
        let bytes = [on_bytes, off_bytes, duckdb_bytes].map(|of| megabytes(sum(of) as u64));
        let taken = [on_seconds, off_seconds, duckdb_seconds].map(|of| seconds(sum(of)));
        let ratios = [ratio(self.total(off_seconds, on_seconds)), ratio(self.total(duckdb_seconds, on_seconds))];
        ["TPC-H".to_owned(), String::new()].into_iter().chain(bytes).chain(taken).chain(ratios).collect()
    }
}

impl NeardataSummary {
    /// Of these rates.
    pub(super) fn of(rates: &[RateReport]) -> Self {
        let at = |rate: f64| rates.iter().find(|report| (report.bits_per_second - rate).abs() < 1.0);
        let (gigabit, slow) = (at(GIGABIT), at(HUNDRED_MEGABIT));
        let biscuit = |name: &str| {
            let query = gigabit?.queries.iter().find(|query| query.name == name)?;
            Some(query.vs_duckdb_http)
        };
        Self {
            total_vs_duckdb_http: gigabit.map(|rate| rate.total(duckdb_seconds, on_seconds)),
            top5_vs_duckdb_http: gigabit.map(RateReport::best),
            worst_vs_duckdb_http: gigabit.map(|rate| rate.worst(|query| query.vs_duckdb_http)),
            total_vs_off: gigabit.map(|rate| rate.total(off_seconds, on_seconds)),
            worst_vs_off: gigabit.map(|rate| rate.worst(|query| query.vs_off)),
            biscuit_filter: biscuit(BISCUIT),
            biscuit_filter_sorted: biscuit(BISCUIT_SORTED),
            link_bytes_vs_duckdb_http: gigabit.map(|rate| rate.total(duckdb_bytes, on_bytes)),
            link_bytes_vs_off: gigabit.map(|rate| rate.total(off_bytes, on_bytes)),
            seconds_vs_quack_attached: gigabit.map(|rate| rate.beside_attached().0).filter(|ratio| ratio.is_finite()),
            quack_attached_answers: gigabit.map(|rate| rate.beside_attached().1),
            seconds_one_drive_vs_quack_query: gigabit
                .map(|rate| rate.total(|query| query.one_drive.seconds.median, |query| query.quack_query.seconds.median)),
            bytes_one_drive_vs_quack_query: gigabit
                .map(|rate| rate.total(|query| query.one_drive.link_bytes.median, |query| query.quack_query.link_bytes.median)),
            total_vs_duckdb_http_100m: slow.map(|rate| rate.total(duckdb_seconds, on_seconds)),
            top5_vs_duckdb_http_100m: slow.map(RateReport::best),
            worst_vs_off_100m: slow.map(|rate| rate.worst(|query| query.vs_off)),
            answers_equal: rates.iter().flat_map(|rate| &rate.queries).all(|query| query.answers_equal),
        }
    }
}

impl Report {
    /// All of it as tables.
    pub(super) fn text(&self) -> String {
        let rates: Vec<String> = self.rates.iter().map(RateReport::text).collect();
        format!(
            "{}\n\n{} over HTTP, {}; {} threads; cores: {}\n{}",
            rates.join("\n\n"),
            self.duckdb.version,
            self.quack,
            self.threads,
            self.cores,
            serde_json::to_string_pretty(&self.summary).unwrap_or_default()
        )
    }

    /// A fault where an answer differed.
    pub(super) fn verdict(&self) -> Result<(), Fault> {
        if self.summary.answers_equal {
            return Ok(());
        }
        Err(Fault::new(Blame::Bug, "answers differ between push-down on, push-down off and DuckDB: see DIFFER in the tables"))
    }
}

fn on_seconds(query: &QueryReport) -> f64 {
    query.on.seconds.median
}

fn off_seconds(query: &QueryReport) -> f64 {
    query.off.seconds.median
}

fn duckdb_seconds(query: &QueryReport) -> f64 {
    query.duckdb_http.seconds.median
}

fn on_bytes(query: &QueryReport) -> f64 {
    query.on.link_bytes.median
}

fn off_bytes(query: &QueryReport) -> f64 {
    query.off.link_bytes.median
}

fn duckdb_bytes(query: &QueryReport) -> f64 {
    query.duckdb_http.link_bytes.median
}

fn spread(spread: &Spread) -> String {
    if spread.min == spread.max {
        return seconds(spread.median);
    }
    format!("{} ({}–{})", seconds(spread.median), seconds(spread.min), seconds(spread.max))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(seconds: f64, bytes: f64) -> Way {
        Way { seconds: Spread::of(vec![seconds]), link_bytes: Spread::of(vec![bytes]) }
    }

    fn query(name: &'static str, seconds: [f64; 3]) -> QueryReport {
        let [on, off, duckdb] = seconds;
        let ways = Ways {
            on: way(on, 10.0),
            off: way(off, 500.0),
            duckdb_http: way(duckdb, 200.0),
            one_drive: way(on, 5.0),
            quack_query: way(duckdb, 4.0),
            quack_attached: (name == "Q6").then(|| way(4.0 * on, 900.0)),
        };
        QueryReport::new(name, !name.starts_with(BISCUIT), 1, ways, true)
    }

    fn rate(bits_per_second: f64, queries: Vec<QueryReport>) -> RateReport {
        let peak_bits_per_second = bits_per_second;
        RateReport {
            rate: "r".to_owned(),
            bits_per_second,
            runs: 3,
            runs_off_and_duckdb_http: 1,
            peak_bits_per_second,
            queries,
        }
    }

    #[test]
    fn totals_are_of_tpch_and_the_best_are_chosen_by_ratio() {
        let ratios = [2.0, 20.0, 0.5, 10.0, 3.0, 4.0];
        let mut queries: Vec<QueryReport> = ratios.into_iter().map(|ratio| query("Q", [1.0, 0.9, ratio])).collect();
        queries.push(query(BISCUIT, [0.1, 1.0, 3.0]));
        assert_eq!(NeardataSummary::of(&[rate(1e9, vec![query("Q5", [1.0; 3])])]).seconds_vs_quack_attached, None);
        let summary = NeardataSummary::of(&[rate(1e9, queries)]);
        let close = |a: Option<f64>, b: f64| (a.unwrap() - b).abs() < 1e-9;
        assert!(close(summary.total_vs_duckdb_http, 39.5 / 6.0), "{summary:?}");
        assert!(close(summary.top5_vs_duckdb_http, 39.0 / 5.0), "{summary:?}");
        assert!(close(summary.worst_vs_duckdb_http, 0.5) && close(summary.worst_vs_off, 0.9), "{summary:?}");
        assert!(close(summary.biscuit_filter, 30.0) && close(summary.link_bytes_vs_duckdb_http, 20.0), "{summary:?}");
        assert!(close(summary.link_bytes_vs_off, 50.0) && summary.answers_equal, "{summary:?}");
        assert!(close(summary.bytes_one_drive_vs_quack_query, 1.25), "{summary:?}");
        let summary = NeardataSummary::of(&[rate(1e9, vec![query("Q6", [1.0; 3]), query("Q5", [9.0; 3])])]);
        assert!(close(summary.seconds_vs_quack_attached, 0.25) && summary.quack_attached_answers == Some(1), "{summary:?}");
        assert_eq!((summary.biscuit_filter_sorted, summary.top5_vs_duckdb_http_100m), (None, None));
    }

    #[test]
    fn a_slow_link_has_figures_of_its_own_and_a_wrong_answer_is_told() {
        let mut wrong = query("Q1", [1.0, 9.0, 30.0]);
        wrong.answers_equal = false;
        let rates = vec![rate(1e8, vec![wrong])];
        let summary = NeardataSummary::of(&rates);
        assert_eq!((summary.top5_vs_duckdb_http, summary.top5_vs_duckdb_http_100m), (None, Some(30.0)));
        assert!(!summary.answers_equal);
        let text = rates[0].text();
        assert!(text.contains("DIFFER") && text.contains("of 3 with push-down, of 1 in the other ways"), "{text}");
    }
}
