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

/// What a paper leaves open is shown in each way, and no way that is nearer counts.
#[test]
fn other_ways_to_filter_are_variants() {
    let report = run("biscuit", SMALL).unwrap();
    let of_filter = |figure: &&Figure| figure.what.starts_with("filter of one day of lineitem: time");
    let kinds: Vec<FigureKind> = report.figures.iter().filter(of_filter).map(|figure| figure.kind).collect();
    assert_eq!(kinds, [FigureKind::Predicted, FigureKind::Variant, FigureKind::Variant, FigureKind::Variant]);
    let times = |what: &str| figure(&report, &format!("filter of one day of lineitem: time, {what}")).ours;
    let counted = times("host over Biscuit");
    assert!(times("where the host without Biscuit waits for each page") > 3.0 * counted);
    assert!((0.9..1.1).contains(&(times("where both hosts wait for each page that they read") / counted)));
    assert!(times("where cores of the drive filter the rows of found pages") > counted);
}

/// A long scan is polled often enough in any way. A device that begins waits until there is as much as a read command brings, which
/// the host then has to work on at the end of a table as small as this one.
#[test]
fn other_ways_to_get_are_variants_and_cost_a_scan_little() {
    let report = run("smart-ssd", SMALL).unwrap();
    let fixed = figure(&report, "selection of 10%: time, SSD over Smart SSD").ours;
    for how in ["GET adapts", "the device begins"] {
        let other = figure(&report, &format!("selection of 10%: time where {how}"));
        assert_eq!(other.kind, FigureKind::Variant);
        assert!((0.95..1.05).contains(&(other.ours / fixed)), "{other:?} {fixed}");
    }
}

/// Section 6.3 and figure 5 say so, and section 7 builds on it: the client is as slow as its own drive at least.
#[test]
fn skytethers_functions_never_wait_for_data() {
    let report = run("skytether", SMALL).unwrap();
    let claim = |what: &str| report.claims.iter().find(|claim| claim.what.contains(what)).unwrap();
    assert!(claim("never waits for data").holds, "{:?}", claim("never waits for data"));
    assert!(!claim("number of calls").holds, "nothing that the paper says gives a call a cost");
    let slower = figure(&report, "Accumulate on one core, Envoy over client").ours;
    let [one, all] = ["one core", "all cores"]
        .map(|cores| figure(&report, &format!("drives that are as fast as a client from end to end, {cores} of each")));
    assert_eq!((one.kind, all.kind), (FigureKind::Follows, FigureKind::Variant));
    assert!((one.ours - slower).abs() <= 1.0 && (all.ours - slower / 2.0).abs() <= 1.0, "{slower}: {one:?} {all:?}");
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
            // Another way to run an experiment may lose where the paper's gains.
            assert!(figure.ours.is_finite(), "{figure:?}");
            assert!(figure.ours > 0.0 || figure.kind == FigureKind::Variant, "{figure:?}");
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
