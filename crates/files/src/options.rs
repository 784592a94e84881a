//! What a reader is told of its files.

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Apache Parquet.
    Parquet,
    /// Text with delimiters, plain or compressed with gzip or Zstandard.
    Csv,
    /// JSON lines: one object a line, plain or compressed as CSV may be.
    Json,
    /// Arrow's IPC format, file or stream.
    ArrowIpc,
}

impl Format {
    /// By the ending of a file's name, in lower case.
    pub fn of_ending(ending: &str) -> Option<Format> {
        match ending {
            "parquet" | "pq" => Some(Format::Parquet),
            "csv" | "tsv" => Some(Format::Csv),
            "jsonl" | "ndjson" | "json" => Some(Format::Json),
            "arrow" | "arrows" | "ipc" | "feather" => Some(Format::ArrowIpc),
            _ => None,
        }
    }
}

/// How CSV files are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvOptions {
    /// Between fields; none: tab for files that end in `.tsv`, else a comma.
    pub delimiter: Option<u8>,
    /// Whether the first line names the columns. Otherwise they are `column_1`, `column_2`, …
    pub header: bool,
    /// What stands for NULL; none: the empty field.
    pub null: Option<String>,
    /// Rows of each file that types are inferred from; those of JSON lines, too.
    pub schema_rows: usize,
}

impl Default for CsvOptions {
    fn default() -> Self {
        Self { delimiter: None, header: true, null: None, schema_rows: 10_000 }
    }
}
