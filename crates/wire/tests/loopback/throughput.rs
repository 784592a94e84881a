//! Not a check: prints what loopback carries. `cargo test --release -p pithead-wire -- --ignored --nocapture loopback`

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use futures::StreamExt;
use pithead_door::{Door, Event};
use pithead_model::SessionId;

use crate::memory::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints a rate"]
async fn loopback_rate() {
    let column = |seed: i64| Arc::new(Int64Array::from_iter((0..8_192).map(|i| i * seed))) as ArrayRef;
    let batch = RecordBatch::try_from_iter((1..9).map(|i| (format!("c{i}"), column(i)))).unwrap();
    let served = served(MemoryDoor::default()).await;
    for _ in 0..5 {
        let events = (0..128).map(|_| row_event(0, batch.clone())).chain([finished()]).collect();
        served.door.answers.lock().unwrap().insert(SessionId(1), events);
        let start = Instant::now();
        let mut bytes = 0;
        let mut events = served.client.get(SessionId(1)).await.unwrap();
        while let Some(event) = events.next().await {
            if let Event::Rows { link_bytes, .. } = event.unwrap() {
                bytes += link_bytes;
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        println!("{bytes} bytes in {seconds:.4} s: {:.2} GB/s", bytes as f64 / seconds / 1e9);
    }
    let start = Instant::now();
    for _ in 0..1_000 {
        served.client.status().await.unwrap();
    }
    println!("{:.0} us a call", start.elapsed().as_secs_f64() * 1e3);
}
