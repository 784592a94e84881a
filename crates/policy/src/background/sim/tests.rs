use super::*;

const POLICIES: [BackgroundPolicy; 4] =
    [BackgroundPolicy::None, BackgroundPolicy::Bts, BackgroundPolicy::Shares(0.2), BackgroundPolicy::Tail(1.2)];
const BEST: BackgroundPolicy = BackgroundPolicy::Tail(1.2);

fn alone(scenario: &Scenario) -> Outcome {
    simulate(&Scenario { backlog: Backlog::None, ..scenario.clone() }, BackgroundPolicy::None)
}

#[test]
fn a_seed_has_one_outcome() {
    for policy in POLICIES {
        let scenario = Scenario { seconds: 1.0, ..paper(3, true) };
        assert_eq!(simulate(&scenario, policy), simulate(&scenario, policy));
        assert_ne!(simulate(&scenario, policy), simulate(&Scenario { seed: 2, ..scenario }, policy));
    }
}

/// Pollaczek and Khinchine: the mean wait before one server of tasks that come at random.
#[test]
fn waits_are_those_of_queueing_theory() {
    let scenario = Scenario { seconds: 200.0, task_spread: 0.3, ..paper(1, false) };
    let load = scenario.rate * scenario.task_seconds;
    let squares = (scenario.task_spread * scenario.task_spread).exp();
    let wait = load * scenario.task_seconds * squares / (2.0 * (1.0 - load));
    let expected = wait + scenario.task_seconds + scenario.elsewhere_seconds;
    let found = alone(&scenario).mean;
    assert!((found / expected - 1.0).abs() < 0.02, "{found} {expected}");
}

/// One thread that waits for each put: alone it takes what a put takes, and without a policy the rest of the step that the one before
/// has left, too.
#[test]
fn a_closed_loop_sends_a_task_when_the_one_before_is_done() {
    let scenario = Scenario { task_spread: 0.0, ..paper(1, true) };
    let closed = |scenario: &Scenario, policy| simulate_with(scenario, Arrivals::Closed, policy);
    let (task, elsewhere, step) = (scenario.task_seconds, scenario.elsewhere_seconds, scenario.step_seconds);
    let alone = closed(&Scenario { backlog: Backlog::None, ..scenario.clone() }, BackgroundPolicy::None);
    let none = closed(&scenario, BackgroundPolicy::None);
    for (outcome, latency) in [(&alone, task + elsewhere), (&none, task + step)] {
        assert!((outcome.mean / latency - 1.0).abs() < 1e-3, "{} {latency}", outcome.mean);
    }
    assert!((none.tasks as f64 * (task + step) / scenario.seconds - 1.0).abs() < 1e-3, "{none:?}");
    assert!((none.steps_per_task() - 1.0).abs() < 1e-3 && alone.steps == 0, "{none:?}");
    // However many threads there are, no core has more puts before it than threads are bound to it.
    let many = closed(&Scenario { threads: 8, ..scenario }, BackgroundPolicy::None);
    assert!((many.mean / (2.0 * (task + step)) - 1.0).abs() < 0.01, "{}", many.mean);
}

#[test]
fn idle_cores_take_the_steps_that_slow_others_down() {
    for threads in 1..=3 {
        let scenario = paper(threads, true);
        let [none, bts, best] = [BackgroundPolicy::None, BackgroundPolicy::Bts, BEST].map(|policy| simulate(&scenario, policy));
        let alone = alone(&scenario);
        assert!(bts.mean < none.mean * 0.8, "{threads} threads: {} {}", bts.mean, none.mean);
        assert!(bts.steps as f64 > none.steps as f64 * 0.7, "{threads} threads: {} {}", bts.steps, none.steps);
        assert!(best.p50 < alone.p50 * 1.05 && best.p99 < alone.p99 * 1.1, "{threads} threads: {best:?} {alone:?}");
        // What the idle core does, and a little on the others.
        assert!(best.steps as f64 > none.steps as f64 * 0.7, "{threads} threads: {} {}", best.steps, none.steps);
    }
}

#[test]
fn full_cores_are_not_burdened_and_nothing_starves() {
    let scenario = Scenario { rate: 2_450.0, backlog: Backlog::Endless, ..paper(16, false) };
    let alone = alone(&scenario);
    assert!(alone.foreground.iter().all(|share| *share > 0.95), "{alone:?}");
    let [none, best] = [BackgroundPolicy::None, BEST].map(|policy| simulate(&scenario, policy));
    assert!(best.mean < none.mean, "{} {}", best.mean, none.mean);
    for policy in POLICIES {
        let outcome = simulate(&scenario, policy);
        assert!(outcome.steps > 100 && outcome.starved < 1.0, "{policy}: {outcome:?}");
    }
}

#[test]
fn services_do_not_go_back_and_forth() {
    // Two cores in the middle between idle and busy, with much noise.
    let scenario =
        Scenario { cores: 2, threads: 2, rate: 4_500.0, backlog: Backlog::Endless, task_spread: 1.0, ..paper(2, false) };
    for policy in [BackgroundPolicy::Bts, BEST] {
        let outcome = simulate(&scenario, policy);
        assert!((outcome.moves as f64) < outcome.steps as f64 * 0.05, "{policy}: {outcome:?}");
    }
}

#[test]
fn many_cores_are_used() {
    let scenario = Scenario { seconds: 1.0, cores: 64, services: 32, backlog: Backlog::Endless, ..paper(32, false) };
    let outcome = simulate(&scenario, BEST);
    let busy = outcome.background.iter().filter(|share| **share > 0.5).count();
    assert!(busy >= 24, "{:?}", outcome.background);
    assert!(outcome.p99 < alone(&scenario).p99 * 1.15);
}
