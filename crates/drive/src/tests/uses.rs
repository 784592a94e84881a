use super::*;
use pithead_door::PartitionUse;

async fn uses(drive: &Drive) -> Vec<PartitionUse> {
    drive.status().await.unwrap().partitions
}

#[tokio::test]
async fn sessions_are_counted_with_what_they_read() {
    let Rig { drive, directory: _directory } = rig();
    let (first, second) = (load(&drive, 1, 35).await, load(&drive, 2, 12).await);
    let elsewhere = LoadRequest { partition: 4, ..load_request(3) };
    drive.load(elsewhere, batches(vec![Ok(batch(0..10))])).await.unwrap();
    let unused = uses(&drive).await;
    let stored: Vec<_> = unused.iter().map(|it| (it.partition, it.slices, it.bytes, it.sessions, it.idle_s)).collect();
    assert_eq!(stored[0], (0, 6, first.bytes + second.bytes, 0, None));
    assert_eq!((stored.len(), stored[1].0, stored[1].1), (2, 4, 1));

    run(&*drive, scan(&[&first, &second])).await;
    let used = &uses(&drive).await[0];
    assert_eq!((used.sessions, used.slices_read), (1, 6));
    assert!(used.bytes_read > 0 && used.cpu_ns > 0 && used.idle_s.is_some(), "{used:?}");
    let before = used.clone();
    run(&*drive, scan(&[&first])).await;
    let after = &uses(&drive).await[0];
    assert_eq!((after.sessions, after.slices_read), (2, 10));
    assert!(after.bytes_read > before.bytes_read && after.bytes_read < 2 * before.bytes_read);
    assert_eq!(uses(&drive).await[1], unused[1], "the other partition was not asked for");
}

#[tokio::test]
async fn a_session_that_is_closed_early_counts_for_what_it_did() {
    let Rig { drive, directory: _directory } = rig();
    let made = load(&drive, 1, 1_000).await;
    let session = open(&*drive, scan(&[&made])).await.session;
    assert_eq!(uses(&drive).await[0].sessions, 1);
    let mut events = drive.get(session).await.unwrap();
    events.next().await.unwrap().unwrap();
    drop(events);
    drive.close(session).await.unwrap();
    until("what it read is counted", async || uses(&drive).await[0].slices_read > 0).await;
    assert!(uses(&drive).await[0].slices_read < 100);
}

#[tokio::test]
async fn a_partition_that_is_gone_is_forgotten() {
    let Rig { drive, directory: _directory } = rig();
    let made = load(&drive, 1, 10).await;
    run(&*drive, scan(&[&made])).await;
    drive.discard(discard(Loads::All)).await.unwrap();
    assert!(uses(&drive).await.is_empty());
    load(&drive, 2, 10).await;
    assert_eq!(uses(&drive).await[0].sessions, 0);
}
