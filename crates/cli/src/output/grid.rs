//! Aligned columns of text.

use std::io::{self, Write};

use crate::terminal::width;

/// Which side a column's texts keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Texts.
    Left,
    /// Numbers.
    Right,
}

/// Titles over rows of texts. A text of several lines makes its row as high as it needs.
#[derive(Debug)]
pub(crate) struct Grid {
    titles: Vec<String>,
    aligns: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    /// An empty grid with these columns.
    pub(crate) fn new(columns: impl IntoIterator<Item = (String, Align)>) -> Self {
        let (titles, aligns) = columns.into_iter().map(|(title, align)| (printable(&title), align)).unzip();
        Self { titles, aligns, rows: Vec::new() }
    }

    /// The same from literals.
    pub(crate) fn of(columns: &[(&str, Align)]) -> Self {
        Self::new(columns.iter().map(|(title, align)| ((*title).to_owned(), *align)))
    }

    /// Adds a row, one text a column.
    pub(crate) fn push(&mut self, row: Vec<String>) {
        assert_eq!(row.len(), self.titles.len(), "a row has one text a column");
        self.rows.push(row.iter().map(|text| printable(text)).collect());
    }

    /// Writes titles, a rule and the rows. Lines carry no trailing blanks.
    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let widths = self.widths();
        self.write_row(out, &self.titles, &widths)?;
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        writeln!(out, "-{}-", rule.join("-+-"))?;
        for row in &self.rows {
            self.write_row(out, row, &widths)?;
        }
        Ok(())
    }

    /// Writes each row as lines, a title and its text on each, under a line with the row's number.
    pub(crate) fn write_records(&self, out: &mut dyn Write) -> io::Result<()> {
        let widest = self.titles.iter().map(|title| width_max(title)).max().unwrap_or(0);
        for (number, row) in (1..).zip(&self.rows) {
            writeln!(out, "-[ row {number} ]{}", "-".repeat(widest))?;
            for (title, text) in self.titles.iter().zip(row) {
                for (line, text) in text.split('\n').enumerate() {
                    let title = if line == 0 { title.as_str() } else { "" };
                    writeln!(out, "{}", format!("{} | {text}", pad(title, widest, Align::Left)).trim_end())?;
                }
            }
        }
        Ok(())
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.titles.iter().map(|title| width_max(title)).collect();
        for row in &self.rows {
            for (widest, text) in widths.iter_mut().zip(row) {
                *widest = (*widest).max(width_max(text));
            }
        }
        widths
    }

    fn write_row(&self, out: &mut dyn Write, row: &[String], widths: &[usize]) -> io::Result<()> {
        let height = row.iter().map(|text| text.split('\n').count()).max().unwrap_or(1);
        for line in 0..height {
            let cells = row.iter().zip(widths).zip(&self.aligns).map(|((text, width), align)| {
                let text = text.split('\n').nth(line).unwrap_or("");
                pad(text, *width, *align)
            });
            let text = cells.collect::<Vec<_>>().join(" | ");
            writeln!(out, " {}", text.trim_end())?;
        }
        Ok(())
    }
}

fn width_max(text: &str) -> usize {
    text.split('\n').map(width).max().unwrap_or(0)
}

fn pad(text: &str, wanted: usize, align: Align) -> String {
    let blanks = " ".repeat(wanted.saturating_sub(width(text)));
    match align {
        Align::Left => format!("{text}{blanks}"),
        Align::Right => format!("{blanks}{text}"),
    }
}

/// Control characters as escapes, so that no value moves the terminal's cursor. Line breaks stay.
fn printable(text: &str) -> String {
    if !text.chars().any(|c| c.is_control() && c != '\n') {
        return text.to_owned();
    }
    text.chars().fold(String::with_capacity(text.len() + 8), |mut shown, c| {
        match c {
            '\n' => shown.push('\n'),
            c if c.is_control() => shown.extend(c.escape_default()),
            c => shown.push(c),
        }
        shown
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(grid: &Grid) -> String {
        let mut out = Vec::new();
        grid.write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn rows_become_lines_of_titles_and_texts() {
        let mut grid = Grid::of(&[("name", Align::Left), ("n", Align::Right)]);
        grid.push(vec!["two\nlines".into(), "7".into()]);
        grid.push(vec![String::new(), "8".into()]);
        let mut out = Vec::new();
        grid.write_records(&mut out).unwrap();
        let expected = "-[ row 1 ]----\nname | two\n     | lines\nn    | 7\n-[ row 2 ]----\nname |\nn    | 8\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn columns_line_up_by_what_a_terminal_shows() {
        let mut grid = Grid::of(&[("name", Align::Left), ("rows", Align::Right)]);
        grid.push(vec!["añadir".into(), "7".into()]);
        grid.push(vec!["山".into(), "1,234".into()]);
        assert_eq!(
            shown(&grid),
            " name   |  rows\n\
             --------+-------\n \
              añadir |     7\n \
              山     | 1,234\n"
        );
    }

    #[test]
    fn lines_of_a_text_stay_in_its_column_and_control_characters_are_shown() {
        let mut grid = Grid::of(&[("plan", Align::Left), ("n", Align::Right)]);
        grid.push(vec!["a\nb\x1b[2J".into(), "1".into()]);
        assert_eq!(shown(&grid), " plan       | n\n------------+---\n a          | 1\n b\\u{1b}[2J |\n");
    }

    #[test]
    fn no_rows_still_show_the_columns() {
        assert_eq!(shown(&Grid::of(&[("a", Align::Left)])), " a\n---\n");
    }
}
