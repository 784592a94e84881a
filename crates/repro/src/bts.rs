//! Park et al. 2022: put latency beside deduplication, by the simulator of the policy that places background work.

use pithead_policy::background::BackgroundPolicy;
use pithead_policy::background::sim::{Arrivals, Outcome, paper, simulate, simulate_with};

use crate::figure::{Chart, FigureKind, How, Line, Report};

mod relocating;

use relocating::{Puts, Steps};

/// The paper's average is of fewer than ten host threads.
const THREADS: std::ops::RangeInclusive<usize> = 1..=9;
/// Where puts alone keep all of the drive's four cores busy.
const MANY: usize = 16;
const CORES: &[&str] = &["simulated cores of the policy"];
const PLACE: &str = "slide on put() performance";

/// Puts from so many threads, without and with BTS.
struct Pair {
    threads: usize,
    without: Outcome,
    with: Outcome,
}

impl Pair {
    fn of(threads: usize, heavy: bool, arrivals: Arrivals, report: &mut Report) -> Self {
        let scenario = paper(threads, heavy);
        report.simulated_s += 2.0 * scenario.seconds;
        let [without, with] =
            [BackgroundPolicy::None, BackgroundPolicy::Bts].map(|policy| simulate_with(&scenario, arrivals, policy));
        Self { threads, without, with }
    }

    /// What BTS saves of the mean latency, in percent.
    fn saved(&self) -> f64 {
        100.0 * (1.0 - self.with.mean / self.without.mean)
    }
}

pub(crate) fn run() -> Report {
    let mut report = Report::new("bts", 1);
    let [closed, random] = [Arrivals::Closed, Arrivals::Random].map(|arrivals| Load::of(arrivals, &mut report));
    // The paper's db_bench waits for a put before it sends the next one.
    closed.figure("each put follows the one before", FigureKind::Predicted, &mut report);
    random.figure("puts at random moments", FigureKind::Variant, &mut report);
    let relocated = Relocated::of(Puts::Bound, Steps::LeastUsed, &mut report);
    relocated.figure("every step done, on the least used core", &mut report);
    for (steps, policy) in [
        (Steps::LeastUsed, "puts on any core, every step on the least used one"),
        (Steps::LeastBusy, "puts on any core, every step where there are fewest"),
    ] {
        Relocated::of(Puts::Anywhere, steps, &mut report).figure(policy, &mut report);
    }
    two_threads(&mut report);
    heavy_load(&closed, &relocated, &mut report);
    charts(&closed, &random, &relocated, &mut report);
    report
}

/// Light and heavy deduplication beside puts that come in one way.
struct Load {
    light: Vec<Pair>,
    heavy: Vec<Pair>,
}

impl Load {
    fn of(arrivals: Arrivals, report: &mut Report) -> Self {
        let mut pairs = |heavy: bool| THREADS.map(|threads| Pair::of(threads, heavy, arrivals, report)).collect::<Vec<_>>();
        Self { light: pairs(false), heavy: pairs(true) }
    }

    fn pairs(&self) -> impl Iterator<Item = &Pair> {
        self.light.iter().chain(&self.heavy)
    }

    fn mean(&self, of: impl Fn(&Pair) -> f64) -> f64 {
        self.pairs().map(of).sum::<f64>() / self.pairs().count() as f64
    }

    /// The paper's average. Work that BTS leaves undone makes its queues shorter, so what both did is said beside it.
    fn figure(&self, arrivals: &str, kind: FigureKind, report: &mut Report) {
        let (without, with) = (self.mean(|pair| pair.without.steps_per_task()), self.mean(|pair| pair.with.steps_per_task()));
        let what = format!(
            "latency of put() that BTS saves below ten threads: {arrivals} (mean; steps for each put: {without:.2} without BTS, \
             {with:.2} with it)"
        );
        report.figure(&what, PLACE, "%", (47.8, self.mean(Pair::saved)), How(kind, CORES));
    }
}

/// What relocating all steps saves of the mean latency, in percent, by host threads: light and heavy deduplication.
struct Relocated {
    puts: Puts,
    steps: Steps,
    light: Vec<f64>,
    heavy: Vec<f64>,
}

impl Relocated {
    fn of(puts: Puts, steps: Steps, report: &mut Report) -> Self {
        let none = Self { puts, steps, light: vec![], heavy: vec![] };
        let mut saved = |heavy: bool| THREADS.map(|threads| none.saved(threads, heavy, report)).collect();
        let (light, heavy) = (saved(false), saved(true));
        Self { light, heavy, ..none }
    }

    fn saved(&self, threads: usize, heavy: bool, report: &mut Report) -> f64 {
        let scenario = paper(threads, heavy);
        report.simulated_s += 2.0 * relocating::SECONDS;
        let mean = |steps: Steps| relocating::simulate(&scenario, self.puts, steps).mean;
        100.0 * (1.0 - mean(self.steps) / mean(Steps::Stay))
    }

    fn all(&self) -> impl Iterator<Item = f64> {
        self.light.iter().chain(&self.heavy).copied()
    }

    fn figure(&self, policy: &str, report: &mut Report) {
        let mean = self.all().sum::<f64>() / self.all().count() as f64;
        let (least, most) = (self.all().fold(f64::INFINITY, f64::min), self.all().fold(f64::NEG_INFINITY, f64::max));
        let what = format!(
            "latency of put() that BTS saves below ten threads: {policy} (mean; from {least:.0}% to {most:.0}%, by threads)"
        );
        report.figure(&what, PLACE, "%", (47.8, mean), How(FigureKind::Variant, CORES));
    }
}

/// The paper's motivation: two host threads keep two cores busy, while the others have nothing to do.
fn two_threads(report: &mut Report) {
    let scenario = paper(2, true);
    let outcome = simulate(&scenario, BackgroundPolicy::None);
    report.simulated_s += scenario.seconds;
    let shares: Vec<f64> = outcome.foreground.iter().zip(&outcome.background).map(|(puts, others)| puts + others).collect();
    let (busy, idle) =
        (shares.iter().filter(|share| **share > 0.8).count(), shares.iter().filter(|share| **share < 0.2).count());
    let percents: Vec<String> = shares.iter().map(|share| format!("{:.0}%", share * 100.0)).collect();
    let ours = format!("cores are busy for {}", percents.join(", "));
    report.claim("without BTS, two host threads use two of four cores", "slide on motivation", (busy, idle) == (2, 2), ours);
}

/// The paper's last slide on puts: moving work to cores that have no time for it gains nothing.
fn heavy_load(closed: &Load, relocated: &Relocated, report: &mut Report) {
    let many = Pair::of(MANY, true, Arrivals::Closed, report);
    let most = closed.pairs().map(Pair::saved).fold(0.0, f64::max);
    let busy = relocated.saved(MANY, true, report);
    let ours = format!(
        "{:.0}% with {MANY} threads, at most {most:.0}% with fewer than ten; BTS does {:.2} steps for each put there, and without it \
         {:.2} are done. With every step done on the least used core: {busy:.0}%, and at most {:.0}%",
        many.saved(),
        many.with.steps_per_task(),
        many.without.steps_per_task(),
        relocated.all().fold(0.0, f64::max)
    );
    report.claim("under heavy load BTS gains less", PLACE, many.saved() < most, ours);
}

fn charts(closed: &Load, random: &Load, relocated: &Relocated, report: &mut Report) {
    let line = |name: &str, pairs: &[Pair], of: fn(&Pair) -> f64| Line {
        name: name.to_owned(),
        points: pairs.iter().map(|pair| (pair.threads as f64, of(pair))).collect(),
    };
    let chart = |title: &str, y: &'static str, lines: Vec<Line>| Chart {
        title: title.to_owned(),
        profiles: CORES.to_vec(),
        x: "host threads",
        y,
        lines,
    };
    let saved = vec![
        line("one after the other, light", &closed.light, Pair::saved),
        line("one after the other, heavy", &closed.heavy, Pair::saved),
        line("random moments, light", &random.light, Pair::saved),
        line("random moments, heavy", &random.heavy, Pair::saved),
    ];
    let all_done = |name: &str, saved: &[f64]| Line {
        name: name.to_owned(),
        points: THREADS.zip(saved).map(|(threads, saved)| (threads as f64, *saved)).collect(),
    };
    let moved = vec![all_done("light", &relocated.light), all_done("heavy", &relocated.heavy)];
    let steps = vec![
        line("without BTS", &closed.heavy, |pair| pair.without.steps_per_task()),
        line("with BTS", &closed.heavy, |pair| pair.with.steps_per_task()),
    ];
    report.charts.push(chart("Latency of put() that BTS saves", "%", saved));
    report.charts.push(chart("Latency that relocating every step saves", "%", moved));
    report.charts.push(chart("Background work that is done, puts one after the other, heavy", "steps for each put", steps));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BTS gains by placing work and by leaving it undone. Both are told, and only the paper's way to send puts counts.
    #[test]
    fn both_ways_to_send_puts_are_told_with_the_work_that_was_done() {
        let report = run();
        let kinds: Vec<FigureKind> = report.figures.iter().map(|figure| figure.kind).collect();
        assert_eq!(kinds[0], FigureKind::Predicted);
        assert!(kinds.len() == 5 && kinds[1..].iter().all(|kind| *kind == FigureKind::Variant), "{kinds:?}");
        assert!(report.figures[0].what.contains("1.00 without BTS, 0."), "{}", report.figures[0].what);
        let (closed, random) = (report.figures[0].ours, report.figures[1].ours);
        assert!(
            closed > 0.0 && closed < random && random < 100.0,
            "queues without an end have more to lose: {closed} {random}"
        );
        let relocated = report.figures[2].ours;
        assert!(relocated > 0.0 && relocated < closed, "what is left undone gains more: {relocated} {closed}");
        let claim = &report.claims[1];
        assert!(claim.ours.contains("on the least used core: "), "{claim:?}");
        let threads: Vec<f64> = report.charts[0].lines[0].points.iter().map(|point| point.0).collect();
        assert_eq!((threads.first(), threads.last()), (Some(&1.0), Some(&9.0)));
    }
}
