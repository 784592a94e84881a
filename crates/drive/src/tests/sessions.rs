use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use pithead_device::{Clock, CpuWait, Device, Native};
use pithead_door::{Hello, ShippedInput};
use pithead_model::{SessionId, SessionState};

async fn reserved(drive: &Drive) -> (u32, u64) {
    let status = drive.status().await.unwrap();
    (status.sessions, status.memory_reserved)
}

#[tokio::test]
async fn a_session_gives_each_row_once() {
    let Rig { drive, directory: _directory } = rig();
    let (first, second) = (load(&drive, 1, 35).await, load(&drive, 2, 12).await);
    let answer = run(&*drive, scan(&[&first, &second])).await;
    let mut expected: Vec<i64> = (0..35).chain(0..12).collect();
    expected.sort_unstable();
    assert_eq!(answer.values, expected);
    assert_complete(&answer, 6);
    assert_eq!(answer.annotations.len(), 6, "rows travel a slice a round");
    assert!(answer.annotations.iter().all(|annotation| annotation.level == Level::Whole && annotation.medium_bytes > 0));
    assert_eq!(answer.profile.state, SessionState::Finished);
    assert_eq!(reserved(&drive).await, (0, 0));
}

#[tokio::test]
async fn sessions_side_by_side_do_not_mix() {
    let Rig { drive, directory: _directory } = rig();
    let (first, second) = (load(&drive, 1, 500).await, load(&drive, 2, 300).await);
    let both = [&first, &second].map(|made| run(&*drive, scan(&[made])));
    let answers = futures::future::join_all(both).await;
    assert_eq!(answers[0].values, (0..500).collect::<Vec<i64>>());
    assert_eq!(answers[1].values, (0..300).collect::<Vec<i64>>());
}

#[tokio::test]
async fn too_many_sessions_are_told_when_to_try_again() {
    let Rig { drive, directory: _directory } = rig_with(|options| options.sessions_max = 1);
    let made = load(&drive, 1, 5).await;
    let session = open(&*drive, scan(&[&made])).await.session;
    let Reply::Busy { retry_after_ms, .. } = drive.open(scan(&[&made])).await.unwrap().reply else { panic!("not busy") };
    assert!(retry_after_ms > 0);
    drive.close(session).await.unwrap();
    drive.close(session).await.unwrap();
    run(&*drive, scan(&[&made])).await;
}

#[tokio::test]
async fn memory_is_granted_while_it_lasts() {
    let Rig { drive, directory: _directory } = rig_with(|options| options.memory = 40 << 20);
    let made = load(&drive, 1, 5).await;
    let mut request = scan(&[&made]);
    request.options.memory = 1 << 40;
    let first = open(&*drive, request.clone()).await;
    assert_eq!(first.memory, 16 << 20);
    open(&*drive, request.clone()).await;
    assert!(matches!(drive.open(request.clone()).await.unwrap().reply, Reply::Busy { .. }));
    drive.close(first.session).await.unwrap();
    open(&*drive, request).await;
}

#[tokio::test]
async fn memory_that_can_never_be_granted_is_a_limit() {
    let Rig { drive, directory: _directory } = rig_with(|options| options.memory = 20 << 20);
    let made = load(&drive, 1, 5).await;
    let shipped = RecordBatch::try_from_iter([("k", Arc::new(Int64Array::from(vec![7; 1 << 20])) as ArrayRef)]).unwrap();
    let input = ShippedInput { name: "keys".into(), schema: shipped.schema(), batches: vec![shipped] };
    let fault = drive.open(OpenRequest { inputs: vec![input], ..scan(&[&made]) }).await.unwrap_err();
    assert!(fault.blame == Blame::Limit && fault.hint.is_some(), "{fault}");
    // Without it there is room for one.
    open(&*drive, scan(&[&made])).await;
    let Rig { drive, directory: _directory } = rig_with(|options| options.memory = 8 << 20);
    let made = load(&drive, 1, 5).await;
    assert_eq!(drive.open(scan(&[&made])).await.unwrap_err().blame, Blame::Limit);
    let mut modest = scan(&[&made]);
    modest.options.memory = 4 << 20;
    assert_eq!(run(&*drive, modest).await.values.len(), 5);
}

#[tokio::test]
async fn a_session_that_nobody_pulls_is_closed() {
    let Rig { drive, directory: _directory } = rig_with(|options| options.session_limits.idle = Duration::from_millis(50));
    let made = load(&drive, 1, 500).await;
    let opened = open(&*drive, scan(&[&made])).await.session;
    let mut stalled = drive.get(open(&*drive, scan(&[&made])).await.session).await.unwrap();
    stalled.next().await.unwrap().unwrap();
    until("both are reaped", async || reserved(&drive).await == (0, 0)).await;
    assert_eq!(drive.poll(opened).await.unwrap_err().blame, Blame::User);
    let ended = collect(stalled).await;
    assert_eq!(ended.err().map(|fault| fault.blame), Some(Blame::Limit));
}

#[tokio::test]
async fn dropping_the_rows_stops_the_work() {
    let Rig { drive, directory: _directory } = rig();
    let made = load(&drive, 1, 1_000).await;
    let mut events = drive.get(open(&*drive, scan(&[&made])).await.session).await.unwrap();
    events.next().await.unwrap().unwrap();
    drop(events);
    until("all is free", async || reserved(&drive).await == (0, 0)).await;
}

#[tokio::test]
async fn rows_are_asked_for_once() {
    let Rig { drive, directory: _directory } = rig();
    let made = load(&drive, 1, 5).await;
    let session = open(&*drive, scan(&[&made])).await.session;
    assert_eq!(drive.poll(session).await.unwrap().state, SessionState::Opened);
    let events = drive.get(session).await.unwrap();
    assert_eq!(drive.get(session).await.err().map(|fault| fault.blame), Some(Blame::User));
    collect(events).await.unwrap();
    assert_eq!(drive.poll(session).await.unwrap().state, SessionState::Finished);
    assert_eq!(drive.get(SessionId(3)).await.err().map(|fault| fault.blame), Some(Blame::User));
}

#[tokio::test]
async fn close_frees_all_at_once() {
    let Rig { drive, directory: _directory } = rig();
    let made = load(&drive, 1, 1_000).await;
    let session = open(&*drive, scan(&[&made])).await.session;
    let events = drive.get(session).await.unwrap();
    drive.close(session).await.unwrap();
    assert_eq!(drive.status().await.unwrap().memory_reserved, 0);
    assert_eq!(collect(events).await.err().map(|fault| fault.blame), Some(Blame::Cancelled));
}

#[tokio::test]
async fn hostile_requests_are_refused() {
    let Rig { drive, directory: _directory } = rig();
    let made = load(&drive, 1, 25).await;
    let good = scan(&[&made]);
    let change = |change: &dyn Fn(&mut OpenRequest)| {
        let mut request = good.clone();
        change(&mut request);
        request
    };
    let other = Arc::new(Schema::new(vec![Field::new("z", DataType::Int64, true)]));
    let input = ShippedInput { name: "i".into(), schema: Arc::clone(&other), batches: vec![batch(0..1)] };
    let span = |first, count| SliceSpan { first, count };
    let wrong: [(&str, OpenRequest); 18] = [
        ("plan", change(&|request| request.plan = PlanBytes::Substrait(vec![255; 100].into()))),
        ("large plan", change(&|request| request.plan = PlanBytes::Substrait(vec![0; 17 << 20].into()))),
        ("column", change(&|request| request.plan = PlanBytes::Scan { dataset: name(), columns: vec!["z".into()] })),
        ("output", change(&|request| request.schema = Arc::clone(&other))),
        ("no part", change(&|request| request.parts.clear())),
        ("part twice", change(&|request| request.parts.push(request.parts[0].clone()))),
        ("part's schema", change(&|request| request.parts[0].schema = Arc::clone(&other))),
        ("slices", change(&|request| request.parts[0].runs[0].1 = u32::MAX)),
        ("counts", change(&|request| request.parts[0].runs = vec![(LoadId(1), u32::MAX), (LoadId(2), u32::MAX)])),
        ("load", change(&|request| request.parts[0].runs = vec![(LoadId(9), 1)])),
        ("done past the end", change(&|request| request.done = vec![span(2, 2)])),
        ("done without an end", change(&|request| request.done = vec![span(u32::MAX, u32::MAX)])),
        ("done twice", change(&|request| request.done = vec![span(0, 2), span(1, 1)])),
        ("done in disorder", change(&|request| request.done = vec![span(2, 1), span(0, 1)])),
        ("nothing done", change(&|request| request.done = vec![span(1, 0)])),
        ("done of a whole", change(&|request| (request.done, request.whole_partition) = (vec![span(0, 1)], true))),
        ("batch", change(&|request| request.options.batch_rows = 0)),
        ("input", change(&|request| request.inputs = vec![input.clone()])),
    ];
    for (what, request) in wrong {
        let refused = drive.open(request).await;
        assert!(refused.is_err(), "{what}: {refused:?}");
        assert_ne!(refused.unwrap_err().blame, Blame::Bug, "{what}");
    }
    let unknown = change(&|request| request.options.extensions = vec!["frobnicate/9".into()]);
    assert_eq!(drive.open(unknown).await.unwrap_err().blame, Blame::Unsupported);
    assert_eq!(reserved(&drive).await, (0, 0));
}

#[tokio::test]
async fn a_stopping_drive_refuses_and_ends_what_runs() {
    let Rig { drive, directory: _directory } = rig();
    let made = load(&drive, 1, 1_000).await;
    let events = drive.get(open(&*drive, scan(&[&made])).await.session).await.unwrap();
    drive.stop(Duration::from_millis(20)).await;
    assert_eq!(drive.open(scan(&[&made])).await.unwrap_err().blame, Blame::Device);
    assert!(collect(events).await.is_err());
    assert_eq!(reserved(&drive).await, (0, 0));
}

#[tokio::test]
async fn first_contact_checks_the_protocol() {
    let Rig { drive, directory: _directory } = rig();
    let hello = |protocol| Hello { protocol, release: "0".into(), extensions: vec![] };
    assert_eq!(drive.hello(hello(pithead_model::PROTOCOL_VERSION)).await.unwrap().drive, drive.id());
    assert!(drive.hello(hello(9_999)).await.is_err());
}

/// Hardware that fails a read in a way that nobody foresaw.
#[derive(Debug, Default)]
struct Faulty {
    native: Native,
    armed: AtomicBool,
}

impl Device for Faulty {
    fn read(&self, _bytes: u64) -> Option<BoxFuture<'static, ()>> {
        assert!(!self.armed.load(Ordering::Relaxed), "a read that nobody foresaw");
        None
    }
    fn work(&self, cpu: Duration, late: Duration) -> Option<CpuWait> {
        self.native.work(cpu, late)
    }
    fn send(&self, bytes: u64) -> Option<BoxFuture<'static, ()>> {
        self.native.send(bytes)
    }
    fn clock(&self) -> &dyn Clock {
        self.native.clock()
    }
    fn cpu_ns(&self) -> u64 {
        self.native.cpu_ns()
    }
    fn link_bits_per_second(&self) -> Option<f64> {
        None
    }

    fn link_backlog_bytes(&self) -> f64 {
        0.0
    }

    fn cpu_share(&self) -> f64 {
        1.0
    }

    fn medium_bytes_per_second(&self) -> Option<f64> {
        None
    }
}

#[tokio::test]
async fn a_panic_ends_its_own_session_only() {
    let device = Arc::new(Faulty::default());
    let Rig { drive, directory: _directory } = rig_with(|options| options.device = Arc::clone(&device) as Arc<dyn Device>);
    let made = load(&drive, 1, 50).await;
    device.armed.store(true, Ordering::Relaxed);
    let session = open(&*drive, scan(&[&made])).await.session;
    let fault = collect(drive.get(session).await.unwrap()).await.err().unwrap();
    assert_eq!(fault.blame, Blame::Bug);
    assert!(fault.message.contains("nobody foresaw"), "{fault}");
    assert_eq!(drive.poll(session).await.unwrap().state, SessionState::Failed);
    device.armed.store(false, Ordering::Relaxed);
    assert_eq!(run(&*drive, scan(&[&made])).await.values.len(), 50);
    drive.close(session).await.unwrap();
    assert_eq!(reserved(&drive).await, (0, 0));
}

/// A regression: rows that waited for a host which was busy with others went two seconds after the drive had made them.
#[tokio::test]
async fn rows_wait_for_a_host_that_is_slow() {
    let Rig { drive, directory: _directory } = rig();
    let made = load(&drive, 1, 50).await;
    let session = open(&*drive, scan(&[&made])).await.session;
    let events = drive.get(session).await.unwrap();
    tokio::time::sleep(Duration::from_millis(3_500)).await;
    assert_eq!(collect(events).await.unwrap().values.len(), 50);
    drive.close(session).await.unwrap();
}

#[tokio::test]
async fn hosts_share_scarce_places() {
    let Rig { drive, directory: _directory } = rig_with(|options| options.sessions_max = 4);
    let made = load(&drive, 1, 5).await;
    let from = |host| {
        let mut request = scan(&[&made]);
        request.options.host = host;
        request
    };
    let greedy: Vec<_> = [open(&*drive, from(1)).await, open(&*drive, from(1)).await, open(&*drive, from(1)).await].into();
    // Three of four places are all that one host may have, so that the other one finds the last.
    let Reply::Busy { why, .. } = drive.open(from(1)).await.unwrap().reply else { panic!("not busy") };
    assert!(why.contains("this host"), "{why}");
    open(&*drive, from(2)).await;
    assert!(matches!(drive.open(from(3)).await.unwrap().reply, Reply::Busy { .. }));
    drive.close(greedy[0].session).await.unwrap();
    open(&*drive, from(3)).await;
}

#[tokio::test]
async fn a_host_that_stops_reading_keeps_no_rows_in_memory() {
    let Rig { drive, directory: _directory } = rig_with(|options| options.session_limits.idle = Duration::from_millis(50));
    let made = load(&drive, 1, 500).await;
    let session = open(&*drive, scan(&[&made])).await.session;
    let mut stalled = drive.get(session).await.unwrap();
    stalled.next().await.unwrap().unwrap();
    until("it is reaped", async || reserved(&drive).await == (0, 0)).await;
    // What waited for it is gone, and not only out of its reach: nothing comes but the fault.
    let next = stalled.next().await.unwrap();
    assert_eq!(next.unwrap_err().blame, Blame::Limit);
    assert!(stalled.next().await.is_none());
}

#[tokio::test]
async fn what_happens_is_counted() {
    let Rig { drive, directory: _directory } = rig();
    let made = load(&drive, 1, 35).await;
    run(&*drive, scan(&[&made])).await;
    let large = load(&drive, 2, 1_000).await;
    drop(drive.get(open(&*drive, scan(&[&large])).await.session).await.unwrap());
    assert!(drive.open(OpenRequest { parts: vec![], ..scan(&[&made]) }).await.is_err());
    let text = drive.metrics_text().await;
    for line in [
        "pithead_drive_sessions_opened_total 2",
        "pithead_drive_sessions_closed_total{cause=\"finished\"} 1",
        "pithead_drive_sessions_closed_total{cause=\"cancelled\"} 1",
        "pithead_drive_errors_total{kind=\"user\"} 1",
        "pithead_drive_loads_total{outcome=\"ok\"} 2",
        "pithead_drive_load_rows_total 1035",
        "pithead_drive_open_seconds_count 2",
        "pithead_drive_sessions_limit 64",
        "pithead_drive_host_sessions_limit 48",
    ] {
        assert!(text.lines().any(|has| has == line), "{line} is not in:\n{text}");
    }
    let value = |name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
    };
    // The second session may have sent some, too.
    assert!(value("pithead_drive_rows_out_total") >= 35.0 && value("pithead_drive_rounds_total") >= 4.0);
    assert!(value("pithead_drive_slice_bytes_read_total") > 0.0 && value("pithead_drive_store_live_bytes") > 0.0);
    assert!(value("process_resident_memory_bytes") > 1e6);
}

#[tokio::test]
async fn health_says_what_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let (drive, _store) = memory_drive(5, &directory);
    let health = drive.health().await;
    assert!(health.is_ok() && health.id.as_deref() == Some("0000000000000005"), "{health:?}");
    drive.stop(Duration::ZERO).await;
    assert_eq!(drive.health().await.status, "stopping");
}
