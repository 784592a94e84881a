//! Runs that are copied to and from an array: to the other end they are runs of one drive.

use std::sync::Arc;

use futures::future::{join, join_all, try_join_all};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use pithead_door::{Discard, Loads, Pieces, RunPiece, RunValue, check_columns, run_values, value_pieces};
use pithead_model::{Blame, Directory, Fault, SliceKey, merge_columns};
use tokio::sync::mpsc;

use crate::array::Inner;
use crate::directories::{columns_key, note_columns};
use crate::lower::broken;

/// Pieces that wait for a drive at most.
const PIECES_QUEUED_MAX: usize = 2;

/// A run: its metadata slice, put together here, then the slices of one drive after the other.
pub(crate) async fn read_run(inner: &Inner, run: SliceKey) -> Result<Pieces, Fault> {
    inner.check_running()?;
    check_run(&run)?;
    let parts = inner.directories.run(&run).await?;
    let whole = parts.whole(&columns_key(inner.id()))?;
    // All at once, so that no drive deletes its part while another one's is read.
    let opened = inner.drives.iter().map(|drive| {
        let run = run.clone();
        async move { drive.door.read_run(run).await.map_err(|fault| fault.at_drive(drive.label())) }
    });
    let mut parts_of = vec![stream::iter(value_pieces((None, json(&whole)?)).map(Ok)).boxed()];
    let mut first = 0;
    for ((drive, pieces), count) in inner.drives.iter().zip(try_join_all(opened).await?).zip(parts.counts()) {
        parts_of.push(renumbered(pieces, first, drive.label().to_owned(), count));
        first += count;
    }
    Ok(until_fault(stream::iter(parts_of).flatten().boxed()))
}

/// The same; nothing follows a fault.
fn until_fault(pieces: Pieces) -> Pieces {
    stream::unfold(Some(pieces), |pieces| async move {
        let mut pieces = pieces?;
        let piece = pieces.next().await?;
        let more = piece.is_ok().then_some(pieces);
        Some((piece, more))
    })
    .boxed()
}

/// A drive's slices under their numbers in the run, without its metadata slice. A part that is not as long as it should be is a
/// fault.
fn renumbered(pieces: Pieces, first: u32, label: String, count: u32) -> Pieces {
    stream::unfold(Some((pieces, 0, label)), move |state| async move {
        let (mut pieces, mut seen, label) = state?;
        loop {
            let piece = match pieces.next().await {
                None if seen == count => return None,
                None => Err(broken(&label, format!("{seen} of {count} slices of its part came"))),
                Some(Ok(RunPiece { number: None, .. })) => continue,
                Some(Ok(RunPiece { number: Some(number), total, bytes })) if number < count => {
                    seen = number + 1;
                    Ok(RunPiece { number: Some(first + number), total, bytes })
                }
                Some(Ok(_)) => Err(broken(&label, format!("its part of the run has more than {count} slices"))),
                Some(Err(fault)) => Err(fault.at_drive(&label)),
            };
            let more = piece.is_ok().then_some((pieces, seen, label));
            return Some((piece, more));
        }
    })
    .boxed()
}

/// Stores a run: the first slices at the first drive, and so on.
pub(crate) async fn write_run(inner: Arc<Inner>, run: SliceKey, pieces: Pieces) -> Result<(), Fault> {
    inner.check_running()?;
    check_run(&run)?;
    // A task of its own, as what was written must go where the rest does not come.
    let writing = tokio::spawn(async move {
        let mut values = run_values(pieces);
        let Some((None, meta)) = values.try_next().await? else {
            return Err(Fault::new(Blame::User, "expected a run's metadata slice first").at(&run));
        };
        let whole: Directory = serde_json::from_slice(&meta)
            .map_err(|error| Fault::new(Blame::Corrupt, format!("a metadata slice that is none: {error}")).at(&run))?;
        check_columns(&whole.schema)?;
        let before = present(&inner, &run).await?;
        let parts = divide(&whole, &before, &columns_key(inner.id())).map_err(|fault| fault.at(&run))?;
        inner.directories.forget(&run);
        let written = write_parts(&inner, &run, values, &parts).await;
        if written.is_err() {
            undo(&inner, &run, &before).await;
        }
        written
    });
    writing.await.map_err(|lost| Fault::new(Blame::Bug, format!("writing a run ended early: {lost}")))?
}

/// What each drive has of a run already.
async fn present(inner: &Inner, run: &SliceKey) -> Result<Vec<Option<Directory>>, Fault> {
    let asked = inner.drives.iter().map(|drive| async move {
        match drive.door.directory(run.clone()).await {
            Ok(directory) => Ok(Some(directory)),
            Err(fault) if matches!(fault.blame, Blame::Conflict | Blame::Corrupt | Blame::User) => Ok(None),
            Err(fault) => Err(fault.at_drive(drive.label())),
        }
    });
    try_join_all(asked).await
}

/// The metadata slice of each drive's part. Where some drives have theirs, these stay as they are.
fn divide(whole: &Directory, before: &[Option<Directory>], key: &str) -> Result<Vec<Directory>, Fault> {
    let other = || {
        let fault = Fault::new(Blame::Conflict, "the run is here already, and is not what was sent");
        fault.hint("one of the two is damaged: compare them with `pithead check`")
    };
    let known: usize = before.iter().flatten().map(|part| part.slices.len()).sum();
    let mut missing = before.iter().filter(|part| part.is_none()).count();
    let mut left = whole.slices.len().checked_sub(known).ok_or_else(other)?;
    let mut slices = whole.slices.as_slice();
    let mut parts = Vec::with_capacity(before.len());
    for part in before {
        let count = match part {
            Some(part) => part.slices.len(),
            None => left.div_ceil(missing.max(1)),
        };
        let (mine, rest) = slices.split_at_checked(count).ok_or_else(other)?;
        slices = rest;
        parts.push(match part {
            Some(part) if part.slices == mine => part.clone(),
            Some(_) => return Err(other()),
            None => {
                (left, missing) = (left - count, missing - 1);
                let columns = match mine {
                    [] => whole.columns.clone(),
                    mine => merge_columns(mine.iter().map(|slice| slice.columns.as_slice())),
                };
                let mut metadata = whole.metadata.clone();
                note_columns(&mut metadata, key, &whole.columns)?;
                Directory { schema: Arc::clone(&whole.schema), metadata, slices: mine.to_vec(), columns }
            }
        });
    }
    if slices.is_empty() { Ok(parts) } else { Err(other()) }
}

/// One drive after the other, as the slices come.
async fn write_parts(
    inner: &Inner,
    run: &SliceKey,
    mut values: BoxStream<'static, Result<RunValue, Fault>>,
    parts: &[Directory],
) -> Result<(), Fault> {
    for (drive, part) in inner.drives.iter().zip(parts) {
        let (sender, receiver) = mpsc::channel(PIECES_QUEUED_MAX);
        let pieces =
            stream::unfold(receiver, |mut receiver: mpsc::Receiver<_>| async move { Some((receiver.recv().await?, receiver)) });
        let meta = json(part)?;
        let (sent, written) =
            join(send(&mut values, meta, part.slices.len(), sender), drive.door.write_run(run.clone(), pieces.boxed())).await;
        match (sent, written) {
            (Ok(()), Ok(())) => {}
            // A drive that stopped taking pieces says why.
            (_, Err(fault)) => return Err(fault.at_drive(drive.label())),
            (Err(fault), Ok(())) => return Err(fault),
        }
    }
    match values.try_next().await? {
        None => Ok(()),
        Some(_) => Err(Fault::new(Blame::Corrupt, "more slices came than the metadata slice names").at(run)),
    }
}

async fn send(
    values: &mut BoxStream<'static, Result<RunValue, Fault>>,
    meta: bytes::Bytes,
    slices: usize,
    sender: mpsc::Sender<Result<RunPiece, Fault>>,
) -> Result<(), Fault> {
    let gone = || Fault::new(Blame::Cancelled, "the drive has stopped taking pieces");
    for piece in value_pieces((None, meta)) {
        sender.send(Ok(piece)).await.map_err(|_| gone())?;
    }
    for number in (0..).take(slices) {
        let value = match values.try_next().await {
            Ok(Some((Some(_), value))) => Ok(value),
            Ok(_) => Err(Fault::new(Blame::Corrupt, "fewer slices came than the metadata slice names")),
            Err(fault) => Err(fault),
        };
        match value {
            Ok(value) => {
                for piece in value_pieces((Some(number), value)) {
                    sender.send(Ok(piece)).await.map_err(|_| gone())?;
                }
            }
            Err(fault) => {
                // Not an end, which would be that of a whole run.
                let _ = sender.send(Err(fault.clone())).await;
                return Err(fault);
            }
        }
    }
    Ok(())
}

/// Deletes the parts that were not there before.
async fn undo(inner: &Inner, run: &SliceKey, before: &[Option<Directory>]) {
    let discard = Discard {
        name: run.name.clone(),
        dataset: run.dataset,
        loads: Loads::Only(vec![run.load]),
        partition: Some(run.partition),
        // Another host may have written the same, and claimed it.
        seen: Some(0),
    };
    let new = inner.drives.iter().zip(before).filter(|(_, before)| before.is_none());
    join_all(new.map(|(drive, _)| async {
        if let Err(fault) = drive.door.discard(discard.clone()).await {
            tracing::warn!(drive = drive.label(), %run, %fault, "a part of a copy that failed stays");
        }
    }))
    .await;
}

fn json(directory: &Directory) -> Result<bytes::Bytes, Fault> {
    let json = serde_json::to_vec(directory);
    Ok(json.map_err(|error| Fault::new(Blame::Bug, format!("a directory that is no JSON: {error}")))?.into())
}

fn check_run(run: &SliceKey) -> Result<(), Fault> {
    match run.number {
        Some(number) => Err(Fault::new(Blame::User, format!("expected the key of a run, got that of its slice {number}"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use arrow::datatypes::{DataType, Field, Schema};
    use futures::executor::block_on;
    use pithead_model::{ColumnSummary, SliceEntry};

    use super::*;
    use crate::directories::RunParts;

    fn directory(rows: &[u64]) -> Directory {
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
        let columns = vec![ColumnSummary { exact: true, distinct: 7, ..ColumnSummary::default() }];
        let entry = |rows: &u64| SliceEntry { rows: *rows, bytes: 10, columns: columns.clone() };
        Directory { schema, metadata: BTreeMap::new(), slices: rows.iter().map(entry).collect(), columns: columns.clone() }
    }

    #[test]
    fn a_run_is_divided_and_comes_back_as_it_was() {
        let whole = directory(&[1, 2, 3, 4, 5]);
        let parts = divide(&whole, &[None, None, None], "k").unwrap();
        assert_eq!(parts.iter().map(|part| part.slices.len()).collect::<Vec<_>>(), [2, 2, 1]);
        assert_eq!(RunParts(parts.clone()).whole("k").unwrap(), whole);
        // A part that was lost is made again around those that are there.
        let again = divide(&whole, &[Some(parts[0].clone()), None, Some(parts[2].clone())], "k").unwrap();
        assert_eq!(again, parts);
        let fewer = divide(&directory(&[1]), &[None, None], "k").unwrap();
        assert_eq!(fewer.iter().map(|part| part.slices.len()).collect::<Vec<_>>(), [1, 0]);
    }

    #[test]
    fn a_run_that_is_another_is_refused() {
        let whole = directory(&[1, 2, 3]);
        let other = directory(&[1, 9]);
        for before in [
            vec![Some(other.clone()), None],
            vec![Some(whole.clone()), Some(directory(&[4]))],
            vec![Some(directory(&[1])), Some(directory(&[2]))],
        ] {
            assert_eq!(divide(&whole, &before, "k").unwrap_err().blame, Blame::Conflict);
        }
    }

    fn piece(number: Option<u32>) -> Result<RunPiece, Fault> {
        Ok(RunPiece { number, total: 1, bytes: bytes::Bytes::from_static(b"x") })
    }

    #[test]
    fn parts_are_renumbered_and_short_ones_are_faults() {
        let read = |pieces: Vec<Result<RunPiece, Fault>>| -> Result<Vec<Option<u32>>, Fault> {
            let pieces: Vec<_> = block_on(renumbered(stream::iter(pieces).boxed(), 5, "d".into(), 2).collect());
            pieces.into_iter().map(|piece| piece.map(|piece| piece.number)).collect()
        };
        assert_eq!(read(vec![piece(None), piece(Some(0)), piece(Some(1))]), Ok(vec![Some(5), Some(6)]));
        assert!(read(vec![piece(None), piece(Some(0))]).is_err());
        assert!(read(vec![piece(None), piece(Some(0)), piece(Some(1)), piece(Some(2))]).is_err());
    }
}
