//! Homes over fake drives: one that was declared lost and is back, one that is away, and domains that another host makes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use futures::stream::{self, StreamExt};
use pithead_door::Door;
use pithead_fakes::FakeDoor;
use pithead_fleet::{Edit, Fleet, RepairSpec};
use pithead_model::{Blame, DatasetName, DriveId, Fault, Manifest};

use crate::{LoadMode, LoadSpec, Loader};

struct Host {
    fleet: Fleet,
    loader: Loader,
}

impl Host {
    async fn connect(doors: &[Arc<FakeDoor>]) -> Host {
        let doors = doors.iter().map(|door| Arc::clone(door) as Arc<dyn Door>).collect();
        let fleet = Fleet::connect(doors, "main", &[]).await.unwrap();
        Host { loader: Loader::new(fleet.clone(), 1), fleet }
    }

    /// Loads one row.
    async fn put(&self, name: &str, mode: LoadMode, copies: usize) -> Result<(), Fault> {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![7]));
        let row = RecordBatch::try_from_iter([("k", column)]).unwrap();
        let is_new = mode != LoadMode::Append;
        let (partitions, copies) = (is_new.then_some(1), is_new.then_some(copies));
        let spec = LoadSpec { mode, partitions, copies, ..LoadSpec::new(name.parse().unwrap(), vec![]) };
        self.loader.load_batches(spec, row.schema(), stream::iter([Ok(row)]).boxed()).await.map(drop)
    }

    /// The rows of `t`, by what the host knows.
    async fn rows(&self) -> u64 {
        let snapshot = self.fleet.snapshot().await.unwrap();
        snapshot.dataset(&"t".parse().unwrap()).expect("it is there").1.rows()
    }
}

fn drives(count: u64) -> Vec<Arc<FakeDoor>> {
    (1..=count).map(FakeDoor::new).collect()
}

fn kept(door: &FakeDoor) -> Manifest {
    door.manifests.lock()["main"].clone()
}

fn stop(door: &FakeDoor, is_down: bool) {
    door.is_down.store(is_down, Ordering::Relaxed);
}

/// A regression: a host that was idle meanwhile read from the old home for ever, which nobody told of the new one.
#[tokio::test]
async fn a_lost_home_that_is_back_is_not_believed_and_is_told() {
    let doors = drives(3);
    let (busy, idle) = (Host::connect(&doors).await, Host::connect(&doors).await);
    busy.put("t", LoadMode::Create, 2).await.unwrap();
    assert_eq!(idle.rows().await, 1);
    stop(&doors[0], true);
    let lost = RepairSpec { lost: Some(DriveId(1)), drop_lost: false };
    busy.fleet.repair(&lost, Arc::new(|_| ())).await.unwrap();
    busy.put("t", LoadMode::Append, 2).await.unwrap();
    stop(&doors[0], false);
    assert_eq!(kept(&doors[0]).home(), Some(DriveId(1)), "nobody has told it");
    // Another drive is asked every two seconds, not at each statement.
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    assert_eq!(idle.rows().await, 2);
    busy.put("t", LoadMode::Append, 2).await.unwrap();
    assert_eq!(kept(&doors[0]).home(), Some(DriveId(2)));
    assert_eq!((idle.rows().await, busy.rows().await), (3, 3));
}

/// A regression: the copy of a drive that had missed a change took it out of sight of the very host that had made it.
#[tokio::test]
async fn what_a_host_has_changed_stays_in_its_sight() {
    let doors = drives(2);
    let host = Host::connect(&doors).await;
    host.put("t", LoadMode::Create, 1).await.unwrap();
    let first = kept(&doors[1]);
    stop(&doors[1], true);
    host.put("t", LoadMode::Append, 1).await.unwrap();
    stop(&doors[1], false);
    stop(&doors[0], true);
    assert_eq!((kept(&doors[1]), host.rows().await), (first.clone(), 2));
    stop(&doors[0], false);
    assert_eq!(host.rows().await, 2);
    // Home itself was put back from a backup.
    doors[0].manifests.lock().insert("main".into(), first);
    assert_eq!(host.rows().await, 1);
}

/// A regression: a host never saw domains that others made after it had connected.
#[tokio::test]
async fn a_domain_that_another_host_makes_is_found_once_it_is_named() {
    let doors = drives(2);
    let (maker, other) = (Host::connect(&doors).await, Host::connect(&doors).await);
    maker.put("t", LoadMode::Create, 1).await.unwrap();
    assert_eq!(other.rows().await, 1);
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    maker.put("new.t", LoadMode::Create, 1).await.unwrap();
    let name: DatasetName = "new.t".parse().unwrap();
    let ids = other.fleet.connected().ids();
    assert!(other.fleet.settled_snapshot(&ids).await.unwrap().is_none(), "nobody has asked for it");
    let before = other.fleet.snapshot().await.unwrap();
    assert_eq!(before.find(&name).unwrap_err().blame, Blame::User);
    assert_eq!(before.readable(&name).unwrap_err().blame, Blame::Device, "drives may know it by now");
    let after = other.fleet.settled_snapshot(&ids).await.unwrap().expect("they were asked again");
    assert_eq!(after.readable(&name).unwrap().dataset().rows(), 1);
    let fault = after.readable(&"nowhere.t".parse().unwrap()).unwrap_err();
    assert_eq!(fault.blame, Blame::User, "they have just been asked: {fault}");
}

/// Names a drive, and is overtaken by another host's changes before the look at what became of it.
struct Overtaken<'a> {
    home: &'a FakeDoor,
    others: u64,
}

impl Edit for Overtaken<'_> {
    type Output = ();

    fn domain(&self) -> &str {
        "main"
    }

    fn subject(&self) -> String {
        "t".into()
    }

    fn apply(&self, manifest: &mut Manifest) -> Result<(), Fault> {
        let later = Manifest { version: manifest.version + self.others, ..manifest.clone() };
        self.home.manifests.lock().insert("main".into(), later);
        self.home.commits_lost.store(1, Ordering::Relaxed);
        manifest.add_attaching("t", DriveId(9));
        Ok(())
    }

    fn is_in(&self, manifest: &Manifest) -> bool {
        manifest.is_attaching("t", DriveId(9))
    }
}

#[tokio::test]
async fn a_change_that_others_may_have_undone_is_not_certain() {
    let doors = drives(1);
    let host = Host::connect(&doors).await;
    host.put("t", LoadMode::Create, 1).await.unwrap();
    for (others, is_certain) in [(1, true), (2, false)] {
        let not = host.fleet.commit(&Overtaken { home: &doors[0], others }).await.unwrap_err();
        assert_eq!(not.certain, is_certain, "{others}: {}", not.fault);
        assert_eq!(not.fault.message.contains("may have been made or not"), !is_certain, "{}", not.fault);
    }
}
