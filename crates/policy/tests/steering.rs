//! Sessions in virtual time: regret, starvation, oscillation, lies, dead links, residency.

use pithead_model::Level;
use pithead_policy::sim::{Load, Policy, Regret, Scenario, grid, regret, simulate};
use pithead_policy::{Allowed, ByLevel, Sample, SliceCosts, Steering};

fn named(part: &str) -> Scenario {
    grid().into_iter().find(|scenario| scenario.name.contains(part)).expect("the grid has it")
}

fn complete(scenario: &Scenario) -> pithead_policy::sim::Outcome {
    let outcome = simulate(scenario, Policy::Adaptive);
    assert_eq!(outcome.slices.to_array().iter().sum::<u32>(), scenario.slices, "{}", scenario.name);
    assert!(outcome.finish_ns.is_finite(), "{}", scenario.name);
    outcome
}

#[test]
fn regret_over_the_grid() {
    let all: Vec<(Regret, String)> = grid().iter().map(|it| (regret(it), it.name.clone())).collect();
    let sorted = |of: &dyn Fn(&Regret) -> f64| {
        let mut regrets: Vec<(f64, &str)> = all.iter().map(|(regret, name)| (of(regret), name.as_str())).collect();
        regrets.sort_by(|a, b| b.0.total_cmp(&a.0));
        let over = regrets.iter().filter(|(regret, _)| *regret > 1.05).count();
        let mean = (regrets.iter().map(|(regret, _)| regret.ln()).sum::<f64>() / regrets.len() as f64).exp();
        for (regret, name) in regrets.iter().take(12) {
            println!("{regret:.3} {name}");
        }
        println!("over 1.05: {over} of {}; geometric mean {mean:.3}; best {:.3}", regrets.len(), regrets[regrets.len() - 1].0);
        (regrets[0].0, over, mean, regrets[regrets.len() - 1].0)
    };
    // Beside the levels that do whole slices.
    let slices = [Level::Whole, Level::Filtered, Level::Bytes];
    let fastest = |regret: &Regret| slices.iter().map(|level| *regret.fixed_ns.get(*level)).fold(f64::INFINITY, f64::min);
    let (worst, over, mean, best) = sorted(&|regret| regret.adaptive.finish_ns / fastest(regret));
    assert!(worst <= 1.25, "worst: {worst}");
    assert!(over * 100 <= all.len() * 4, "{over} over 1.05");
    assert!(mean < 0.95 && best < 0.5);
    let (worst, over, mean, _) = sorted(&|regret| regret.regret);
    assert!(worst <= 1.25, "beside match hints, too: {worst}");
    assert!(over * 100 <= all.len() * 4 && mean < 0.95, "{over} over 1.05, mean {mean}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let scenario = named("join, 0.1 pass, CPU 1/4, link 1G, busy: none");
    assert_eq!(simulate(&scenario, Policy::Adaptive), simulate(&scenario, Policy::Adaptive));
    let other = Scenario { seed: 77, ..scenario.clone() };
    assert_ne!(simulate(&scenario, Policy::Adaptive), simulate(&other, Policy::Adaptive));
}

#[test]
fn work_completes_beside_one_who_is_always_busy() {
    let mut scenario = named("aggregate, 0.5 pass, CPU 1/4, link 1G, busy: none");
    scenario.drive_load = Load::steady(0.999);
    let drive = complete(&scenario);
    let host = simulate(&scenario, Policy::Fixed(Level::Bytes));
    assert!(
        drive.slices.hints + drive.slices.bytes == 64 && drive.finish_ns <= host.finish_ns * 1.05,
        "the host does it: {drive:?} {host:?}"
    );
    scenario.link_load = Load::steady(0.999);
    scenario.host_load = Load::steady(0.999);
    complete(&scenario);
}

#[test]
fn modes_do_not_oscillate() {
    for noise in [0.1, 0.4, 0.8] {
        for name in ["aggregate, 0.5 pass, CPU 1, link 1G, busy: none", "scan, 0.01 pass, CPU 1/4, link 1G, busy: none"] {
            let mut scenario = Scenario { noise, slices: 256, ..named(name) };
            let steady = complete(&scenario);
            assert!(steady.changes <= 64, "{name}, noise {noise}: {steady:?}");
            scenario.drive_load = Load { share: 0.6, from_ns: 0.0, period_ns: 40e6 };
            let alternating = complete(&scenario);
            assert!(alternating.changes <= 128, "{name}, noise {noise}: {alternating:?}");
        }
    }
}

#[test]
fn lies_neither_panic_nor_stall() {
    let fair = named("aggregate, 0.1 pass, CPU 1, link 1G, busy: none");
    let honest = complete(&fair).finish_ns;
    for lies in [vec![0.0], vec![1e30], vec![f64::NAN], vec![-5.0, f64::INFINITY], vec![0.0, 1e30, 1.0]] {
        let told = complete(&Scenario { lies: lies.clone(), ..fair.clone() });
        let worst = ByLevel::from_fn(|level| simulate(&fair, Policy::Fixed(level)).finish_ns).to_array();
        let worst = worst.into_iter().fold(honest, f64::max);
        assert!(told.finish_ns <= worst * 1.1, "{lies:?}: {told:?}");
    }
}

#[test]
fn a_lie_alone_moves_little() {
    let three = |whole, filtered, bytes| ByLevel { whole, filtered, hints: bytes, bytes };
    let seed =
        SliceCosts { drive_ns: three(10e6, 8e6, 0.1e6), host_ns: three(0.0, 2e6, 10e6), link_bytes: three(1e3, 1e6, 2e6) };
    let mut steering = Steering::new(seed, false);
    let sample = |ns: f64| Sample {
        level: Level::Whole,
        slices: 1,
        drive_ns: ns,
        scan_ns: ns * 0.8,
        link_bytes: 1e3,
        scan_bytes: 1e6,
        stored_bytes: 2e6,
    };
    (0..6).for_each(|_| steering.measure(&sample(10e6)));
    assert!(steering.is_settled());
    for lie in [0.0, 1e30, f64::NAN, f64::NEG_INFINITY] {
        steering.measure(&sample(lie));
        let now = steering.costs().drive_ns.whole;
        assert!((9e6..11e6).contains(&now), "{lie}: {now}");
        steering.measure(&sample(10e6));
    }
    // When the drive reports it again and again, the session believes it.
    (0..6).for_each(|_| steering.measure(&sample(60e6)));
    assert!(steering.costs().drive_ns.whole > 55e6);
}

#[test]
fn what_the_host_measures_replaces_the_speed_ratio() {
    let three = |whole, filtered, bytes| ByLevel { whole, filtered, hints: bytes, bytes };
    let seed = SliceCosts { drive_ns: three(40e6, 30e6, 0.1e6), ..SliceCosts::default() };
    let mut steering = Steering::new(seed, true);
    steering.set_speed(4.0, 1.0);
    assert!((steering.costs().host_ns.bytes - 10e6).abs() < 1e3, "{:?}", steering.costs());
    (0..12).for_each(|_| steering.measure_host(Level::Bytes, 2, 2.0 * 16e6));
    assert!((steering.costs().host_ns.bytes - 16e6).abs() < 1e3, "{:?}", steering.costs());
}

#[test]
fn a_weak_drive_sends_the_pages_that_may_match() {
    let weak = |it: &Scenario| it.name.contains("CPU 1/15, link 100M, busy: none") && it.costs.link_bytes.hints < 1e5;
    let mut seen = 0;
    for scenario in grid().into_iter().filter(weak) {
        let outcome = complete(&scenario);
        let others =
            [Level::Whole, Level::Filtered, Level::Bytes].map(|level| simulate(&scenario, Policy::Fixed(level)).finish_ns);
        let best = others.into_iter().fold(f64::INFINITY, f64::min);
        assert!(outcome.slices.hints > 48 && outcome.finish_ns < best, "{}: {outcome:?} beside {others:?}", scenario.name);
        seen += 1;
    }
    assert!(seen > 0);
}

#[test]
fn a_level_that_was_expected_to_send_much_is_corrected_by_what_it_sends() {
    let four = |whole, filtered, hints, bytes| ByLevel { whole, filtered, hints, bytes };
    let seed = SliceCosts {
        drive_ns: four(600e6, 450e6, 0.2e6, 0.1e6),
        host_ns: four(0.0, 2e6, 10e6, 10e6),
        link_bytes: four(1e3, 1e6, 2.5e6, 2.5e6),
    };
    let mut steering = Steering::new(seed, false);
    steering.expect_hints(0.2e6);
    assert!((steering.costs().link_bytes.hints - 0.2e6).abs() < 1.0);
    let sample = |link_bytes: f64| Sample {
        level: Level::Hints,
        slices: 1,
        drive_ns: 5e6,
        scan_ns: f64::NAN,
        link_bytes,
        scan_bytes: f64::NAN,
        stored_bytes: f64::NAN,
    };
    (0..9).for_each(|_| steering.measure(&sample(0.05e6)));
    let costs = steering.costs();
    assert!((costs.link_bytes.hints - 0.05e6).abs() < 1.0 && (costs.drive_ns.hints - 5e6).abs() < 1e3, "{costs:?}");
    // It says nothing of other levels.
    assert!((costs.link_bytes.bytes, costs.drive_ns.filtered) == (2.5e6, 450e6), "{costs:?}");
}

#[test]
fn a_dead_link_is_survived_where_the_drive_may_do_the_work() {
    let mut scenario = named("aggregate, 0.1 pass, CPU 1/15, link 1G, busy: none");
    scenario.costs.link_bytes.whole = 0.0;
    scenario.link_bytes_per_s = 0.0;
    let outcome = complete(&scenario);
    assert_eq!(outcome.slices.whole, scenario.slices);
    scenario.allowed = Allowed::only(Level::Bytes);
    assert!(simulate(&scenario, Policy::Adaptive).finish_ns.is_infinite());
}

#[test]
fn a_whole_partition_stays_whole_or_is_sent() {
    for name in ["aggregate, 0.5 pass, CPU 1/15, link process", "aggregate, 0.001 pass, CPU 1, link 100M"] {
        let outcome = complete(&Scenario { whole_is_all_or_none: true, ..named(name) });
        assert!(outcome.slices.whole == 0 || outcome.slices.whole == 64, "{outcome:?}");
    }
}

#[test]
fn resident_slices_are_taken_at_the_host_unless_it_is_busy() {
    let mut scenario = Scenario { resident: 64, ..named("aggregate, 0.5 pass, CPU 1/4, link 100M, busy: none") };
    let free = complete(&scenario);
    assert!(free.slices.hints + free.slices.bytes > 32, "{free:?}");
    scenario.host_load = Load::steady(0.98);
    let busy = complete(&scenario);
    assert!(busy.slices.whole + busy.slices.filtered > 32, "{busy:?}");
}
