//! What is printed and kept of the benchmark, and what the simulator says of the same.

use pithead_policy::background::sim::{paper, simulate};
use serde::Serialize;

use super::costs::Costs;
use super::dedup::Saved;
use super::model::{Model, Simulated, Tuned};
use super::queries::Queries;
use super::rows::{HEADER, measured_row, number};
use super::{Alone, BEST, CHUNKS, Measured, POLICIES, ServicesOptions, policy_of};
use crate::machine::Machine;
use crate::report::table;
use crate::timing::geometric_mean;

/// The paper's figure is of fewer host threads than this.
const PAPER_THREADS: usize = 10;

/// From this share of its time on a core counts as fully used.
const FULL: f64 = 0.85;

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
    pub(super) alone: Vec<Alone>,
    pub(super) queries: Vec<Queries>,
    pub(super) saved: Vec<Saved>,
    /// What the simulator was told, what was chosen for puts alone, and what it says of puts beside deduplication.
    costs: Costs,
    rest_cores: f64,
    tuned: Vec<Tuned>,
    simulated: Vec<Simulated>,
    #[serde(skip)]
    model: Model,
    four_cores: Vec<OnFourCores>,
    summary: ServicesSummary,
}

/// The mean of puts to the paper's drive of four cores, as the simulator has it; see [`paper`].
#[derive(Debug, Serialize)]
struct OnFourCores {
    chunks: &'static str,
    policy: &'static str,
    threads: usize,
    mean_us: f64,
    p99_us: f64,
    /// Cores that work nearly all of the time.
    full_cores: usize,
    /// Steps that were done for each put; of one that it brings, a policy may leave a part undone.
    steps_per_put: f64,
}

/// The figures that count. None: it was not measured.
#[derive(Debug, Default, Serialize)]
struct ServicesSummary {
    mean_latency_saved: Option<f64>,
    light_latency_saved: Option<f64>,
    heavy_latency_saved: Option<f64>,
    four_cores_latency_saved: Option<f64>,
    put_p50_vs_alone: Option<f64>,
    put_p99_vs_alone: Option<f64>,
    full_load_vs_none: Option<f64>,
    dedup_rate_kept: Option<f64>,
    query_p50_vs_alone: Option<f64>,
    simulated_vs_real: Option<f64>,
    dedup_saved: Option<f64>,
    dedup_read_cost: Option<f64>,
}

/// Puts beside deduplication by these chunks, under a policy, from so many threads.
type Of = (&'static str, Option<&'static str>, usize);

impl ServicesReport {
    pub(super) fn new(machine: Machine, options: &ServicesOptions, model: Model) -> Self {
        Self {
            machine,
            seconds: options.seconds,
            runs: options.runs,
            rate: options.rate,
            measured: Vec::new(),
            full_load: Vec::new(),
            alone: Vec::new(),
            queries: Vec::new(),
            saved: Vec::new(),
            costs: model.costs,
            rest_cores: model.rest_cores,
            tuned: Vec::new(),
            simulated: Vec::new(),
            model,
            four_cores: Vec::new(),
            summary: ServicesSummary::default(),
        }
    }

    fn of(&self, (chunks, policy, threads): Of) -> Option<&Measured> {
        self.measured.iter().find(|it| (it.chunks, it.policy, it.threads) == (chunks, policy, threads))
    }

    fn threads(&self) -> Vec<usize> {
        let mut threads: Vec<usize> = self.measured.iter().map(|it| it.threads).collect();
        threads.sort_unstable();
        threads.dedup();
        threads
    }

    /// The geometric mean of a figure of one policy against that of another, over ways to cut and numbers of threads that are wanted.
    fn against(
        &self,
        wanted: impl Fn(&'static str, usize) -> bool,
        (one, other): (Option<&'static str>, Option<&'static str>),
        figure: fn(&Measured) -> f64,
    ) -> Option<f64> {
        let all = self.threads().into_iter().flat_map(|threads| CHUNKS.map(|chunks| (chunks, threads)));
        let pairs = all.filter(|(chunks, threads)| wanted(chunks, *threads)).filter_map(|(chunks, threads)| {
            Some(figure(self.of((chunks, one, threads))?) / figure(self.of((chunks, other, threads))?))
        });
        mean_of(pairs)
    }

    /// Runs the simulator, and works out the summary.
    pub(super) fn finish(&mut self) {
        self.tuned = self.measured.iter().filter(|it| it.policy.is_none()).map(|it| self.model.tune(it)).collect();
        self.simulated = self.simulate();
        self.four_cores = self.on_four_cores();
        // With fewer threads than cores, a core is idle.
        let cores = self.machine.cores;
        let has_idle = |_: &str, threads: usize| threads < cores;
        let mean = |it: &Measured| it.latencies.mean_us;
        let saved = |of: &[&str]| {
            let is_meant = |chunks: &str, threads: usize| threads < PAPER_THREADS && of.contains(&chunks);
            Some(1.0 - self.against(is_meant, (Some("bts"), Some("none")), mean)?)
        };
        let [light, heavy] = CHUNKS;
        let asked = |policy: Option<&str>| self.queries.iter().find(|it| it.policy == policy).map(|it| it.latencies.p50_us);
        self.summary = ServicesSummary {
            mean_latency_saved: saved(&CHUNKS),
            light_latency_saved: saved(&[light]),
            heavy_latency_saved: saved(&[heavy]),
            four_cores_latency_saved: self.four_cores_saved(),
            put_p50_vs_alone: self.against(has_idle, (Some(BEST), None), |it| it.latencies.p50_us),
            put_p99_vs_alone: self.against(has_idle, (Some(BEST), None), |it| it.latencies.p99_us),
            full_load_vs_none: mean_of(CHUNKS.into_iter().filter_map(|chunks| self.full_load_vs_none(chunks))),
            dedup_rate_kept: self.rate_kept(has_idle),
            query_p50_vs_alone: asked(Some(BEST)).zip(asked(None)).map(|(best, alone)| best / alone),
            simulated_vs_real: mean_of(self.simulated.iter().map(Simulated::ratio)),
            dedup_saved: self.saved_by("cdc").map(Saved::share),
            dedup_read_cost: self.saved_by("cdc").map(Saved::read_cost),
        };
    }

    fn full_load_vs_none(&self, chunks: &str) -> Option<f64> {
        let of = |policy: &str| {
            let mut all = self.full_load.iter().filter(|it| it.chunks == chunks);
            all.find(|it| it.policy == Some(policy)).map(|it| it.latencies.mean_us)
        };
        Some(of(BEST)? / of("none")?)
    }

    /// What deduplication looks at in a second beside puts, against what it does while nobody puts.
    fn rate_kept(&self, wanted: impl Fn(&str, usize) -> bool) -> Option<f64> {
        let beside = self.measured.iter().filter(|it| it.policy == Some(BEST) && wanted(it.chunks, it.threads));
        mean_of(beside.filter_map(|it| Some(it.dedup_mb_s / self.alone(it.chunks)?.mb_s)))
    }

    fn alone(&self, chunks: &str) -> Option<&Alone> {
        self.alone.iter().find(|it| it.chunks == chunks)
    }

    fn saved_by(&self, chunks: &str) -> Option<&Saved> {
        self.saved.iter().find(|saved| saved.chunks == chunks)
    }

    /// What puts come to beside deduplication by the simulator, which knows them alone from as many threads.
    fn simulate(&self) -> Vec<Simulated> {
        let simulated = self.measured.iter().filter_map(|real| {
            let alone = self.of((real.chunks, None, real.threads))?;
            let tuned = self.tuned.iter().find(|it| (it.chunks, it.threads) == (real.chunks, real.threads))?;
            self.model.predict(alone, tuned, self.alone(real.chunks)?, real)
        });
        simulated.collect()
    }

    /// The paper's experiment as it was, with the numbers of threads that were asked for.
    fn on_four_cores(&self) -> Vec<OnFourCores> {
        let all = self.threads().into_iter().flat_map(|threads| CHUNKS.map(|chunks| (chunks, threads)));
        let simulated = all.flat_map(|(chunks, threads)| {
            POLICIES.map(|policy| {
                let outcome = simulate(&paper(threads, chunks != CHUNKS[0]), policy_of(policy));
                let busy = outcome.foreground.iter().zip(&outcome.background).map(|(front, behind)| front + behind);
                let full_cores = busy.filter(|share| *share > FULL).count();
                let (mean_us, p99_us) = (outcome.mean * 1e6, outcome.p99 * 1e6);
                let steps_per_put = outcome.steps_per_task();
                OnFourCores { chunks, policy, threads, mean_us, p99_us, full_cores, steps_per_put }
            })
        });
        simulated.collect()
    }

    fn four_cores_saved(&self) -> Option<f64> {
        let of = |policy: &str| {
            let all = self.four_cores.iter().filter(|it| it.threads < PAPER_THREADS);
            all.filter(|it| it.policy == policy).map(|it| it.mean_us).collect::<Vec<_>>()
        };
        Some(1.0 - mean_of(of("bts").into_iter().zip(of("none")).map(|(bts, none)| bts / none))?)
    }

    /// Tables for a terminal.
    pub(super) fn text(&self) -> String {
        let mut text = table(&HEADER, &self.measured.iter().chain(&self.full_load).map(measured_row).collect::<Vec<_>>());
        text += &self.simulated_text();
        text += &self.four_cores_text();
        for it in &self.alone {
            text += &format!("\n{} alone: {} MB/s, {} µs a step", it.chunks, number(it.mb_s), number(it.step_us));
        }
        for it in &self.queries {
            let policy = it.policy.unwrap_or("deduplication paused");
            text += &format!(
                "\nqueries, {policy}: p50 {} ms, p99 {} ms",
                number(it.latencies.p50_us / 1e3),
                number(it.latencies.p99_us / 1e3)
            );
        }
        text += &format!("\n\ndeduplicated files:\n{}", self.saved_table());
        for (name, figure) in self.figures() {
            text += &figure.map_or_else(|| format!("\n{name}: not measured"), |figure| format!("\n{name}: {figure:.3}"));
        }
        text
    }

    fn simulated_text(&self) -> String {
        let row = |it: &Tuned| {
            let names = [it.chunks.to_owned(), it.threads.to_string(), format!("{:.2}", it.speed), format!("{:.2}", it.after)];
            [names.to_vec(), [it.elsewhere_us, it.simulated_us, it.real_us].map(number).to_vec()].concat()
        };
        let header = ["chunks", "threads", "speed", "after", "elsewhere µs", "simulated µs", "real µs"];
        let tuned = table(&header, &self.tuned.iter().map(row).collect::<Vec<_>>());
        let row = |it: &Simulated| {
            let names = [it.chunks.to_owned(), it.policy.to_owned(), it.threads.to_string()];
            let times = vec![number(it.simulated_us), number(it.real_us), format!("{:.2}", it.ratio())];
            [names.to_vec(), times, [it.simulated_mb_s, it.real_mb_s].map(number).to_vec()].concat()
        };
        let header = ["chunks", "policy", "threads", "simulated µs", "real µs", "ratio", "simulated MB/s", "real MB/s"];
        let simulated = table(&header, &self.simulated.iter().map(row).collect::<Vec<_>>());
        format!(
            "\n\ntold to the simulator, each measured by itself (the drive at rest: {:.1}% of a core):\n{}\n\n\
             chosen such that puts alone are as they were:\n{tuned}\n\n\
             foretold, of puts beside deduplication:\n{simulated}",
            self.rest_cores * 100.0,
            self.costs.text()
        )
    }

    fn four_cores_text(&self) -> String {
        let none = |it: &OnFourCores| {
            let mut all = self.four_cores.iter();
            all.find(|other| (other.chunks, other.policy, other.threads) == (it.chunks, "none", it.threads))
        };
        let row = |it: &OnFourCores| {
            let saved = none(it).map_or_else(String::new, |none| format!("{:.1}%", (1.0 - it.mean_us / none.mean_us) * 100.0));
            let names = [it.chunks.to_owned(), it.policy.to_owned(), it.threads.to_string()];
            [
                names.to_vec(),
                vec![number(it.mean_us), saved, number(it.p99_us), it.full_cores.to_string(), number(it.steps_per_put)],
            ]
            .concat()
        };
        let header = ["chunks", "policy", "threads", "mean µs", "saved", "p99 µs", "full cores", "steps/put"];
        let rows = table(&header, &self.four_cores.iter().map(row).collect::<Vec<_>>());
        format!("\n\nfour cores of Park et al. 2022, two of which two threads fill, simulated:\n{rows}\n")
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

    fn figures(&self) -> [(&'static str, Option<f64>); 12] {
        let summary = &self.summary;
        [
            ("mean_latency_saved", summary.mean_latency_saved),
            ("light_latency_saved", summary.light_latency_saved),
            ("heavy_latency_saved", summary.heavy_latency_saved),
            ("four_cores_latency_saved", summary.four_cores_latency_saved),
            ("put_p50_vs_alone", summary.put_p50_vs_alone),
            ("put_p99_vs_alone", summary.put_p99_vs_alone),
            ("full_load_vs_none", summary.full_load_vs_none),
            ("dedup_rate_kept", summary.dedup_rate_kept),
            ("query_p50_vs_alone", summary.query_p50_vs_alone),
            ("simulated_vs_real", summary.simulated_vs_real),
            ("dedup_saved", summary.dedup_saved),
            ("dedup_read_cost", summary.dedup_read_cost),
        ]
    }
}

/// The geometric mean; none: of nothing.
fn mean_of(ratios: impl Iterator<Item = f64>) -> Option<f64> {
    let ratios: Vec<f64> = ratios.collect();
    (!ratios.is_empty()).then(|| geometric_mean(ratios))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::puts::Latencies;

    fn measured((chunks, policy, threads): Of, mean_us: f64, dedup_mb_s: f64) -> Measured {
        Measured {
            chunks,
            policy,
            threads,
            rate: Some(100.0),
            latencies: Latencies { count: 9, mean_us, p50_us: mean_us, p99_us: mean_us * 3.0, p999_us: mean_us * 9.0 },
            puts_s: 100.0,
            dedup_mb_s,
            foreground: vec![0.1, 0.0],
            background: vec![0.0, 0.9],
            cpu_us: 100.0,
            written_bytes: 65_536.0,
            client_cores: 0.001,
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
            cores: None,
            files: "f".into(),
            json: None,
        };
        let costs = Costs {
            beside_speed: 0.8,
            read_mb_s: 500.0,
            write_mb_s: 500.0,
            read_latency_us: 50.0,
            commit_us: 20.0,
            commit_put_us: 30.0,
            prepare_us_mb: 500.0,
            round_us_mb: 500.0,
        };
        let model = Model { costs, rest_cores: 0.0, cores: 2, seconds: 1.0, runs: 1, rate: 100.0 };
        let mut report = ServicesReport::new(Machine { cores: 2, ..Machine::here() }, &options, model);
        report.finish();
        assert!(report.text().contains("simulated_vs_real: not measured"), "{}", report.text());
        let [light, heavy] = CHUNKS;
        report.measured = vec![
            measured((light, None, 1), 200.0, 0.0),
            measured((light, Some("none"), 1), 400.0, 500.0),
            measured((light, Some("bts"), 1), 240.0, 480.0),
            measured((light, Some(BEST), 1), 210.0, 450.0),
            measured((heavy, Some("none"), 1), 500.0, 500.0),
            measured((heavy, Some("bts"), 1), 250.0, 480.0),
            // As many threads as the paper's figure is not of.
            measured((heavy, Some("none"), 10), 500.0, 500.0),
            measured((heavy, Some("bts"), 10), 900.0, 480.0),
        ];
        report.full_load =
            vec![measured((light, Some("none"), 16), 1_000.0, 9.0), measured((light, Some(BEST), 16), 900.0, 9.0)];
        report.alone = vec![Alone {
            chunks: light,
            mb_s: 500.0,
            step_us: 30.0,
            steps_s: 9_000.0,
            step_cpu_us: 30.0,
            step_read_bytes: 32_768.0,
        }];
        report.finish();
        let figure = |name: &str| report.figures().iter().find(|(named, _)| *named == name).and_then(|(_, figure)| *figure);
        let is_about = |name: &str, expected: f64| {
            let found = figure(name).unwrap();
            assert!((found - expected).abs() < 1e-9, "{name}: {found}");
        };
        is_about("light_latency_saved", 0.4);
        is_about("heavy_latency_saved", 0.5);
        is_about("mean_latency_saved", 1.0 - (0.6_f64 * 0.5).sqrt());
        is_about("put_p50_vs_alone", 1.05);
        is_about("put_p99_vs_alone", 1.05);
        is_about("full_load_vs_none", 0.9);
        is_about("dedup_rate_kept", 0.9);
        assert_eq!(figure("query_p50_vs_alone"), None);
        assert!(figure("simulated_vs_real").is_some_and(|ratio| (0.2..3.0).contains(&ratio)), "{:?}", report.simulated);
        // Fewer threads than cores, beside which there is room.
        assert!(figure("four_cores_latency_saved").is_some_and(|saved| (0.1..0.9).contains(&saved)), "{:?}", report.four_cores);
    }
}
