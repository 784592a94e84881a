//! Rows of COPY FROM in text and CSV.

use arrow::array::ArrayRef;
use arrow::datatypes::Field;

use crate::copy::{CopyFormat, CopyOptions};
use crate::copy_rows::{Place, ROW_BYTES_MAX, ReadRows, Row, Value};
use crate::decode_text::from_text;
use crate::error::Complaint;
use crate::sql_state::WRONG_COPY;

impl Value for String {
    fn length(&self) -> usize {
        self.len()
    }

    fn column(field: &Field, values: &[Option<&String>], zone: &str) -> Result<ArrayRef, Complaint> {
        let texts: Vec<Option<&str>> = values.iter().map(|value| value.map(String::as_str)).collect();
        from_text(field.data_type(), &texts, zone)
    }
}

/// Cuts text into rows and fields.
pub(crate) struct RowReader {
    options: CopyOptions,
    fields: usize,
    buffer: Vec<u8>,
    /// Where the next row begins, and how far its end was looked for.
    start: usize,
    looked: usize,
    quoted: bool,
    skip_header: bool,
    /// The names that the header has to have; none: any.
    names: Option<Vec<String>>,
    /// Where the last row begins, and how many lines it has.
    line: u64,
    lines: u64,
    ended: bool,
}

impl RowReader {
    /// A reader of rows with a field for each of these columns.
    pub(crate) fn new(options: CopyOptions, columns: &[String]) -> RowReader {
        let (skip_header, fields) = (options.header, columns.len());
        let names = options.header_match.then(|| columns.to_vec());
        RowReader {
            options,
            fields,
            buffer: Vec::new(),
            start: 0,
            looked: 0,
            quoted: false,
            skip_header,
            names,
            line: 0,
            lines: 1,
            ended: false,
        }
    }
}

impl ReadRows for RowReader {
    type Field = String;

    fn push(&mut self, bytes: &[u8]) -> Result<(), Complaint> {
        if self.buffer.len() - self.start + bytes.len() > 2 * ROW_BYTES_MAX {
            return Err(self.wrong(format!("a row has more than {ROW_BYTES_MAX} bytes")));
        }
        self.buffer.drain(..self.start);
        self.looked -= self.start;
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn next(&mut self, last: bool) -> Result<Option<Row<String>>, Complaint> {
        loop {
            if self.ended {
                self.start = self.buffer.len();
                self.looked = self.start;
                return Ok(None);
            }
            let Some((from, to)) = self.line(last)? else { return Ok(None) };
            // A row that began before may have had several lines.
            self.line += std::mem::replace(&mut self.lines, 1);
            let line = &self.buffer[from..to];
            self.lines += line.iter().filter(|byte| **byte == b'\n').count() as u64;
            if std::mem::take(&mut self.skip_header) {
                self.check_header(line)?;
                continue;
            }
            if line == b"\\." {
                self.ended = true;
                continue;
            }
            let fields = match self.options.format {
                CopyFormat::Csv => csv_fields(line, &self.options),
                _ => text_fields(line, &self.options),
            };
            let fields = fields.map_err(|what| self.wrong(what))?;
            return match fields.len() == self.fields {
                true => Ok(Some(fields)),
                false => Err(self.wrong(format!("a row has {} fields; expected {}", fields.len(), self.fields))),
            };
        }
    }

    fn place(&self) -> Place {
        Place::Line(self.line)
    }
}

impl RowReader {
    fn check_header(&self, line: &[u8]) -> Result<(), Complaint> {
        let Some(names) = &self.names else { return Ok(()) };
        let fields = match self.options.format {
            CopyFormat::Csv => csv_fields(line, &self.options),
            _ => text_fields(line, &self.options),
        };
        let fields: Vec<String> = fields.map_err(|what| self.wrong(what))?.into_iter().map(Option::unwrap_or_default).collect();
        match fields == *names {
            true => Ok(()),
            false => Err(self.wrong(format!("the header has the names {}; expected {}", fields.join(", "), names.join(", ")))),
        }
    }

    /// The next line's place, without its end.
    fn line(&mut self, last: bool) -> Result<Option<(usize, usize)>, Complaint> {
        let is_csv = self.options.format == CopyFormat::Csv;
        while let Some(&byte) = self.buffer.get(self.looked) {
            let at = self.looked;
            self.looked += 1;
            match byte {
                b'\n' if !self.quoted => return Ok(Some(self.taken(at))),
                byte if is_csv && byte == self.options.escape && self.options.escape != self.options.quote && self.quoted => {
                    // What follows may be a quote that ends nothing.
                    match self.buffer.get(self.looked) {
                        Some(next) => self.looked += usize::from(*next == self.options.quote || *next == self.options.escape),
                        None if !last => {
                            self.looked = at;
                            break;
                        }
                        None => {}
                    }
                }
                byte if is_csv && byte == self.options.quote => self.quoted = !self.quoted,
                b'\\' if !is_csv => match self.buffer.get(self.looked) {
                    Some(b'\n') | Some(b'\\') => self.looked += 1,
                    Some(_) => {}
                    None if !last => {
                        self.looked = at;
                        break;
                    }
                    None => {}
                },
                _ => {}
            }
        }
        if self.looked - self.start > ROW_BYTES_MAX {
            return Err(self.wrong(format!("a row has more than {ROW_BYTES_MAX} bytes")));
        }
        match last && self.looked > self.start {
            true if self.quoted => Err(self.wrong("a quoted field has no end".to_owned())),
            true => Ok(Some(self.taken(self.buffer.len()))),
            false => Ok(None),
        }
    }

    fn taken(&mut self, end: usize) -> (usize, usize) {
        let from = self.start;
        self.start = (end + 1).min(self.buffer.len());
        self.looked = self.start;
        let to = if end > from && self.buffer[end - 1] == b'\r' { end - 1 } else { end };
        (from, to)
    }

    fn wrong(&self, what: String) -> Complaint {
        Complaint::error(WRONG_COPY, format!("{}: {what}", self.place()))
    }
}

fn field(bytes: Vec<u8>) -> Result<String, String> {
    match bytes.contains(&0) {
        true => Err("a text with a zero byte".to_owned()),
        false => String::from_utf8(bytes).map_err(|error| format!("not UTF-8: {}", error.utf8_error())),
    }
}

fn text_fields(line: &[u8], options: &CopyOptions) -> Result<Row<String>, String> {
    let mut fields = Vec::new();
    let (mut value, mut raw_start, mut at) = (Vec::new(), 0, 0);
    let is_null = |raw: &[u8]| raw == options.null.as_bytes();
    while at < line.len() {
        match line[at] {
            byte if byte == options.delimiter => {
                let value = field(std::mem::take(&mut value))?;
                fields.push((!is_null(&line[raw_start..at])).then_some(value));
                raw_start = at + 1;
            }
            b'\\' if at + 1 < line.len() => {
                at += 1;
                at += unescape(&line[at..], &mut value) - 1;
            }
            byte => value.push(byte),
        }
        at += 1;
    }
    let value = field(value)?;
    fields.push((!is_null(&line[raw_start..])).then_some(value));
    Ok(fields)
}

/// What stands after a backslash; how many bytes it is.
fn unescape(rest: &[u8], value: &mut Vec<u8>) -> usize {
    let number = |digits: &[u8], base: u32| {
        digits.iter().try_fold(0_u32, |sum, digit| Some(sum * base + char::from(*digit).to_digit(base)?))
    };
    match rest[0] {
        b'n' => value.push(b'\n'),
        b't' => value.push(b'\t'),
        b'r' => value.push(b'\r'),
        b'b' => value.push(0x08),
        b'f' => value.push(0x0c),
        b'v' => value.push(0x0b),
        b'0'..=b'7' => {
            let count = rest.iter().take(3).take_while(|byte| (b'0'..=b'7').contains(*byte)).count();
            value.push((number(&rest[..count], 8).unwrap_or(0) & 0xff) as u8);
            return count;
        }
        b'x' if rest.get(1).is_some_and(u8::is_ascii_hexdigit) => {
            let count = rest[1..].iter().take(2).take_while(|byte| byte.is_ascii_hexdigit()).count();
            value.push((number(&rest[1..=count], 16).unwrap_or(0) & 0xff) as u8);
            return 1 + count;
        }
        other => value.push(other),
    }
    1
}

fn csv_fields(line: &[u8], options: &CopyOptions) -> Result<Row<String>, String> {
    let (mut fields, mut value, mut at, mut quoted, mut was_quoted) = (Vec::new(), Vec::new(), 0, false, false);
    loop {
        let byte = line.get(at).copied();
        at += 1;
        match byte {
            None if quoted => return Err("a quoted field has no end".to_owned()),
            Some(byte) if quoted => {
                let next = line.get(at).copied();
                if byte == options.escape && next.is_some_and(|next| next == options.quote || next == options.escape) {
                    value.extend(next);
                    at += 1;
                } else if byte == options.quote {
                    quoted = false;
                } else {
                    value.push(byte);
                }
            }
            Some(byte) if byte == options.quote => (quoted, was_quoted) = (true, true),
            Some(byte) if byte != options.delimiter => value.push(byte),
            end => {
                let is_null = !was_quoted && value == options.null.as_bytes();
                let text = field(std::mem::take(&mut value))?;
                fields.push((!is_null).then_some(text));
                was_quoted = false;
                if end.is_none() {
                    return Ok(fields);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::Copy;

    fn rows(sql: &str, parts: &[&str], fields: usize) -> Result<Vec<Row<String>>, String> {
        let columns: Vec<String> = (0..fields).map(|place| format!("c{place}")).collect();
        let mut reader = RowReader::new(Copy::read(sql).unwrap().options, &columns);
        let mut rows = Vec::new();
        for part in parts {
            reader.push(part.as_bytes()).map_err(|complaint| complaint.message)?;
            while let Some(row) = reader.next(false).map_err(|complaint| complaint.message)? {
                rows.push(row);
            }
        }
        while let Some(row) = reader.next(true).map_err(|complaint| complaint.message)? {
            rows.push(row);
        }
        Ok(rows)
    }

    fn row(fields: &[Option<&str>]) -> Row<String> {
        fields.iter().map(|field| field.map(str::to_owned)).collect()
    }

    #[test]
    fn rows_are_the_same_however_their_bytes_are_cut() {
        let text = "1\ta\\tb\\\\\n2\t\\N\r\n3\t\\x41\\101\\\nx\n\\.\nrest";
        let expected = [row(&[Some("1"), Some("a\tb\\")]), row(&[Some("2"), None]), row(&[Some("3"), Some("AA\nx")])];
        let csv = "a,b\n1,\"x,\"\"y\"\"\nz\"\n2,\n3,\"\"\n";
        let expected_csv = [row(&[Some("1"), Some("x,\"y\"\nz")]), row(&[Some("2"), None]), row(&[Some("3"), Some("")])];
        for cut in 0..text.len() {
            assert_eq!(rows("COPY t FROM STDIN", &[&text[..cut], &text[cut..]], 2).unwrap(), expected, "{cut}");
        }
        for cut in 0..csv.len() {
            assert_eq!(rows("COPY t FROM STDIN CSV HEADER", &[&csv[..cut], &csv[cut..]], 2).unwrap(), expected_csv, "{cut}");
        }
    }

    #[test]
    fn rows_that_lie_are_refused() {
        for (sql, text) in [
            ("COPY t FROM STDIN", "1\n"),
            ("COPY t FROM STDIN", "1\t2\t3\n"),
            ("COPY t FROM STDIN", "\\xff\t\\xfe\n"),
            ("COPY t FROM STDIN CSV", "1,\"open"),
            ("COPY t FROM STDIN", "1\t\0\n"),
            ("COPY t FROM STDIN CSV", "1,2,3"),
        ] {
            assert!(rows(sql, &[text], 2).is_err(), "{text}");
        }
        assert_eq!(rows("COPY t FROM STDIN CSV", &[], 2).unwrap(), Vec::<Row<String>>::new());
    }
}
