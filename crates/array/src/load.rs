//! LOAD: rows are dealt to the drives below, a slice's worth at a time.

use std::sync::Arc;

use arrow::array::RecordBatch;
use futures::future::{join, join_all};
use futures::{StreamExt, stream};
use pithead_door::{Batches, Discard, LoadRequest, Loads, batch_bytes};
use pithead_model::{Blame, Fault, Loaded, Run, total};
use tokio::sync::mpsc;

use crate::array::Inner;
use crate::lower::broken;
use crate::summaries::summaries;

/// Batches that wait for a drive at most.
const BATCHES_QUEUED_MAX: usize = 2;

type Sender = mpsc::Sender<Result<RecordBatch, Fault>>;

/// Loads one partition's rows. A load that fails leaves nothing.
pub(crate) async fn load(inner: Arc<Inner>, request: LoadRequest, rows: Batches) -> Result<Loaded, Fault> {
    inner.check_running()?;
    if request.slice_rows == 0 {
        return Err(Fault::new(Blame::User, "expected slices of at least 1 row, got 0"));
    }
    // A task of its own: a caller that is gone ends the rows with a fault, and what was written must go then.
    let loading = tokio::spawn(async move { load_all(&inner, &request, rows).await });
    loading.await.map_err(|lost| Fault::new(Blame::Bug, format!("a load ended early: {lost}")))?
}

async fn load_all(inner: &Inner, request: &LoadRequest, rows: Batches) -> Result<Loaded, Fault> {
    let (mut senders, mut loads) = (Vec::new(), Vec::new());
    for drive in inner.drives.iter() {
        let (sender, receiver) = mpsc::channel(BATCHES_QUEUED_MAX);
        senders.push(sender);
        let part = stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) }).boxed();
        loads.push(drive.door.load(request.clone(), part));
    }
    // Small loads would all begin, and end, at the first drive.
    let first = (request.load.0 as usize).wrapping_add(request.partition as usize) % senders.len().max(1);
    let slice = (request.slice_rows, request.slice_bytes.unwrap_or(usize::MAX));
    let (dealt, loaded) = join(deal(rows, senders, first, slice), join_all(loads)).await;
    match whole(inner, request, dealt, &loaded) {
        Ok(run) => Ok(run),
        Err(fault) => {
            undo(inner, request, &loaded).await;
            Err(fault)
        }
    }
}

/// Sends rows on, a slice's worth, of rows or of bytes, to one drive and then to the next. Where it cannot, no drive is left to take what it has for all.
async fn deal(mut rows: Batches, senders: Vec<Sender>, first: usize, slice: (usize, usize)) -> Result<(), Fault> {
    let dealt = async {
        let (mut drive, (mut room, mut bytes)) = (first, slice);
        while let Some(batch) = rows.next().await {
            let mut batch = batch?;
            while batch.num_rows() > 0 {
                let row_bytes = batch_bytes(&batch) / batch.num_rows();
                let by_bytes = bytes.checked_div(row_bytes).unwrap_or(usize::MAX);
                let count = batch.num_rows().min(room).min(by_bytes.max(1));
                let sent = senders[drive].send(Ok(batch.slice(0, count))).await;
                sent.map_err(|_| Fault::new(Blame::Cancelled, "a drive of the array has stopped taking rows"))?;
                batch = batch.slice(count, batch.num_rows() - count);
                room -= count;
                bytes = bytes.saturating_sub(count * row_bytes);
                if room == 0 || bytes < row_bytes {
                    (drive, (room, bytes)) = ((drive + 1) % senders.len(), slice);
                }
            }
        }
        Ok(())
    };
    let dealt: Result<(), Fault> = dealt.await;
    if let Err(fault) = &dealt {
        // A drive that is gone hears nothing any more.
        join_all(senders.iter().map(|sender| sender.send(Err(fault.clone())))).await;
    }
    dealt
}

/// The run that all parts are, or why there is none.
fn whole(
    inner: &Inner,
    request: &LoadRequest,
    dealt: Result<(), Fault>,
    loaded: &[Result<Loaded, Fault>],
) -> Result<Loaded, Fault> {
    let stopped = |fault: &Fault| matches!(&dealt, Err(told) if fault.message.contains(&told.message));
    let labels = inner.drives.iter().map(|drive| drive.label());
    // What a drive says by itself says more than that it was told to stop.
    let own = loaded.iter().zip(labels).find_map(|(loaded, label)| match loaded {
        Err(fault) if !stopped(fault) => Some(fault.clone().at_drive(label)),
        _ => None,
    });
    if let Some(fault) = own {
        return Err(fault);
    }
    dealt?;
    let parts = loaded.iter().cloned().collect::<Result<Vec<Loaded>, Fault>>()?;
    if let Some((drive, _)) = inner.drives.iter().zip(&parts).find(|(_, part)| part.run.load != request.load) {
        return Err(broken(drive.label(), "it loaded under another load id"));
    }
    let slices = parts.iter().try_fold(0_u32, |sum, part| sum.checked_add(part.run.slices));
    let run = Run {
        load: request.load,
        slices: slices.ok_or_else(|| Fault::new(Blame::Limit, "a load of more slices than can be numbered"))?,
        rows: total(parts.iter().map(|part| part.run.rows)),
        bytes: total(parts.iter().map(|part| part.run.bytes)),
    };
    Ok(Loaded { run, columns: summaries(parts.iter().map(|part| (part.run.rows, part.columns.as_slice()))) })
}

/// Deletes what drives have of a load that failed elsewhere. A drive that refused because it has such a load keeps that one.
async fn undo(inner: &Inner, request: &LoadRequest, loaded: &[Result<Loaded, Fault>]) {
    let discard = Discard {
        name: request.name.clone(),
        dataset: request.dataset,
        loads: Loads::Only(vec![request.load]),
        partition: Some(request.partition),
        seen: None,
    };
    let left = inner.drives.iter().zip(loaded);
    let left = left.filter(|(_, loaded)| !matches!(loaded, Err(fault) if fault.blame == Blame::Conflict));
    join_all(left.map(|(drive, _)| async {
        if let Err(fault) = drive.door.discard(discard.clone()).await {
            tracing::warn!(drive = drive.label(), load = %request.load, %fault, "a part of a load that failed stays");
        }
    }))
    .await;
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use futures::executor::block_on;

    use super::*;

    fn batch(from: i64, rows: i64) -> RecordBatch {
        RecordBatch::try_from_iter([("a", Arc::new(Int64Array::from_iter_values(from..from + rows)) as _)]).unwrap()
    }

    /// How dealing ended, and rows of each batch by drive.
    type Dealt = (Result<(), Fault>, Vec<Vec<Result<usize, Fault>>>);

    fn dealt(rows: Vec<Result<RecordBatch, Fault>>) -> Dealt {
        let (senders, mut receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| mpsc::channel(100)).unzip();
        let done = block_on(deal(stream::iter(rows).boxed(), senders, 1, (10, usize::MAX)));
        let mut take = |receiver: &mut mpsc::Receiver<Result<RecordBatch, Fault>>| {
            let mut got = Vec::new();
            while let Ok(batch) = receiver.try_recv() {
                got.push(batch.map(|batch| batch.num_rows()));
            }
            got
        };
        let got = receivers.iter_mut().map(&mut take).collect();
        (done, got)
    }

    #[test]
    fn rows_are_dealt_a_slice_at_a_time() {
        let (done, got) = dealt(vec![Ok(batch(0, 4)), Ok(batch(4, 27)), Ok(batch(31, 4))]);
        done.unwrap();
        assert_eq!(got, [vec![Ok(10)], vec![Ok(4), Ok(6), Ok(1), Ok(4)], vec![Ok(10)]]);
    }

    #[test]
    fn a_fault_reaches_every_drive() {
        let fault = Fault::new(Blame::User, "line 7 is no number");
        let (done, got) = dealt(vec![Ok(batch(0, 4)), Err(fault.clone()), Ok(batch(4, 4))]);
        assert_eq!(done, Err(fault.clone()));
        assert_eq!(got, [vec![Err(fault.clone())], vec![Ok(4), Err(fault.clone())], vec![Err(fault)]]);
    }
}
