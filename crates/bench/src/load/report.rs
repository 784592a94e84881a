//! What was measured of loads, for people and for programs.

use serde::Serialize;

use super::changes::Changes;
use crate::TABLES;
use crate::machine::Machine;
use crate::report::{megabytes, ratio, seconds, table};
use crate::timing::Spread;

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) scale: f64,
    pub(super) runs: usize,
    /// Of Pithead and of DuckDB.
    pub(super) threads: usize,
    pub(super) drives: usize,
    pub(super) duckdb_version: Option<String>,
    pub(super) ways: Vec<Way>,
    pub(super) duckdb: Option<Way>,
    pub(super) changes: Changes,
    pub(super) summary: LoadSummary,
}

/// All tables, loaded in one way.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Way {
    pub(super) layout: &'static str,
    pub(super) encoding: String,
    /// Of all tables, as stored.
    pub(super) stored_bytes: u64,
    pub(super) tables: Vec<Table>,
}

/// One table.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) rows: u64,
    pub(super) parquet_bytes: u64,
    /// None: what stores it does not tell tables apart.
    pub(super) stored_bytes: Option<u64>,
    /// Of each run.
    pub(super) seconds: Vec<f64>,
    /// CPU time of the whole process in each run, seconds.
    pub(super) cpu_seconds: Vec<f64>,
}

/// The figures that later versions are compared by. Medians of the runs; tables laid out by their keys unless the name says otherwise.
#[derive(Debug, Serialize)]
pub(super) struct LoadSummary {
    /// Megabytes of Parquet a second, all tables.
    load_mb_s: f64,
    /// Seconds over DuckDB's.
    load_vs_duckdb: Option<f64>,
    /// CPU seconds over DuckDB's.
    load_cpu_vs_duckdb: Option<f64>,
    /// The same of tables without any layout option, which are laid out as DuckDB's are.
    load_mb_s_default_layout: f64,
    load_vs_duckdb_default_layout: Option<f64>,
    /// The same with the encoding `arrow`: what is left when nothing is compressed.
    load_mb_s_arrow: f64,
    load_vs_duckdb_arrow: Option<f64>,
    /// Statements a second, each of one row, durable.
    inserts_per_s: Option<f64>,
    /// Seconds to delete a hundredth of a table's rows over those to write the table anew.
    delete_vs_rewrite: Option<f64>,
}

/// Figures of each run of a table.
type Figures = fn(&Table) -> &[f64];

const SECONDS: Figures = |table| &table.seconds;
const CPU_SECONDS: Figures = |table| &table.cpu_seconds;

impl Way {
    /// One without runs yet; `parquet` is the bytes of each table's file, in the tables' order.
    pub(super) fn new(layout: &'static str, encoding: &str, parquet: &[u64]) -> Self {
        let table = |(table, bytes): (&crate::TpchTable, &u64)| Table {
            name: table.name,
            rows: 0,
            parquet_bytes: *bytes,
            stored_bytes: None,
            seconds: vec![],
            cpu_seconds: vec![],
        };
        let tables = TABLES.iter().zip(parquet).map(table).collect();
        Self { layout, encoding: encoding.to_owned(), stored_bytes: 0, tables }
    }

    /// What it is called.
    pub(super) fn name(&self) -> String {
        format!("{}, {}", self.encoding, self.layout)
    }

    /// A figure of all tables together, over the runs.
    fn total(&self, figures: Figures) -> Spread {
        let runs = self.tables.iter().map(|table| figures(table).len()).min().unwrap_or(0);
        Spread::of((0..runs).map(|run| self.tables.iter().map(|table| figures(table)[run]).sum()).collect())
    }

    fn parquet_bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.parquet_bytes).sum()
    }

    /// Megabytes of Parquet a second.
    fn rate(&self) -> f64 {
        self.parquet_bytes() as f64 / 1e6 / self.total(SECONDS).median
    }
}

impl LoadSummary {
    /// Of the ways in the order of [`super::WAYS`].
    pub(super) fn of(ways: &[Way], duckdb: Option<&Way>, changes: Option<&Changes>) -> Self {
        let rate = |index: usize| ways.get(index).map_or(f64::NAN, Way::rate);
        let against =
            |index: usize, figures: Figures| Some(ways.get(index)?.total(figures).median / duckdb?.total(figures).median);
        Self {
            load_mb_s: rate(0),
            load_vs_duckdb: against(0, SECONDS),
            load_cpu_vs_duckdb: against(0, CPU_SECONDS),
            load_mb_s_default_layout: rate(1),
            load_vs_duckdb_default_layout: against(1, SECONDS),
            load_mb_s_arrow: rate(2),
            load_vs_duckdb_arrow: against(2, SECONDS),
            inserts_per_s: changes.map(Changes::inserts_per_s),
            delete_vs_rewrite: changes.map(Changes::delete_vs_rewrite),
        }
    }
}

impl Report {
    /// Tables of all ways, of each table, and the summary.
    pub(super) fn text(&self) -> String {
        let summary = serde_json::to_string_pretty(&self.summary).unwrap_or_default();
        let told =
            format!("{} threads in both, files in memory; median (min–max) of {}; CPU of all threads", self.threads, self.runs);
        [self.by_way(), self.by_table(), told, self.changes.text(), summary].join("\n")
    }

    fn by_way(&self) -> String {
        let beside = |way: &Way| match &self.duckdb {
            Some(duckdb) => ratio(way.total(SECONDS).median / duckdb.total(SECONDS).median),
            None => "-".to_owned(),
        };
        let row = |way: &Way| {
            let (wall, cpu) = (way.total(SECONDS), way.total(CPU_SECONDS));
            vec![
                way.name(),
                spread(wall),
                spread(cpu),
                format!("{:.1}", way.rate()),
                megabytes(way.parquet_bytes()),
                megabytes(way.stored_bytes),
                beside(way),
            ]
        };
        let header = ["all tables", "s", "CPU s", "MB/s of Parquet", "MB Parquet", "MB stored", "of DuckDB's s"];
        table(&header, &self.ways.iter().chain(&self.duckdb).map(row).collect::<Vec<_>>())
    }

    /// Seconds and CPU seconds of each table, in the way that counts and in DuckDB.
    fn by_table(&self) -> String {
        let Some(own) = self.ways.first() else { return String::new() };
        let row = |(index, own): (usize, &Table)| {
            let other = self.duckdb.as_ref().and_then(|way| way.tables.get(index));
            let other = |figures: Figures| other.map(|table| Spread::of(figures(table).to_vec()).median);
            let median = |figures: Figures| Spread::of(figures(own).to_vec()).median;
            let text = |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), seconds);
            vec![
                own.name.to_owned(),
                own.rows.to_string(),
                megabytes(own.parquet_bytes),
                seconds(median(SECONDS)),
                seconds(median(CPU_SECONDS)),
                format!("{:.1}", own.parquet_bytes as f64 / 1e6 / median(SECONDS)),
                text(other(SECONDS)),
                text(other(CPU_SECONDS)),
            ]
        };
        let header = ["table", "rows", "MB Parquet", "s", "CPU s", "MB/s of Parquet", "DuckDB s", "DuckDB CPU s"];
        table(&header, &own.tables.iter().enumerate().map(row).collect::<Vec<_>>())
    }
}

fn spread(spread: Spread) -> String {
    format!("{} ({}–{})", seconds(spread.median), seconds(spread.min), seconds(spread.max))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A way whose tables took one second each in the first run, and `factor` seconds in the others.
    fn way(factor: f64) -> Way {
        let mut way = Way::new("as the files", "vortex", &vec![2_000_000; TABLES.len()]);
        for table in &mut way.tables {
            (table.seconds, table.cpu_seconds) = (vec![1.0, factor, factor], vec![factor, 2.0 * factor, 2.0 * factor]);
        }
        way
    }

    #[test]
    fn rates_and_ratios_are_of_medians_over_all_tables() {
        let summary = LoadSummary::of(&[way(4.0), way(2.0), way(0.5)], Some(&way(2.0)), None);
        assert!((summary.load_mb_s - 0.5).abs() < 1e-12, "{summary:?}");
        assert_eq!((summary.load_vs_duckdb, summary.load_cpu_vs_duckdb), (Some(2.0), Some(2.0)));
        assert_eq!((summary.load_vs_duckdb_default_layout, summary.load_vs_duckdb_arrow), (Some(1.0), Some(0.25)));
        assert!((summary.load_mb_s_arrow - 4.0).abs() < 1e-12, "{summary:?}");
        assert_eq!(LoadSummary::of(&[way(4.0), way(2.0), way(0.5)], None, None).load_vs_duckdb, None);
    }

    #[test]
    fn totals_are_added_up_within_a_run() {
        let total = way(4.0).total(SECONDS);
        let tables = TABLES.len() as f64;
        assert_eq!(total, Spread { median: 4.0 * tables, min: tables, max: 4.0 * tables });
    }
}
