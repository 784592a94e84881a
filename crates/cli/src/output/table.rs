//! Batches as a table for people.

use std::io::Write;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use pithead_files::uuids_as_texts;

use crate::error::CliError;
use crate::output::{Align, Grid};
use crate::terminal::width;

/// Collects the first rows of an answer until there are enough, then writes them with columns as wide as needed.
pub(crate) struct TableRows {
    grid: Grid,
    width_max: usize,
    rows_max: usize,
    rows: usize,
    more: bool,
}

impl TableRows {
    /// For at most `rows_max` rows, with texts cut at `width_max` columns where there is more than one column.
    pub(crate) fn new(schema: &SchemaRef, rows_max: usize, width_max: usize) -> Self {
        let columns = schema.fields().iter().map(|field| (field.name().clone(), align(field.data_type())));
        let width_max = if schema.fields().len() > 1 { width_max } else { usize::MAX };
        Self { grid: Grid::new(columns), width_max, rows_max, rows: 0, more: false }
    }

    /// Adds rows; false once there are more than can be shown.
    pub(crate) fn push(&mut self, batch: &RecordBatch) -> Result<bool, CliError> {
        let taken = batch.num_rows().min(self.rows_max - self.rows);
        self.more |= taken < batch.num_rows();
        let batch = &*uuids_as_texts(batch);
        let options = cell_options();
        let formatters = batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options));
        let formatters: Vec<ArrayFormatter<'_>> = formatters.collect::<Result<_, _>>()?;
        for row in 0..taken {
            let cells = formatters.iter().zip(batch.columns()).map(|(formatter, column)| self.cell(formatter, column, row));
            let cells = cells.collect::<Result<_, _>>()?;
            self.grid.push(cells);
        }
        self.rows += taken;
        Ok(!self.more)
    }

    /// Rows taken.
    pub(crate) fn rows(&self) -> u64 {
        self.rows as u64
    }

    /// Whether there were more.
    pub(crate) fn more(&self) -> bool {
        self.more
    }

    /// Writes the table.
    pub(crate) fn write(&self, out: &mut dyn Write) -> Result<(), CliError> {
        self.grid.write(out)?;
        Ok(out.flush()?)
    }

    /// Writes each row as lines of names and values.
    pub(crate) fn write_records(&self, out: &mut dyn Write) -> Result<(), CliError> {
        self.grid.write_records(out)?;
        Ok(out.flush()?)
    }

    fn cell(&self, formatter: &ArrayFormatter<'_>, column: &dyn Array, row: usize) -> Result<String, CliError> {
        if column.is_null(row) || matches!(column.data_type(), DataType::Null) {
            return Ok("NULL".to_owned());
        }
        let text = formatter.value(row).try_to_string()?;
        Ok(if width(&text) > self.width_max { cut(&text, self.width_max) } else { text })
    }
}

/// How values are written as text.
pub(crate) fn cell_options() -> FormatOptions<'static> {
    FormatOptions::new()
        .with_null("NULL")
        .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
        .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f%:z"))
        .with_datetime_format(Some("%Y-%m-%d %H:%M:%S%.f"))
}

fn align(data_type: &DataType) -> Align {
    if data_type.is_numeric() { Align::Right } else { Align::Left }
}

fn cut(text: &str, width_max: usize) -> String {
    let mut shown = String::new();
    for c in text.chars() {
        shown.push(c);
        if width(&shown) >= width_max {
            shown.pop();
            break;
        }
    }
    shown + "…"
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Decimal128Array, Int64Array, StringViewArray, TimestampMicrosecondArray};

    use super::*;

    fn batch() -> RecordBatch {
        let prices = Decimal128Array::from(vec![Some(150), None, Some(-7)]).with_precision_and_scale(10, 2).unwrap();
        RecordBatch::try_from_iter([
            ("n", Arc::new(Int64Array::from(vec![1, 22, 333])) as Arc<dyn Array>),
            ("name", Arc::new(StringViewArray::from(vec![Some("a"), Some(""), None]))),
            ("price", Arc::new(prices)),
            ("at", Arc::new(TimestampMicrosecondArray::from(vec![0, 1_500_000, -1]))),
        ])
        .unwrap()
    }

    fn shown(rows_max: usize) -> (String, bool) {
        let mut table = TableRows::new(&batch().schema(), rows_max, 100);
        let goes_on = table.push(&batch()).unwrap();
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        (String::from_utf8(out).unwrap(), goes_on)
    }

    #[test]
    fn numbers_keep_right_and_null_differs_from_empty() {
        let expected = "   n | name | price | at\n\
                        -----+------+-------+----------------------------\n   \
                           1 | a    |  1.50 | 1970-01-01 00:00:00\n  \
                          22 |      |  NULL | 1970-01-01 00:00:01.500\n \
                         333 | NULL | -0.07 | 1969-12-31 23:59:59.999999\n";
        assert_eq!(shown(100), (expected.to_owned(), true));
    }

    #[test]
    fn rows_over_the_bound_are_left_out_and_said_so() {
        let (text, goes_on) = shown(2);
        assert_eq!((text.lines().count(), goes_on), (4, false));
        assert!(shown(3).1, "as many rows as fit are not too many");
    }

    #[test]
    fn long_texts_are_cut_to_their_width() {
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("山山山", 4), "山…");
    }
}
