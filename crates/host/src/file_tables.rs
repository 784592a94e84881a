//! Files in a FROM: `'rows.parquet'`, `read_parquet('rows-*.parquet')`, `read_csv('rows.csv', delim = ';')`, as DuckDB has them.
//!
//! They lie beside the host, or at servers that it reaches, so only sessions whose files they are may read them. Their rows are the
//! host's, as those of a frame are: what a query needs of them at drives travels as an input. Whoever asks more than once loads
//! or attaches them.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr as Condition, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::sql::parser::Statement as Syntax;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, ObjectNamePart, TableAlias, TableFactor,
    UnaryOperator, Value, VisitorMut,
};
use pithead_files::{CsvOptions, Format, WriteOptions};
use pithead_load::FileRows;
use pithead_model::{Blame, Fault, PAGE_ROWS, RESERVED, boxed};
use pithead_syntax::walk_mut;

use crate::copying;

/// Batches that wait for their reader at most.
const WAITING_MAX: usize = 2;

/// The functions that read files, and what they take their files for.
const FUNCTIONS: [(&str, Format); 9] = [
    ("read_parquet", Format::Parquet),
    ("parquet_scan", Format::Parquet),
    ("read_csv", Format::Csv),
    ("read_csv_auto", Format::Csv),
    ("read_json", Format::Json),
    ("read_json_auto", Format::Json),
    ("read_ndjson", Format::Json),
    ("read_ndjson_auto", Format::Json),
    ("read_arrow", Format::ArrowIpc),
];

/// Files, and how they are read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Files {
    paths: Vec<String>,
    format: Option<Format>,
    csv: CsvOptions,
}

/// Gives files that a statement reads names that only [`Files::of_name`] knows. No SQL text can spell them.
pub(crate) fn name_files(statement: &mut Syntax) -> Result<(), Fault> {
    let Syntax::Statement(sql) = statement else { return Ok(()) };
    match walk_mut(sql.as_mut(), &mut NameFiles) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(fault) => Err(fault),
    }
}

struct NameFiles;

impl VisitorMut for NameFiles {
    type Break = Fault;

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<Fault> {
        let TableFactor::Table { name, alias, args, .. } = table else { return ControlFlow::Continue(()) };
        let found = match args {
            None => Ok(quoted(name)),
            Some(args) => called(name, &args.args),
        };
        match found {
            Ok(None) => ControlFlow::Continue(()),
            Ok(Some((files, known_as))) => {
                let own = || TableAlias { explicit: false, name: Ident::with_quote('"', known_as), columns: vec![], at: None };
                alias.get_or_insert_with(own);
                (*name, *args) = (ObjectName::from(vec![Ident::with_quote('"', files.to_name())]), None);
                ControlFlow::Continue(())
            }
            Err(fault) => ControlFlow::Break(fault),
        }
    }
}

/// A file that is named in quotes, and what its columns are known by: its name without the ending.
fn quoted(name: &ObjectName) -> Option<(Files, String)> {
    let [ObjectNamePart::Identifier(Ident { value, quote_style: Some('\''), .. })] = name.0.as_slice() else { return None };
    let is_file = value.contains(['/', '*']) || WriteOptions::of_file(Path::new(value)).is_some();
    let last = value.rsplit('/').next().unwrap_or(value);
    let stem = last.split('.').next().filter(|stem| !stem.is_empty()).unwrap_or(last).to_owned();
    is_file.then(|| (Files { paths: vec![value.clone()], ..Files::default() }, stem))
}

/// The files of a call, if it is one of a function that reads them.
fn called(name: &ObjectName, args: &[FunctionArg]) -> Result<Option<(Files, String)>, Fault> {
    let [ObjectNamePart::Identifier(word)] = name.0.as_slice() else { return Ok(None) };
    let function = word.value.to_lowercase();
    let Some((_, format)) = FUNCTIONS.iter().find(|(known, _)| *known == function) else { return Ok(None) };
    let wrong =
        || Fault::invalid(format!("expected {function}('file') or {function}(['file', …]), and options as name = value"));
    let mut files = Files { format: Some(*format), ..Files::default() };
    let mut options = Vec::new();
    for (place, arg) in args.iter().enumerate() {
        match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::BinaryOp { left, op: BinaryOperator::Eq, right })) => {
                let Expr::Identifier(option) = left.as_ref() else { return Err(wrong()) };
                options.push((option.value.to_lowercase(), right.as_ref()));
            }
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => {
                options.push((name.value.to_lowercase(), value));
            }
            FunctionArg::Unnamed(FunctionArgExpr::Expr(paths)) if place == 0 => files.paths = texts(paths).ok_or_else(wrong)?,
            _ => return Err(wrong()),
        }
    }
    if files.paths.is_empty() {
        return Err(wrong());
    }
    for (option, value) in options {
        files.set(&function, &option, value)?;
    }
    Ok(Some((files, function)))
}

/// One text, or a list of texts.
fn texts(expr: &Expr) -> Option<Vec<String>> {
    match expr {
        Expr::Array(list) => list.elem.iter().map(text).collect(),
        expr => text(expr).map(|text| vec![text]),
    }
}

fn text(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::Number(text, _) => Some(text.clone()),
            Value::Boolean(is_true) => Some(is_true.to_string()),
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => text(expr).map(|number| format!("-{number}")),
        _ => None,
    }
}

impl Files {
    fn set(&mut self, function: &str, option: &str, value: &Expr) -> Result<(), Fault> {
        let is_csv = self.format == Some(Format::Csv);
        let given = || {
            text(value)
                .ok_or_else(|| Fault::invalid(format!("expected a text, a number, true or false for {option} of {function}")))
        };
        match option {
            "header" if is_csv => self.csv.header = copying::is_true(&given()?)?,
            "delim" | "delimiter" | "sep" if is_csv => self.csv.delimiter = Some(copying::one_byte(&given()?)?),
            "nullstr" | "null" if is_csv => self.csv.null = Some(given()?),
            "names" | "column_names" if is_csv => {
                self.csv.names =
                    texts(value).ok_or_else(|| Fault::invalid(format!("expected a list of names for {option}")))?;
            }
            "sample_size" if is_csv || self.format == Some(Format::Json) => {
                let rows = given()?;
                self.csv.schema_rows = match rows.as_str() {
                    "-1" => usize::MAX,
                    rows => rows.parse().map_err(|_| Fault::invalid(format!("expected a number of rows, got {rows}")))?,
                };
            }
            other => {
                let known = match self.format {
                    Some(Format::Csv) => "header, delim, nullstr, names and sample_size",
                    Some(Format::Json) => "sample_size",
                    _ => "no options",
                };
                let fault = Fault::new(Blame::User, format!("{function} has no option {other} here"));
                return Err(fault.hint(format!("it takes {known}; types are those that the files say or show")));
            }
        }
        Ok(())
    }

    /// A name that says all of it, and reads well where names are shown, without the characters between its parts.
    fn to_name(&self) -> String {
        let defaults = CsvOptions::default();
        let format = self.format.map(|format| format!(" as {}", ending(format)));
        let header = (self.csv.header != defaults.header).then(|| format!(" header={}", self.csv.header));
        let delimiter = self.csv.delimiter.map(|byte| format!(" delim={}", char::from(byte)));
        let null = self.csv.null.as_ref().map(|null| format!(" nullstr={null}"));
        let rows = (self.csv.schema_rows != defaults.schema_rows).then(|| format!(" sample_size={}", self.csv.schema_rows));
        let paths = self.paths.iter().map(|path| format!(" '{path}'"));
        let names = self.csv.names.iter().map(|name| format!(" column={name}"));
        let options = [format, header, delimiter, null, rows].into_iter().flatten();
        let all = [PREFIX.to_owned()].into_iter().chain(paths).chain(options).chain(names);
        all.collect::<Vec<_>>().join(&RESERVED.to_string())
    }

    /// The files that a name says; none: it is another name.
    pub(crate) fn of_name(name: &str) -> Option<Files> {
        let mut files = Files::default();
        for part in name.strip_prefix(PREFIX)?.strip_prefix(RESERVED)?.split(RESERVED) {
            if let Some(path) = part.strip_prefix(" '") {
                files.paths.push(path.strip_suffix('\'')?.to_owned());
            } else if let Some(format) = part.strip_prefix(" as ") {
                files.format = Format::of_ending(format);
            } else {
                let (option, value) = part.split_once('=')?;
                match option {
                    " header" => files.csv.header = value == "true",
                    " delim" => files.csv.delimiter = value.bytes().next(),
                    " nullstr" => files.csv.null = Some(value.to_owned()),
                    " sample_size" => files.csv.schema_rows = value.parse().ok()?,
                    " column" => files.csv.names.push(value.to_owned()),
                    _ => return None,
                }
            }
        }
        Some(files)
    }

    /// Opens the files. `may_read`: whether the session may read files at all.
    pub(crate) async fn table(self, may_read: bool) -> Result<Arc<dyn TableProvider>, Fault> {
        if !may_read {
            let fault = Fault::new(Blame::Access, "statements read no files of this host, which others use, too; nor do views");
            return Err(
                fault.hint("ask of files with `pithead sql` or from Python, where they are your own; or load or attach them")
            );
        }
        let open = move || FileRows::open(&self.paths, self.format, &self.csv);
        let rows = tokio::task::spawn_blocking(open).await.map_err(Fault::bug)??;
        Ok(Arc::new(FileTable { rows: Arc::new(rows) }))
    }
}

/// The names of files begin with it.
const PREFIX: &str = "files";

/// The ending of a format's files.
fn ending(format: Format) -> &'static str {
    match format {
        Format::Parquet => "parquet",
        Format::Csv => "csv",
        Format::Json => "json",
        Format::ArrowIpc => "arrow",
    }
}

/// Whether a table function of this name reads files.
pub(crate) fn reads_files(function: &str) -> bool {
    FUNCTIONS.iter().any(|(known, _)| *known == function)
}

/// The rows of files as a table.
#[derive(Debug)]
struct FileTable {
    rows: Arc<FileRows>,
}

#[boxed]
impl TableProvider for FileTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.rows.schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Condition],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // One stream, so that rows come in the files' order, as whoever looks at the first of them expects.
        let streams = vec![Arc::new(FileStream(Arc::clone(&self.rows))) as Arc<dyn PartitionStream>];
        Ok(Arc::new(StreamingTableExec::try_new(self.schema(), streams, projection, [], false, limit)?))
    }
}

/// All parts, one after the other.
#[derive(Debug)]
struct FileStream(Arc<FileRows>);

impl PartitionStream for FileStream {
    fn schema(&self) -> &SchemaRef {
        self.0.schema()
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut builder = RecordBatchReceiverStreamBuilder::new(Arc::clone(self.0.schema()), WAITING_MAX);
        let (sender, rows) = (builder.tx(), Arc::clone(&self.0));
        builder.spawn_blocking(move || {
            let mut is_wanted = true;
            for part in 0..rows.parts() {
                let read = rows.read(part, PAGE_ROWS, |batch| {
                    is_wanted = sender.blocking_send(Ok(batch)).is_ok();
                    is_wanted
                });
                read.map_err(|fault| DataFusionError::External(Box::new(fault)))?;
                if !is_wanted {
                    break;
                }
            }
            Ok(())
        });
        builder.build()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn named(sql: &str) -> Result<Vec<(Files, String)>, Fault> {
        let statement = Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0);
        let mut statement = Syntax::Statement(Box::new(statement));
        name_files(&mut statement)?;
        struct Found(Vec<(Files, String)>);
        impl VisitorMut for Found {
            type Break = ();
            fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
                if let TableFactor::Table { name, alias: Some(alias), args: None, .. } = table
                    && let [ObjectNamePart::Identifier(name)] = name.0.as_slice()
                    && let Some(files) = Files::of_name(&name.value)
                {
                    self.0.push((files, alias.name.value.clone()));
                }
                ControlFlow::Continue(())
            }
        }
        let (Syntax::Statement(sql), mut found) = (statement, Found(vec![])) else { panic!("a statement") };
        let mut sql = sql;
        let _ = walk_mut(sql.as_mut(), &mut found);
        Ok(found.0)
    }

    #[test]
    fn files_are_named_in_quotes_and_by_functions() {
        let of = |paths: &[&str], format| Files {
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            format,
            csv: CsvOptions::default(),
        };
        for (sql, expected) in [
            ("SELECT * FROM 'a/b.parquet'", vec![(of(&["a/b.parquet"], None), "b")]),
            ("SELECT * FROM 'x.CSV.gz' AS t", vec![(of(&["x.CSV.gz"], None), "t")]),
            ("SELECT * FROM read_parquet(['a', 'b*'])", vec![(of(&["a", "b*"], Some(Format::Parquet)), "read_parquet")]),
            (
                "SELECT 1 FROM READ_JSON('a') j WHERE x IN (SELECT y FROM 'b.arrow')",
                vec![(of(&["a"], Some(Format::Json)), "j"), (of(&["b.arrow"], None), "b")],
            ),
            ("SELECT * FROM 'orders', \"a.parquet\", range(3)", vec![]),
        ] {
            let expected: Vec<(Files, String)> = expected.into_iter().map(|(files, name)| (files, name.to_owned())).collect();
            assert_eq!(named(sql).unwrap(), expected, "{sql}");
        }
        let csv = CsvOptions {
            delimiter: Some(b';'),
            header: false,
            names: vec!["a".into(), "b".into()],
            null: Some(String::new()),
            schema_rows: usize::MAX,
        };
        let sql =
            "SELECT * FROM read_csv('a.txt', delim = ';', header = false, names = ['a', 'b'], nullstr = '', sample_size = -1)";
        assert_eq!(named(sql).unwrap()[0].0, Files { csv, ..of(&["a.txt"], Some(Format::Csv)) });
    }

    #[test]
    fn calls_that_cannot_be_meant_are_refused() {
        for (sql, expected) in [
            ("SELECT * FROM read_csv()", "expected read_csv('file')"),
            ("SELECT * FROM read_csv(a)", "expected read_csv('file')"),
            ("SELECT * FROM read_csv('a', skip = 1)", "has no option skip"),
            ("SELECT * FROM read_parquet('a', header = true)", "has no option header"),
            ("SELECT * FROM read_arrow('a', sample_size = 1)", "has no option sample_size"),
            ("SELECT * FROM read_csv('a', delim = ';;')", "one ASCII character"),
        ] {
            let fault = named(sql).unwrap_err();
            assert!(fault.message.contains(expected), "{sql}: {fault}");
        }
    }
}
