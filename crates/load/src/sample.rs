//! Values that a partitioning is chosen by: some of every file, or the first of a stream.

use arrow::array::RecordBatch;
use futures::{StreamExt, stream};
use pithead_door::Batches;
use pithead_files::{Source, guarded};
use pithead_model::Fault;

use crate::partition::{Sample, unknown_column};

/// Files that a sample looks at.
const FILES_MAX: usize = 64;
/// Batches of each file.
const FILE_BATCHES: usize = 16;
/// Batches of a stream.
const STREAM_BATCHES: usize = 32;

/// Chooses values of a column, spread over all files and their parts. `column` finds it in a file.
pub(crate) fn of_files(sources: &[Box<dyn Source>], column: &str) -> Result<Sample, Fault> {
    let mut sample = Sample::default();
    let files = sources.len().min(FILES_MAX);
    for source in (0..files).map(|file| &sources[file * sources.len() / files]) {
        let index = source.schema().index_of(column).map_err(|error| Fault::invalid(error.to_string()))?;
        guarded(source.path(), || add_file(source.as_ref(), index, &mut sample))?;
    }
    Ok(sample)
}

fn add_file(source: &dyn Source, column: usize, sample: &mut Sample) -> Result<(), Fault> {
    let parts = source.parts().min(FILE_BATCHES);
    for part in 0..parts {
        let chunks = source.read(part * source.parts() / parts, pithead_model::PAGE_ROWS, Some(column))?;
        for chunk in chunks.take(FILE_BATCHES / parts) {
            sample.add(chunk?.batch.column(0));
        }
    }
    Ok(())
}

/// The first batches of a stream, and the stream with them still in front. A short one is asked again after its end.
pub(crate) async fn peek(rows: Batches) -> Result<(Vec<RecordBatch>, Batches), Fault> {
    let mut rows = rows.fuse();
    let mut head = Vec::new();
    while head.len() < STREAM_BATCHES
        && let Some(batch) = rows.next().await
    {
        head.push(batch?);
    }
    let again = stream::iter(head.clone().into_iter().map(Ok)).chain(rows).boxed();
    Ok((head, again))
}

/// Values of a column of these batches.
pub(crate) fn of_batches(batches: &[RecordBatch], column: &str) -> Result<Sample, Fault> {
    let mut sample = Sample::default();
    for batch in batches {
        let values = batch.column_by_name(column).ok_or_else(|| unknown_column(column, &batch.schema()))?;
        sample.add(values);
    }
    Ok(sample)
}
