//! Rows of ports as lines of text, and back.

use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::ValueEnum;
use pithead_model::{Blame, Fault};
use pithead_program::{Signature, Type, Value, decode_rows, encode_row, from_ipc};
use serde_json::{Value as Json, json};

use crate::error::CliError;

/// How rows are written as lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LineFormat {
    /// Columns with tabs between them; a line of one text column is the text
    #[default]
    Text,
    /// An array of values; bytes as base64, and numbers that JSON has not as the texts NaN, inf and -inf. Rows of Arrow are objects
    Json,
}

/// The lines of a port.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    format: LineFormat,
    signature: Signature,
}

impl Lines {
    /// Of a port that is said to carry this.
    pub(crate) fn of(format: LineFormat, signature: &str) -> Result<Self, Fault> {
        let unknown = |why| Fault::new(Blame::Unsupported, format!("a port carries {signature:?}: {why}"));
        Ok(Self { format, signature: signature.parse().map_err(unknown)? })
    }

    /// Writes the rows of a batch, each line behind `prefix`.
    pub(crate) fn write(&self, prefix: &str, batch: &[u8], out: &mut dyn Write) -> Result<(), CliError> {
        let damaged = |why: String| Fault::new(Blame::Device, format!("a batch of {} is none: {why}", self.signature));
        let Signature::Rows(types) = &self.signature else {
            return write_arrow(prefix, &from_ipc(batch).map_err(|why| damaged(why.to_string()))?, out);
        };
        for row in decode_rows(types, batch).map_err(damaged)? {
            match self.format {
                LineFormat::Text => {
                    for (column, value) in row.iter().enumerate() {
                        out.write_all(if column == 0 { prefix } else { "\t" }.as_bytes())?;
                        match value {
                            // As they are: text of another encoding comes out as it went in.
                            Value::Bytes(bytes) => out.write_all(bytes)?,
                            value => write!(out, "{value}")?,
                        }
                    }
                    writeln!(out)?;
                }
                LineFormat::Json => writeln!(out, "{prefix}{}", Json::from_iter(row.iter().map(to_json)))?,
            }
        }
        Ok(())
    }

    /// Appends the lines of a batch to text in memory.
    pub(crate) fn append(&self, batch: &[u8], text: &mut Vec<u8>) -> Result<(), Fault> {
        self.write("", batch, text).map_err(|error| match error {
            CliError::Fault(fault) => fault,
            other => Fault::new(Blame::Bug, other.to_string()),
        })
    }

    /// Appends the row of a line to a batch.
    pub(crate) fn read(&self, line: &str, batch: &mut Vec<u8>) -> Result<(), Fault> {
        let Signature::Rows(types) = &self.signature else {
            let what = "an input takes Arrow record batches, which lines of text cannot carry";
            return Err(Fault::new(Blame::Unsupported, what).hint("an SSDlet that reads lines may make batches of them"));
        };
        let row = match self.format {
            LineFormat::Text => from_text(types, line),
            LineFormat::Json => from_json(types, line),
        };
        let signature = &self.signature;
        let row = row.map_err(|why| Fault::new(Blame::User, format!("the line {line:?} is no row of {signature}: {why}")))?;
        encode_row(&row, batch);
        Ok(())
    }
}

fn write_arrow(prefix: &str, batches: &[arrow::array::RecordBatch], out: &mut dyn Write) -> Result<(), CliError> {
    let mut lines = arrow::json::LineDelimitedWriter::new(Vec::new());
    lines.write_batches(&batches.iter().collect::<Vec<_>>())?;
    lines.finish()?;
    for line in lines.into_inner().split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        write!(out, "{prefix}")?;
        out.write_all(line)?;
        writeln!(out)?;
    }
    Ok(())
}

fn from_text(types: &[Type], line: &str) -> Result<Vec<Value>, String> {
    if let [only] = types {
        return Ok(vec![Value::parse(*only, line)?]);
    }
    let columns: Vec<&str> = line.split('\t').collect();
    if columns.len() != types.len() {
        return Err(format!("expected {} columns with tabs between them, got {}", types.len(), columns.len()));
    }
    types.iter().zip(columns).map(|(of, text)| Value::parse(*of, text)).collect()
}

fn from_json(types: &[Type], line: &str) -> Result<Vec<Value>, String> {
    let columns = match serde_json::from_str(line) {
        Ok(Json::Array(columns)) => columns,
        Ok(_) => return Err("expected an array".to_owned()),
        Err(error) => return Err(error.to_string()),
    };
    if columns.len() != types.len() {
        return Err(format!("expected {} columns, got {}", types.len(), columns.len()));
    }
    types.iter().zip(&columns).map(|(of, json)| value(*of, json)).collect()
}

fn value(of: Type, json: &Json) -> Result<Value, String> {
    match (of, json) {
        (Type::Bytes, Json::String(text)) => {
            STANDARD.decode(text).map(Value::Bytes).map_err(|error| format!("expected base64: {error}"))
        }
        (Type::String, Json::String(text)) => Ok(Value::String(text.clone())),
        (Type::String | Type::Bytes, other) => Err(format!("expected a text, got {other}")),
        (of, Json::Number(_) | Json::Bool(_)) => Value::parse(of, &json.to_string()),
        (Type::F32 | Type::F64, Json::String(text)) if matches!(&**text, "NaN" | "inf" | "-inf") => Value::parse(of, text),
        (of, other) => Err(format!("expected {of}, got {other}")),
    }
}

fn to_json(value: &Value) -> Json {
    match value {
        Value::Bool(value) => json!(value),
        Value::I8(value) => json!(value),
        Value::I16(value) => json!(value),
        Value::I32(value) => json!(value),
        Value::I64(value) => json!(value),
        Value::U8(value) => json!(value),
        Value::U16(value) => json!(value),
        Value::U32(value) => json!(value),
        Value::U64(value) => json!(value),
        Value::F32(value) if !value.is_finite() => json!(value.to_string()),
        Value::F64(value) if !value.is_finite() => json!(value.to_string()),
        Value::F32(value) => json!(value),
        Value::F64(value) => json!(value),
        Value::String(value) => json!(value),
        Value::Bytes(value) => json!(STANDARD.encode(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(format: LineFormat, signature: &str, lines: &[&str]) {
        let rows = Lines::of(format, signature).unwrap();
        let (mut batch, mut out) = (Vec::new(), Vec::new());
        lines.iter().for_each(|line| rows.read(line, &mut batch).unwrap());
        rows.write("", &batch, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap().lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn lines_become_rows_and_lines_again() {
        there_and_back(LineFormat::Text, "string", &["a text\twith a tab", "", "é"]);
        there_and_back(LineFormat::Text, "string,u32,bool", &["a\t7\ttrue", "\t0\tfalse"]);
        there_and_back(LineFormat::Json, "string,i64,f64,bytes", &["[\"a\\tb\",-7,0.5,\"AP8=\"]"]);
        there_and_back(LineFormat::Json, "f64,f32,f64", &["[\"NaN\",\"inf\",\"-inf\"]"]);
    }

    #[test]
    fn bytes_that_are_no_text_come_out_as_they_are() {
        let (mut batch, mut out) = (Vec::new(), Vec::new());
        encode_row(&[Value::U8(7), Value::Bytes(vec![b'a', 0xff])], &mut batch);
        Lines::of(LineFormat::Text, "u8,bytes").unwrap().write("0\t", &batch, &mut out).unwrap();
        assert_eq!(out, b"0\t7\ta\xff\n");
    }

    #[test]
    fn lines_that_are_no_rows_are_refused() {
        let wrong = |format, signature: &str, line: &str| {
            Lines::of(format, signature).unwrap().read(line, &mut Vec::new()).unwrap_err().message
        };
        assert!(wrong(LineFormat::Text, "u8", "256").contains("\"256\" is no u8"));
        assert!(wrong(LineFormat::Text, "u8,u8", "1").contains("expected 2 columns with tabs between them, got 1"));
        assert!(wrong(LineFormat::Json, "u8", "7").contains("expected an array"));
        assert!(wrong(LineFormat::Json, "string", "[7]").contains("expected a text, got 7"));
        assert!(wrong(LineFormat::Text, "arrow", "x").contains("Arrow"));
        assert!(Lines::of(LineFormat::Text, "what").is_err());
    }
}
