//! From a [`MatrixWriter`] into a dataset.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryViewBuilder, Float32Builder, Int32Array, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use futures::StreamExt;
use pithead_host::{Host, LoadReport, LoadSpec, PartitionBy};
use pithead_matrix::Values;
use pithead_model::{COLUMNS_MAX, Fault, SLICE_ROWS_DEFAULT, boxed};
use tokio::sync::mpsc;

use crate::fault::{bug, invalid};
use crate::sorted::GeneRow;
use crate::writer::{MatrixWriter, Progress};

/// Bytes of rows after which a slice ends, unless told otherwise: some hundred genes of a large matrix.
const SLICE_BYTES: usize = 4 << 20;
/// Values of a batch of a column for each cell.
const DENSE_VALUES: usize = 1 << 20;
/// Batches that wait to be sent.
const BATCHES: usize = 2;

/// How a matrix is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// One row for each gene, with its values in all cells in one column.
    #[default]
    Sparse,
    /// One row for each gene and one column for each cell, as in Montana et al. 2023, section 5.1.
    Dense,
}

/// A load of a matrix.
pub struct MatrixLoad {
    /// The dataset, its metadata, and what to do with one of its name. Bytes of slices have a default of their own.
    pub spec: LoadSpec,
    /// Ids of the genes.
    pub ids: Vec<String>,
    /// How.
    pub layout: Layout,
    /// Told genes.
    pub progress: Progress,
}

impl MatrixWriter {
    /// Writes the matrix. Its rows become visible together at the end, or not at all.
    #[boxed]
    pub async fn load(self: Arc<Self>, host: &Host, load: MatrixLoad) -> Result<LoadReport, Fault> {
        self.check_complete()?;
        let MatrixLoad { mut spec, ids, layout, progress } = load;
        if ids.len() != self.n_genes {
            return Err(self.wrong(format!("it has {} genes, and {} ids", self.n_genes, ids.len())));
        }
        let schema = self.schema(layout)?;
        // Rows are compressed already; and columns for thousands of cells are quicker to write and read as they are.
        spec.encoding.get_or_insert_with(|| "arrow".to_owned());
        spec.slice_bytes.get_or_insert(SLICE_BYTES);
        // Partial results of slices answer for each further pairing of groups; by genes, whole partitions would be asked again.
        spec.partitioning.get_or_insert(PartitionBy::RoundRobin);
        let slice_rows = spec.slice_rows.unwrap_or(SLICE_ROWS_DEFAULT);
        let batch_bytes = spec.slice_bytes.unwrap_or(SLICE_BYTES).min(SLICE_BYTES);
        let (sender, receiver) = mpsc::channel(BATCHES);
        let batches = Batches { schema: Arc::clone(&schema), layout, batch_bytes, batch_rows: slice_rows, sender };
        let writing = tokio::task::spawn_blocking(move || batches.run(&self, &ids, &progress));
        let rows = futures::stream::unfold(Some(receiver), next);
        let loaded = host.load_batches(spec, schema, rows.boxed()).await;
        writing.await.map_err(bug)?;
        loaded
    }

    fn schema(&self, layout: Layout) -> Result<SchemaRef, Fault> {
        let mut fields = vec![Field::new("gene", DataType::Int32, false), Field::new("id", DataType::Utf8View, false)];
        match layout {
            Layout::Sparse => {
                fields.push(Field::new("nonzeros", DataType::Int64, false));
                fields.push(Field::new("expression", DataType::BinaryView, false));
            }
            Layout::Dense if self.n_cells() + 2 > COLUMNS_MAX => {
                let most = COLUMNS_MAX - 2;
                let fault = invalid(format!("a column for each of {} cells is too many; at most {most}", self.n_cells()));
                return Err(fault.hint("load it with layout=\"sparse\""));
            }
            Layout::Dense => {
                fields.extend((0..self.n_cells()).map(|cell| Field::new(format!("c{cell}"), DataType::Float32, false)))
            }
        }
        Ok(Arc::new(Schema::new(fields)))
    }
}

/// The next batch, if there is one more, and what gives those behind it. Who makes them says where they end: a task that fails only
/// leaves its channel.
async fn next(receiver: Option<mpsc::Receiver<Sent>>) -> Option<(Result<RecordBatch, Fault>, Option<mpsc::Receiver<Sent>>)> {
    let mut receiver = receiver?;
    match receiver.recv().await {
        Some(Ok(Some(batch))) => Some((Ok(batch), Some(receiver))),
        Some(Ok(None)) => None,
        Some(Err(fault)) => Some((Err(fault), None)),
        None => Some((Err(bug("the rows of the matrix ended before the matrix did")), None)),
    }
}

/// A batch, or none at the end.
type Sent = Result<Option<RecordBatch>, Fault>;

/// Makes batches of a matrix, and sends them.
struct Batches {
    schema: SchemaRef,
    layout: Layout,
    batch_bytes: usize,
    batch_rows: usize,
    sender: mpsc::Sender<Sent>,
}

impl Batches {
    fn run(self, writer: &MatrixWriter, ids: &[String], progress: &Progress) {
        let made = match self.layout {
            Layout::Sparse => self.sparse(writer, ids, progress),
            Layout::Dense => self.dense(writer, ids, progress),
        };
        // Who does not listen any more has failed already.
        let _ = self.sender.blocking_send(made.map(|()| None));
    }

    fn sparse(&self, writer: &MatrixWriter, ids: &[String], progress: &Progress) -> Result<(), Fault> {
        let mut held = PendingRows::default();
        let mut bytes = Vec::new();
        let mut take = |gene: usize, row: &GeneRow| {
            bytes.clear();
            row.encode(writer.n_cells(), writer.options.codec, &mut bytes);
            held.genes.push(gene as i32);
            held.nonzeros.push(row.cells.len() as i64);
            held.rows.append_value(&bytes);
            held.bytes += bytes.len() + 32;
            if held.bytes >= self.batch_bytes || held.genes.len() >= self.batch_rows {
                let columns: [ArrayRef; 2] = [
                    Arc::new(Int64Array::from(std::mem::take(&mut held.nonzeros))),
                    Arc::new(std::mem::take(&mut held.rows).finish()),
                ];
                self.send(std::mem::take(&mut held.genes), columns, ids)?;
                held.bytes = 0;
                progress(gene as u64 + 1, writer.n_genes as u64);
            }
            Ok(())
        };
        writer.spill.each_gene(&mut take)?;
        let columns: [ArrayRef; 2] = [Arc::new(Int64Array::from(held.nonzeros)), Arc::new(held.rows.finish())];
        self.send(held.genes, columns, ids)?;
        progress(writer.n_genes as u64, writer.n_genes as u64);
        Ok(())
    }

    fn dense(&self, writer: &MatrixWriter, ids: &[String], progress: &Progress) -> Result<(), Fault> {
        let n_cells = writer.n_cells();
        let rows_max = (DENSE_VALUES / n_cells.max(1)).clamp(1, self.batch_rows);
        let mut columns: Vec<Float32Builder> = (0..n_cells).map(|_| Float32Builder::new()).collect();
        let mut genes = Vec::new();
        let finish = |columns: &mut [Float32Builder]| {
            columns.iter_mut().map(|column| Arc::new(column.finish()) as ArrayRef).collect::<Vec<_>>()
        };
        let mut line = vec![0.0; n_cells];
        let mut take = |gene: usize, row: &GeneRow| {
            line.fill(0.0);
            match row.values() {
                Values::Counts(counts) => {
                    row.cells.iter().zip(counts).for_each(|(cell, count)| line[*cell as usize] = *count as f32)
                }
                Values::Floats(floats) => row.cells.iter().zip(floats).for_each(|(cell, value)| line[*cell as usize] = *value),
            }
            columns.iter_mut().zip(&line).for_each(|(column, value)| column.append_value(*value));
            genes.push(gene as i32);
            if genes.len() >= rows_max {
                self.send(std::mem::take(&mut genes), finish(&mut columns), ids)?;
                progress(gene as u64 + 1, writer.n_genes as u64);
            }
            Ok(())
        };
        writer.spill.each_gene(&mut take)?;
        self.send(genes, finish(&mut columns), ids)?;
        progress(writer.n_genes as u64, writer.n_genes as u64);
        Ok(())
    }

    fn send(&self, genes: Vec<i32>, more: impl IntoIterator<Item = ArrayRef>, ids: &[String]) -> Result<(), Fault> {
        let named = StringViewArray::from_iter_values(genes.iter().map(|gene| ids[*gene as usize].as_str()));
        let mut columns: Vec<ArrayRef> = vec![Arc::new(Int32Array::from(genes)), Arc::new(named)];
        columns.extend(more);
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(bug)?;
        self.sender.blocking_send(Ok(Some(batch))).map_err(|_| bug("the load ended before its rows did"))
    }
}

/// Rows of genes that wait to be sent as one batch.
#[derive(Default)]
struct PendingRows {
    genes: Vec<i32>,
    nonzeros: Vec<i64>,
    rows: BinaryViewBuilder,
    bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read of a channel after these were sent.
    async fn read(sent: Vec<Sent>) -> Vec<Result<RecordBatch, Fault>> {
        let (sender, receiver) = mpsc::channel(sent.len());
        for item in sent {
            sender.send(item).await.unwrap();
        }
        drop(sender);
        futures::stream::unfold(Some(receiver), next).collect().await
    }

    #[tokio::test]
    async fn rows_that_end_without_an_end_are_an_error() {
        let batch = || RecordBatch::new_empty(Arc::new(Schema::empty()));
        let complete = read(vec![Ok(Some(batch())), Ok(Some(batch())), Ok(None)]).await;
        assert!(complete.len() == 2 && complete.iter().all(Result::is_ok));
        let cut = read(vec![Ok(Some(batch())), Ok(Some(batch()))]).await;
        assert!(cut.len() == 3 && cut[2].is_err());
        let failed = read(vec![Ok(Some(batch())), Err(bug("it failed"))]).await;
        assert!(failed.len() == 2 && failed[1].is_err());
    }
}
