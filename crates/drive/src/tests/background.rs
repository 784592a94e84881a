//! Services of a drive: what they are told outlasts the drive, and one that goes wrong harms itself only.

use std::sync::atomic::{AtomicBool, Ordering};

use pithead_door::{BackgroundOrder, DedupSettings, ServiceStatus};
use pithead_policy::background::BackgroundPolicy;
use pithead_sched::{Progress, Service, Stepped};
use pithead_store::{DiskStore, Durability, StoreOptions, Write};

use super::*;

/// A service that does in each step what it is told.
struct Acting<F>(F);

impl<F: FnMut() -> Stepped + Send> Service for Acting<F> {
    fn step(&mut self) -> Stepped {
        (self.0)()
    }

    fn blocks(&self) -> bool {
        false
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }

    fn position(&self) -> Vec<u8> {
        Vec::new()
    }

    fn restart(&mut self) {}
}

async fn told(drive: &Drive, order: BackgroundOrder) -> Vec<ServiceStatus> {
    drive.background(order).await.unwrap().services
}

fn scrub(services: &[ServiceStatus]) -> &ServiceStatus {
    services.iter().find(|service| service.name == "scrub").unwrap()
}

#[tokio::test]
async fn what_services_are_told_outlasts_the_drive() {
    let rig = rig();
    let services = told(&rig.drive, BackgroundOrder::Look).await;
    assert_eq!(
        services.iter().map(|service| service.name.as_str()).collect::<Vec<_>>(),
        ["scrub", "compaction", "dedup", "statistics"]
    );
    assert_eq!(scrub(&services).activity, "stopped", "nobody gave it a period");
    let limit = BackgroundOrder::Limit { service: "scrub".into(), bytes_per_second: Some(5_000) };
    assert_eq!(scrub(&told(&rig.drive, limit).await).limit, Some(5_000));
    told(&rig.drive, BackgroundOrder::Start("scrub".into())).await;
    told(&rig.drive, BackgroundOrder::Pause("compaction".into())).await;
    rig.drive.stop(Duration::ZERO).await;
    let Rig { drive, directory } = rig;
    drop(drive);
    let drive = open_drive(&directory, |_| {});
    let services = told(&drive, BackgroundOrder::Look).await;
    assert!(matches!(scrub(&services).activity.as_str(), "running" | "idle"), "{services:?}");
    assert_eq!((scrub(&services).limit, services[1].activity.as_str()), (Some(5_000), "paused"));
}

#[tokio::test]
async fn what_cannot_be_meant_is_refused() {
    let rig = rig();
    for order in [
        BackgroundOrder::Start("scrubs".into()),
        BackgroundOrder::Pause(String::new()),
        BackgroundOrder::Stop("x".repeat(1_000)),
        BackgroundOrder::Limit { service: "no".into(), bytes_per_second: None },
        BackgroundOrder::Policy("best".into()),
    ] {
        assert_eq!(rig.drive.background(order.clone()).await.unwrap_err().blame, Blame::User, "{order:?}");
    }
    let status = rig.drive.background(BackgroundOrder::Policy("shares:0.5".into())).await.unwrap();
    assert_eq!(status.policy, "shares:0.5");
    assert_eq!(status.cores.len(), 2);
}

#[tokio::test]
async fn a_scrub_reads_what_is_stored_and_its_position_is_kept() {
    let rig = rig_with(|options| options.scrub_period = Some(Duration::from_secs(1_000_000)));
    load(&rig.drive, 1, 500).await;
    until("the first step", async || scrub(&told(&rig.drive, BackgroundOrder::Look).await).steps > 0).await;
    until("a whole round", async || {
        let before = scrub(&told(&rig.drive, BackgroundOrder::Look).await).bytes;
        let after = told(&rig.drive, BackgroundOrder::Start("scrub".into())).await;
        before > 1_000 && scrub(&after).found == 0
    })
    .await;
    rig.drive.stop(Duration::ZERO).await;
    let stored = rig.drive.shared().store.get(b"background/scrub/position").unwrap();
    assert!(stored.is_some_and(|(value, _)| value.starts_with(b"{\"began_s\":")));
}

#[tokio::test]
async fn a_scrub_without_a_period_reads_all_there_is_when_it_is_told_to_start() {
    let rig = rig();
    load(&rig.drive, 1, 500).await;
    let at_rest = scrub(&told(&rig.drive, BackgroundOrder::Look).await).clone();
    assert_eq!((at_rest.activity.as_str(), at_rest.steps), ("stopped", 0));
    let stored = rig.drive.shared().store.usage().unwrap().value_bytes;
    told(&rig.drive, BackgroundOrder::Start("scrub".into())).await;
    until("a whole round", async || scrub(&told(&rig.drive, BackgroundOrder::Look).await).bytes >= stored).await;
}

/// A command that opened the drive for a moment had its scrub begin anew, and forget what it had found.
#[tokio::test]
async fn a_drive_that_scrubs_nothing_keeps_where_the_scrub_was() {
    let Rig { drive, directory } = rig_with(|options| options.scrub_period = Some(Duration::from_secs(1_000_000)));
    load(&drive, 1, 500).await;
    until("a value was read", async || scrub(&told(&drive, BackgroundOrder::Look).await).done_bytes > 0).await;
    let done = scrub(&told(&drive, BackgroundOrder::Look).await).done_bytes;
    drive.stop(Duration::ZERO).await;
    let position = |drive: &Drive| drive.shared().store.get(b"background/scrub/position").unwrap().map(|(value, _)| value);
    let before = position(&drive);
    assert!(before.is_some());
    drop(drive);
    let drive = open_drive(&directory, |_| {});
    let services = told(&drive, BackgroundOrder::Look).await;
    assert_eq!((scrub(&services).activity.as_str(), scrub(&services).done_bytes), ("paused", done));
    drive.stop(Duration::ZERO).await;
    assert_eq!(position(&drive), before);
}

#[tokio::test]
async fn a_scrub_without_a_period_goes_on_after_a_restart_and_rests_after_its_round() {
    let Rig { drive, directory } = rig();
    load(&drive, 1, 500).await;
    // It reads one value, and then waits for a long time.
    let limit = |bytes_per_second| BackgroundOrder::Limit { service: "scrub".into(), bytes_per_second };
    told(&drive, limit(Some(1))).await;
    told(&drive, BackgroundOrder::Start("scrub".into())).await;
    until("a value was read", async || scrub(&told(&drive, BackgroundOrder::Look).await).done_bytes > 0).await;
    drive.stop(Duration::ZERO).await;
    drop(drive);
    let drive = open_drive(&directory, |_| {});
    told(&drive, limit(None)).await;
    until("it rests", async || scrub(&told(&drive, BackgroundOrder::Look).await).activity == "idle").await;
    let services = told(&drive, BackgroundOrder::Look).await;
    assert!(scrub(&services).done_bytes * 2 > scrub(&services).total_bytes, "{services:?}");
    drive.stop(Duration::ZERO).await;
    // As if that had been long ago.
    let long_ago = Write::put("background/scrub/position", "{\"began_s\":1}");
    drive.shared().store.write(vec![long_ago], Durability::Through).unwrap();
    drop(drive);
    let drive = open_drive(&directory, |_| {});
    until("it has looked", async || scrub(&told(&drive, BackgroundOrder::Look).await).steps > 0).await;
    let services = told(&drive, BackgroundOrder::Look).await;
    assert_eq!((scrub(&services).activity.as_str(), scrub(&services).bytes), ("idle", 0));
}

#[tokio::test]
async fn values_share_their_bytes_once_the_drive_is_told_which() {
    let rig = rig();
    let store = Arc::clone(&rig.drive.shared().store);
    let value: Vec<u8> = (0..200_000_u32).flat_map(|word| word.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    let keys = ["kinetic/key/a", "kinetic/key/b", "slice/lab/a", "slice/lab/b", "slice/main/a", "slice/main/b"];
    store.write(keys.map(|key| Write::put(key, value.clone())).into(), Durability::Through).unwrap();
    let start = || BackgroundOrder::Start("dedup".into());
    assert_eq!(rig.drive.background(start()).await.unwrap_err().blame, Blame::User, "of what?");
    let settings = |domain: &str| DedupSettings { chunks: "cdc".into(), domains: vec![domain.to_owned()], kinetic: true };
    assert!(rig.drive.background(BackgroundOrder::Deduplicate(settings("a/b"))).await.is_err());
    let fault = rig.drive.background(BackgroundOrder::Deduplicate(settings("nosuch"))).await.unwrap_err();
    assert_eq!(fault.message, "this drive has no domain nosuch; it has none yet");
    told(&rig.drive, BackgroundOrder::Deduplicate(settings("lab"))).await;
    let dedup = |services: &[ServiceStatus]| services.iter().find(|service| service.name == "dedup").unwrap().clone();
    assert_eq!(dedup(&told(&rig.drive, start()).await).dedup, Some(settings("lab")));
    // Each of the two scopes by itself; the other domain is left alone.
    until("it says what it saves", async || dedup(&told(&rig.drive, BackgroundOrder::Look).await).found == 1_600_000).await;
    assert_eq!(store.usage().unwrap().saved_bytes(), 1_600_000);
    assert!(keys.iter().all(|key| store.get(key.as_bytes()).unwrap().unwrap().0 == value));
}

/// The store's own thread compacts no more.
#[tokio::test]
async fn dead_room_is_given_back_in_steps() {
    let directory = tempfile::tempdir().unwrap();
    let options = StoreOptions { segment_bytes: 4 << 20, compacts: false, ..StoreOptions::default() };
    let store: Arc<dyn Store> = Arc::new(DiskStore::open(directory.path(), options).unwrap());
    let options =
        DriveOptions { threads: 2, background_policy: BackgroundPolicy::Shares(1.0), ..DriveOptions::new(directory.path()) };
    let drive = Drive::over(Arc::clone(&store), DriveId(3), options).unwrap();
    let value = |number: u8| vec![number; 1_000_000];
    for number in 0..40 {
        store.write(vec![Write::put(vec![b'k', number], value(number))], Durability::Through).unwrap();
    }
    let gone = (0..40).filter(|number| number % 5 > 0).map(|number| Write::delete(vec![b'k', number])).collect();
    store.write(gone, Durability::Through).unwrap();
    let since = std::time::Instant::now();
    while store.usage().unwrap().dead_bytes > 5_000_000 {
        assert!(since.elapsed() < LONG, "{:?} {:?}", store.usage(), drive.background(BackgroundOrder::Look).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let services = told(&drive, BackgroundOrder::Look).await;
    assert!(services[1].bytes > 1_000_000, "{services:?}");
    for number in (0..40).step_by(5) {
        assert_eq!(store.get(&[b'k', number]).unwrap().unwrap().0, value(number));
    }
}

/// One panics, one never ends its step: both are named, and the drive goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poisoned_service_is_named_and_harms_itself_only() {
    let rig = rig();
    let stored = load(&rig.drive, 1, 100).await;
    let services = Arc::clone(rig.drive.background.services());
    services.add("panics", Box::new(Acting(|| panic!("a bad day"))), false);
    let release = Arc::new(AtomicBool::new(false));
    let released = Arc::clone(&release);
    let spins = move || {
        while !released.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        Stepped::Idle { pause: LONG }
    };
    services.add("spins", Box::new(Acting(spins)), false);
    until("both are named", async || {
        let is_broken = services.list().iter().any(|service| format!("{:?}", service.activity) == "Broken(\"a bad day\")");
        let status = rig.drive.background(BackgroundOrder::Look).await.unwrap();
        let named = |core: &pithead_door::CoreStatus| core.stalled.as_ref().is_some_and(|task| task.contains("for spins"));
        is_broken && status.cores.iter().filter(|core| named(core)).count() == 1
    })
    .await;
    // New work goes to the other reactor, and so do the other services.
    for _ in 0..3 {
        assert_eq!(run(&*rig.drive, scan(&[&stored])).await.values.len(), 100);
    }
    told(&rig.drive, BackgroundOrder::Start("scrub".into())).await;
    until("the scrub goes on", async || scrub(&told(&rig.drive, BackgroundOrder::Look).await).steps > 0).await;
    release.store(true, Ordering::Relaxed);
}
