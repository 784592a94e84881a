//! The datasets of the suites as files that drives attach in place.

use std::fs::File;
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::ipc::writer::FileWriter;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::properties::WriterProperties;

use crate::data::{TestDataset, datasets};

/// Rows of a page, so that a row group of the suites has several.
const PAGE_ROWS: usize = 64;

/// Writes the datasets that are Parquet into one directory for each drive, in row groups or batches as large as their slices would
/// be. Every drive has a part of each dataset, in one Parquet and one Arrow file.
pub(crate) fn write(directory: &Path, drives: usize) -> Vec<PathBuf> {
    let directories: Vec<PathBuf> = (0..drives).map(|drive| directory.join(format!("attached-{drive}"))).collect();
    for dataset in datasets().iter().filter(|dataset| dataset.is_parquet()) {
        let rows = read(dataset);
        let share = rows.num_rows().div_ceil(drives);
        for (drive, directory) in directories.iter().enumerate() {
            let folder = directory.join(&dataset.name);
            std::fs::create_dir_all(&folder).expect("a folder of a new directory");
            let start = (drive * share).min(rows.num_rows());
            let part = rows.slice(start, share.min(rows.num_rows() - start));
            let middle = part.num_rows() / 3;
            write_file(&folder.join("a.parquet"), &part.slice(0, middle), dataset.slice_rows());
            write_arrow(&folder.join("b.arrow"), &part.slice(middle, part.num_rows() - middle), dataset.slice_rows());
        }
    }
    directories
}

fn read(dataset: &TestDataset) -> RecordBatch {
    let mut batches = Vec::new();
    for path in dataset.paths() {
        let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let builder = ParquetRecordBatchReaderBuilder::try_new(file).expect("a Parquet file");
        let schema = builder.schema().clone();
        let reader = builder.build().expect("a reader");
        batches
            .push(concat_batches(&schema, &reader.map(|batch| batch.expect("rows")).collect::<Vec<_>>()).expect("one schema"));
    }
    concat_batches(&batches[0].schema(), &batches).expect("files of one schema")
}

fn write_file(path: &Path, rows: &RecordBatch, group_rows: usize) {
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(group_rows))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(PAGE_ROWS)
        .build();
    let file = File::create(path).expect("a new file");
    let mut writer = ArrowWriter::try_new(file, rows.schema(), Some(properties)).expect("a writer");
    writer.write(rows).expect("rows");
    writer.close().expect("a footer");
}

fn write_arrow(path: &Path, rows: &RecordBatch, batch_rows: usize) {
    let mut writer = FileWriter::try_new(File::create(path).expect("a new file"), &rows.schema()).expect("a writer");
    for start in (0..rows.num_rows()).step_by(batch_rows) {
        writer.write(&rows.slice(start, batch_rows.min(rows.num_rows() - start))).expect("rows");
    }
    writer.finish().expect("a footer");
}
