use std::sync::mpsc;

use super::monitor::load_between;
use super::*;
use crate::{Activity, Class, PoolOptions, Progress, Stepped};

/// Grants these, whatever the cores do.
struct Fixed(Arc<Mutex<Vec<Grant>>>);

impl Governor for Fixed {
    fn decide(&mut self, cores: &[CoreLoad], _interval: Duration) -> Vec<Grant> {
        let grants = self.0.lock().clone();
        assert_eq!(grants.len(), cores.len());
        grants
    }

    fn name(&self) -> String {
        "fixed".into()
    }
}

/// Counts its steps, and does in each of them what it is told.
struct Counting {
    steps: Arc<AtomicUsize>,
    blocks: bool,
    reads: bool,
    act: Box<dyn FnMut(usize) -> Stepped + Send>,
    at: u64,
}

impl Service for Counting {
    fn step(&mut self) -> Stepped {
        let step = self.steps.fetch_add(1, Ordering::SeqCst);
        let stepped = (self.act)(step);
        if let Stepped::Did { bytes } = stepped {
            self.at += bytes;
        }
        stepped
    }

    fn blocks(&self) -> bool {
        self.blocks
    }

    fn only_reads(&self) -> bool {
        self.reads
    }

    fn progress(&self) -> Progress {
        Progress { done_bytes: self.at, total_bytes: 1_000_000, found: 0 }
    }

    fn position(&self) -> Vec<u8> {
        self.at.to_le_bytes().to_vec()
    }

    fn restart(&mut self) {
        self.at = 0;
    }
}

fn pool(reactors: usize) -> Arc<Pool> {
    let options = PoolOptions { name: "t".into(), cores: None, reactors, blocking_threads_max: 2 };
    Arc::new(Pool::new(options).unwrap())
}

fn grant(share: f64) -> Grant {
    Grant { share, strict: true, equal: false }
}

fn services(pool: &Arc<Pool>, grants: &[Grant]) -> (Services, Arc<Mutex<Vec<Grant>>>) {
    let grants = Arc::new(Mutex::new(grants.to_vec()));
    (Services::start(pool, Box::new(Fixed(Arc::clone(&grants))), Duration::from_millis(1)), grants)
}

fn counting(act: impl FnMut(usize) -> Stepped + Send + 'static) -> (Box<Counting>, Arc<AtomicUsize>) {
    let steps = Arc::new(AtomicUsize::new(0));
    (Box::new(Counting { steps: Arc::clone(&steps), blocks: false, reads: false, act: Box::new(act), at: 0 }), steps)
}

fn did(bytes: u64) -> impl FnMut(usize) -> Stepped {
    move |_| Stepped::Did { bytes }
}

/// Waits, for far longer than it takes, until this holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn activity(services: &Services, name: &str) -> Activity {
    services.list().into_iter().find(|state| state.name == name).expect("a service of that name").activity
}

#[test]
fn a_service_is_paused_started_and_stopped() {
    let pool = pool(2);
    let (services, _) = services(&pool, &[grant(1.0); 2]);
    let (service, steps) = counting(did(1));
    services.add("counts", service, true);
    assert_eq!(activity(&services, "counts"), Activity::Paused);
    assert!(services.resume("counts"));
    until("steps", || steps.load(Ordering::SeqCst) > 100);
    assert!(services.pause("counts"));
    let settled = || {
        let before = steps.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(20));
        before == steps.load(Ordering::SeqCst)
    };
    until("it rests", settled);
    let state = &services.list()[0];
    assert_eq!(state.activity, Activity::Paused);
    assert_eq!(
        (state.progress.done_bytes, state.steps),
        (steps.load(Ordering::SeqCst) as u64, steps.load(Ordering::SeqCst) as u64)
    );
    assert_eq!(state.position, state.steps.to_le_bytes());
    assert!(services.stop("counts"));
    until("it forgot where it was", || services.list()[0].progress.done_bytes == 0);
    assert_eq!(activity(&services, "counts"), Activity::Stopped);
    assert!(services.resume("counts"));
    until("it goes on", || services.list()[0].progress.done_bytes > 0);
    assert_eq!([services.resume("no"), services.pause("no"), services.stop("no"), services.limit("no", None)], [false; 4]);
}

#[test]
fn a_step_that_panics_ends_its_service_only() {
    let pool = pool(1);
    let (services, _) = services(&pool, &[grant(1.0)]);
    let (bad, steps_of_bad) = counting(|step| if step < 3 { Stepped::Did { bytes: 1 } } else { panic!("no more") });
    let (good, steps) = counting(did(1));
    services.add("bad", bad, false);
    services.add("good", good, false);
    until("it is broken", || activity(&services, "bad") == Activity::Broken("no more".into()));
    let before = steps.load(Ordering::SeqCst);
    until("the other one goes on", || steps.load(Ordering::SeqCst) > before + 100);
    assert_eq!(steps_of_bad.load(Ordering::SeqCst), 4);
    assert!(!services.resume("bad"), "a broken service is not started");
}

#[test]
fn a_step_that_holds_its_core_is_seen_and_others_move_away() {
    let pool = pool(2);
    let (services, _) = services(&pool, &[grant(1.0); 2]);
    let (release, held) = mpsc::channel::<()>();
    let (hog, _) = counting(move |_| {
        let _ = held.recv();
        Stepped::Idle { pause: Duration::from_secs(60) }
    });
    services.add("hog", hog, false);
    until("it is told", || services.cores().iter().any(|core| core.counts.stalls == 1));
    let stalled = services.cores().iter().position(|core| core.counts.stalls == 1).unwrap();
    until("it is named", || services.cores()[stalled].stalled.as_ref().is_some_and(|(task, _)| task.ends_with("for hog")));
    let (good, steps) = counting(did(1));
    services.add("good", good, false);
    until("the other core works", || steps.load(Ordering::SeqCst) > 100);
    for _ in 0..4 {
        let core = pool.spawn(Class::Foreground, async { std::thread::current().name().map(str::to_owned) });
        let core = futures::executor::block_on(core).unwrap().unwrap();
        assert_ne!(core, format!("t-{stalled}"), "new tasks avoid the core");
    }
    release.send(()).unwrap();
    until("it goes on", || activity(&services, "hog") == Activity::Idle);
}

#[test]
fn a_service_that_is_removed_lets_go_of_what_it_holds() {
    let pool = pool(2);
    let (services, _) = services(&pool, &[grant(1.0); 2]);
    let held = Arc::new(());
    let holds = Arc::clone(&held);
    let (service, steps) = counting(move |_| {
        let _holds = &holds;
        Stepped::Did { bytes: 3 }
    });
    services.add("holds", service, false);
    until("steps", || steps.load(Ordering::SeqCst) > 10);
    for _ in 0..1_000 {
        // Also while a step ends.
        let state = &services.list()[0];
        assert_eq!(state.bytes, 3 * state.steps);
    }
    assert!(services.remove("holds"));
    assert_eq!(Arc::strong_count(&held), 1);
    assert!(services.list().is_empty() && !services.remove("holds"));
    let before = steps.load(Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(steps.load(Ordering::SeqCst), before);
}

#[test]
fn steps_leave_a_core_that_has_no_time_for_them() {
    let pool = pool(2);
    let (services, grants) = services(&pool, &[grant(1.0), grant(0.0)]);
    let (service, steps) = counting(did(1));
    services.add("counts", service, false);
    until("steps", || steps.load(Ordering::SeqCst) > 100);
    let before = services.cores();
    assert_eq!((before[1].steps, before[1].moves), (0, 0));
    *grants.lock() = vec![grant(0.0), grant(1.0)];
    until("they moved", || services.cores()[1].steps > 100);
    assert_eq!(services.cores()[1].moves, 1);
    // None is granted: none is run.
    *grants.lock() = vec![grant(0.0); 2];
    until("it rests", || {
        let before = steps.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(20));
        before == steps.load(Ordering::SeqCst)
    });
}

#[test]
fn steps_stay_where_their_service_is() {
    let pool = pool(2);
    let (services, _) = services(&pool, &[grant(1.0); 2]);
    let spin = |_| {
        let since = Instant::now();
        while since.elapsed() < Duration::from_micros(50) {}
        Stepped::Did { bytes: 1 }
    };
    let (service, steps) = counting(spin);
    services.add("counts", service, false);
    until("steps", || steps.load(Ordering::SeqCst) > 2_000);
    let moves: u64 = services.cores().iter().map(|core| core.moves).sum();
    assert!(moves < 200, "{moves} moves of {} steps", steps.load(Ordering::SeqCst));
}

#[test]
fn a_limit_is_kept() {
    let pool = pool(1);
    let (services, _) = services(&pool, &[grant(1.0)]);
    let (service, steps) = counting(did(1_000));
    services.add("counts", service, true);
    assert!(services.limit("counts", Some(100_000)));
    let since = Instant::now();
    services.resume("counts");
    until("steps", || steps.load(Ordering::SeqCst) >= 50);
    // However slow the machine is, the bytes were not taken sooner than they may be.
    let may = 100_000.0 * since.elapsed().as_secs_f64() + 12_000.0;
    assert!((steps.load(Ordering::SeqCst) * 1_000) as f64 <= may, "{may}");
    assert_eq!(services.list()[0].limit, Some(100_000));
    services.limit("counts", None);
    until("it is unlimited", || steps.load(Ordering::SeqCst) > 10_000);
}

#[test]
fn blocking_steps_hold_no_reactor() {
    let pool = pool(1);
    let (services, _) = services(&pool, &[grant(1.0)]);
    let (release, held) = mpsc::channel::<()>();
    let (mut service, steps) = counting(move |_| {
        let _ = held.recv();
        Stepped::Idle { pause: Duration::from_secs(60) }
    });
    service.blocks = true;
    services.add("blocks", service, false);
    until("it has begun", || steps.load(Ordering::SeqCst) == 1);
    assert_eq!(futures::executor::block_on(pool.spawn(Class::Foreground, async { 7 })), Ok(7));
    release.send(()).unwrap();
    until("it is done", || activity(&services, "blocks") == Activity::Idle);
}

/// The cores on which the calling thread may run, and its priority.
fn of_this_thread() -> (Vec<usize>, i32) {
    let cores = core_affinity::get_core_ids().unwrap().iter().map(|core| core.id).collect();
    let told = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    // The name of a thread may have blanks, and ends at the last parenthesis.
    let nice = told.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(16).unwrap();
    (cores, nice.parse().unwrap())
}

type Threads = Arc<Mutex<Vec<(Vec<usize>, i32)>>>;

/// A service whose steps block and note their threads.
fn noting(reads: bool) -> (Box<Counting>, Threads) {
    let threads = Threads::default();
    let noted = Arc::clone(&threads);
    let (mut service, _) = counting(move |_| {
        noted.lock().push(of_this_thread());
        Stepped::Did { bytes: 1 }
    });
    (service.blocks, service.reads) = (true, reads);
    (service, threads)
}

/// Steps that blocked ran on threads that were pinned to all cores in turn, whatever core had been chosen.
#[test]
fn steps_that_block_run_on_the_core_that_was_chosen() {
    let ids: Vec<usize> = core_affinity::get_core_ids().unwrap().iter().map(|core| core.id).take(2).collect();
    let options = PoolOptions { name: "t".into(), cores: Some(ids.clone()), reactors: 0, blocking_threads_max: 2 };
    let pool = Arc::new(Pool::new(options).unwrap());
    let only = |chosen: usize| (0..ids.len()).map(|core| grant(if core == chosen { 1.0 } else { 0.0 })).collect::<Vec<_>>();
    for reads in [true, false] {
        let (services, grants) = services(&pool, &only(0));
        let (service, threads) = noting(reads);
        services.add("notes", service, false);
        for (index, id) in ids.iter().enumerate().chain([(0, &ids[0])]) {
            *grants.lock() = only(index);
            until("it has moved", || threads.lock().last().is_some_and(|(cores, _)| cores == &[*id]));
            let before = services.cores()[index].steps;
            threads.lock().clear();
            until("steps", || threads.lock().len() > 200);
            assert!(threads.lock().iter().all(|(cores, _)| cores == &[*id]), "some ran elsewhere");
            assert!(services.cores()[index].steps > before, "they count as this core's");
        }
        services.remove("notes");
    }
}

#[test]
fn steps_that_only_read_have_the_lowest_priority_unless_they_are_equals() {
    let (_, own) = of_this_thread();
    for (reads, equal, nice) in [(true, false, crate::cores::NICE_MAX), (false, false, own), (true, true, own)] {
        let pool = pool(1);
        let (services, _) = services(&pool, &[Grant { equal, ..grant(1.0) }]);
        let (service, threads) = noting(reads);
        services.add("notes", service, false);
        until("steps", || threads.lock().len() > 100);
        services.remove("notes");
        let seen: std::collections::BTreeSet<i32> = threads.lock().iter().map(|(_, nice)| *nice).collect();
        assert_eq!(seen, [nice].into(), "reads {reads}, equal {equal}");
    }
}

/// Each step of another core woke it.
#[test]
fn a_core_that_gives_nothing_is_not_woken() {
    let pool = pool(2);
    let (services, _) = services(&pool, &[grant(1.0), grant(0.0)]);
    for blocks in [false, true] {
        let (mut service, steps) = counting(did(1));
        service.blocks = blocks;
        services.add("counts", service, false);
        until("its driver has begun", || steps.load(Ordering::SeqCst) > 100 && pool.counts(1).background_ns > 0);
        let before = pool.counts(1).background_ns;
        until("steps", || steps.load(Ordering::SeqCst) > 1_000);
        assert_eq!(pool.counts(1).background_ns, before);
    }
}

#[test]
fn foreground_tasks_that_wait_are_counted_and_keep_steps_back() {
    let pool = pool(1);
    let (services, grants) = services(&pool, &[grant(0.0)]);
    let (service, steps) = counting(did(1));
    services.add("counts", service, false);
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let busy = pool.spawn(Class::Foreground, async move {
        while !over.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
    });
    until("it is measured", || services.cores()[0].load.arrivals > 0 && services.cores()[0].load.foreground > 0.0);
    *grants.lock() = vec![grant(1.0)];
    until("steps go on, for foreground tasks may have no end", || steps.load(Ordering::SeqCst) > 2);
    is_over.store(true, Ordering::SeqCst);
    futures::executor::block_on(busy).unwrap();
    until("nothing waits any more", || pool.load(0).waiting() == 0);
    services.govern(Box::new(Fixed(grants)));
    assert_eq!(services.governor(), "fixed");
}

#[test]
fn the_least_share_that_there_is_ends_no_background_work() {
    let pool = pool(1);
    let (services, grants) = services(&pool, &[grant(1e-300)]);
    let (service, steps) = counting(did(1));
    services.add("counts", service, false);
    until("a step", || steps.load(Ordering::SeqCst) > 0);
    *grants.lock() = vec![grant(1.0)];
    until("steps go on", || steps.load(Ordering::SeqCst) > 10);
}

#[test]
fn what_a_core_did_is_counted() {
    let counts =
        |foreground_ns, background_ns, polls, delay_ns| CoreCounts { foreground_ns, background_ns, polls, delay_ns, stalls: 0 };
    let (last, now) = (counts(0, 0, 5, 50), counts(2_000_000, 3_000_000, 7, 1_050));
    let load = load_between(last, now, 0.01);
    assert!((load.foreground - 0.2).abs() < 1e-9 && (load.background - 0.3).abs() < 1e-9, "{load:?}");
    assert_eq!((load.queue_delay, load.arrivals), (Duration::from_nanos(500), 2));
}
