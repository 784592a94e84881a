//! COPY … TO STDOUT: the rows of a query as text, CSV or PostgreSQL's binary form.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use pithead_host::{Answer, Commitment, Deadline, Parameters};
use pithead_model::Fault;

use crate::columns::Column;
use crate::connection::{Halt, Talk, answering};
use crate::copy::{Copy, CopyFormat, CopyOptions};
use crate::error::Complaint;
use crate::kind::StatementKind;
use crate::reply::{Replies, end_length};
use crate::rows::{Rows, WriteRow};
use crate::sql_state::SYNTAX;
use crate::work::{in_own_task, rows_in_own_task};
use crate::{binary, text};

/// What the binary form begins with: a signature, and no flags and no further header.
const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

fn no_query() -> Complaint {
    Complaint::error(SYNTAX, "COPY (…) TO STDOUT runs a query, or a statement with RETURNING")
}

impl Talk {
    pub(crate) async fn copy_out(&mut self, copy: &Copy) -> Result<(), Halt> {
        let sql = copy.query();
        let (query, _) = self.told(sql.clone()).await?;
        let StatementKind::Statement { writes, .. } = query else { return Err(no_query().into()) };
        self.check_writes(writes)?;
        self.before_statement(&sql).await?;
        let (session, asked) = (Arc::clone(&self.session), sql.clone());
        let commitment = Arc::<Commitment>::default();
        let sends = Arc::clone(&commitment);
        let deadline = Deadline::after(self.session.statement_timeout());
        let work = in_own_task(&self.entrance.work, async move {
            let statement = session.prepare(&asked, &Parameters::default()).await?;
            // One that writes has rows only by RETURNING, and changes nothing here without it.
            if statement.schema().is_none() {
                Ok::<_, Fault>(None)
            } else {
                statement.run_until(&session, &sends).await.map(Some)
            }
        });
        let answer = answering(&mut self.link, &self.place.cancel, &commitment, deadline, work).await?;
        let answer = answer.transpose().ok_or_else(no_query)?;
        if commitment.is_sent() || writes && answer.is_ok() {
            self.transaction.wrote();
        }
        // Places in the query are not those in the statement.
        let Answer { schema, rows, .. } =
            answer.map_err(|fault| Halt::Said(Complaint { position: None, ..Complaint::of(&fault, &sql) }))?;
        let is_binary = copy.options.format == CopyFormat::Binary;
        self.link.out.copy(b'H', is_binary, schema.fields().len());
        let mut writer =
            CopyRows { options: copy.options.clone(), zone: self.settings.zone().1, value: Vec::new(), begun: !is_binary };
        if copy.options.header && !is_binary {
            let names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
            writer.header(&mut self.link.out, &names);
        }
        let rows = Rows::new(schema, rows_in_own_task(&self.entrance.work, rows));
        let mut rows = rows.of_what_was_sent(commitment.is_sent());
        rows.send(&mut self.link, &self.place.cancel, u64::MAX, &mut writer).await?;
        self.set_what_was_asked().await?;
        if is_binary {
            self.link.out.message(b'd', |out| {
                writer.begin(out);
                out.extend_from_slice(&(-1_i16).to_be_bytes());
            });
        }
        self.link.out.empty(b'c');
        self.link.out.complete(&format!("COPY {}", rows.sent));
        Ok(())
    }
}

/// Rows as CopyData messages.
struct CopyRows {
    options: CopyOptions,
    zone: Tz,
    /// A value, before what is special in it is marked.
    value: Vec<u8>,
    /// What stands before the first row was written.
    begun: bool,
}

impl CopyRows {
    /// Writes what stands before the first row of the binary form, into the same message, as PostgreSQL does.
    fn begin(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.begun, true) {
            out.extend_from_slice(SIGNATURE);
        }
    }

    fn header(&self, out: &mut Replies, names: &[String]) {
        out.message(b'd', |out| {
            for (place, name) in names.iter().enumerate() {
                if place > 0 {
                    out.push(self.options.delimiter);
                }
                put(out, name.as_bytes(), &self.options);
            }
            out.push(b'\n');
        });
    }

    fn write_line(&mut self, out: &mut Vec<u8>, columns: &[Column], row: usize) {
        for (place, column) in columns.iter().enumerate() {
            if place > 0 {
                out.push(self.options.delimiter);
            }
            if column.is_null(row) {
                out.extend_from_slice(self.options.null.as_bytes());
                continue;
            }
            self.value.clear();
            text::write(&mut self.value, column, row, &self.zone);
            put(out, &self.value, &self.options);
        }
        out.push(b'\n');
    }
}

impl WriteRow for CopyRows {
    fn write(&mut self, out: &mut Replies, columns: &[Column], row: usize) {
        out.message(b'd', |out| match self.options.format {
            CopyFormat::Binary => {
                self.begin(out);
                write_binary(out, columns, row);
            }
            CopyFormat::Text | CopyFormat::Csv => self.write_line(out, columns, row),
        });
    }
}

fn write_binary(out: &mut Vec<u8>, columns: &[Column], row: usize) {
    out.extend_from_slice(&(columns.len() as u16).to_be_bytes());
    for column in columns {
        if column.is_null(row) {
            out.extend_from_slice(&(-1_i32).to_be_bytes());
            continue;
        }
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        binary::write(out, column, row);
        end_length(out, start, false);
    }
}

/// A value with what is special in it marked.
fn put(out: &mut Vec<u8>, value: &[u8], options: &CopyOptions) {
    match options.format {
        CopyFormat::Csv => put_csv(out, value, options),
        _ => put_text(out, value, options.delimiter),
    }
}

fn put_text(out: &mut Vec<u8>, value: &[u8], delimiter: u8) {
    for byte in value {
        let letter = match byte {
            b'\\' => b'\\',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x08 => b'b',
            0x0b => b'v',
            0x0c => b'f',
            byte if *byte == delimiter => *byte,
            byte => {
                out.push(*byte);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', letter]);
    }
}

fn put_csv(out: &mut Vec<u8>, value: &[u8], options: &CopyOptions) {
    let special = |byte: &u8| [options.delimiter, options.quote, b'\n', b'\r'].contains(byte);
    let plain = !value.iter().any(special) && value != options.null.as_bytes() && value != b"\\.";
    if plain {
        out.extend_from_slice(value);
        return;
    }
    out.push(options.quote);
    for byte in value {
        if *byte == options.quote || *byte == options.escape {
            out.push(options.escape);
        }
        out.push(*byte);
    }
    out.push(options.quote);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_are_marked() {
        let options = Copy::read("COPY t TO STDOUT CSV").unwrap().options;
        let written = |value: &str| {
            let mut out = Vec::new();
            put(&mut out, value.as_bytes(), &options);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(["a", "", "a,b", "a\"b"].map(written), ["a", "\"\"", "\"a,b\"", "\"a\"\"b\""]);
        let mut out = Vec::new();
        put_text(&mut out, b"a\tb\\\n", b'\t');
        assert_eq!(out, b"a\\tb\\\\\\n");
    }
}
