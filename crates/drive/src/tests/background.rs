//! Services of a drive: what they are told outlasts the drive, and one that goes wrong harms itself only.

use std::os::unix::fs::FileExt;
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

#[test]
fn a_drive_for_cores_that_are_not_there_makes_no_directory() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("drive");
    let fault = Drive::open(DriveOptions { cores: Some(vec![8_000]), ..DriveOptions::new(&data) }).unwrap_err();
    assert_eq!(fault.blame, Blame::User, "{fault}");
    assert!(!data.exists());
}

/// Those who plot rates met a -0.0, and a scrub at rest had as much time left as when it ran.
#[tokio::test]
async fn a_service_at_rest_has_no_rate_and_no_time_left() {
    let rig = rig();
    let services = told(&rig.drive, BackgroundOrder::Look).await;
    assert!(services.iter().all(|service| service.bytes_per_second.is_sign_positive()), "{services:?}");
    load(&rig.drive, 1, 500).await;
    // It reads one value, and then waits for a long time.
    told(&rig.drive, BackgroundOrder::Limit { service: "scrub".into(), bytes_per_second: Some(1) }).await;
    told(&rig.drive, BackgroundOrder::Start("scrub".into())).await;
    until("a value was read", async || scrub(&told(&rig.drive, BackgroundOrder::Look).await).left_s.is_some()).await;
    let paused = told(&rig.drive, BackgroundOrder::Pause("scrub".into())).await;
    assert_eq!((scrub(&paused).activity.as_str(), scrub(&paused).left_s), ("paused", None));
    let stopped = told(&rig.drive, BackgroundOrder::Stop("scrub".into())).await;
    assert_eq!((scrub(&stopped).activity.as_str(), scrub(&stopped).left_s), ("stopped", None));
}

/// Damage stayed named and counted until the next round, which may be weeks away, however it was mended.
#[tokio::test]
async fn damage_that_is_gone_is_told_no_more() {
    let Rig { drive, directory } = rig();
    let store = Arc::clone(&drive.shared().store);
    let key = |number: u8| format!("kinetic/key/{number}");
    let put = |number: u8| Write::put(key(number), vec![number; 200_000]);
    store.write((0..4).map(put).collect(), Durability::Through).unwrap();
    store.flush().unwrap();
    let segment = directory.path().join("segments/0000000000000001.seg");
    let file = std::fs::OpenOptions::new().write(true).open(segment).unwrap();
    // Each value begins at a multiple of 4 KiB.
    (0..3).for_each(|number| file.write_all_at(b"damaged", number * 200_704 + 100_000).unwrap());
    told(&drive, BackgroundOrder::Start("scrub".into())).await;
    until("all are found", async || scrub(&told(&drive, BackgroundOrder::Look).await).found == 3).await;
    let counted = async |count: u64| {
        let text = drive.metrics_text().await;
        text.lines().any(|line| line == format!("pithead_drive_scrub_damaged_values {count}"))
    };
    assert!(counted(3).await);
    store.write(vec![Write::delete(key(0))], Durability::Through).unwrap();
    assert!(counted(2).await, "one was deleted");
    store.write(vec![put(1)], Durability::Through).unwrap();
    let services = told(&drive, BackgroundOrder::Look).await;
    assert_eq!((scrub(&services).found, &scrub(&services).damaged[..]), (1, &[key(2)][..]), "one was written anew");
    drive.stop(Duration::ZERO).await;
    drop((store, drive));
    let drive = open_drive(&directory, |_| {});
    assert_eq!(scrub(&told(&drive, BackgroundOrder::Look).await).damaged, [key(2)]);
    drive.shared().store.write(vec![put(2)], Durability::Through).unwrap();
    assert_eq!(scrub(&told(&drive, BackgroundOrder::Look).await).found, 0, "also what was found before a restart");
}

#[tokio::test]
async fn settings_of_deduplication_that_cannot_be_read_are_told_anew() {
    let rig = rig();
    let start = || BackgroundOrder::Start("dedup".into());
    let note = |text: &'static str| {
        let write = Write::put("background/dedup/told", text);
        rig.drive.shared().store.write(vec![write], Durability::Through).unwrap();
    };
    note("{");
    let fault = rig.drive.background(start()).await.unwrap_err();
    assert_eq!(fault.blame, Blame::Corrupt, "{fault}");
    assert!(fault.message.starts_with("what the service dedup was told cannot be read: "), "{fault}");
    assert!(fault.hint.as_ref().is_some_and(|hint| hint.contains("--domain")), "{fault:?}");
    note("{\"dedup\":{\"chunks\":\"1KiB\",\"kinetic\":true}}");
    let services = told(&rig.drive, start()).await;
    let settings = DedupSettings { chunks: "1KiB".into(), domains: vec![], kinetic: true };
    assert!(services.iter().any(|service| service.dedup.as_ref() == Some(&settings)), "it is read by now: {services:?}");
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
    until("it says what it gave back", async || told(&drive, BackgroundOrder::Look).await[1].found > 10_000_000).await;
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
