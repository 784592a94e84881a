use super::*;
use pithead_wire::FlightDoor;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_over_flight() {
    let Rig { drive, directory: _directory } = rig();
    let listener = crate::bind("127.0.0.1:0").await.unwrap();
    let address = crate::address(&listener).unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(crate::daemon::serve(
        Arc::clone(&drive),
        listener,
        Default::default(),
        Box::pin(async {
            let _ = stopped.await;
        }),
    ));
    let door = FlightDoor::connect(&address.to_string()).unwrap();
    let made = door.load(load_request(1), batches(vec![Ok(batch(0..20)), Ok(batch(20..35))])).await.unwrap().run;
    assert_eq!((made.slices, made.rows), (4, 35));
    let answer = run(&door, scan(&[&made])).await;
    assert_eq!(answer.values, (0..35).collect::<Vec<i64>>());
    assert_complete(&answer, 4);
    assert_eq!(door.status().await.unwrap().slices, 4);
    let elsewhere = tempfile::tempdir().unwrap();
    let (other, _) = memory_drive(2, &elsewhere);
    let key = run_key(&made);
    other.write_run(key.clone(), door.read_run(key.clone()).await.unwrap()).await.unwrap();
    assert_eq!(run(&*other, scan(&[&made])).await.values, answer.values);
    // And back, over its equal.
    door.write_run(key.clone(), other.read_run(key.clone()).await.unwrap()).await.unwrap();
    assert_eq!(run(&door, scan(&[&made])).await.values, answer.values);
    let absent = SliceKey { load: LoadId(99), ..key };
    assert_eq!(door.read_run(absent).await.err().unwrap().blame, Blame::Conflict);
    stop.send(()).unwrap();
    tokio::time::timeout(LONG, serving).await.unwrap().unwrap().unwrap();
    assert!(door.status().await.is_err());
}
