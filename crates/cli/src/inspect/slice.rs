//! `pithead inspect slice`: one slice, without its values.

use std::io::Write;
use std::path::PathBuf;

use arrow::datatypes::{DataType, SchemaRef};
use clap::Args;
use pithead_model::{Blame, Bytes, ColumnSummary, Directory, Fault, Value, merge_columns};
use pithead_slice::{SliceFacts, describe};
use pithead_store::Store;
use serde_json::{Value as Json, json};

use crate::error::CliError;
use crate::output::{Align, Grid, Sink};
use crate::store_keys::{key_bytes, key_words, open, store_folders};
use crate::terminal::{counted, grouped};
use crate::value_text::{nulls_text, value_text};

const EXAMPLES: &str = "\
Examples:
  pithead inspect slice pithead-data slice/main/trips@5f0c…/18a2…/00000.00000000
  pithead inspect slice /disk1 slice/… --pages --json";

/// Show a slice without its values: header, encoding, rows, columns, pages, bounds, sizes.
///
/// Names and types of columns come from the metadata slice of the same load, where that is there. `inspect segment` shows keys.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SliceArgs {
    /// A drive's folder, or a data directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The slice's key, as `inspect segment` and `check` show it
    #[arg(value_name = "KEY")]
    key: String,
    /// Bounds of each page, too
    #[arg(long)]
    pages: bool,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// A slice that was found.
struct InspectedSlice {
    store: PathBuf,
    facts: SliceFacts,
    bytes: u64,
    /// What the metadata slice of its load says of columns.
    schema: Option<SchemaRef>,
}

pub(super) fn run(args: &SliceArgs) -> Result<(), CliError> {
    let found = find(args)?;
    let mut sink = Sink::stdout();
    match args.json {
        true => writeln!(sink, "{}", found_json(&args.key, &found, args.pages))?,
        false => write(args, &found, &mut sink)?,
    }
    sink.finish()
}

fn find(args: &SliceArgs) -> Result<InspectedSlice, CliError> {
    let key = key_bytes(&args.key)?;
    for folder in store_folders(&args.directory)? {
        let store = open(&folder)?;
        let Some((value, entry)) = store.get(&key).map_err(Fault::from)? else { continue };
        let facts = describe(value).map_err(|error| Fault::from(error).at(&args.key))?;
        let schema = schema(&store, &args.key, facts.columns.len())?;
        return Ok(InspectedSlice { store: folder, facts, bytes: entry.bytes, schema });
    }
    let fault = Fault::new(Blame::User, format!("no drive in {} has the key {}", args.directory.display(), args.key));
    Err(fault.hint("`pithead inspect segment` shows the keys of a segment's values").into())
}

/// The schema in the metadata slice of the same load, if it fits.
fn schema(store: &dyn Store, key: &str, columns: usize) -> Result<Option<SchemaRef>, CliError> {
    let Some((run, _)) = key.rsplit_once('.') else { return Ok(None) };
    let meta = format!("{run}.meta");
    let Some((value, _)) = store.get(&key_bytes(&meta)?).map_err(Fault::from)? else { return Ok(None) };
    let directory: Directory = serde_json::from_slice(&value)
        .map_err(|error| Fault::new(Blame::Corrupt, format!("{meta} is no metadata slice: {error}")))?;
    Ok(Some(directory.schema).filter(|schema| schema.fields().len() == columns))
}

fn write(args: &SliceArgs, found: &InspectedSlice, out: &mut dyn Write) -> Result<(), CliError> {
    let (facts, header) = (&found.facts, &found.facts.header);
    let words = key_words(&args.key).map(|words| format!(" ({words})")).unwrap_or_default();
    writeln!(out, "{}{words}, in {}", args.key, found.store.display())?;
    let (encoding, version) = header.encoding;
    writeln!(
        out,
        "{}, {}, {} of {} rows; encoding {} (id {encoding}, version {version})",
        counted(header.rows, "row"),
        counted(facts.columns.len() as u64, "column"),
        counted(header.rows.div_ceil(facts.page_rows), "page"),
        grouped(facts.page_rows),
        facts.encoding,
    )?;
    let (encoded, bounds) = (Bytes(facts.encoded_bytes), Bytes(facts.bounds_bytes));
    writeln!(out, "{}: {encoded} encoded, {bounds} bounds of pages; body xxh3 {:016x}", Bytes(found.bytes), header.checksum)?;
    columns_grid(found).write(out)?;
    if args.pages {
        writeln!(out)?;
        pages_grid(found).write(out)?;
    }
    Ok(())
}

fn columns_grid(found: &InspectedSlice) -> Grid {
    use Align::{Left, Right};
    let mut grid =
        Grid::of(&[("column", Left), ("type", Left), ("nulls", Right), ("min", Left), ("max", Left), ("bounds", Left)]);
    for (index, pages) in found.facts.columns.iter().enumerate() {
        let total = total(pages);
        let (name, data_type) = found.column(index);
        let shown = bounds_text(&total, data_type);
        let kind = if total.exact { "exact" } else { "cut or none" };
        let type_text = data_type.map(ToString::to_string).unwrap_or_default();
        grid.push(vec![name, type_text, nulls_text(&total), shown.0, shown.1, kind.to_owned()]);
    }
    grid
}

fn pages_grid(found: &InspectedSlice) -> Grid {
    use Align::{Left, Right};
    let mut grid =
        Grid::of(&[("column", Left), ("page", Right), ("first row", Right), ("nulls", Right), ("min", Left), ("max", Left)]);
    for (index, pages) in found.facts.columns.iter().enumerate() {
        let (name, data_type) = found.column(index);
        for (page, summary) in (0u64..).zip(pages) {
            let (min, max) = bounds_text(summary, data_type);
            let first = page.saturating_mul(found.facts.page_rows);
            grid.push(vec![name.clone(), page.to_string(), grouped(first), nulls_text(summary), min, max]);
        }
    }
    grid
}

impl InspectedSlice {
    /// A column's name, or its number where no metadata slice tells; and its type.
    fn column(&self, index: usize) -> (String, Option<&DataType>) {
        match self.schema.as_ref().and_then(|schema| schema.fields().get(index)) {
            Some(field) => (field.name().clone(), Some(field.data_type())),
            None => (format!("#{index}"), None),
        }
    }
}

/// Of all pages of a column.
fn total(pages: &[ColumnSummary]) -> ColumnSummary {
    merge_columns(pages.iter().map(std::slice::from_ref)).into_iter().next().unwrap_or_default()
}

fn bounds_text(summary: &ColumnSummary, data_type: Option<&DataType>) -> (String, String) {
    // Without the type, an integer is shown as the integer that it is stored as.
    let data_type = data_type.unwrap_or(&DataType::Int64);
    let text = |value: &Option<Value>| value.as_ref().map(|value| value_text(value, data_type)).unwrap_or_default();
    (text(&summary.min), text(&summary.max))
}

fn found_json(key: &str, found: &InspectedSlice, pages: bool) -> Json {
    let (facts, header) = (&found.facts, &found.facts.header);
    let columns = facts.columns.iter().enumerate().map(|(index, summaries)| {
        let (name, data_type) = found.column(index);
        let mut column = summary_json(&total(summaries), data_type);
        column["name"] = json!(name);
        column["type"] = json!(data_type.map(ToString::to_string));
        if pages {
            column["pages"] = summaries.iter().map(|summary| summary_json(summary, data_type)).collect();
        }
        column
    });
    json!({
        "key": key,
        "is": key_words(key),
        "store": found.store.display().to_string(),
        "bytes": found.bytes,
        "rows": header.rows,
        "encoding": facts.encoding,
        "encoding_version": header.encoding.1,
        "body_checksum": format!("{:016x}", header.checksum),
        "encoded_bytes": facts.encoded_bytes,
        "bounds_bytes": facts.bounds_bytes,
        "pages": header.rows.div_ceil(facts.page_rows),
        "page_rows": facts.page_rows,
        "columns": columns.collect::<Vec<_>>(),
    })
}

fn summary_json(summary: &ColumnSummary, data_type: Option<&DataType>) -> Json {
    let (min, max) = bounds_text(summary, data_type);
    json!({
        "nulls": (!summary.nulls_unknown).then_some(summary.nulls),
        "min": summary.min.is_some().then_some(min),
        "max": summary.max.is_some().then_some(max),
        "bounds_exact": summary.exact,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Date32Array, RecordBatch};
    use pithead_slice::{encode_slice, encoding};

    use super::*;

    fn found(schema: bool) -> InspectedSlice {
        let days: ArrayRef = Arc::new(Date32Array::from_iter((0..9_000).map(|day| (day != 5).then_some(day))));
        let batch = RecordBatch::try_from_iter_with_nullable([("day", days, true)]).unwrap();
        let slice = encode_slice(&*encoding("arrow").unwrap(), &batch.schema(), std::slice::from_ref(&batch)).unwrap().bytes;
        let bytes = slice.len() as u64;
        let schema = schema.then(|| batch.schema());
        InspectedSlice { store: "d".into(), facts: describe(slice).unwrap(), bytes, schema }
    }

    fn shown(grid: &Grid) -> String {
        let mut out = Vec::new();
        grid.write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn bounds_are_shown_by_the_columns_type() {
        let all = shown(&columns_grid(&found(true)));
        assert!(all.contains("day    | Date32 |     1 | 1970-01-01 | 1994-08-22 | exact"), "{all}");
        let unnamed = shown(&columns_grid(&found(false)));
        assert!(unnamed.contains("#0     |      |     1 | 0   | 8999 | exact"), "{unnamed}");
        let pages = shown(&pages_grid(&found(true)));
        assert!(pages.contains("day    |    1 |     8,192 |     0 | 1992-06-06 | 1994-08-22"), "{pages}");
    }

    #[test]
    fn json_has_pages_where_they_are_asked_for() {
        let object = found_json("k", &found(true), true);
        assert_eq!((&object["rows"], &object["pages"], &object["encoding"]), (&json!(9_000), &json!(2), &json!("arrow")));
        assert_eq!(object["columns"][0]["pages"][1]["min"], json!("1992-06-06"));
        assert_eq!(found_json("k", &found(true), false)["columns"][0]["pages"], Json::Null);
    }
}
