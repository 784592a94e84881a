//! Runs that are copied: both ways, broken off, and hostile.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use pithead_door::*;
use pithead_model::*;

use crate::memory::*;

fn key() -> SliceKey {
    SliceKey { name: "t".parse().unwrap(), dataset: DatasetId(3), load: LoadId(4), partition: 5, number: None }
}

fn value(number: Option<u32>, bytes: usize) -> Vec<RunPiece> {
    let whole = Bytes::from_iter((0..bytes).map(|i| (i % 251) as u8));
    let starts = (0..bytes).step_by(PIECE_BYTES_MAX);
    let bytes = |start: usize| whole.slice(start..(start + PIECE_BYTES_MAX).min(whole.len()));
    starts.map(|start| RunPiece { number, total: whole.len() as u64, bytes: bytes(start) }).collect()
}

fn run_pieces() -> Vec<RunPiece> {
    [value(None, 300), value(Some(0), PIECE_BYTES_MAX), value(Some(1), 5 << 20)].concat()
}

fn stream_of(pieces: Vec<Result<RunPiece, Fault>>) -> Pieces {
    stream::iter(pieces).boxed()
}

async fn read(pieces: Vec<Result<RunPiece, Fault>>) -> (Served, Result<Vec<RunPiece>, Fault>) {
    let served = served(MemoryDoor::default()).await;
    served.door.runs.lock().unwrap().insert(key(), pieces);
    let arrived = served.client.read_run(key()).await.unwrap().try_collect().await;
    (served, arrived)
}

#[tokio::test]
async fn a_run_arrives_whole_either_way_and_is_paced() {
    let (served, arrived) = read(run_pieces().into_iter().map(Ok).collect()).await;
    assert_eq!(arrived.unwrap(), run_pieces());
    let (paced, bytes) = (served.sent.0.load(Ordering::Relaxed), run_pieces().iter().map(|it| it.bytes.len() as u64).sum());
    assert!(paced > bytes && paced < bytes + 4_096, "{paced} bytes were paced of a run of {bytes}");

    served.client.write_run(key(), stream_of(run_pieces().into_iter().map(Ok).collect())).await.unwrap();
    assert_eq!(*served.door.written.lock().unwrap(), [(key(), Ok(run_pieces()))]);
}

#[tokio::test]
async fn one_stream_feeds_the_other() {
    let (from, to) = (served(MemoryDoor::default()).await, served(MemoryDoor::default()).await);
    from.door.runs.lock().unwrap().insert(key(), run_pieces().into_iter().map(Ok).collect());
    let pieces = from.client.read_run(key()).await.unwrap();
    to.client.write_run(key(), pieces).await.unwrap();
    assert_eq!(*to.door.written.lock().unwrap(), [(key(), Ok(run_pieces()))]);
}

#[tokio::test]
async fn a_run_that_is_not_there_is_a_fault_of_the_call() {
    let served = served(MemoryDoor::default()).await;
    assert_eq!(served.client.read_run(key()).await.err().unwrap().blame, Blame::Conflict);
}

#[tokio::test]
async fn a_read_that_breaks_off_is_never_a_run() {
    let fault = Fault::new(Blame::Corrupt, "slice 1 is damaged").hint("repair it");
    let mut pieces: Vec<_> = run_pieces().into_iter().map(Ok).collect();
    pieces[2] = Err(fault.clone());
    let (_served, arrived) = read(pieces).await;
    assert_eq!(arrived.unwrap_err(), fault, "a fault keeps blame and hint");

    // A drive that ends its stream too early is found out by itself.
    for kept in [0, 3, 4] {
        let (_served, arrived) = read(run_pieces().into_iter().take(kept).map(Ok).collect()).await;
        assert!(arrived.is_err(), "{kept} pieces of {} came as a whole run", run_pieces().len());
    }
}

#[tokio::test]
async fn a_write_that_breaks_off_is_broken_off_at_the_drive() {
    let served = served(MemoryDoor::default()).await;
    let fault = Fault::new(Blame::Device, "drive a: the connection was lost").hint("start it");
    let mut pieces: Vec<_> = run_pieces().into_iter().map(Ok).collect();
    pieces.insert(2, Err(fault.clone()));
    assert_eq!(served.client.write_run(key(), stream_of(pieces)).await.unwrap_err(), fault);
    let written = served.door.written.lock().unwrap();
    let (_, arrived) = &written[0];
    assert_eq!(arrived.as_ref().unwrap_err().blame, Blame::Cancelled, "a part of a run must not look like all of it");
}

#[tokio::test]
async fn a_drive_that_stops_ends_a_run_with_a_fault() {
    let served = served(MemoryDoor::default()).await;
    let slices = (0..1_000).flat_map(|number| value(Some(number), PIECE_BYTES_MAX));
    let pieces = value(None, 1).into_iter().chain(slices).map(Ok).collect();
    served.door.runs.lock().unwrap().insert(key(), pieces);
    let mut pieces = served.client.read_run(key()).await.unwrap();
    assert!(pieces.next().await.unwrap().is_ok());
    served.stop.send(()).unwrap();
    let last = loop {
        match pieces.next().await.unwrap() {
            Ok(_) => {}
            Err(fault) => break fault,
        }
    };
    assert!(last.blame == Blame::Device && last.message.contains("stopping"), "{last:?}");
}

#[tokio::test]
async fn hostile_pieces_are_refused_before_they_are_sent() {
    let served = served(MemoryDoor::default()).await;
    let piece = |number, total, bytes| RunPiece { number, total, bytes: Bytes::from(vec![0; bytes]) };
    let hostile = [
        vec![piece(None, 1 << 20, PIECE_BYTES_MAX + 1)],
        vec![piece(None, 1, 1), piece(Some(0), SLICE_BYTES_MAX as u64 + 1, 1)],
        vec![piece(None, 1, 1), piece(Some(1), 1, 1)],
        vec![piece(Some(0), 1, 1)],
        vec![piece(None, 2, 1)],
        vec![],
    ];
    let count = hostile.len();
    for pieces in hostile {
        let refused = served.client.write_run(key(), stream_of(pieces.into_iter().map(Ok).collect())).await.unwrap_err();
        assert!(matches!(refused.blame, Blame::User | Blame::Limit), "{refused:?}");
    }
    let written = served.door.written.lock().unwrap();
    assert_eq!(written.iter().filter(|(_, arrived)| arrived.is_err()).count(), count);
}

#[tokio::test]
async fn a_key_that_names_no_run_is_refused() {
    let served = served(MemoryDoor::default()).await;
    let outside = SliceKey { name: DatasetName { domain: "a/b".into(), dataset: "t".into() }, ..key() };
    for wrong in [key().slice(3), outside] {
        assert_eq!(served.client.read_run(wrong.clone()).await.err().unwrap().blame, Blame::User);
        assert_eq!(served.client.write_run(wrong, stream_of(vec![])).await.unwrap_err().blame, Blame::User);
    }
    assert!(served.door.written.lock().unwrap().is_empty());
}
