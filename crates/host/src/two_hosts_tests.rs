//! Two hosts that change the drives of one domain at one time.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use futures::{StreamExt, stream};
use pithead_door::Door;
use pithead_fakes::FakeDoor;
use pithead_model::DriveId;

use crate::{Host, HostOptions, LoadSpec};

const ROWS: i64 = 1_000;

async fn connect(doors: &[Arc<FakeDoor>]) -> Host {
    let doors = doors.iter().map(|door| Arc::clone(door) as Arc<dyn Door>).collect();
    Host::connect(doors, HostOptions { threads: 2, ..Default::default() }).await.unwrap()
}

/// A regression: the one that was later with the last step was told of versions, and nothing else.
#[tokio::test]
async fn hosts_that_drain_one_drive_at_one_time_do_not_get_in_each_others_way() {
    let doors: Vec<Arc<FakeDoor>> = (1..=3).map(FakeDoor::new).collect();
    let (one, two) = (connect(&doors).await, connect(&doors).await);
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS));
    let batch = RecordBatch::try_from_iter([("k", keys)]).unwrap();
    let spec = LoadSpec { partitions: Some(3), ..LoadSpec::new("t".parse().unwrap(), vec![]) };
    one.load_batches(spec, batch.schema(), stream::iter([Ok(batch)]).boxed()).await.unwrap();
    let drained =
        tokio::join!(one.fleet().drain(DriveId(1), Arc::new(|_| ())), two.fleet().drain(DriveId(1), Arc::new(|_| ())));
    for fault in [drained.0, drained.1].into_iter().filter_map(Result::err) {
        assert!(fault.message.contains("other host") && fault.hint.is_some(), "{fault}");
    }
    let left: Vec<usize> = doors.iter().map(|door| door.rows()).collect();
    assert_eq!((left[0], left.iter().sum::<usize>()), (0, ROWS as usize));
    one.fleet().remove(DriveId(1)).await.unwrap();
}
