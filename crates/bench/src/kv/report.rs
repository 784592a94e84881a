//! What is printed and kept of the benchmark.

use serde::Serialize;

use super::queries::UnderQueries;
use super::{BESIDE_MEDIUM, CONNECTIONS, KvOptions, Measured, Operation};
use crate::machine::Machine;
use crate::report::table;

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(super) struct KvReport {
    machine: Machine,
    seconds: f64,
    /// None: it was not found.
    redis: Option<String>,
    pub(super) measured: Vec<Measured>,
    /// 1 MiB after the other over a bare socket, one connection.
    pub(super) loopback_mb_s: f64,
    /// 1 MiB after the other, each flushed, by 16 writers: the middle of several runs, in turns with the drive.
    pub(super) medium_mb_s: f64,
    pub(super) under_queries: Option<UnderQueries>,
    summary: KvSummary,
}

/// What a drive has of its medium at most, with some room for a medium that varies: with more, the medium was measured wrong.
const SHARE_MAX: f64 = 1.1;

/// The figures that count.
#[derive(Debug, Default, Serialize)]
struct KvSummary {
    /// GET of 1 MiB on one connection, against the bare socket.
    get_1m_share_of_loopback: Option<f64>,
    /// Write-through PUT of 1 MiB on 16 connections, against the bare medium. None where it is over [`SHARE_MAX`].
    put_1m_share_of_medium: Option<f64>,
    /// CPU time of the server for a GET of 4 KiB on 16 connections, against Redis's.
    get_4k_cpu_vs_redis: Option<f64>,
    /// The 99th percentile of GET of 4 KiB on 16 connections while queries run, against alone.
    get_p99_under_queries: Option<f64>,
}

impl KvReport {
    pub(super) fn new(machine: Machine, options: &KvOptions, redis: Option<String>) -> Self {
        Self {
            machine,
            seconds: options.seconds,
            redis,
            measured: Vec::new(),
            loopback_mb_s: 0.0,
            medium_mb_s: 0.0,
            under_queries: None,
            summary: KvSummary::default(),
        }
    }

    fn one(&self, server: &str, operation: Operation, bytes: usize, connections: usize) -> Option<&Measured> {
        self.measured.iter().find(|it| {
            it.server == server && it.operation == operation && (it.value_bytes, it.connections) == (bytes, connections)
        })
    }

    /// What the drive had of what the bare medium had.
    fn of_medium(&self) -> Option<f64> {
        let (operation, bytes, connections) = BESIDE_MEDIUM;
        self.one("pithead", operation, bytes, connections).map(|it| it.mb_s / self.medium_mb_s)
    }

    /// Works out the summary.
    pub(super) fn finish(&mut self) {
        let [one, many] = CONNECTIONS;
        let get_4k = |server| self.one(server, Operation::Get, 4 << 10, many);
        let cpu = get_4k("pithead").zip(get_4k("redis"));
        self.summary = KvSummary {
            get_1m_share_of_loopback: self.one("pithead", Operation::Get, 1 << 20, one).map(|it| it.mb_s / self.loopback_mb_s),
            put_1m_share_of_medium: self.of_medium().filter(|share| *share <= SHARE_MAX),
            get_4k_cpu_vs_redis: cpu.map(|(ours, theirs)| ours.cpu_us / theirs.cpu_us),
            get_p99_under_queries: self.under_queries.as_ref().map(|it| it.with_queries.p99_us / it.alone.p99_us),
        };
    }

    /// Tables for a terminal.
    pub(super) fn text(&self) -> String {
        let number = |number: f64| if number >= 100.0 { format!("{number:.0}") } else { format!("{number:.1}") };
        let row = |it: &Measured| {
            let what = match it.operation {
                Operation::PutThrough => "put, write-through",
                Operation::PutBack => "put, write-back",
                Operation::Get => "get",
            };
            let size = format!("{} KiB", it.value_bytes >> 10);
            let figures = [it.operations_s, it.mb_s, it.p50_us, it.p99_us, it.cpu_us].map(number);
            [vec![it.server.to_owned(), what.to_owned(), size, it.connections.to_string()], figures.to_vec()].concat()
        };
        let header = ["server", "operation", "value", "connections", "ops/s", "MB/s", "p50 µs", "p99 µs", "CPU µs/op"];
        let mut text = table(&header, &self.measured.iter().map(row).collect::<Vec<_>>());
        text +=
            &format!("\n\nbare loopback {} MB/s, bare medium {} MB/s", number(self.loopback_mb_s), number(self.medium_mb_s));
        if let Some(it) = &self.under_queries {
            let (alone, with) = (number(it.alone.p99_us), number(it.with_queries.p99_us));
            text +=
                &format!("\np99 of get, 4 KiB, 16 connections: {alone} µs alone, {with} µs while {} queries ran", it.queries);
        }
        let figures = [
            ("get_1m_share_of_loopback", self.summary.get_1m_share_of_loopback),
            ("put_1m_share_of_medium", self.summary.put_1m_share_of_medium),
            ("get_4k_cpu_vs_redis", self.summary.get_4k_cpu_vs_redis),
            ("get_p99_under_queries", self.summary.get_p99_under_queries),
        ];
        if let Some(share) = self.of_medium().filter(|share| *share > SHARE_MAX) {
            text += &format!("\nthe drive wrote {share:.2} times what the bare medium did, which is no share of it");
        }
        for (name, figure) in figures {
            text += &figure.map_or_else(|| format!("\n{name}: not measured"), |figure| format!("\n{name}: {figure:.2}"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_of_what_was_measured() {
        let options = KvOptions { directory: "d".into(), seconds: 1.0, scale: 0.1, json: None };
        let mut report = KvReport::new(Machine::here(), &options, None);
        let measured = |server, operation, value_bytes, connections, mb_s, cpu_us| Measured {
            server,
            operation,
            value_bytes,
            connections,
            operations_s: 1.0,
            mb_s,
            p50_us: 1.0,
            p99_us: 2.0,
            cpu_us,
        };
        report.measured = vec![
            measured("pithead", Operation::Get, 1 << 20, 1, 600.0, 1.0),
            measured("pithead", Operation::PutThrough, 1 << 20, 16, 50.0, 1.0),
            measured("pithead", Operation::Get, 4 << 10, 16, 1.0, 30.0),
        ];
        (report.loopback_mb_s, report.medium_mb_s) = (1_000.0, 200.0);
        report.finish();
        assert_eq!(report.summary.get_1m_share_of_loopback, Some(0.6));
        assert_eq!(report.summary.put_1m_share_of_medium, Some(0.25));
        assert_eq!(report.summary.get_4k_cpu_vs_redis, None);
        assert!(report.text().contains("get_4k_cpu_vs_redis: not measured"), "{}", report.text());
        report.medium_mb_s = 40.0;
        report.finish();
        assert_eq!(report.summary.put_1m_share_of_medium, None);
        assert!(report.text().contains("1.25 times what the bare medium did, which is no share"), "{}", report.text());
        report.measured.push(measured("redis", Operation::Get, 4 << 10, 16, 1.0, 20.0));
        report.finish();
        assert_eq!(report.summary.get_4k_cpu_vs_redis, Some(1.5));
    }
}
