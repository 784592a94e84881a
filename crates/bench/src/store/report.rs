//! What was measured, for people and for programs.

use serde::Serialize;

use super::StoreBenchOptions;
use super::cold::Cold;
use super::medium::MediumNotes;
use super::puts::Puts;
use super::recovery::Recovery;
use super::rocksdb::HOW_TO_INSTALL;
use super::warm::Warm;
use crate::machine::Machine;
use crate::report::table;
use crate::timing::Spread;

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(super) struct StoreReport {
    machine: Machine,
    medium: MediumNotes,
    runs: usize,
    pub(super) puts: Option<Puts>,
    pub(super) cold: Option<Cold>,
    pub(super) warm: Option<Warm>,
    pub(super) recovery: Option<Recovery>,
    /// Median and range over the runs of each figure of the summary.
    spread: Vec<Figure>,
    summary: StoreSummary,
}

/// The figures that later versions are compared by: medians.
#[derive(Debug, Default, Serialize)]
struct StoreSummary {
    put_1m_share_of_medium: Option<f64>,
    put_4k_gain_16: Option<f64>,
    put_4k_vs_rocksdb: Option<f64>,
    cold_read_share: Option<f64>,
    read_amplification: Option<f64>,
    warm_read_gb_s: Option<f64>,
    recovery_10g_s: Option<f64>,
}

/// One figure of the summary.
#[derive(Debug, Serialize)]
struct Figure {
    name: &'static str,
    aim: &'static str,
    #[serde(flatten)]
    spread: Spread,
}

impl StoreReport {
    pub(super) fn new(machine: Machine, medium: MediumNotes, options: &StoreBenchOptions) -> Self {
        Self {
            machine,
            medium,
            runs: options.runs.max(1),
            puts: None,
            cold: None,
            warm: None,
            recovery: None,
            spread: Vec::new(),
            summary: StoreSummary::default(),
        }
    }

    /// Takes the summary from what was measured.
    pub(super) fn finish(&mut self) {
        let (puts, cold) = (self.puts.as_ref(), self.cold.as_ref());
        // One reader: what a reader of one slice after the other sees.
        let share = cold.and_then(|cold| Some(cold.readers.first()?.share));
        // Figures of a smaller store are no figures of a 10 GB one.
        let whole = self.recovery.as_ref().filter(|recovery| recovery.bytes as f64 >= 9.9e9);
        let figures = [
            ("put_1m_share_of_medium", "at least 0.70", puts.map(|puts| puts.share_of_medium)),
            ("put_4k_gain_16", "at least 5", puts.map(|puts| puts.gain_16)),
            ("put_4k_vs_rocksdb", "at least 1", puts.and_then(|puts| puts.vs_rocksdb)),
            ("cold_read_share", "at least 0.90", share),
            ("read_amplification", "at most 1.05", cold.and_then(|cold| cold.read_amplification)),
            ("warm_read_gb_s", "that of memory", self.warm.as_ref().map(|warm| warm.store)),
            ("recovery_10g_s", "under 2", whole.map(|recovery| recovery.seconds)),
        ];
        let median = |index: usize| figures[index].2.map(|spread: Spread| spread.median);
        self.summary = StoreSummary {
            put_1m_share_of_medium: median(0),
            put_4k_gain_16: median(1),
            put_4k_vs_rocksdb: median(2),
            cold_read_share: median(3),
            read_amplification: median(4),
            warm_read_gb_s: median(5),
            recovery_10g_s: median(6),
        };
        let figure =
            |(name, aim, spread): (&'static str, &'static str, Option<Spread>)| Some(Figure { name, aim, spread: spread? });
        self.spread = figures.into_iter().filter_map(figure).collect();
    }

    /// The summary as a table.
    pub(super) fn summary_text(&self) -> String {
        let row = |figure: &Figure| vec![figure.name.to_owned(), three(&figure.spread), figure.aim.to_owned()];
        let rows: Vec<_> = self.spread.iter().map(row).collect();
        format!("{}\nmedian (min–max) of {} runs", table(&["summary", "measured", "aim"], &rows), self.runs)
    }
}

/// Puts a second.
pub(super) fn puts_text(puts: &Puts) -> String {
    let rows = puts.workloads.iter().map(|workload| {
        let size = if workload.value_bytes >= 1 << 20 { "1 MiB" } else { "4 KiB" };
        vec![
            format!("{size}, {} writer{}", workload.writers, if workload.writers == 1 { "" } else { "s" }),
            whole(&workload.store),
            whole(&workload.medium),
            workload.rocksdb.as_ref().map_or_else(|| "-".to_owned(), whole),
            three(&workload.share),
        ]
    });
    let rows: Vec<_> = rows.collect();
    let header = ["durable puts a second", "store", "bare medium", "RocksDB", "store / bare"];
    let rocksdb = match (&puts.rocksdb, &puts.rocksdb_gain_16) {
        (Some(version), Some(gain)) => format!(
            "RocksDB: {version}, synchronous writes from Python, which lets go of its lock meanwhile; its gain with 16 writers of 4 KiB: {}",
            three(gain)
        ),
        _ => format!("no Python with RocksDB was found: skipping the comparison\nhint: {HOW_TO_INSTALL}"),
    };
    format!(
        "{}\nbare medium: each writer writes in sequence into one reserved file and flushes it; flushes share what the kernel shares\n\
         bare medium, one writer, 16 MiB and then a flush: {} MB/s; the store's 16 writers of 1 MiB reach {} of it\n{rocksdb}\n",
        table(&header, &rows),
        whole(&puts.sequence_mb_s),
        three(&puts.share_of_sequence),
    )
}

/// GB a second from the medium.
pub(super) fn cold_text(cold: &Cold) -> String {
    let rows = cold.readers.iter().map(|row| {
        let name = format!("{} reader{}", row.readers, if row.readers == 1 { "" } else { "s" });
        vec![name, three(&row.store), three(&row.medium), three(&row.share)]
    });
    let rows: Vec<_> = rows.collect();
    let amplification = cold.read_amplification.as_ref().map_or_else(|| "unknown here".to_owned(), three);
    format!(
        "{}\n{} slices of 1 to 16 MiB, {:.1} GB; the kernel's cache was dropped and the store's is empty; caches below the machine \
         are out of reach\nbytes read from the device a byte of slice: {amplification}\n",
        table(&["cold GB/s", "store", "bare medium", "store / bare"], &rows),
        cold.slices,
        cold.bytes as f64 / 1e9,
    )
}

/// GB a second from memory.
pub(super) fn warm_text(warm: &Warm) -> String {
    let copied = if warm.without_copy { "no byte is copied: each get gives the same memory" } else { "BYTES ARE COPIED" };
    let row = vec!["1 reader".to_owned(), three(&warm.store), three(&warm.memory), whole(&warm.get_ns)];
    format!(
        "{}\n{} slices of {} MiB, every byte looked at; {copied}\n",
        table(&["warm GB/s", "store", "plain memory", "ns a get"], &[row]),
        warm.slices,
        warm.slice_bytes >> 20,
    )
}

/// Seconds until a killed writer's store answers.
pub(super) fn recovery_text(recovery: &Recovery) -> String {
    let row = vec![format!("{:.1} GB", recovery.bytes as f64 / 1e9), three(&recovery.seconds), three(&recovery.open_seconds)];
    format!(
        "{}\n{} values of 1 to 4 MiB and {} of 1 KiB; each run kills a process that writes, then drops the kernel's cache\n",
        table(&["recovery", "s to the first value", "s to open"], &[row]),
        recovery.large_values,
        recovery.small_values,
    )
}

fn three(spread: &Spread) -> String {
    format!("{:.3} ({:.3}–{:.3})", spread.median, spread.min, spread.max)
}

fn whole(spread: &Spread) -> String {
    format!("{:.0} ({:.0}–{:.0})", spread.median, spread.min, spread.max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPREAD: Spread = Spread { median: 1.5, min: 1.0, max: 1.7 };

    fn empty() -> StoreReport {
        let options = StoreBenchOptions { directory: "d".into(), recovery_gb: 10.0, runs: 3, only: Vec::new(), json: None };
        StoreReport::new(Machine::here(), MediumNotes::default(), &options)
    }

    fn report(bytes: u64) -> StoreReport {
        let mut report = empty();
        report.recovery = Some(Recovery { bytes, large_values: 1, small_values: 1, seconds: SPREAD, open_seconds: SPREAD });
        report.finish();
        report
    }

    #[test]
    fn a_figure_of_a_smaller_store_is_not_taken_for_that_of_a_large_one() {
        let whole = report(10_000_000_000);
        assert_eq!(whole.summary.recovery_10g_s, Some(1.5));
        assert!(whole.summary_text().contains("1.500 (1.000–1.700)"), "{}", whole.summary_text());
        let small = report(2_000_000_000);
        assert_eq!(small.summary.recovery_10g_s, None);
        assert!(recovery_text(small.recovery.as_ref().unwrap()).contains("2.0 GB"));
    }

    #[test]
    fn the_summary_compares_with_rocksdb_where_it_was_there() {
        for vs_rocksdb in [Some(Spread { median: 1.28, ..SPREAD }), None] {
            let mut report = empty();
            report.puts = Some(Puts {
                rocksdb: None,
                workloads: Vec::new(),
                sequence_mb_s: SPREAD,
                share_of_medium: SPREAD,
                share_of_sequence: SPREAD,
                gain_16: SPREAD,
                rocksdb_gain_16: None,
                vs_rocksdb,
            });
            report.finish();
            assert_eq!(report.summary.put_4k_vs_rocksdb, vs_rocksdb.map(|spread| spread.median));
            assert_eq!(report.summary_text().contains("put_4k_vs_rocksdb"), vs_rocksdb.is_some());
        }
    }
}
