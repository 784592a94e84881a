//! Drives that are replaced at their addresses, come back there, or are only slow; and damage that drives name.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use pithead_door::Door;
use pithead_fakes::FakeDoor;
use pithead_model::{ColumnSummary, Dataset, DatasetId, DriveId, LoadId, Manifest, Partition, Partitioning, Run, SliceKey};

use crate::{AwayDrive, Fleet, Mending, RepairReport, RepairSpec, TellMove};

const ROWS: usize = 40;
const ONE: DriveId = DriveId(1);
const TWO: DriveId = DriveId(2);
const THREE: DriveId = DriveId(3);

/// Drives 1 and 2 with two copies of a dataset, a host that has met them, and an empty drive at the place of drive 2.
struct Place {
    one: Arc<FakeDoor>,
    two: Arc<FakeDoor>,
    three: Arc<FakeDoor>,
    fleet: Fleet,
}

impl Place {
    async fn new() -> Self {
        let (one, two, three) = (FakeDoor::new(1), FakeDoor::new(2), FakeDoor::at("fake-2", 3));
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS as i64));
        let rows = RecordBatch::try_from_iter([("k", keys)]).unwrap();
        let manifest = manifest(&rows);
        for door in [&one, &two] {
            door.keep(&run(), vec![rows.clone()]);
            door.manifests.lock().insert("main".to_owned(), manifest.clone());
        }
        let fleet = connect(&[&one, &two]).await;
        Self { one, two, three, fleet }
    }

    fn replace(&self) {
        *self.two.replaced_by.lock() = Some(Arc::clone(&self.three));
    }

    fn put_back(&self) {
        *self.two.replaced_by.lock() = None;
        *self.three.replaced_by.lock() = Some(Arc::clone(&self.two));
    }

    /// The domain's drives, and those of its partition.
    fn drives(&self) -> [Vec<DriveId>; 2] {
        let manifest = self.one.manifests.lock()["main"].clone();
        let mut copies = manifest.datasets["t"].partitions[0].copies.clone();
        copies.sort();
        [manifest.drives, copies]
    }
}

fn run() -> SliceKey {
    SliceKey { name: "t".parse().unwrap(), dataset: DatasetId(7), load: LoadId(1), partition: 0, number: None }
}

fn manifest(rows: &RecordBatch) -> Manifest {
    let run = Run { load: LoadId(1), slices: 1, rows: ROWS as u64, bytes: 8 * ROWS as u64 };
    let partition = Partition { copies: vec![ONE, TWO], runs: vec![run], columns: vec![ColumnSummary::default()] };
    let dataset = Dataset {
        id: DatasetId(7),
        schema: rows.schema(),
        metadata: Default::default(),
        partitioning: Partitioning::RoundRobin,
        sort: vec![],
        encoding: "vortex".to_owned(),
        slice_rows: 100,
        slice_bytes: None,
        copies: 2,
        merged: 0,
        partitions: vec![partition],
    };
    Manifest { version: 1, datasets: [("t".to_owned(), dataset)].into(), ..Manifest::empty("main", vec![ONE, TWO]) }
}

async fn connect(doors: &[&Arc<FakeDoor>]) -> Fleet {
    let doors = doors.iter().map(|door| Arc::clone(door) as Arc<dyn Door>).collect();
    Fleet::connect(doors, "main", &[]).await.unwrap()
}

fn quiet() -> TellMove {
    Arc::new(|_| ())
}

fn at_once() -> Mending {
    Mending::new(Some(Duration::ZERO))
}

fn says_to_give_up_two(report: &RepairReport) -> usize {
    report.notes.iter().filter(|note| note.contains(&format!("`pithead repair --lost {TWO}`"))).count()
}

#[tokio::test]
async fn what_a_replaced_drive_had_is_made_anew_on_the_one_in_its_place() {
    let place = Place::new().await;
    place.replace();
    let report = place.fleet.mend(&mut at_once()).await.unwrap();
    assert!(report.failed.is_empty() && report.notes.iter().any(|note| note.contains("away for too long")), "{report:?}");
    assert_eq!(place.drives(), [vec![ONE], vec![ONE]]);
    assert_eq!(place.three.rows(), 0, "it belongs to no domain yet");
    place.fleet.add_drive(Arc::clone(&place.three) as Arc<dyn Door>, quiet()).await.unwrap();
    place.fleet.mend(&mut at_once()).await.unwrap();
    assert_eq!(place.drives(), [vec![ONE, THREE], vec![ONE, THREE]]);
    assert_eq!((place.one.rows(), place.three.rows()), (ROWS, ROWS));
}

#[tokio::test]
async fn a_drive_that_was_added_in_anothers_place_does_not_count_as_it() {
    let place = Place::new().await;
    place.replace();
    place.fleet.add_drive(Arc::clone(&place.three) as Arc<dyn Door>, quiet()).await.unwrap();
    assert_eq!(place.fleet.connected().replaced(TWO), Some("fake-2"));

    // A host that came later cannot tell it from a drive elsewhere that it was not told of: it says so once, and does nothing.
    let (later, mut its_mending) = (connect(&[&place.one, &place.three]).await, at_once());
    let reports = [later.mend(&mut its_mending).await.unwrap(), later.mend(&mut its_mending).await.unwrap()];
    assert_eq!(reports.map(|report| says_to_give_up_two(&report)), [1, 0]);
    assert!(place.drives()[0].contains(&TWO) && later.connected().is_nowhere(TWO));
    let report = later.repair(&RepairSpec::default(), quiet()).await.unwrap();
    let why = "each address that was named answers as another drive".to_owned();
    assert_eq!(report.away, [AwayDrive { drive: TWO, why }]);

    place.fleet.mend(&mut at_once()).await.unwrap();
    assert_eq!(place.drives(), [vec![ONE, THREE], vec![ONE, THREE]]);
    assert_eq!((place.one.rows(), place.three.rows()), (ROWS, ROWS));
    assert!(later.repair(&RepairSpec::default(), quiet()).await.unwrap().away.is_empty());
}

#[tokio::test]
async fn a_host_that_comes_after_the_empty_drive_knows_what_it_stands_for() {
    let place = Place::new().await;
    place.replace();
    let later = connect(&[&place.one, &place.two]).await;
    assert_eq!(later.connected().ids(), [ONE, THREE]);
    let report = later.mend(&mut at_once()).await.unwrap();
    assert_eq!((report.failed.len(), place.drives()), (0, [vec![ONE], vec![ONE]]), "{report:?}");
}

/// Another host has added drive 9, at an address that this one was not told of: nothing says that it is away. As long as it is
/// not reached, the other one is not given up either.
#[tokio::test]
async fn only_the_drive_that_was_replaced_counts_as_away() {
    let place = Place::new().await;
    for door in [&place.one, &place.two] {
        door.manifests.lock().get_mut("main").unwrap().drives.push(DriveId(9));
    }
    place.replace();
    let mut mending = at_once();
    for _ in 0..3 {
        let failed = place.fleet.mend(&mut mending).await.unwrap().failed;
        assert!(failed.len() == 1 && failed[0].starts_with(&format!("drive {TWO} is away")), "{failed:?}");
    }
    assert_eq!(place.fleet.connected().ids(), [ONE, THREE]);
    assert_eq!(place.drives(), [vec![ONE, TWO, DriveId(9)], vec![ONE, TWO]]);
}

#[tokio::test]
async fn a_drive_that_is_slow_or_starts_anew_is_the_same_one() {
    let place = Place::new().await;
    let mut mending = Mending::new(Some(Duration::from_secs(3_600)));
    for is_down in [false, true, true, false] {
        place.two.is_down.store(is_down, Ordering::Relaxed);
        let report = place.fleet.mend(&mut mending).await.unwrap();
        assert!(report.notes.is_empty() && report.failed.is_empty(), "{report:?}");
        let drives = place.fleet.connected();
        assert!(drives.find(TWO).is_some() && drives.replaced(TWO).is_none() && !drives.is_nowhere(TWO));
    }
    let report = place.fleet.repair(&RepairSpec::default(), quiet()).await.unwrap();
    assert_eq!((report.away.len(), report.runs_checked, place.drives()), (0, 2, [vec![ONE, TWO], vec![ONE, TWO]]));
}

#[tokio::test]
async fn a_drive_that_comes_back_to_its_place_is_taken_up_again() {
    let place = Place::new().await;
    place.replace();
    let mut mending = Mending::new(None);
    let mut said = 0;
    for _ in 0..4 {
        said += says_to_give_up_two(&place.fleet.mend(&mut mending).await.unwrap());
    }
    assert_eq!(said, 1, "once");
    let drives = place.fleet.connected();
    assert_eq!(drives.ids(), [ONE, THREE]);
    let fault = drives.get(TWO).unwrap_err();
    assert!(fault.message.contains("another drive is at fake-2 in place of"), "{fault}");
    assert!(fault.hint.unwrap().contains("pithead repair --lost"));
    let report = place.fleet.repair(&RepairSpec::default(), quiet()).await.unwrap();
    assert_eq!(report.away, [AwayDrive { drive: TWO, why: "another drive answers at fake-2 in its place".to_owned() }]);

    place.put_back();
    let lost = RepairSpec { lost: Some(TWO), drop_lost: false };
    let fault = place.fleet.repair(&lost, quiet()).await.unwrap_err();
    assert!(fault.message.contains("is not lost"), "{fault}");
    let drives = place.fleet.connected();
    assert_eq!((drives.ids(), drives.replaced(TWO)), (vec![ONE, TWO], None));
    assert_eq!(place.drives(), [vec![ONE, TWO], vec![ONE, TWO]]);
}

/// This host has asked the drive for nothing since it was replaced: only the manifest tells of the other one.
#[tokio::test]
async fn a_drive_that_another_host_added_in_anothers_place_is_found() {
    let place = Place::new().await;
    let other = connect(&[&place.one, &place.two]).await;
    place.replace();
    other.add_drive(Arc::clone(&place.three) as Arc<dyn Door>, quiet()).await.unwrap();
    assert_eq!(place.fleet.connected().ids(), [ONE, TWO]);
    for _ in 0..100 {
        place.fleet.snapshot().await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!((place.fleet.connected().ids(), place.fleet.connected().replaced(TWO)), (vec![ONE, THREE], Some("fake-2")));
}

#[tokio::test]
async fn damage_that_is_not_mended_is_looked_at_again() {
    let place = Place::new().await;
    place.two.damaged.lock().push(run().slice(0).to_string());
    let mut mending = Mending::new(None);
    let mut mend = async || {
        let before = place.two.runs_read.load(Ordering::Relaxed);
        let report = place.fleet.mend(&mut mending).await.unwrap();
        (report.runs_rewritten, place.two.runs_read.load(Ordering::Relaxed) - before)
    };
    assert_eq!([mend().await, mend().await], [(0, 1), (0, 1)], "it reads whole, and may still be damaged where it lies");
    place.two.is_damaged.store(true, Ordering::Relaxed);
    assert_eq!([mend().await, mend().await], [(1, 1), (0, 0)], "it is mended, though the drive still names it");
}
