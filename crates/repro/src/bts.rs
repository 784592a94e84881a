//! Park et al. 2022: put latency beside deduplication, by the simulator of the policy that places background work.

use pithead_policy::background::BackgroundPolicy;
use pithead_policy::background::sim::{paper, simulate};

use crate::figure::{FigureKind, How, Report};

/// Host threads with which puts alone leave the drive's four cores some time.
const THREADS: std::ops::RangeInclusive<usize> = 1..=4;
/// Where puts alone take more than there is.
const MANY: usize = 8;

pub(crate) fn run() -> Report {
    let mut report = Report::new("bts", 1);
    let gain = |threads: usize, heavy: bool| {
        let scenario = paper(threads, heavy);
        let [without, with] = [BackgroundPolicy::None, BackgroundPolicy::Bts].map(|policy| simulate(&scenario, policy));
        (100.0 * (1.0 - with.mean / without.mean), 2.0 * scenario.seconds)
    };
    let mut gains = Vec::new();
    for heavy in [false, true] {
        for threads in THREADS {
            let (gain, seconds) = gain(threads, heavy);
            gains.push(gain);
            report.virtual_s += seconds;
        }
    }
    let mean = gains.iter().sum::<f64>() / gains.len() as f64;
    let place = "slide on put() performance";
    let what = "latency of put() that BTS saves below ten host threads, on average";
    report.figure(what, place, "%", (47.8, mean), How(FigureKind::Predicted, &["simulated cores of the policy"]));
    two_threads(&mut report);
    let (many, seconds) = gain(MANY, true);
    report.virtual_s += seconds;
    let most = gains.iter().copied().fold(0.0, f64::max);
    let ours = format!("at most {most:.0}% with 1 to 4 threads, {many:.0}% with {MANY}");
    report.claim("under heavy load BTS gains less", place, many < most, ours);
    report
}

/// The paper's motivation: two host threads keep two cores busy, while the others have nothing to do.
fn two_threads(report: &mut Report) {
    let scenario = paper(2, true);
    let outcome = simulate(&scenario, BackgroundPolicy::None);
    report.virtual_s += scenario.seconds;
    let shares: Vec<f64> = outcome.foreground.iter().zip(&outcome.background).map(|(puts, others)| puts + others).collect();
    let (busy, idle) =
        (shares.iter().filter(|share| **share > 0.8).count(), shares.iter().filter(|share| **share < 0.2).count());
    let percents: Vec<String> = shares.iter().map(|share| format!("{:.0}%", share * 100.0)).collect();
    let ours = format!("cores are busy for {}", percents.join(", "));
    report.claim("without BTS, two host threads use two of four cores", "slide on motivation", (busy, idle) == (2, 2), ours);
}
