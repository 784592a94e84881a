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
        assert_ne!(simulate(&scenario, policy), simulate(&Scenario { seed: 2, ..scenario.clone() }, policy));
        let writing = Scenario { step_bytes: 65_536.0, medium: Some(SLOW), writes: Some(WRITES), ..scenario };
        let once = || simulate_with(&writing, Arrivals::Queued, policy);
        assert_eq!(once(), once());
    }
}

/// Tasks and steps that begin within it end after it.
#[test]
fn no_core_works_longer_than_the_time_that_is_simulated() {
    for policy in POLICIES {
        let scenario = Scenario { seconds: 0.001, backlog: Backlog::Endless, ..paper(16, false) };
        let outcome = simulate(&scenario, policy);
        let shares = outcome.foreground.iter().zip(&outcome.background).map(|(foreground, background)| foreground + background);
        let most = shares.fold(0.0, f64::max);
        assert!(0.5 < most && most <= 1.0 + 1e-9, "{policy}: {outcome:?}");
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

const MICROSECOND: f64 = 1e-6;
/// Puts whose every part takes a time of its own: 20 µs at the client, 30 for the commit, 10 for the answer, 20 at the client.
const WRITES: Writes = Writes {
    task_bytes: 16_384.0,
    client_seconds: 40.0 * MICROSECOND,
    commit_seconds: 0.0,
    commit_task_seconds: 30.0 * MICROSECOND,
    answer_seconds: 10.0 * MICROSECOND,
    after_seconds: 0.0,
    round_bytes: f64::INFINITY,
    round_pause: 0.0,
    prepare_seconds: 0.0,
    write_seconds: 0.0,
    amplification: 2.0,
    behind_bytes_max: f64::INFINITY,
    log_bytes: 0.0,
    log_pause: f64::INFINITY,
};
/// One that reads as fast as it writes.
const fn medium_of(bytes_per_second: f64, latency_seconds: f64) -> Medium {
    Medium { read_bytes_per_second: bytes_per_second, write_bytes_per_second: bytes_per_second, latency_seconds }
}

const SLOW: Medium = medium_of(200e6, 100.0 * MICROSECOND);
const NO_TIME: Medium = medium_of(f64::INFINITY, 0.0);

/// Puts of 100 µs on one core, and nothing else.
fn puts(threads: usize, writes: Writes) -> Scenario {
    let of_paper = paper(threads, false);
    Scenario { cores: 1, task_spread: 0.0, backlog: Backlog::None, writes: Some(writes), ..of_paper }
}

fn closed(scenario: &Scenario) -> Outcome {
    simulate_with(scenario, Arrivals::Closed, BackgroundPolicy::None)
}

fn is_about(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 2e-3, "{found} {expected}");
}

#[test]
fn a_put_takes_the_sum_of_its_parts() {
    let outcome = closed(&puts(1, WRITES));
    let seconds = (20.0 + 100.0 + 30.0 + 10.0 + 20.0 + 20.0) * MICROSECOND;
    is_about(outcome.mean, seconds);
    is_about(outcome.p99, seconds);
    is_about(outcome.tasks as f64, 10.0 / seconds);
    assert!([0, 1].contains(&(outcome.commits - outcome.tasks)), "the last one may not be answered yet: {outcome:?}");
    assert_eq!((outcome.medium_bytes, outcome.medium), (0.0, 0.0));
}

#[test]
fn nobody_waits_for_what_comes_after_the_answer_but_the_core_is_taken() {
    let after = Writes { after_seconds: 20.0 * MICROSECOND, ..WRITES };
    let one = Scenario { elsewhere_seconds: 0.0, ..puts(1, after) };
    // The next put is sent behind it; with a second core, beside it.
    is_about(closed(&one).mean, 200.0 * MICROSECOND);
    let two = Scenario { cores: 2, ..one };
    let outcome = closed(&two);
    is_about(outcome.mean, 180.0 * MICROSECOND);
    is_about(outcome.foreground.iter().sum::<f64>() * two.seconds, outcome.tasks as f64 * 200.0 * MICROSECOND);
}

#[test]
fn puts_that_wait_share_what_a_commit_takes_by_itself() {
    let writes = Writes { commit_seconds: 300.0 * MICROSECOND, commit_task_seconds: 0.0, ..WRITES };
    let [alone, many] = [1, 8].map(|threads| closed(&Scenario { cores: 8, ..puts(threads, writes) }));
    is_about(alone.mean, (170.0 + 300.0) * MICROSECOND);
    is_about(alone.commits as f64, alone.tasks as f64);
    // A put waits for the rest of a commit, and then for its own.
    assert!(many.mean < alone.mean + 300.0 * MICROSECOND && many.commits * 3 < many.tasks, "{many:?}");
}

#[test]
fn a_full_core_does_as_many_puts_as_fit_and_no_work_is_lost() {
    let outcome = closed(&puts(8, WRITES));
    is_about(outcome.tasks as f64, 10.0 / (180.0 * MICROSECOND));
    is_about(outcome.foreground[0], 1.0);
    assert!(outcome.commits * 3 < outcome.tasks * 2, "puts that wait share a commit: {outcome:?}");
}

#[test]
fn commits_are_made_one_at_a_time_and_not_beside_the_preparation_of_a_round() {
    let slow = Writes { commit_task_seconds: 200.0 * MICROSECOND, ..WRITES };
    is_about(closed(&Scenario { cores: 8, ..puts(4, slow) }).tasks as f64, 10.0 / (200.0 * MICROSECOND));
    // A round for each commit, of as much time as that.
    let prepare_seconds = slow.commit_task_seconds / slow.task_bytes;
    let both = Scenario { cores: 8, ..puts(4, Writes { round_bytes: 0.0, prepare_seconds, ..slow }) };
    is_about(closed(&both).tasks as f64, 10.0 / (400.0 * MICROSECOND));
}

#[test]
fn puts_wait_for_a_medium_that_is_behind_and_no_byte_is_lost() {
    let medium = Some(medium_of(10e6, 0.0));
    let writes = Writes { round_bytes: 0.0, behind_bytes_max: 1e6, ..WRITES };
    let outcome = closed(&Scenario { cores: 4, medium, ..puts(4, writes) });
    let bytes = outcome.tasks as f64 * writes.task_bytes * writes.amplification;
    assert!(outcome.medium > 0.98, "{outcome:?}");
    // What is done, what is behind, and a commit of all threads.
    let behind = (writes.behind_bytes_max + 4.0 * writes.task_bytes) * writes.amplification;
    assert!((0.0..=behind).contains(&(bytes - 10.0 * 10e6 * outcome.medium)), "{bytes} {outcome:?}");
    // Beside a medium that keeps up, puts take what they take without one.
    let fast = Some(medium_of(10e9, 0.0));
    let fast = closed(&Scenario { cores: 4, medium: fast, ..puts(1, writes) });
    assert_eq!(fast.mean, closed(&Scenario { cores: 4, ..puts(1, WRITES) }).mean);
    is_about(fast.medium_bytes, fast.tasks as f64 * writes.task_bytes * writes.amplification);
    is_about(fast.medium * 10.0 * 10e9, fast.medium_bytes);
}

#[test]
fn rounds_are_not_nearer_than_their_pause_and_take_their_time_on_cores() {
    let writes = Writes { round_bytes: 0.0, round_pause: 0.05, write_seconds: 1e-9, prepare_seconds: 2e-9, ..WRITES };
    let latency_seconds = 1e-3;
    let medium = Some(medium_of(f64::INFINITY, latency_seconds));
    let scenario = Scenario { medium, seconds: 10.02, cores: 4, ..puts(1, writes) };
    let outcome = closed(&scenario);
    let parts = 180.0 * MICROSECOND;
    let in_rounds = outcome.foreground.iter().sum::<f64>() * scenario.seconds - outcome.tasks as f64 * parts;
    // A byte of a put costs 2 ns, and two bytes of the medium one each.
    is_about(in_rounds, outcome.medium_bytes / writes.amplification * 4e-9);
    is_about(outcome.medium_bytes, outcome.tasks as f64 * writes.task_bytes * writes.amplification);
}

/// One put of 180 µs after the other, a log of a megabyte a second, and a medium that takes a tenth of a second for that: what comes
/// meanwhile is flushed while all puts wait, for a tenth of that tenth.
#[test]
fn a_flush_of_the_log_keeps_puts_waiting_for_what_came_meanwhile() {
    let log_bytes = 1e6 * 180.0 * MICROSECOND;
    let writes = Writes { round_bytes: 0.0, amplification: 0.0, log_bytes, log_pause: 1.0, ..WRITES };
    let medium = Some(medium_of(10e6, 0.0));
    let scenario = Scenario { cores: 4, medium, elsewhere_seconds: 0.0, seconds: 8.0, ..puts(1, writes) };
    let outcome = closed(&scenario);
    let waits = 7.0 * 0.1 * 0.1;
    let tasks = (8.0 - waits) / (180.0 * MICROSECOND);
    is_about(outcome.tasks as f64, tasks);
    assert!((outcome.mean - 180.0 * MICROSECOND - waits / tasks).abs() < 0.2 * waits / tasks, "{outcome:?}");
    // The last flush is less than a second and a tenth ago.
    let unflushed = outcome.tasks as f64 * log_bytes - outcome.medium_bytes;
    assert!((0.0..1.2e6).contains(&unflushed), "{unflushed}");
}

#[test]
fn a_step_waits_for_what_it_reads() {
    let medium = Some(medium_of(655.36e6, 50.0 * MICROSECOND));
    let of_paper = paper(0, false);
    let scenario = Scenario { medium, step_bytes: 65_536.0, services: 1, backlog: Backlog::Endless, ..of_paper };
    let outcome = simulate(&scenario, BackgroundPolicy::None);
    let step = scenario.step_seconds;
    // 100 µs of transfer and 50 of latency.
    is_about(outcome.steps as f64, 10.0 / (step + 150.0 * MICROSECOND));
    is_about(outcome.background[0], step / (step + 150.0 * MICROSECOND));
    assert_eq!(outcome.medium_bytes, outcome.steps as f64 * scenario.step_bytes);
    // A read is enough for two steps of half as much.
    let half = simulate(&Scenario { step_bytes: 32_768.0, ..scenario.clone() }, BackgroundPolicy::None);
    is_about(half.steps as f64, 10.0 / (step + 75.0 * MICROSECOND));
    // Four of them share the medium, on as many cores.
    let four = simulate(&Scenario { services: 4, ..scenario.clone() }, BackgroundPolicy::Shares(1.0));
    is_about(four.medium, 1.0);
    is_about(four.steps as f64, 10.0 / (100.0 * MICROSECOND));
    let elsewhere = Scenario { read_elsewhere_seconds: 100.0 * MICROSECOND, ..scenario };
    let outcome = simulate(&elsewhere, BackgroundPolicy::None);
    is_about(outcome.steps as f64, 10.0 / (step + 250.0 * MICROSECOND));
}

#[test]
fn with_a_medium_that_takes_no_time_all_is_as_without_one() {
    let none = Writes { client_seconds: 0.0, commit_task_seconds: 0.0, answer_seconds: 0.0, ..WRITES };
    for (policy, backlog) in POLICIES
        .into_iter()
        .flat_map(|policy| [Backlog::None, Backlog::PerTask(1.0), Backlog::Endless].map(|backlog| (policy, backlog)))
    {
        let without = Scenario { seconds: 0.5, backlog, ..paper(3, true) };
        let with = Scenario { medium: Some(NO_TIME), step_bytes: 65_536.0, writes: Some(none), ..without.clone() };
        let outcome = simulate(&with, policy);
        assert_eq!(outcome.commits, outcome.tasks);
        let same = Outcome { commits: 0, medium_bytes: 0.0, ..outcome };
        assert_eq!(same, simulate(&without, policy), "{policy} {backlog:?}");
    }
}

#[test]
fn cores_of_a_pair_slow_each_other_down() {
    let bare = Scenario { cores: 2, beside_speed: 0.5, elsewhere_seconds: 0.0, writes: None, ..puts(1, WRITES) };
    let task = bare.task_seconds;
    is_about(closed(&bare).mean, task);
    let both = closed(&Scenario { threads: 2, ..bare.clone() });
    is_about(both.mean, 2.0 * task);
    is_about(both.foreground[1], 1.0);
    // Cores of different pairs do not: the third one is alone.
    let three = closed(&Scenario { cores: 3, threads: 3, ..bare.clone() });
    is_about(three.tasks as f64, 10.0 / (2.0 * task) * 2.0 + 10.0 / task);
    // A step takes half of the time beside a core that is always busy, and the other half it waits for its read.
    let beside = Scenario { services: 1, backlog: Backlog::Endless, step_seconds: 0.25 * task, ..bare };
    let beside = Scenario { step_bytes: 65_536.0, read_elsewhere_seconds: 0.5 * task, ..beside };
    let outcome = simulate_with(&beside, Arrivals::Closed, BackgroundPolicy::Bts);
    is_about(outcome.steps as f64, 10.0 / task);
    is_about(outcome.mean, 4.0 / 3.0 * task);
}

/// One host thread that has a put due at random moments, and waits for the one before: a queue of its own.
#[test]
fn what_is_due_waits_at_its_host_for_the_put_before() {
    let scenario = Scenario { seconds: 200.0, rate: 2_500.0, elsewhere_seconds: 20.0 * MICROSECOND, ..puts(1, WRITES) };
    let takes = 200.0 * MICROSECOND;
    let load = scenario.rate * takes;
    let queued = simulate_with(&scenario, Arrivals::Queued, BackgroundPolicy::None);
    let expected = takes + load * takes / (2.0 * (1.0 - load));
    assert!((queued.mean / expected - 1.0).abs() < 0.02, "{} {expected}", queued.mean);
    // Sixteen threads come to more than a core can do, and each has one put on its way: the rest is due and waits.
    let full = simulate_with(&Scenario { seconds: 10.0, ..puts(16, WRITES) }, Arrivals::Queued, BackgroundPolicy::None);
    is_about(full.tasks as f64, 10.0 / (180.0 * MICROSECOND));
}
