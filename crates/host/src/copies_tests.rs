//! Copies over fake doors: drives that fail, join, are emptied and are lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use futures::{StreamExt, stream};
use pithead_door::Door;
use pithead_fakes::FakeDoor;
use pithead_fleet::{RepairSpec, TellMove};
use pithead_model::{Blame, Dataset, DriveId, Fault, Manifest};

use crate::{Host, HostOptions, LoadMode, LoadReport, LoadSpec, PartitionBy, QueryProfile};

const ROWS: i64 = 2_000;

struct Cluster {
    doors: Vec<Arc<FakeDoor>>,
    host: Host,
}

impl Cluster {
    /// Drives 1, 2 and so on, and dataset `t` with as many copies of as many partitions.
    async fn new(drives: u64, partitions: usize, copies: usize) -> Self {
        let doors: Vec<Arc<FakeDoor>> = (1..=drives).map(FakeDoor::new).collect();
        let host = connect(&doors).await.unwrap();
        let place = Self { doors, host };
        place.load(LoadSpec { partitions: Some(partitions), copies: Some(copies), ..spec("t") }).await.unwrap();
        place
    }

    async fn load(&self, spec: LoadSpec) -> Result<LoadReport, Fault> {
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS));
        let batch = RecordBatch::try_from_iter([("k", keys)]).unwrap();
        self.host.load_batches(spec, batch.schema(), stream::iter([Ok(batch)]).boxed()).await
    }

    async fn dataset(&self) -> Dataset {
        self.host.fleet().snapshot().await.unwrap().dataset(&"t".parse().unwrap()).unwrap().1.clone()
    }

    async fn copies(&self) -> Vec<Vec<u64>> {
        copies_of(&self.dataset().await)
    }

    fn rows(&self) -> Vec<usize> {
        self.doors.iter().map(|door| door.rows()).collect()
    }

    fn door(&self, id: u64) -> &FakeDoor {
        self.doors.iter().find(|door| door.id == DriveId(id)).unwrap()
    }

    fn stop(&self, id: u64, is_down: bool) {
        self.door(id).is_down.store(is_down, Ordering::Relaxed);
    }

    /// The keys, sorted, and what it cost.
    async fn ask(&self) -> Result<(Vec<i64>, Arc<QueryProfile>), Fault> {
        let mut answer = self.host.session().run("SELECT k FROM t").await?;
        let mut keys = Vec::new();
        while let Some(batch) = answer.rows.next().await {
            keys.extend_from_slice(batch?.column(0).as_primitive::<Int64Type>().values());
        }
        keys.sort_unstable();
        Ok((keys, answer.profile))
    }

    async fn check_answer(&self) -> Arc<QueryProfile> {
        let (keys, profile) = self.ask().await.unwrap();
        assert!(keys == (0..ROWS).collect::<Vec<_>>(), "{} keys", keys.len());
        profile
    }
}

fn copies_of(dataset: &Dataset) -> Vec<Vec<u64>> {
    dataset.partitions.iter().map(|partition| partition.copies.iter().map(|drive| drive.0).collect()).collect()
}

fn spec(name: &str) -> LoadSpec {
    let partitioning = Some(PartitionBy::Hash(vec!["k".into()]));
    LoadSpec { partitioning, slice_rows: Some(100), ..LoadSpec::new(name.parse().unwrap(), vec![]) }
}

fn quiet() -> TellMove {
    Arc::new(|_| ())
}

async fn connect(doors: &[Arc<FakeDoor>]) -> Result<Host, Fault> {
    let doors = doors.iter().map(|door| Arc::clone(door) as Arc<dyn Door>).collect();
    Host::connect(doors, HostOptions { threads: 2, ..Default::default() }).await
}

#[tokio::test]
async fn copies_are_loaded_appended_to_and_dropped() {
    let place = Cluster::new(3, 3, 2).await;
    assert_eq!(place.copies().await, [[1, 2], [2, 3], [3, 1]]);
    assert_eq!(place.rows().iter().sum::<usize>(), 2 * ROWS as usize);
    place.load(LoadSpec { mode: LoadMode::Append, ..spec("t") }).await.unwrap();
    assert_eq!(place.rows().iter().sum::<usize>(), 4 * ROWS as usize);
    let fault = place.load(LoadSpec { mode: LoadMode::Append, copies: Some(1), ..spec("t") }).await.unwrap_err();
    assert_eq!(fault.message, "dataset main.t has copies 2, which appending cannot change");
    let fault = place.load(LoadSpec { copies: Some(4), ..spec("u") }).await.unwrap_err();
    assert_eq!(fault.message, "4 copies need as many drives; the domain has 3");
    assert!(place.doors.iter().all(|door| door.manifests.lock()["main"].version == 2), "all have the manifest");
    place.host.fleet().drop_dataset(&"t".parse().unwrap()).await.unwrap();
    assert_eq!(place.rows(), [0, 0, 0]);
}

#[tokio::test]
async fn a_load_needs_all_copies_and_a_failed_one_leaves_none() {
    let place = Cluster::new(3, 3, 2).await;
    let before = place.rows();
    place.stop(3, true);
    let fault = place.load(LoadSpec { mode: LoadMode::Append, ..spec("t") }).await.unwrap_err();
    assert_eq!((fault.blame, place.rows()), (Blame::Device, before), "{fault}");
    place.stop(3, false);
    place.check_answer().await;
}

#[tokio::test]
async fn an_answer_goes_on_at_a_copy_for_the_slices_that_are_left() {
    let place = Cluster::new(3, 3, 2).await;
    place.door(1).breaks_after.store(2, Ordering::Relaxed);
    let profile = place.check_answer().await;
    assert_eq!(profile.snapshot().failovers, 1);
    let told = profile.sub_plans()[0].sessions()[0].failovers.clone();
    assert_eq!(told, ["partition 0: went on at fake-2 after fake-1 failed: drive fake-1: the link was cut"]);
    let read: u32 = place.doors.iter().map(|door| door.slices_read.load(Ordering::Relaxed)).sum();
    let slices: u64 = place.dataset().await.slices();
    assert_eq!(u64::from(read), slices, "no slice was read twice");
    // The drive failed a moment ago, so it is asked last.
    assert_eq!(place.check_answer().await.snapshot().failovers, 0);
}

#[tokio::test]
async fn an_answer_without_a_copy_left_names_all_that_failed() {
    let place = Cluster::new(3, 3, 2).await;
    place.door(1).breaks_after.store(1, Ordering::Relaxed);
    place.stop(2, true);
    let fault = place.ask().await.map(|(keys, _)| keys.len()).unwrap_err();
    assert_eq!(fault.blame, Blame::Device);
    assert!(fault.message.contains("fake-2: does not answer"), "{fault}");
    let place = Cluster::new(2, 2, 1).await;
    place.door(1).breaks_after.store(1, Ordering::Relaxed);
    let fault = place.ask().await.map(|(keys, _)| keys.len()).unwrap_err();
    assert_eq!(fault.message, "drive fake-1: the link was cut");
}

#[tokio::test]
async fn a_busy_drive_is_passed_over() {
    let place = Cluster::new(2, 1, 2).await;
    place.door(1).busy.store(1, Ordering::Relaxed);
    place.check_answer().await;
    assert_eq!(place.door(1).slices_read.load(Ordering::Relaxed), 0);
    for id in [1, 2] {
        place.door(id).busy.store(2, Ordering::Relaxed);
    }
    place.check_answer().await;
}

#[tokio::test]
async fn a_host_begins_without_a_drive_and_finds_it_later() {
    let place = Cluster::new(3, 3, 2).await;
    place.stop(1, true);
    let host = connect(&place.doors).await.unwrap();
    assert_eq!(
        (host.fleet().drives().len(), host.fleet().absent()[0].fault.message.as_str()),
        (2, "drive fake-1: does not answer")
    );
    let late = Cluster { doors: place.doors.clone(), host };
    late.check_answer().await;
    // Its home is away: it is read, and not changed.
    let fault = late.load(LoadSpec { mode: LoadMode::Append, ..spec("t") }).await.unwrap_err();
    assert!(fault.message.starts_with("domain main cannot be changed while its home, drive 0000000000000001"), "{fault}");
    assert!(fault.hint.unwrap().contains("repair --lost 0000000000000001"));
    let fault = late.load(LoadSpec::new("new.t".parse().unwrap(), vec![])).await.unwrap_err();
    assert!(fault.message.starts_with("no drive that is reached knows domain new"), "{fault}");
    place.stop(1, false);
    tokio::time::sleep(std::time::Duration::from_millis(2_100)).await;
    late.load(LoadSpec { mode: LoadMode::Append, ..spec("t") }).await.unwrap();
    assert_eq!(late.host.fleet().drives().len(), 3);
}

#[tokio::test]
async fn a_partition_without_a_copy_in_reach_is_named() {
    let place = Cluster::new(3, 3, 2).await;
    let fewer = connect(&place.doors[2..]).await.unwrap();
    let fault = fewer.fleet().snapshot().await.unwrap().readable(&"t".parse().unwrap()).unwrap_err();
    let message = "dataset main.t needs partition 0: drives 0000000000000001 and 0000000000000002 are not connected";
    assert_eq!((fault.blame, fault.message.as_str()), (Blame::Device, message));
}

#[tokio::test]
async fn a_new_drive_takes_its_share_together() {
    let mut place = Cluster::new(2, 6, 1).await;
    place.load(LoadSpec { partitions: Some(6), ..spec("u") }).await.unwrap();
    let newcomer = FakeDoor::new(7);
    place.doors.push(Arc::clone(&newcomer));
    let old = place.host.fleet().snapshot().await.unwrap();
    let report = place.host.fleet().add_drive(newcomer.clone(), quiet()).await.unwrap();
    assert_eq!((report.partitions, report.notes.len()), (4, 0), "two of six, each of both datasets");
    let snapshot = place.host.fleet().snapshot().await.unwrap();
    let copies = |name: &str| copies_of(snapshot.dataset(&name.parse().unwrap()).unwrap().1);
    assert_eq!(copies("t"), copies("u"));
    assert_eq!(copies("t").iter().filter(|copies| **copies == [7]).count(), 2);
    assert_eq!(place.rows().iter().sum::<usize>(), 2 * ROWS as usize, "the old places were cleared");
    place.check_answer().await;
    // Planned before the move: the sessions follow.
    assert_ne!(copies_of(old.dataset(&"t".parse().unwrap()).unwrap().1), copies("t"));
    let again = place.host.fleet().add_drive(newcomer, quiet()).await.unwrap();
    assert_eq!(again.partitions, 0);
}

#[tokio::test]
async fn a_statement_that_was_planned_before_a_move_follows_it() {
    // One partition's session is opened when its rows are asked for.
    let place = Cluster::new(2, 1, 1).await;
    let answer = place.host.session().run("SELECT k FROM t").await.unwrap();
    place.host.fleet().drain(DriveId(1), quiet()).await.unwrap();
    assert_eq!(place.rows()[0], 0);
    let rows: usize = answer.rows.map(|batch| batch.unwrap().num_rows()).collect::<Vec<_>>().await.into_iter().sum();
    assert_eq!((rows, answer.profile.snapshot().failovers), (ROWS as usize, 1));
}

#[tokio::test]
async fn an_append_that_a_move_overtakes_follows_it() {
    let place = Cluster::new(3, 3, 2).await;
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(ROWS..2 * ROWS));
    let batch = RecordBatch::try_from_iter([("k", keys)]).unwrap();
    let (host, schema) = (place.host.clone(), batch.schema());
    let moved = stream::once(async move {
        host.fleet().drain(DriveId(1), quiet()).await.unwrap();
        Ok(batch)
    });
    let append = LoadSpec { mode: LoadMode::Append, ..spec("t") };
    place.host.load_batches(append, schema, moved.boxed()).await.unwrap();
    assert_eq!(place.ask().await.unwrap().0, (0..2 * ROWS).collect::<Vec<_>>());
    assert_eq!((place.rows()[0], place.rows().iter().sum::<usize>()), (0, 4 * ROWS as usize));
}

#[tokio::test]
async fn a_drive_is_drained_and_removed_home_and_all() {
    let place = Cluster::new(3, 3, 2).await;
    let fault = place.host.fleet().remove(DriveId(1)).await.unwrap_err();
    assert_eq!(fault.message, "drive 0000000000000001 still holds partitions of main.t");
    let report = place.host.fleet().drain(DriveId(1), quiet()).await.unwrap();
    assert_eq!((report.partitions, report.homes.as_slice()), (2, &["main".to_owned()][..]));
    assert_eq!(place.rows()[0], 0);
    place.host.fleet().remove(DriveId(1)).await.unwrap();
    place.check_answer().await;
    place.stop(1, true);
    place.load(LoadSpec { mode: LoadMode::Replace, copies: Some(2), ..spec("t") }).await.unwrap();
    // Another host, which knew nothing of it, and the old home with its stale word.
    place.stop(1, false);
    let other = connect(&place.doors).await.unwrap();
    assert_eq!(copies_of(other.fleet().snapshot().await.unwrap().dataset(&"t".parse().unwrap()).unwrap().1), [[2, 3], [3, 2]]);
    let fault = place.host.fleet().drain(DriveId(2), quiet()).await.unwrap_err();
    assert!(fault.message.contains("there is no other drive"), "{fault}");
    assert_eq!(place.host.fleet().remove(DriveId(9)).await.unwrap_err().blame, Blame::User);
}

#[tokio::test]
async fn a_hand_over_that_was_cut_off_is_ended_by_the_next_change() {
    let place = Cluster::new(2, 2, 1).await;
    let manifest = place.door(1).manifests.lock()["main"].clone();
    let next = Manifest { version: manifest.version + 1, drives: vec![DriveId(2), DriveId(1)], ..manifest };
    place.door(1).manifests.lock().insert("main".into(), next);
    place.check_answer().await;
    place.load(LoadSpec { mode: LoadMode::Append, ..spec("t") }).await.unwrap();
    assert_eq!(place.door(2).manifests.lock()["main"].home(), Some(DriveId(2)));
    assert_eq!(place.dataset().await.rows(), 2 * ROWS as u64);
}

#[tokio::test]
async fn a_lost_home_is_replaced_and_its_copies_are_made_anew() {
    let place = Cluster::new(4, 4, 2).await;
    let alive = connect(&place.doors).await.unwrap();
    let lost = RepairSpec { lost: Some(DriveId(1)), drop_lost: false };
    assert!(alive.fleet().repair(&lost, quiet()).await.unwrap_err().message.contains("is not lost"));
    place.stop(1, true);
    let place = Cluster { host: connect(&place.doors).await.unwrap(), doors: place.doors };
    let report = place.host.fleet().repair(&lost, quiet()).await.unwrap();
    assert_eq!((report.copies_made, report.homes.as_slice(), report.lost.len()), (2, &["main".to_owned()][..], 0));
    assert!(place.copies().await.iter().all(|copies| copies.len() == 2 && !copies.contains(&1)));
    place.check_answer().await;
    place.load(LoadSpec { mode: LoadMode::Append, ..spec("t") }).await.unwrap();
    // The lost drive comes back with what it last knew, and with changes that nobody else knows.
    place.door(1).manifests.lock().get_mut("main").unwrap().version += 3;
    place.stop(1, false);
    let other = Cluster { host: connect(&place.doors).await.unwrap(), doors: place.doors.clone() };
    assert_eq!(other.dataset().await.rows(), 2 * ROWS as u64);
}

#[tokio::test]
async fn what_only_a_lost_drive_had_is_named_and_dropped_when_asked() {
    let place = Cluster::new(3, 3, 1).await;
    place.load(LoadSpec { copies: Some(2), ..spec("u") }).await.unwrap();
    place.stop(3, true);
    let place = Cluster { host: connect(&place.doors).await.unwrap(), doors: place.doors };
    let spec = |drop_lost| RepairSpec { lost: Some(DriveId(3)), drop_lost };
    let report = place.host.fleet().repair(&spec(false), quiet()).await.unwrap();
    assert_eq!((report.lost.len(), report.lost[0].partition, report.copies_made), (1, 2, 2));
    assert!(report.lost[0].rows > 0 && report.dropped.is_empty());
    assert!(place.ask().await.is_err());
    let report = place.host.fleet().repair(&spec(true), quiet()).await.unwrap();
    assert_eq!(report.dropped, ["main.t"]);
    let manifest = place.door(1).manifests.lock()["main"].clone();
    assert_eq!(manifest.drives, [DriveId(1), DriveId(2)]);
    assert_eq!(manifest.datasets.keys().collect::<Vec<_>>(), ["u"]);
}

#[tokio::test]
async fn missing_and_damaged_runs_are_written_anew() {
    let place = Cluster::new(2, 2, 2).await;
    place.door(1).stored.lock().clear();
    let report = place.host.fleet().repair(&RepairSpec::default(), quiet()).await.unwrap();
    assert_eq!((report.runs_rewritten, report.runs_checked, report.damaged.len()), (2, 2, 0));
    assert_eq!(place.rows(), [ROWS as usize, ROWS as usize]);
    place.door(2).is_damaged.store(true, Ordering::Relaxed);
    let report = place.host.fleet().repair(&RepairSpec::default(), quiet()).await.unwrap();
    assert!(report.runs_rewritten > 0 && report.damaged.is_empty(), "{report:?}");
    let place = Cluster::new(2, 2, 1).await;
    place.door(2).is_damaged.store(true, Ordering::Relaxed);
    let report = place.host.fleet().repair(&RepairSpec::default(), quiet()).await.unwrap();
    assert_eq!((report.runs_rewritten, report.damaged.len()), (0, 1), "there is no other copy");
}

#[tokio::test]
async fn copies_that_are_lacking_are_made_once_there_is_a_drive_for_them() {
    let mut place = Cluster::new(2, 2, 2).await;
    place.stop(2, true);
    place.host = connect(&place.doors).await.unwrap();
    let report = place.host.fleet().repair(&RepairSpec { lost: Some(DriveId(2)), drop_lost: false }, quiet()).await.unwrap();
    assert_eq!((report.copies_made, report.notes.len()), (0, 2), "{report:?}");
    assert_eq!(place.copies().await, [[1], [1]]);
    let newcomer = FakeDoor::new(5);
    place.doors.push(Arc::clone(&newcomer));
    place.host.fleet().add_drive(newcomer, quiet()).await.unwrap();
    let report = place.host.fleet().repair(&RepairSpec::default(), quiet()).await.unwrap();
    assert_eq!(report.copies_made, 2, "{report:?}");
    place.stop(1, true);
    place.check_answer().await;
}

/// Moves, asked for by two hosts at one time, over and over: each ends well at both, and no row is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hosts_may_ask_for_the_same_move() {
    for round in 0..20 {
        let place = Cluster::new(3, 3, 1).await;
        let other = connect(&place.doors).await.unwrap();
        let drive = DriveId(1 + round % 3);
        let (one, two) = tokio::join!(place.host.fleet().drain(drive, quiet()), other.fleet().drain(drive, quiet()));
        let moved = one.unwrap().partitions + two.unwrap().partitions;
        assert_eq!((moved, place.door(drive.0).rows()), (1, 0), "round {round}");
        assert_eq!(place.rows().iter().sum::<usize>(), ROWS as usize, "round {round}: copies that nothing names");
        place.check_answer().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hosts_may_repair_the_same_loss() {
    for round in 0..20 {
        let place = Cluster::new(3, 3, 2).await;
        place.stop(1, true);
        let hosts = [connect(&place.doors[1..]).await.unwrap(), connect(&place.doors[1..]).await.unwrap()];
        let lost = RepairSpec { lost: Some(DriveId(1)), drop_lost: false };
        let (one, two) = tokio::join!(hosts[0].fleet().repair(&lost, quiet()), hosts[1].fleet().repair(&lost, quiet()));
        // Where one is quick, the other finds nothing left to do.
        assert!(one.is_ok() || two.is_ok(), "round {round}: {one:?} {two:?}");
        for report in [one, two].into_iter().flatten() {
            assert!(report.lost.is_empty(), "round {round}: {report:?}");
        }
        let place = Cluster { doors: place.doors[1..].to_vec(), host: hosts[0].clone() };
        place.check_answer().await;
        assert!(place.copies().await.iter().all(|copies| copies.len() == 2), "round {round}");
    }
}

/// A delayed deletion by the host that moved a partition away, after another one has moved it back.
#[tokio::test]
async fn a_deletion_that_comes_late_finds_what_was_claimed_since() {
    let place = Cluster::new(3, 3, 1).await;
    let before = place.dataset().await;
    let seen = place.door(1).manifests.lock()["main"].version;
    let (drive, run) = (before.partitions[0].copies[0], before.partitions[0].runs[0].load);
    place.host.fleet().drain(drive, quiet()).await.unwrap();
    let moved_to = place.dataset().await.partitions[0].copies[0];
    place.host.fleet().drain(moved_to, quiet()).await.unwrap();
    let now = place.dataset().await.partitions[0].copies[0];
    let late = pithead_door::Discard {
        name: "t".parse().unwrap(),
        dataset: before.id,
        loads: pithead_door::Loads::Only(vec![run]),
        partition: Some(0),
        seen: Some(seen),
    };
    assert_eq!(place.door(now.0).discard(late).await.unwrap(), 0);
    place.check_answer().await;
}

/// A home that is not lost, while another host that does not reach it makes another drive home: what it commits after that is not
/// acknowledged unless the next home has it.
#[tokio::test]
async fn a_home_that_was_declared_lost_acknowledges_nothing_alone() {
    let place = Cluster::new(3, 3, 1).await;
    // Host A: it reaches all, and knows drive 1 as home.
    place.check_answer().await;
    place.stop(1, true);
    let other = connect(&place.doors[1..]).await.unwrap();
    other.fleet().repair(&RepairSpec { lost: Some(DriveId(1)), drop_lost: false }, quiet()).await.unwrap();
    place.stop(1, false);
    place.load(LoadSpec { copies: Some(2), ..spec("u") }).await.unwrap();
    let seen = other.fleet().snapshot().await.unwrap();
    assert_eq!(seen.dataset(&"u".parse().unwrap()).unwrap().1.rows(), ROWS as u64, "acknowledged, so the next home has it");
    let manifests: Vec<Manifest> = place.doors.iter().map(|door| door.manifests.lock()["main"].clone()).collect();
    assert!(manifests.iter().all(|manifest| manifest.home() == Some(DriveId(2))), "the old home has stepped down");
}

#[tokio::test]
async fn a_full_drive_is_passed_over_and_keeps_no_copy_from_being_made() {
    let mut place = Cluster::new(2, 2, 2).await;
    place.stop(2, true);
    place.host = connect(&place.doors).await.unwrap();
    place.host.fleet().repair(&RepairSpec { lost: Some(DriveId(2)), drop_lost: false }, quiet()).await.unwrap();
    for id in [5, 6] {
        let newcomer = FakeDoor::new(id);
        place.doors.push(Arc::clone(&newcomer));
        place.host.fleet().add_drive(newcomer, quiet()).await.unwrap();
    }
    let full = |id: u64, is_full: bool| place.door(id).is_full.store(is_full, Ordering::Relaxed);
    [5, 6].into_iter().for_each(|id| full(id, true));
    let report = place.host.fleet().repair(&RepairSpec::default(), quiet()).await.unwrap();
    assert!(!report.failed.is_empty() && report.failed.iter().all(|failed| failed.contains("no space left")), "{report:?}");
    let made = report.copies_made;
    full(6, false);
    let report = place.host.fleet().repair(&RepairSpec::default(), quiet()).await.unwrap();
    assert_eq!((report.copies_made + made, report.failed.len(), report.notes.len()), (2, 0, 0), "{report:?}");
    assert!(place.copies().await.iter().all(|copies| copies.len() == 2));
    place.check_answer().await;
}

#[tokio::test]
async fn a_run_that_was_dropped_while_it_was_checked_is_not_damaged() {
    let place = Cluster::new(1, 2, 1).await;
    place.door(1).drops_when_read.store(true, Ordering::Relaxed);
    let report = place.host.fleet().repair(&RepairSpec::default(), quiet()).await.unwrap();
    assert!(report.damaged.is_empty() && report.failed.is_empty() && report.runs_checked == 0, "{report:?}");
    assert_eq!(report.notes.len(), 1, "{report:?}");
}

#[tokio::test]
async fn what_repair_writes_is_claimed() {
    let place = Cluster::new(2, 2, 2).await;
    place.door(2).stored.lock().clear();
    place.door(2).claims.lock().clear();
    let report = place.host.fleet().repair(&RepairSpec::default(), quiet()).await.unwrap();
    assert_eq!(report.runs_rewritten, 2, "{report:?}");
    let version = place.door(1).manifests.lock()["main"].version;
    let claims: Vec<u64> = place.door(2).claims.lock().values().copied().collect();
    assert_eq!(claims, [version, version]);
}

#[tokio::test]
async fn a_home_without_room_leaves_nothing_of_a_load() {
    let place = Cluster::new(2, 2, 1).await;
    let before = place.rows();
    place.door(1).is_full.store(true, Ordering::Relaxed);
    let fault = place.load(LoadSpec { mode: LoadMode::Append, ..spec("t") }).await.unwrap_err();
    assert!(fault.message.contains("no space left") && !fault.message.contains("may have been made"), "{fault:?}");
    assert_eq!(place.rows(), before);
}
