//! The experiments on small tables: what holds at any scale.

use super::*;

/// Tables so small that a test is quick.
const SMALL: u64 = 2000;

fn named(names: &[&str]) -> Result<Vec<&'static str>, ReproError> {
    chosen(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
}

#[test]
fn lists_name_experiments() {
    assert_eq!(named(&["bts", "smart-ssd", "bts"]).unwrap(), ["smart-ssd", "bts"]);
    assert_eq!(named(&["all"]).unwrap(), NAMES);
    let error = named(&["smart"]).unwrap_err().to_string();
    assert_eq!(error, "no experiment smart; there are smart-ssd, biscuit, yoursql, skytether, bts, and all");
    assert!(NAMES.iter().all(|name| !about(name).is_empty()));
}

#[test]
fn a_report_is_the_same_every_time() {
    assert_eq!(run("smart-ssd", SMALL).unwrap(), run("smart-ssd", SMALL).unwrap());
}

#[test]
fn calibrated_figures_come_out_as_they_were_calibrated() {
    for name in ["smart-ssd", "skytether"] {
        for figure in run(name, SMALL / 4).unwrap().figures {
            let most = match figure.kind {
                FigureKind::Calibrated | FigureKind::Input => 0.05,
                FigureKind::Counted => 0.1,
                FigureKind::Follows | FigureKind::Variant | FigureKind::Predicted => continue,
            };
            assert!((figure.ratio - 1.0).abs() <= most, "{figure:?}");
        }
    }
}

fn figure(report: &Report, what: &str) -> Figure {
    report.figures.iter().find(|figure| figure.what == what).cloned().unwrap_or_else(|| panic!("no figure {what}"))
}

/// A figure that follows has to follow: from the figures that it is said to, by arithmetic alone. What does is no prediction.
#[test]
fn what_follows_does_so_without_the_model() {
    let smart = run("smart-ssd", SMALL).unwrap();
    let rate = |what: &str| figure(&smart, what).ours;
    let faster = rate("sequential read, SSD") / rate("sequential read, HDD");
    for query in ["selection", "aggregation"] {
        let [hdd, ssd] = ["HDD", "SSD"].map(|disk| figure(&smart, &format!("{query} of 10%: time, {disk} over Smart SSD")));
        assert_eq!((hdd.kind, ssd.kind), (FigureKind::Calibrated, FigureKind::Follows));
        assert!((hdd.ours / faster / ssd.ours - 1.0).abs() < 0.01, "{query}: {} {faster} {}", hdd.ours, ssd.ours);
    }
    let biscuit = run("biscuit", SMALL).unwrap();
    let [outside, inside, host, chased] =
        ["read of 4 KiB by the host", "read of 4 KiB inside", "pointer chasing by the host", "pointer chasing inside"]
            .map(|what| figure(&biscuit, what));
    assert_eq!(chased.kind, FigureKind::Follows);
    assert!((host.ours * inside.ours / outside.ours / chased.ours - 1.0).abs() < 0.01, "{chased:?}");
    let skytether = run("skytether", SMALL).unwrap();
    let predicted = skytether.figures.iter().filter(|figure| figure.kind == FigureKind::Predicted).count();
    assert_eq!(predicted, 0, "one calibrated factor is all that there is");
}

#[test]
fn what_the_smart_ssd_paper_says_in_words_holds() {
    for claim in run("smart-ssd", SMALL).unwrap().claims {
        assert!(claim.holds, "{claim:?}");
    }
}

#[test]
fn every_figure_names_its_profile_and_every_gap_its_reason() {
    for name in NAMES {
        let report = run(name, SMALL).unwrap();
        assert_eq!((report.name, report.clock), (*name, "emulated, virtual time"));
        for figure in &report.figures {
            assert!(figure.kind == FigureKind::Counted || !figure.profiles.is_empty(), "{figure:?}");
            assert!(figure.ours.is_finite() && figure.ours > 0.0, "{figure:?}");
        }
        assert!(report.not_reproduced.iter().all(|missing| !missing.reason.is_empty()));
        assert!(!report.figures.is_empty() || !report.not_reproduced.is_empty());
    }
}

#[test]
fn the_summary_counts_predictions_only() {
    let mut report = figure::Report::new("smart-ssd", 1);
    let how = |kind| figure::How(kind, &["smart-ssd"]);
    report.figure("a", "here", "×", (1.0, 1.19), how(FigureKind::Predicted));
    report.figure("b", "here", "×", (1.0, 1.21), how(FigureKind::Predicted));
    report.figure("c", "here", "×", (1.0, 9.0), how(FigureKind::Calibrated));
    report.figure("d", "here", "×", (1.0, 1.0), how(FigureKind::Follows));
    report.figure("e", "here", "×", (1.0, 1.0), how(FigureKind::Variant));
    let summary = ReproSummary::of(&[report]);
    assert_eq!((summary.repro_figures, summary.repro_calibrated), (2, 1));
    assert_eq!(summary.repro_within_20, 0.5);
    assert_eq!(ReproSummary::of(&[]).repro_within_20, 0.0);
}
