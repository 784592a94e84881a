//! MatrixMarket files: `matrix coordinate`, whole numbers or real ones, plain or gzipped.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use pithead_model::Fault;

use crate::entries::{Entry, float};
use crate::fault::{invalid, io};
use crate::writer::{MatrixWriter, Progress, ValueKind};

/// Entries that are taken at a time.
const ENTRIES: usize = 4 << 20;
/// Up to here, whole numbers are floats of 32 bits, which readers take counts as.
const COUNT_MAX: f64 = 16_777_216.0;
/// Longest line. Real ones have some twenty bytes.
const LINE_MAX: u64 = 1 << 16;

impl MatrixWriter {
    /// Takes all of a file. Its rows are genes, unless `cells_are_rows`. It has to have as many cells as `n_cells`, and as many genes as
    /// the writer is for. `progress` is told entries.
    pub fn read_mtx(&mut self, path: &Path, n_cells: usize, cells_are_rows: bool, progress: &Progress) -> Result<(), Fault> {
        let mut lines = Lines::open(path)?;
        let Header { entries, has_counts } = lines.header(self.n_genes, n_cells, cells_are_rows)?;
        let wants_counts = match self.options.kind {
            ValueKind::Counts => true,
            ValueKind::Auto => has_counts,
            ValueKind::Floats => false,
        };
        let mut held = Vec::with_capacity(ENTRIES.min(usize::try_from(entries).unwrap_or(ENTRIES)));
        for done in 0..entries {
            let (row, column, value) = lines.entry(done, entries)?;
            let (gene, cell) = if cells_are_rows { (column, row) } else { (row, column) };
            if gene == 0 || gene > self.n_genes as u64 || cell == 0 || cell > n_cells as u64 {
                let what = format!("row {row}, column {column} is outside of the matrix");
                return Err(lines.wrong(&what));
            }
            if wants_counts && is_too_large(value) {
                return Err(lines.too_large(row, column, value));
            }
            held.push(Entry { cell: (cell - 1) as u32, gene: (gene - 1) as usize, value });
            if held.len() == ENTRIES {
                self.push_entries(&held, n_cells)?;
                held.clear();
                progress(done + 1, entries);
            }
        }
        self.push_entries(&held, n_cells)?;
        lines.end(entries)?;
        progress(entries, entries);
        Ok(())
    }
}

/// What stands before the entries.
struct Header {
    entries: u64,
    /// All of them are whole numbers.
    has_counts: bool,
}

/// Lines of a file, with their numbers.
struct Lines {
    file: Box<dyn BufRead>,
    path: String,
    line: Vec<u8>,
    number: u64,
}

impl Lines {
    fn open(path: &Path) -> Result<Lines, Fault> {
        let shown = path.display().to_string();
        let failed = |error| io(&format!("cannot read {shown}"), error);
        let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(failed)?);
        let is_zipped = file.fill_buf().map_err(failed)?.starts_with(&[0x1f, 0x8b]);
        let file: Box<dyn BufRead> =
            if is_zipped { Box::new(BufReader::with_capacity(1 << 20, MultiGzDecoder::new(file))) } else { Box::new(file) };
        Ok(Lines { file, path: shown, line: Vec::new(), number: 0 })
    }

    fn wrong(&self, what: &str) -> Fault {
        invalid(format!("{}, line {}: {what}", self.path, self.number))
    }

    fn too_large(&self, row: u64, column: u64, value: f64) -> Fault {
        let what = format!("{value} in row {row}, column {column} is more than {COUNT_MAX}");
        self.wrong(&format!("{what}, the largest count that is kept with all its digits"))
            .hint("kind='floats' keeps the nearest value of 32 bits")
    }

    /// Reads the next line; false: there is none.
    fn next(&mut self) -> Result<bool, Fault> {
        self.line.clear();
        self.number += 1;
        let read = self.file.by_ref().take(LINE_MAX).read_until(b'\n', &mut self.line);
        match read {
            Ok(read) => Ok(read > 0),
            Err(error) => {
                let fault = self.wrong(&format!("cannot be read: {error}"));
                Err(fault.hint("the file may have been cut off; fetch it again"))
            }
        }
    }

    /// The banner and the sizes.
    fn header(&mut self, n_genes: usize, n_cells: usize, cells_are_rows: bool) -> Result<Header, Fault> {
        self.next()?;
        let banner = String::from_utf8_lossy(&self.line).to_lowercase();
        let words: Vec<&str> = banner.split_whitespace().collect();
        let fits =
            matches!(words.as_slice(), ["%%matrixmarket", "matrix", "coordinate", "integer" | "real" | "double", "general"]);
        if !fits {
            let shown: String = banner.trim().chars().take(80).collect();
            return Err(self.wrong(&format!("expected `%%MatrixMarket matrix coordinate integer|real general`, got {shown:?}")));
        }
        let has_counts = words.contains(&"integer");
        while self.next()? && (self.line.starts_with(b"%") || self.line.trim_ascii().is_empty()) {}
        let sizes: Vec<Option<u64>> =
            self.line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(whole).collect();
        let [Some(rows), Some(columns), Some(entries)] = sizes[..] else {
            return Err(self.wrong("expected the numbers of rows, columns and entries"));
        };
        let (genes, cells) = if cells_are_rows { (columns, rows) } else { (rows, columns) };
        if (genes, cells) != (n_genes as u64, n_cells as u64) {
            let what =
                format!("the matrix has {genes} genes and {cells} cells, the files beside it name {n_genes} and {n_cells}");
            return Err(self.wrong(&what).hint("the files are not of one experiment, or one was cut off; fetch them again"));
        }
        Ok(Header { entries, has_counts })
    }

    fn entry(&mut self, done: u64, entries: u64) -> Result<(u64, u64, f64), Fault> {
        loop {
            if !self.next()? {
                let what = format!("the file ends after {done} of {entries} entries");
                return Err(self.wrong(&what).hint("the file was cut off; fetch it again"));
            }
            if !self.line.trim_ascii().is_empty() {
                break;
            }
        }
        let mut words = self.line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let numbers = (words.next().and_then(whole), words.next().and_then(whole), words.next().and_then(real));
        match (numbers, words.next()) {
            ((Some(row), Some(column), Some(value)), None) => Ok((row, column, value)),
            _ => {
                let shown: String = String::from_utf8_lossy(&self.line).trim().chars().take(80).collect();
                Err(self.wrong(&format!("expected row, column and value, got {shown:?}")))
            }
        }
    }

    fn end(&mut self, entries: u64) -> Result<(), Fault> {
        while self.next()? {
            if !self.line.trim_ascii().is_empty() {
                return Err(self.wrong(&format!("there is more than the {entries} entries that the header tells of")));
            }
        }
        Ok(())
    }
}

/// Whether it is a whole number that not all readers keep as it is. What is beyond floats of 32 bits is told by the writer.
fn is_too_large(value: f64) -> bool {
    value > COUNT_MAX && value.fract() == 0.0 && float(value).is_some()
}

fn whole(word: &[u8]) -> Option<u64> {
    let digit = |sum: Option<u64>, byte: &u8| {
        let digit = u64::from(byte.wrapping_sub(b'0'));
        sum?.checked_mul(10)?.checked_add((digit < 10).then_some(digit)?)
    };
    word.iter().fold(Some(0), digit).filter(|_| !word.is_empty())
}

fn real(word: &[u8]) -> Option<f64> {
    // Most values are small whole numbers.
    if word.len() < 16
        && let Some(value) = whole(word)
    {
        return Some(value as f64);
    }
    let value: f64 = std::str::from_utf8(word).ok()?.parse().ok()?;
    // Digits that stand for more than a float holds are read as infinity, which only its name means.
    (value.is_finite() || !word.iter().any(u8::is_ascii_digit)).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writer::tests::{dense, writer};
    use std::io::Write;
    use std::sync::Arc;

    fn read(text: &[u8], cells_are_rows: bool) -> Result<Vec<Vec<f64>>, Fault> {
        read_as(ValueKind::Auto, text, cells_are_rows)
    }

    fn read_as(kind: ValueKind, text: &[u8], cells_are_rows: bool) -> Result<Vec<Vec<f64>>, Fault> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text).unwrap();
        let mut writer = writer(3, kind);
        let progress: Progress = Arc::new(|_, _| ());
        writer.read_mtx(file.path(), 2, cells_are_rows, &progress).map(|()| dense(&writer))
    }

    #[test]
    fn files_are_read_in_any_order_zipped_or_not() {
        let text = b"%%MatrixMarket matrix coordinate real general\n% a note\n3 2 3\n3 2 5\n1 1 2.5e0\n\n1 2 7\n";
        let wanted = vec![vec![2.5, 0.0, 0.0], vec![7.0, 0.0, 5.0]];
        assert_eq!(read(text, false).unwrap(), wanted);
        let mut zipped = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        zipped.write_all(text).unwrap();
        let zipped = zipped.finish().unwrap();
        assert_eq!(read(&zipped, false).unwrap(), wanted);
        let fault = read(&zipped[..zipped.len() - 12], false).unwrap_err();
        assert!(fault.message.contains("line") && fault.hint.is_some(), "{fault}");
        let turned = b"%%MatrixMarket matrix coordinate integer general\n2 3 1\n2 3 4\n";
        assert_eq!(read(turned, true).unwrap(), vec![vec![0.0; 3], vec![0.0, 0.0, 4.0]]);
    }

    #[test]
    fn counts_that_floats_of_32_bits_do_not_keep_are_refused() {
        let text = |kind: &str, value: &str| format!("%%MatrixMarket matrix coordinate {kind} general\n3 2 1\n1 1 {value}\n");
        assert_eq!(read(text("integer", "16777216").as_bytes(), false).unwrap()[0][0], 16_777_216.0);
        let (whole, real) = (text("integer", "16777217"), text("real", "16777217"));
        for (kind, text) in [(ValueKind::Auto, &whole), (ValueKind::Counts, &whole), (ValueKind::Counts, &real)] {
            let fault = read_as(kind, text.as_bytes(), false).unwrap_err();
            assert!(fault.message.contains("line 3: 16777217 in row 1, column 1 is more than 16777216"), "{fault}");
            assert!(fault.hint.is_some_and(|hint| hint.contains("kind='floats'")));
        }
        assert!(read_as(ValueKind::Floats, whole.as_bytes(), false).is_ok(), "floats are rounded");
    }

    #[test]
    fn what_is_wrong_is_told_with_file_and_line() {
        let head = "%%MatrixMarket matrix coordinate integer general\n";
        for (text, said) in [
            ("%%MatrixMarket matrix array real general\n".to_owned(), "line 1: expected"),
            (format!("{head}4 2 1\n1 1 1\n"), "has 4 genes and 2 cells"),
            (format!("{head}3 2 2\n1 1 1\n"), "after 1 of 2 entries"),
            (format!("{head}3 2 1\n1 1 1\n2 2 2\n"), "line 4: there is more"),
            (format!("{head}3 2 1\n4 1 1\n"), "row 4, column 1 is outside"),
            (format!("{head}3 2 1\n1 0 1\n"), "row 1, column 0 is outside"),
            (format!("{head}3 2 1\n1 1\n"), "expected row, column and value"),
            (format!("{head}3 2 1\n1 1 x\n"), "expected row, column and value"),
            (format!("{head}3 2 1\n1 1 1e999\n"), "expected row, column and value"),
            (format!("{head}3 2 1\n1 1 1e300\n"), "cell 0 has 1e300 of gene 0"),
            (format!("{head}3 2 2\n1 1 1\n1 1 2\n"), "cell 0 has two values for gene 0"),
            (String::new(), "line 1"),
        ] {
            let fault = read(text.as_bytes(), false).unwrap_err();
            assert!(fault.message.contains(said), "{fault} for {said}");
        }
    }
}
