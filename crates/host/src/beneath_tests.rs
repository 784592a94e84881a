//! Arrays and the drives beneath them are not used side by side: an array has rows of its own on each of its drives.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use futures::{StreamExt, stream};
use pithead_door::Door;
use pithead_fakes::FakeDoor;
use pithead_model::{Blame, DriveId, Fault};

use crate::{Host, HostOptions, LoadSpec};

fn array(id: u64, beneath: &[u64]) -> Arc<FakeDoor> {
    let door = FakeDoor::new(id);
    *door.beneath.lock() = beneath.iter().copied().map(DriveId).collect();
    door
}

async fn connect(doors: &[&Arc<FakeDoor>]) -> Result<Host, Fault> {
    let doors = doors.iter().map(|door| Arc::clone(door) as Arc<dyn Door>).collect();
    Host::connect(doors, HostOptions { threads: 2, ..Default::default() }).await
}

async fn load(host: &Host) {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100));
    let batch = RecordBatch::try_from_iter([("k", keys)]).unwrap();
    let spec = LoadSpec::new("t".parse().unwrap(), vec![]);
    host.load_batches(spec, batch.schema(), stream::iter([Ok(batch)]).boxed()).await.unwrap();
}

async fn refused(host: &Host, newcomer: &Arc<FakeDoor>, what: &str) {
    let fault = host.fleet().add_drive(newcomer.clone(), Arc::new(|_| ())).await.unwrap_err();
    assert_eq!(fault.blame, Blame::User);
    assert!(fault.message.contains(what) && fault.hint.is_some(), "{fault}");
    let (manifests, rows) = (newcomer.manifests.lock().len(), newcomer.rows());
    assert_eq!((manifests, rows), (0, 0), "nothing was put there");
}

#[tokio::test]
async fn a_drive_beneath_an_array_is_not_added_through_the_array() {
    let above = array(9, &[1, 2]);
    let host = connect(&[&above]).await.unwrap();
    load(&host).await;
    refused(&host, &FakeDoor::new(2), "drive 0000000000000002 (fake-2) stands beneath array 0000000000000009").await;
    refused(&host, &array(8, &[2, 3]), "drive 0000000000000002 of array fake-").await;
    host.fleet().add_drive(FakeDoor::new(4), Arc::new(|_| ())).await.unwrap();
}

#[tokio::test]
async fn an_array_is_not_added_to_what_lies_beneath_it() {
    let (one, two) = (FakeDoor::new(1), FakeDoor::new(2));
    let host = connect(&[&one, &two]).await.unwrap();
    load(&host).await;
    refused(&host, &array(9, &[2, 3]), "drive 0000000000000002 (fake-2) stands beneath array 0000000000000009").await;
    // A drive that is not reached belongs to the domain all the same.
    let host = connect(&[&one]).await.unwrap();
    refused(&host, &array(9, &[2, 3]), "drive 0000000000000002 stands beneath array 0000000000000009").await;
}

#[tokio::test]
async fn hosts_name_an_array_or_its_drives() {
    let fault = connect(&[&FakeDoor::new(1), &array(9, &[1, 2])]).await.map(|_| ()).unwrap_err();
    assert!(fault.message.contains("stands beneath array 0000000000000009"), "{fault}");
    let fault = connect(&[&array(8, &[1, 2]), &array(9, &[2, 3])]).await.map(|_| ()).unwrap_err();
    assert!(fault.message.contains("drive 0000000000000002 of array fake-"), "{fault}");
    connect(&[&array(8, &[1, 2]), &array(9, &[3, 4])]).await.unwrap();
}
