//! What was measured, for people and for programs.

use pithead_emulate::{Bottleneck, Prediction};
use pithead_model::Counts;
use serde::Serialize;

use super::ThrottledOptions;
use super::cases::{Device, Question};
use crate::machine::Machine;
use crate::report::{ratio, seconds, table};
use crate::timing::Spread;

/// One query on one device.
#[derive(Debug, Serialize)]
pub(super) struct CaseReport {
    device: &'static str,
    query: &'static str,
    level: u8,
    rows: u64,
    read_bytes: u64,
    /// In real time, on a drive process that is slowed down.
    throttled_seconds: Spread,
    /// CPU time of the drive's rounds on this machine, which has to stay below what the profile's cores take.
    drive_cpu_seconds: Spread,
    /// The speed of the profile's core as a share of one of this machine's, by the drive's reference work.
    cpu_share: Option<f64>,
    /// In virtual time.
    model_seconds: f64,
    /// The same, where each page goes to the core that is free first.
    model_by_pages_seconds: f64,
    /// What most of the virtual time was waited for.
    bottleneck: &'static str,
    /// That is the device's cores.
    waits_for_cores: bool,
    throttled_over_model: f64,
}

/// What the runs of a query took at the drive.
#[derive(Debug)]
pub(super) struct Took {
    pub(super) seconds: Spread,
    pub(super) cpu_seconds: Spread,
    pub(super) cpu_share: Option<f64>,
}

/// What the model says of it.
#[derive(Debug)]
pub(super) struct Modelled {
    /// A core takes whole slices, as those of the drive do.
    pub(super) in_slices: Prediction,
    /// Each page goes to the core that is free first.
    pub(super) by_pages: Prediction,
}

/// Everything.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    machine: Machine,
    rows: u64,
    runs: usize,
    cases: Vec<CaseReport>,
    summary: ThrottledSummary,
}

/// The figures that later versions are compared by.
#[derive(Debug, Serialize)]
struct ThrottledSummary {
    /// The larger over the smaller of the two times, where they differ most.
    model_vs_throttled_worst: f64,
    /// In how many cases they differ by no more than 15%.
    within_15: f64,
    /// The worst of the cases that wait for cores, and of the others.
    cores_worst: f64,
    others_worst: f64,
}

/// How far the two times are apart in some cases.
struct Apart {
    cases: usize,
    worst: f64,
    within_15: f64,
}

impl Apart {
    fn of<'a>(cases: impl IntoIterator<Item = &'a CaseReport>) -> Apart {
        let apart: Vec<f64> = cases.into_iter().map(CaseReport::apart).collect();
        let within = apart.iter().filter(|apart| **apart <= 1.15).count();
        let worst = apart.iter().copied().fold(1.0, f64::max);
        Apart { cases: apart.len(), worst, within_15: within as f64 / apart.len().max(1) as f64 }
    }

    fn line(&self) -> String {
        format!("worst {}, {:.0}% of {} cases within 15%", ratio(self.worst), self.within_15 * 100.0, self.cases)
    }
}

impl CaseReport {
    pub(super) fn of(device: &Device, question: &Question, took: Took, counts: &Counts, model: &Modelled) -> CaseReport {
        let predicted = &model.in_slices;
        let throttled_over_model = took.seconds.median / predicted.elapsed_s;
        CaseReport {
            device: device.name,
            query: question.name,
            level: question.level.number(),
            rows: counts.rows,
            read_bytes: counts.read_bytes,
            throttled_seconds: took.seconds,
            drive_cpu_seconds: took.cpu_seconds,
            cpu_share: took.cpu_share,
            model_seconds: predicted.elapsed_s,
            model_by_pages_seconds: model.by_pages.elapsed_s,
            bottleneck: predicted.bottleneck.name(),
            waits_for_cores: predicted.bottleneck == Bottleneck::DeviceCpu,
            throttled_over_model,
        }
    }

    /// While it runs.
    pub(super) fn line(&self) -> String {
        format!(
            "{}, {}, level {}: throttled {} s, model {} s",
            self.device,
            self.query,
            self.level,
            seconds(self.throttled_seconds.median),
            seconds(self.model_seconds)
        )
    }

    fn apart(&self) -> f64 {
        self.throttled_over_model.max(1.0 / self.throttled_over_model)
    }
}

impl Report {
    pub(super) fn of(machine: Machine, options: &ThrottledOptions, cases: Vec<CaseReport>) -> Report {
        let all = Apart::of(&cases);
        let (cores, others) = by_cores(&cases);
        let summary = ThrottledSummary {
            model_vs_throttled_worst: all.worst,
            within_15: all.within_15,
            cores_worst: cores.worst,
            others_worst: others.worst,
        };
        Report { machine, rows: options.rows, runs: options.runs, cases, summary }
    }

    pub(super) fn print(&self) {
        let rows: Vec<Vec<String>> = self.cases.iter().map(row).collect();
        let header =
            ["device", "query", "level", "throttled s", "min", "max", "CPU s", "model s", "waits for", "throttled / model"];
        println!("{}", table(&header, &rows));
        let (cores, others) = by_cores(&self.cases);
        println!("{}", Apart::of(&self.cases).line());
        println!("of those that wait for cores: {}; of the others: {}", cores.line(), others.line());
    }
}

/// The cases that wait for cores, and the others.
fn by_cores(cases: &[CaseReport]) -> (Apart, Apart) {
    let of = |cores: bool| Apart::of(cases.iter().filter(move |case| case.waits_for_cores == cores));
    (of(true), of(false))
}

fn row(case: &CaseReport) -> Vec<String> {
    vec![
        case.device.to_owned(),
        case.query.to_owned(),
        case.level.to_string(),
        seconds(case.throttled_seconds.median),
        seconds(case.throttled_seconds.min),
        seconds(case.throttled_seconds.max),
        seconds(case.drive_cpu_seconds.median),
        seconds(case.model_seconds),
        case.bottleneck.to_owned(),
        ratio(case.throttled_over_model),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_of_all_cases_counts() {
        let case = |waits_for_cores: bool, throttled_over_model: f64| CaseReport {
            device: "d",
            query: "q",
            level: 3,
            rows: 1,
            read_bytes: 1,
            throttled_seconds: Spread::of(vec![1.0]),
            drive_cpu_seconds: Spread::of(vec![1.0]),
            cpu_share: None,
            model_seconds: 1.0,
            model_by_pages_seconds: 1.0,
            bottleneck: "",
            waits_for_cores,
            throttled_over_model,
        };
        let cases = [case(true, 1.0), case(false, 0.5), case(true, 1.3), case(true, 1.1), case(false, 1.1)];
        let (all, (cores, others)) = (Apart::of(&cases), by_cores(&cases));
        assert_eq!((all.cases, all.worst, all.within_15), (5, 2.0, 0.6));
        assert_eq!((cores.cases, cores.worst, others.cases, others.worst), (3, 1.3, 2, 2.0));
        assert_eq!(Apart::of(&[]).line(), "worst 1.00×, 0% of 0 cases within 15%");
    }
}
