//! [`FileRows`]: files that are read as they are, as the rows that a load of them would store.

use std::path::Path;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use pithead_files::{CsvOptions, Format, Source, guarded, open_all};
use pithead_model::Fault;

use crate::agree::{Conform, agree};

/// Files that were opened, and have one schema.
pub struct FileRows {
    schema: SchemaRef,
    files: Vec<(Box<dyn Source>, Conform)>,
    /// Each part of each file, by the file's place.
    parts: Vec<(usize, usize)>,
}

impl std::fmt::Debug for FileRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileRows").field("schema", &self.schema).field("parts", &self.parts).finish_non_exhaustive()
    }
}

impl FileRows {
    /// Opens all files that the sources name, as [`open_all`] does. Blocks.
    pub fn open(sources: &[String], format: Option<Format>, csv: &CsvOptions) -> Result<FileRows, Fault> {
        let mut files = open_all(sources, format, csv)?;
        let schema = agree(&mut files, None)?;
        let parts = (0..).zip(&files).flat_map(|(place, file)| (0..file.parts()).map(move |part| (place, part))).collect();
        let conforming = files.into_iter().map(|file| {
            let conform = Conform::new(file.schema(), &schema)?;
            Ok((file, conform))
        });
        Ok(FileRows { files: conforming.collect::<Result<_, Fault>>()?, parts, schema })
    }

    /// The columns, with the types that a dataset has them in.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// How many parts can be read at one time.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Gives the rows of one part to a taker, until it takes no more. Blocks.
    pub fn read(&self, part: usize, batch_rows: usize, mut take: impl FnMut(RecordBatch) -> bool) -> Result<(), Fault> {
        let Some((place, part)) = self.parts.get(part) else { return Ok(()) };
        let (file, conform) = &self.files[*place];
        let path: &Path = file.path();
        guarded(path, || {
            for chunk in file.read(*part, batch_rows, None)? {
                if !take(conform.batch(&chunk?.batch)?) {
                    break;
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_guess_their_types_agree_and_are_read_by_name() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.csv"), "k,v\n1,2\n3,4\n").unwrap();
        std::fs::write(folder.path().join("b.csv"), "v,k\n0.5,7\n").unwrap();
        let pattern = folder.path().join("*.csv").display().to_string();
        let rows = FileRows::open(&[pattern], None, &CsvOptions::default()).unwrap();
        let types: Vec<String> =
            rows.schema().fields().iter().map(|field| format!("{} {}", field.name(), field.data_type())).collect();
        assert_eq!(types, ["k Int64", "v Float64"]);
        let mut all = Vec::new();
        for part in 0..rows.parts() {
            rows.read(part, 1, |batch| {
                all.push(batch);
                true
            })
            .unwrap();
        }
        let shown = arrow::util::pretty::pretty_format_batches(&all).unwrap().to_string();
        let values: Vec<String> =
            shown.lines().skip(3).filter(|line| line.starts_with('|')).map(|line| line.replace(' ', "")).collect();
        assert_eq!(values, ["|1|2.0|", "|3|4.0|", "|7|0.5|"]);
        let mut taken = 0;
        rows.read(0, 1, |_| {
            taken += 1;
            false
        })
        .unwrap();
        assert_eq!(taken, 1, "a taker that has enough is given no more");
        assert!(FileRows::open(&["/no/such.parquet".into()], None, &CsvOptions::default()).is_err());
    }
}
