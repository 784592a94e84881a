//! Runs copied between drives, and sessions that go on where another left off.

use std::os::unix::fs::FileExt;

use super::*;
use futures::TryStreamExt;
use pithead_door::{Pieces, RunPiece};

/// Two drives with stores in memory, and a run of three slices on the first.
struct Pair {
    from: Arc<Drive>,
    to: Arc<Drive>,
    stores: [Arc<MemoryStore>; 2],
    made: Run,
    _directory: TempDir,
}

async fn pair() -> Pair {
    let directory = tempfile::tempdir().unwrap();
    let ((from, first), (to, second)) = (memory_drive(1, &directory), memory_drive(2, &directory));
    let made = load(&from, 1, 25).await;
    Pair { from, to, stores: [first, second], made, _directory: directory }
}

impl Pair {
    async fn pieces(&self) -> Vec<RunPiece> {
        self.from.read_run(run_key(&self.made)).await.unwrap().try_collect().await.unwrap()
    }

    async fn write(&self, pieces: Vec<Result<RunPiece, Fault>>) -> Result<(), Fault> {
        self.to.write_run(run_key(&self.made), pieces_of(pieces)).await
    }

    /// Nothing is stored, staged or reserved at the second drive.
    async fn assert_nothing_left(&self) {
        // The task of a copy that was dropped ends a moment later.
        let reserved = async || self.to.status().await.unwrap().memory_reserved;
        until("the copy's memory is given back", async || reserved().await == 0).await;
        until("staged values are given up", async || self.stores[1].usage().unwrap().free_bytes == u64::MAX).await;
        let status = self.to.status().await.unwrap();
        assert_eq!((status.slices, status.stored_bytes), (0, 0));
        assert!(self.stores[1].list(b"").unwrap().is_empty());
    }
}

fn pieces_of(pieces: Vec<Result<RunPiece, Fault>>) -> Pieces {
    futures::stream::iter(pieces).boxed()
}

fn contents(store: &MemoryStore) -> Vec<(Vec<u8>, Vec<u8>)> {
    let entries = store.list(b"slice/").unwrap();
    let value = |key: &[u8]| store.get(key).unwrap().unwrap().0.to_vec();
    entries.into_iter().map(|entry| (entry.key.to_vec(), value(&entry.key))).collect()
}

#[tokio::test]
async fn a_run_is_copied_byte_for_byte() {
    let pair = pair().await;
    let pieces = pair.from.read_run(run_key(&pair.made)).await.unwrap();
    pair.to.write_run(run_key(&pair.made), pieces).await.unwrap();
    assert_eq!(contents(&pair.stores[0]), contents(&pair.stores[1]));
    assert_eq!(contents(&pair.stores[1]).len(), 4);
    assert_eq!(run(&*pair.to, scan(&[&pair.made])).await.values, (0..25).collect::<Vec<i64>>());
    for drive in [&pair.from, &pair.to] {
        let reserved = async || drive.status().await.unwrap().memory_reserved;
        until("the copy's memory is given back", async || reserved().await == 0).await;
    }
    let numbers: Vec<Option<u32>> = pair.pieces().await.iter().map(|piece| piece.number).collect();
    assert_eq!(numbers, [None, Some(0), Some(1), Some(2)]);
}

#[tokio::test]
async fn a_run_without_slices_is_copied_too() {
    let pair = pair().await;
    let empty = load(&pair.from, 2, 0).await;
    let pieces = pair.from.read_run(run_key(&empty)).await.unwrap();
    pair.to.write_run(run_key(&empty), pieces).await.unwrap();
    assert_eq!(run(&*pair.to, scan(&[&empty])).await.values.len(), 0);
}

#[tokio::test]
async fn a_run_that_is_not_here_is_a_conflict() {
    let pair = pair().await;
    let absent = SliceKey { load: LoadId(99), ..run_key(&pair.made) };
    assert_eq!(pair.from.read_run(absent).await.err().unwrap().blame, Blame::Conflict);
    let slice = run_key(&pair.made).slice(0);
    assert_eq!(pair.from.read_run(slice.clone()).await.err().unwrap().blame, Blame::User);
    assert_eq!(pair.to.write_run(slice, pieces_of(vec![])).await.unwrap_err().blame, Blame::User);
    let reserved = async || pair.from.status().await.unwrap().memory_reserved;
    until("nothing is reserved", async || reserved().await == 0).await;
}

#[tokio::test]
async fn a_stream_that_breaks_off_leaves_nothing() {
    let pair = pair().await;
    let pieces = pair.pieces().await;
    let fault = Fault::new(Blame::Device, "the link is gone");
    for kept in 0..pieces.len() {
        let broken = || pieces.iter().take(kept).cloned().map(Ok);
        assert_eq!(pair.write(broken().chain([Err(fault.clone())]).collect()).await.unwrap_err(), fault);
        assert!(pair.write(broken().collect()).await.is_err(), "{kept} of {} pieces passed for a run", pieces.len());
        // A host that goes away in the midst.
        let endless = futures::stream::iter(broken().collect::<Vec<_>>()).chain(futures::stream::pending()).boxed();
        let writing = pair.to.write_run(run_key(&pair.made), endless);
        assert!(tokio::time::timeout(Duration::from_millis(50), writing).await.is_err());
        pair.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn damaged_pieces_are_refused_and_leave_nothing() {
    let pair = pair().await;
    let pieces = pair.pieces().await;
    for (index, piece) in pieces.iter().enumerate() {
        for at in [0, piece.bytes.len() / 3, piece.bytes.len() - 1] {
            let mut bytes = piece.bytes.to_vec();
            bytes[at] ^= 0x80;
            let mut damaged = pieces.clone();
            damaged[index].bytes = bytes.into();
            let fault = pair.write(damaged.into_iter().map(Ok).collect()).await.unwrap_err();
            assert_eq!(fault.blame, Blame::Corrupt, "byte {at} of piece {index}: {fault}");
        }
    }
    let with = |change: &dyn Fn(&mut Vec<RunPiece>)| {
        let mut pieces = pieces.clone();
        change(&mut pieces);
        pieces.into_iter().map(Ok).collect::<Vec<_>>()
    };
    let wrong = [
        with(&|pieces| pieces.swap(1, 2)),
        with(&|pieces| drop(pieces.remove(0))),
        with(&|pieces| drop(pieces.pop())),
        with(&|pieces| pieces.push(RunPiece { number: Some(3), ..pieces[1].clone() })),
        // Each is a good slice, in the place of another.
        with(&|pieces| pieces[1] = RunPiece { number: Some(0), ..pieces[3].clone() }),
        with(&|pieces| pieces[0].total = u64::MAX),
        with(&|pieces| pieces[0].bytes = vec![0; 3 << 20].into()),
    ];
    for (index, pieces) in wrong.into_iter().enumerate() {
        let fault = pair.write(pieces).await.unwrap_err();
        assert!(matches!(fault.blame, Blame::Corrupt | Blame::User | Blame::Limit), "{index}: {fault}");
    }
    pair.assert_nothing_left().await;
}

#[tokio::test]
async fn a_damaged_value_is_not_sent_as_a_run() {
    let pair = pair().await;
    let key = run_key(&pair.made).slice(1).to_string();
    pair.stores[0].write(vec![pithead_store::Write::delete(key)], pithead_store::Durability::Through).unwrap();
    let read: Result<Vec<RunPiece>, Fault> = pair.from.read_run(run_key(&pair.made)).await.unwrap().try_collect().await;
    let fault = read.unwrap_err();
    assert!(fault.blame == Blame::Corrupt && fault.message.contains("00000001"), "{fault}");
}

/// As long as its value was in memory, a copy that is damaged on the medium passed for a whole one, and no repair found it.
#[tokio::test]
async fn a_run_is_read_where_it_is_stored() {
    let Rig { drive, directory } = rig();
    let large = LoadRequest { slice_rows: 100_000, ..load_request(1) };
    let made = drive.load(large, batches(vec![Ok(batch(0..200_000))])).await.unwrap().run;
    let read = async || drive.read_run(run_key(&made)).await.unwrap().try_collect::<Vec<RunPiece>>().await;
    read().await.unwrap();
    let (store, key) = (Arc::clone(&drive.shared().store), run_key(&made).slice(1).to_string());
    let value = store.get(key.as_bytes()).unwrap().unwrap().0;
    let segment = directory.path().join("segments/0000000000000001.seg");
    let stored = std::fs::read(&segment).unwrap();
    let at = stored.windows(64).position(|bytes| *bytes == value[10_000..10_064]).unwrap();
    std::fs::OpenOptions::new().write(true).open(&segment).unwrap().write_all_at(b"damaged", at as u64).unwrap();
    assert_eq!(store.get(key.as_bytes()).unwrap().unwrap().0, value, "it is in memory");
    let fault = read().await.unwrap_err();
    assert!(fault.blame == Blame::Corrupt && fault.message.contains("00000001"), "{fault}");
}

#[tokio::test]
async fn a_run_is_replaced_by_its_equal_while_sessions_read_it() {
    let pair = pair().await;
    let pieces = || async { pair.from.read_run(run_key(&pair.made)).await.unwrap() };
    pair.to.write_run(run_key(&pair.made), pieces().await).await.unwrap();
    let session = open(&*pair.to, scan(&[&pair.made])).await.session;
    let mut events = pair.to.get(session).await.unwrap();
    let first = events.next().await.unwrap().unwrap();
    // One of its slices is damaged meanwhile; the copy mends it.
    let key = run_key(&pair.made).slice(2).to_string();
    pair.stores[1].write(vec![pithead_store::Write::put(key, "damaged")], pithead_store::Durability::Through).unwrap();
    pair.to.write_run(run_key(&pair.made), pieces().await).await.unwrap();
    assert_eq!(contents(&pair.stores[0]), contents(&pair.stores[1]));
    drop((first, events));
    pair.to.close(session).await.unwrap();
    assert_eq!(run(&*pair.to, scan(&[&pair.made])).await.values, (0..25).collect::<Vec<i64>>());
}

#[tokio::test]
async fn a_run_that_is_not_the_same_is_not_replaced() {
    let pair = pair().await;
    load(&pair.to, 1, 7).await;
    let before = contents(&pair.stores[1]);
    let pieces = pair.from.read_run(run_key(&pair.made)).await.unwrap();
    let fault = pair.to.write_run(run_key(&pair.made), pieces).await.unwrap_err();
    assert!(fault.blame == Blame::Conflict && fault.hint.is_some(), "{fault}");
    assert_eq!(contents(&pair.stores[1]), before);
}

#[tokio::test]
async fn a_run_is_leased_while_it_is_read() {
    let pair = pair().await;
    let large = LoadRequest { slice_rows: 100_000, ..load_request(9) };
    let made = pair.from.load(large, batches(vec![Ok(batch(0..500_000))])).await.unwrap().run;
    let mut pieces = pair.from.read_run(run_key(&made)).await.unwrap();
    pieces.next().await.unwrap().unwrap();
    let only = Loads::Only(vec![made.load]);
    assert_eq!(pair.from.discard(discard(only)).await.unwrap(), 0);
    let rest: Vec<RunPiece> = pieces.try_collect().await.unwrap();
    assert_eq!(rest.last().unwrap().number, Some(made.slices - 1));
    until("it goes with its reader", async || pair.from.status().await.unwrap().slices == 3).await;
}

#[tokio::test]
async fn a_run_that_comes_back_before_it_went_stays() {
    let pair = pair().await;
    let pieces = pair.pieces().await;
    let session = open(&*pair.from, scan(&[&pair.made])).await.session;
    assert_eq!(pair.from.discard(discard(Loads::All)).await.unwrap(), 0);
    assert_eq!(pair.stores[0].list(b"condemned/").unwrap().len(), 1);
    pair.from.write_run(run_key(&pair.made), pieces_of(pieces.into_iter().map(Ok).collect())).await.unwrap();
    assert!(pair.stores[0].list(b"condemned/").unwrap().is_empty(), "a restart would delete it");
    pair.from.close(session).await.unwrap();
    assert_eq!(run(&*pair.from, scan(&[&pair.made])).await.values.len(), 25);
}

#[tokio::test]
async fn slices_that_are_done_are_left_out() {
    let Rig { drive, directory: _directory } = rig();
    let (first, second) = (load(&drive, 1, 35).await, load(&drive, 2, 12).await);
    let span = |first, count| SliceSpan { first, count };
    let request = OpenRequest { done: vec![span(0, 1), span(3, 2)], ..scan(&[&first, &second]) };
    let answer = run(&*drive, request).await;
    let mut expected: Vec<i64> = (10..30).chain(10..12).collect();
    expected.sort_unstable();
    assert_eq!(answer.values, expected);
    let mut slices: Vec<u32> =
        answer.annotations.iter().flat_map(|it| &it.slices).flat_map(|span| span.first..span.first + span.count).collect();
    slices.sort_unstable();
    assert_eq!(slices, [1, 2, 5]);
    assert_eq!((answer.profile.slices_total, answer.profile.slices_done), (6, 6));

    let all = OpenRequest { done: vec![span(0, 6)], ..scan(&[&first, &second]) };
    let answer = run(&*drive, all).await;
    assert!(answer.values.is_empty() && answer.annotations.iter().all(|annotation| annotation.slices.is_empty()));
    assert_eq!((answer.profile.slices_total, answer.profile.slices_done), (6, 6));
}
