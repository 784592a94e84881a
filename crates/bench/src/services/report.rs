//! What is printed and kept of the benchmark, and what the simulator says of the same.

use pithead_policy::background::sim::{Backlog, Scenario, simulate};
use serde::Serialize;

use super::dedup::{PutsBeside, Saved};
use super::queries::Queries;
use super::{Measured, POLICIES, ServicesOptions, policy_of};
use crate::machine::Machine;
use crate::report::table;
use crate::timing::geometric_mean;

/// What the first step on another core takes besides, in the simulator: what fits in the nearest caches is read again.
const MOVE_SECONDS: f64 = 5e-6;
/// The interval of a drive's decisions.
const INTERVAL: f64 = 0.02;
/// The paper's figure is of fewer host threads than this.
const PAPER_THREADS: usize = 10;

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(super) struct ServicesReport {
    machine: Machine,
    seconds: f64,
    runs: usize,
    /// Values that each thread puts in a second.
    rate: f64,
    pub(super) measured: Vec<Measured>,
    pub(super) full_load: Vec<Measured>,
    pub(super) scrub_alone_mb_s: f64,
    pub(super) step_us: f64,
    pub(super) queries: Vec<Queries>,
    pub(super) beside_dedup: Vec<PutsBeside>,
    pub(super) saved: Vec<Saved>,
    simulated: Vec<Simulated>,
    summary: ServicesSummary,
}

/// The mean of puts as the simulator has it, beside that of the drive.
#[derive(Debug, Serialize)]
struct Simulated {
    policy: &'static str,
    threads: usize,
    simulated_us: f64,
    real_us: f64,
}

/// The figures that count. None: it was not measured.
#[derive(Debug, Default, Serialize)]
struct ServicesSummary {
    mean_latency_saved: Option<f64>,
    put_p50_vs_alone: Option<f64>,
    put_p99_vs_alone: Option<f64>,
    full_load_vs_none: Option<f64>,
    service_rate_kept: Option<f64>,
    query_p50_vs_alone: Option<f64>,
    simulated_vs_real: Option<f64>,
    dedup_saved: Option<f64>,
    dedup_read_cost: Option<f64>,
    dedup_light_latency_saved: Option<f64>,
    dedup_heavy_latency_saved: Option<f64>,
}

impl ServicesReport {
    pub(super) fn new(machine: Machine, options: &ServicesOptions) -> Self {
        Self {
            machine,
            seconds: options.seconds,
            runs: options.runs,
            rate: options.rate,
            measured: Vec::new(),
            full_load: Vec::new(),
            scrub_alone_mb_s: f64::NAN,
            step_us: f64::NAN,
            queries: Vec::new(),
            beside_dedup: Vec::new(),
            saved: Vec::new(),
            simulated: Vec::new(),
            summary: ServicesSummary::default(),
        }
    }

    fn of(&self, policy: Option<&str>, threads: usize) -> Option<&Measured> {
        self.measured.iter().find(|it| it.policy == policy && it.threads == threads)
    }

    fn threads(&self) -> Vec<usize> {
        self.measured.iter().filter(|it| it.policy.is_none()).map(|it| it.threads).collect()
    }

    /// The geometric mean, over numbers of threads that are wanted, of one figure against another.
    fn against(
        &self,
        wanted: impl Fn(usize) -> bool,
        over: (Option<&str>, Option<&str>),
        figure: fn(&Measured) -> f64,
    ) -> Option<f64> {
        let threads = self.threads().into_iter().filter(|threads| wanted(*threads));
        let pairs = threads.filter_map(|threads| Some((self.of(over.0, threads)?, self.of(over.1, threads)?)));
        let ratios: Vec<f64> = pairs.map(|(a, b)| figure(a) / figure(b)).collect();
        (!ratios.is_empty()).then(|| geometric_mean(ratios))
    }

    /// Runs the simulator, and works out the summary.
    pub(super) fn finish(&mut self) {
        self.simulated = self.simulate();
        let best = Some(POLICIES[POLICIES.len() - 1]);
        // With fewer threads than cores, a core is idle.
        let cores = self.machine.cores;
        let has_idle = |threads: usize| threads < cores;
        let mean = |it: &Measured| it.latencies.mean_us;
        let full = |policy: Option<&str>| self.full_load.iter().find(|it| it.policy == policy).map(mean);
        let asked = |policy: Option<&str>| self.queries.iter().find(|it| it.policy == policy).map(|it| it.latencies.p50_us);
        let ratios = self.simulated.iter().map(|it| it.simulated_us / it.real_us);
        self.summary = ServicesSummary {
            mean_latency_saved: self
                .against(|threads| threads < PAPER_THREADS, (Some("bts"), Some("none")), mean)
                .map(|ratio| 1.0 - ratio),
            put_p50_vs_alone: self.against(has_idle, (best, None), |it| it.latencies.p50_us),
            put_p99_vs_alone: self.against(has_idle, (best, None), |it| it.latencies.p99_us),
            full_load_vs_none: full(best).zip(full(Some("none"))).map(|(best, none)| best / none),
            service_rate_kept: self
                .threads()
                .first()
                .and_then(|threads| self.of(best, *threads))
                .map(|it| it.scrub_mb_s / self.scrub_alone_mb_s),
            query_p50_vs_alone: asked(best).zip(asked(None)).map(|(best, alone)| best / alone),
            simulated_vs_real: (!self.simulated.is_empty()).then(|| geometric_mean(ratios)),
            dedup_saved: self.saved_by("cdc").map(Saved::share),
            dedup_read_cost: self.saved_by("cdc").map(Saved::read_cost),
            dedup_light_latency_saved: self.latency_saved("1KiB"),
            dedup_heavy_latency_saved: self.latency_saved("0.5KiB"),
        };
    }

    fn saved_by(&self, chunks: &str) -> Option<&Saved> {
        self.saved.iter().find(|saved| saved.chunks == chunks)
    }

    /// What `bts`, the policy of Park et al. 2022, saves of the mean time of a put beside deduplication, below its number of threads.
    fn latency_saved(&self, chunks: &str) -> Option<f64> {
        let of = |policy: &str, threads: usize| {
            let mut all = self.beside_dedup.iter().filter(|it| it.chunks == chunks).map(|it| &it.measured);
            all.find(|it| it.policy == Some(policy) && it.threads == threads).map(|it| it.latencies.mean_us)
        };
        let threads = self.threads().into_iter().filter(|threads| *threads < PAPER_THREADS);
        let ratios: Vec<f64> = threads.filter_map(|threads| Some(of("bts", threads)? / of("none", threads)?)).collect();
        (!ratios.is_empty()).then(|| 1.0 - geometric_mean(ratios))
    }

    /// What puts from so many threads come to beside a service that always has more to do. The simulator is told what a put takes of
    /// a core and what a step takes. It has cores and no medium, so what a put takes elsewhere is chosen such that puts alone, from as
    /// many threads, take the time that they took. What a service and its policy come to is the simulator's own.
    fn simulate(&self) -> Vec<Simulated> {
        let simulated = self.measured.iter().filter_map(|real| {
            let (policy, alone) = (real.policy?, self.of(None, real.threads)?);
            let cores_alone = simulate(&self.scenario(alone, 0.0, Backlog::None), policy_of(policy)).mean;
            let elsewhere_seconds = (alone.latencies.mean_us * 1e-6 - cores_alone).max(0.0);
            let outcome = simulate(&self.scenario(alone, elsewhere_seconds, Backlog::Endless), policy_of(policy));
            let (simulated_us, real_us) = (outcome.mean * 1e6, real.latencies.mean_us);
            Some(Simulated { policy, threads: real.threads, simulated_us, real_us })
        });
        simulated.collect()
    }

    /// Puts as they were alone, beside a service that has so much to do.
    fn scenario(&self, alone: &Measured, elsewhere_seconds: f64, backlog: Backlog) -> Scenario {
        Scenario {
            seed: 1,
            seconds: self.seconds * self.runs as f64,
            cores: self.machine.cores,
            threads: alone.threads,
            rate: self.rate,
            task_seconds: alone.cpu_us * 1e-6,
            task_spread: 0.5,
            elsewhere_seconds,
            services: 1,
            backlog,
            step_seconds: self.step_us * 1e-6,
            move_seconds: MOVE_SECONDS,
            interval: INTERVAL,
        }
    }

    /// Tables for a terminal.
    pub(super) fn text(&self) -> String {
        let mut text = table(&HEADER, &self.measured.iter().chain(&self.full_load).map(measured_row).collect::<Vec<_>>());
        let row = |it: &Simulated| {
            let ratio = format!("{:.2}", it.simulated_us / it.real_us);
            vec![it.policy.to_owned(), it.threads.to_string(), number(it.simulated_us), number(it.real_us), ratio]
        };
        text += "\n\n";
        text += &table(
            &["policy", "threads", "simulated µs", "real µs", "ratio"],
            &self.simulated.iter().map(row).collect::<Vec<_>>(),
        );
        text += &format!("\n\nscrub alone: {} MB/s, {} µs a step", number(self.scrub_alone_mb_s), number(self.step_us));
        for it in &self.queries {
            let policy = it.policy.unwrap_or("no service");
            text += &format!(
                "\nqueries, {policy}: p50 {} ms, p99 {} ms",
                number(it.latencies.p50_us / 1e3),
                number(it.latencies.p99_us / 1e3)
            );
        }
        let rows = self.beside_dedup.iter().map(|it| [vec![it.chunks.clone()], measured_row(&it.measured)].concat());
        text += &format!(
            "\n\nbeside deduplication:\n{}",
            table(&[&["chunks"][..], &HEADER[..]].concat(), &rows.collect::<Vec<_>>())
        );
        text += &format!("\n\ndeduplicated files:\n{}", self.saved_table());
        for (name, figure) in self.figures() {
            text += &figure.map_or_else(|| format!("\n{name}: not measured"), |figure| format!("\n{name}: {figure:.3}"));
        }
        text
    }

    fn saved_table(&self) -> String {
        let megabytes = |bytes: u64| format!("{:.0}", bytes as f64 / 1e6);
        let row = |it: &Saved| {
            let folder = it.folder_bytes.map(megabytes).join(" → ");
            let read = it.read_mb_s.map(number).join(" → ");
            let (saved, cost) = (format!("{:.1}%", it.share() * 100.0), format!("{:.2}", it.read_cost()));
            vec![it.chunks.clone(), it.files.to_string(), megabytes(it.bytes), saved, folder, number(it.mb_s), read, cost]
        };
        let header = ["chunks", "files", "MB", "saved", "folder MB", "MB/s", "read MB/s", "read cost"];
        table(&header, &self.saved.iter().map(row).collect::<Vec<_>>())
    }

    fn figures(&self) -> [(&'static str, Option<f64>); 11] {
        let summary = &self.summary;
        [
            ("mean_latency_saved", summary.mean_latency_saved),
            ("put_p50_vs_alone", summary.put_p50_vs_alone),
            ("put_p99_vs_alone", summary.put_p99_vs_alone),
            ("full_load_vs_none", summary.full_load_vs_none),
            ("service_rate_kept", summary.service_rate_kept),
            ("query_p50_vs_alone", summary.query_p50_vs_alone),
            ("simulated_vs_real", summary.simulated_vs_real),
            ("dedup_saved", summary.dedup_saved),
            ("dedup_read_cost", summary.dedup_read_cost),
            ("dedup_light_latency_saved", summary.dedup_light_latency_saved),
            ("dedup_heavy_latency_saved", summary.dedup_heavy_latency_saved),
        ]
    }
}

const HEADER: [&str; 10] =
    ["policy", "threads", "mean µs", "p50 µs", "p99 µs", "p99.9 µs", "puts/s", "service MB/s", "foreground", "background"];

fn number(number: f64) -> String {
    if number >= 100.0 { format!("{number:.0}") } else { format!("{number:.1}") }
}

fn measured_row(it: &Measured) -> Vec<String> {
    let what = match it.rate {
        Some(_) => it.threads.to_string(),
        None => format!("{}, no pause", it.threads),
    };
    let latencies = [it.latencies.mean_us, it.latencies.p50_us, it.latencies.p99_us, it.latencies.p999_us];
    let figures = [latencies.to_vec(), vec![it.puts_s, it.scrub_mb_s]].concat().into_iter().map(number);
    let shares = |shares: &[f64]| shares.iter().map(|share| format!("{:.0}%", share * 100.0)).collect::<Vec<_>>().join(" ");
    let cores = [shares(&it.foreground), shares(&it.background)];
    [vec![it.policy.unwrap_or("no service").to_owned(), what], figures.collect(), cores.to_vec()].concat()
}

/// One measurement, while others are still to come.
pub(super) fn line(it: &Measured) -> String {
    let rate = it.rate.map_or_else(|| "no pause".to_owned(), |rate| format!("{rate} puts/s each"));
    let policy = it.policy.unwrap_or("no service");
    let latencies = &it.latencies;
    format!("{policy}, {} threads, {rate}: mean {:.0} µs, p99 {:.0} µs", it.threads, latencies.mean_us, latencies.p99_us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::puts::Latencies;

    fn measured(policy: Option<&'static str>, threads: usize, mean_us: f64, scrub_mb_s: f64) -> Measured {
        Measured {
            policy,
            threads,
            rate: Some(100.0),
            latencies: Latencies { count: 9, mean_us, p50_us: mean_us, p99_us: mean_us * 3.0, p999_us: mean_us * 9.0 },
            puts_s: 100.0,
            scrub_mb_s,
            foreground: vec![0.1, 0.0],
            background: vec![0.0, 0.9],
            cpu_us: 100.0,
            client_cores: 0.1,
        }
    }

    #[test]
    fn the_summary_is_of_what_was_measured() {
        let options = ServicesOptions {
            directory: "d".into(),
            seconds: 1.0,
            runs: 1,
            threads: vec![1, 2],
            rate: 100.0,
            files: "f".into(),
            json: None,
        };
        let mut report = ServicesReport::new(Machine { cores: 2, ..Machine::here() }, &options);
        report.finish();
        assert!(report.text().contains("simulated_vs_real: not measured"), "{}", report.text());
        report.measured = vec![
            measured(None, 1, 200.0, 0.0),
            measured(Some("none"), 1, 400.0, 500.0),
            measured(Some("bts"), 1, 240.0, 480.0),
            measured(Some("tail:1.2"), 1, 210.0, 450.0),
        ];
        report.full_load = vec![measured(Some("none"), 16, 1_000.0, 9.0), measured(Some("tail:1.2"), 16, 900.0, 9.0)];
        (report.scrub_alone_mb_s, report.step_us) = (500.0, 30.0);
        report.finish();
        let figure = |name: &str| report.figures().iter().find(|(named, _)| *named == name).and_then(|(_, figure)| *figure);
        let is_about = |name: &str, expected: f64| {
            let found = figure(name).unwrap();
            assert!((found - expected).abs() < 1e-9, "{name}: {found}");
        };
        is_about("mean_latency_saved", 0.4);
        is_about("put_p50_vs_alone", 1.05);
        is_about("put_p99_vs_alone", 1.05);
        is_about("full_load_vs_none", 0.9);
        is_about("service_rate_kept", 0.9);
        assert_eq!(figure("query_p50_vs_alone"), None);
        assert!(figure("simulated_vs_real").is_some_and(|ratio| (0.2..3.0).contains(&ratio)), "{:?}", report.simulated);
    }
}
