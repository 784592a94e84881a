//! How a table that a statement creates is laid out: `PARTITION BY`, `ORDER BY` and `WITH (…)` of CREATE TABLE.

use datafusion::sql::sqlparser::ast::{
    ColumnOption, ColumnOptionDef, CreateTable, CreateTableOptions, Expr, FunctionArg, FunctionArgExpr, FunctionArguments,
    Ident, OneOrManyWithParens, SqlOption, Statement as Sql, Value,
};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};
use pithead_load::{LoadSpec, PartitionBy};
use pithead_model::{Blame, Fault, SortKey};

use crate::tokens::{is_gap, is_word};

const EXAMPLE: &str = "CREATE TABLE t PARTITION BY hash(k) ORDER BY day WITH (copies = 2) AS SELECT …";
const OPTIONS: &str = "copies, partitions, encoding, slice_rows";

/// The clauses of a layout, in the order in which the parser takes them.
const CLAUSES: [&str; 3] = ["WITH", "PARTITION", "ORDER"];

/// Puts the clauses of a CREATE TABLE in the order in which the parser takes them: they may be written in any.
pub(crate) fn sort_clauses(tokens: &mut Vec<TokenWithSpan>) {
    let words: Vec<usize> = (0..tokens.len()).filter(|place| !is_gap(&tokens[*place])).collect();
    let is = |nth: usize, word: &str| words.get(nth).is_some_and(|place| is_word(&tokens[*place], word));
    let is_create = is(0, "CREATE") && (is(1, "TABLE") || (is(1, "OR") && is(2, "REPLACE") && is(3, "TABLE")));
    if !is_create {
        return;
    }
    let mut depth = 0_i32;
    let mut starts: Vec<(usize, usize)> = Vec::new();
    let mut end = tokens.len();
    for (nth, place) in words.iter().enumerate() {
        match tokens[*place].token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            Token::SemiColon | Token::EOF if depth == 0 => {
                end = *place;
                break;
            }
            Token::Word(_) if depth == 0 && is(nth, "AS") => {
                end = *place;
                break;
            }
            _ => {}
        }
        let clause = CLAUSES.iter().position(|clause| depth == 0 && is(nth, clause));
        starts.extend(clause.map(|clause| (*place, clause)));
    }
    let Some((first, _)) = starts.first().copied() else { return };
    let ends: Vec<usize> = starts.iter().skip(1).map(|(start, _)| *start).chain([end]).collect();
    let mut clauses: Vec<(usize, Vec<TokenWithSpan>)> =
        starts.iter().zip(ends).map(|((start, clause), end)| (*clause, tokens[*start..end].to_vec())).collect();
    clauses.sort_by_key(|(clause, _)| *clause);
    let gap = |span| TokenWithSpan { token: Token::Whitespace(Whitespace::Space), span };
    let sorted = clauses.into_iter().flat_map(|(_, mut clause)| {
        clause.extend(clause.last().map(|last| gap(last.span)));
        clause
    });
    tokens.splice(first..end, sorted.collect::<Vec<_>>());
}

/// What a statement says of a new table's layout. What it leaves out is chosen as for loads.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Layout {
    partitioning: Option<PartitionBy>,
    sort: Vec<SortKey>,
    copies: Option<usize>,
    partitions: Option<usize>,
    encoding: Option<String>,
    slice_rows: Option<usize>,
}

impl Layout {
    /// Takes the clauses out of a statement, of which the engine knows nothing.
    pub(crate) fn take(statement: &mut Sql) -> Result<Layout, Fault> {
        let Sql::CreateTable(create) = statement else { return Ok(Layout::default()) };
        for column in &create.columns {
            let generated =
                |option: &ColumnOptionDef| matches!(option.option, ColumnOption::Generated { .. } | ColumnOption::Identity(_));
            if let Some(option) = column.options.iter().find(|option| generated(option)) {
                return Err(wrong(format!(
                    "column {} is {option}, which is not supported: give its values with INSERT",
                    column.name
                )));
            }
        }
        let mut layout = Layout::default();
        if let Some(by) = create.partition_by.take() {
            layout.partitioning = Some(partitioning(*by)?);
        }
        layout.sort = match create.order_by.take() {
            None => vec![],
            Some(OneOrManyWithParens::One(key)) => vec![sort_key(key)?],
            Some(OneOrManyWithParens::Many(keys)) => keys.into_iter().map(sort_key).collect::<Result<_, _>>()?,
        };
        layout.take_options(create)?;
        Ok(layout)
    }

    fn take_options(&mut self, create: &mut CreateTable) -> Result<(), Fault> {
        let options = match std::mem::take(&mut create.table_options) {
            CreateTableOptions::None => return Ok(()),
            CreateTableOptions::With(options) => options,
            other => return Err(wrong(format!("expected WITH (name = value, …), got {other}"))),
        };
        for option in options {
            let SqlOption::KeyValue { key, value } = option else {
                return Err(wrong(format!("expected name = value in WITH (…), got {option}")));
            };
            match key.value.to_lowercase().as_str() {
                "copies" => self.copies = Some(number(&key, &value)?),
                "partitions" => self.partitions = Some(number(&key, &value)?),
                "slice_rows" => self.slice_rows = Some(number(&key, &value)?),
                "encoding" => self.encoding = Some(text(&value)),
                other => return Err(wrong(format!("there is no option {other}; there are {OPTIONS}"))),
            }
        }
        Ok(())
    }

    /// A load laid out so.
    pub(crate) fn put_into(self, spec: LoadSpec) -> LoadSpec {
        let Layout { partitioning, sort, copies, partitions, encoding, slice_rows } = self;
        LoadSpec { partitioning, sort, copies, partitions, encoding, slice_rows, ..spec }
    }
}

fn wrong(message: String) -> Fault {
    Fault::new(Blame::User, message).hint(EXAMPLE)
}

/// `hash(a, b)`, `range(a)`, `round_robin`, or columns to hash by.
fn partitioning(by: Expr) -> Result<PartitionBy, Fault> {
    let expected =
        |got: &Expr| wrong(format!("expected PARTITION BY hash(column, …), range(column) or round_robin, got {got}"));
    match &by {
        Expr::Identifier(ident) if name(ident).replace('-', "_") == "round_robin" => Ok(PartitionBy::RoundRobin),
        Expr::Identifier(ident) => Ok(PartitionBy::Hash(vec![name(ident)])),
        Expr::Nested(inner) => partitioning(Expr::clone(inner)),
        Expr::Tuple(columns) => {
            let columns: Option<Vec<String>> = columns.iter().map(column).collect();
            columns.map(PartitionBy::Hash).ok_or_else(|| expected(&by))
        }
        Expr::Function(function) => {
            let arguments: Option<Vec<String>> = match &function.args {
                FunctionArguments::List(list) => list.args.iter().map(argument).collect(),
                _ => None,
            };
            match (function.name.to_string().to_lowercase().as_str(), arguments.as_deref()) {
                ("hash", Some([_, ..])) => Ok(PartitionBy::Hash(arguments.unwrap_or_default())),
                ("range", Some([column])) => Ok(PartitionBy::Range(column.clone())),
                ("round_robin", Some([])) => Ok(PartitionBy::RoundRobin),
                _ => Err(expected(&by)),
            }
        }
        _ => Err(expected(&by)),
    }
}

fn argument(argument: &FunctionArg) -> Option<String> {
    match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => column(expr),
        _ => None,
    }
}

fn column(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(ident) => Some(name(ident)),
        _ => None,
    }
}

fn sort_key(key: Expr) -> Result<SortKey, Fault> {
    let column = column(&key).ok_or_else(|| wrong(format!("expected columns in ORDER BY, got {key}")))?;
    Ok(SortKey { column, descending: false })
}

/// A name as SQL means it: in lower case unless it is quoted.
fn name(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

fn number(key: &Ident, value: &Expr) -> Result<usize, Fault> {
    let number = text(value).parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| wrong(format!("expected a whole number above 0 for {key}, got {value}")))
}

fn text(value: &Expr) -> String {
    match value {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => text.clone(),
            other => other.to_string(),
        },
        Expr::Identifier(ident) => name(ident),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;
    use crate::tokens::tokens;

    fn layout(sql: &str) -> Result<Layout, Fault> {
        let mut tokens = tokens(sql).unwrap();
        sort_clauses(&mut tokens);
        let parsed = Parser::new(&GenericDialect {}).with_tokens_with_locations(tokens).parse_statements();
        let mut statements = parsed.unwrap_or_else(|error| panic!("{sql}: {error}"));
        Layout::take(&mut statements[0])
    }

    #[test]
    fn clauses_say_how_rows_lie() {
        let made = layout("CREATE TABLE t (a INT, \"B\" INT) PARTITION BY hash(a, \"B\") ORDER BY (a, \"B\")").unwrap();
        assert_eq!(made.partitioning, Some(PartitionBy::Hash(vec!["a".into(), "B".into()])));
        assert_eq!(made.sort.iter().map(|key| key.column.as_str()).collect::<Vec<_>>(), ["a", "B"]);
        let made =
            layout("CREATE TABLE t (a INT) PARTITION BY range(A) WITH (copies = 2, encoding = 'arrow', slice_rows = 10)");
        let made = made.unwrap();
        assert_eq!(made.partitioning, Some(PartitionBy::Range("a".into())));
        assert_eq!((made.copies, made.encoding.as_deref(), made.slice_rows), (Some(2), Some("arrow"), Some(10)));
        let orders = ["ORDER BY day", "PARTITION BY hash(k)", "WITH (copies = 2)"];
        for [x, y, z] in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            for rest in ["", " AS SELECT * FROM u ORDER BY (SELECT 1)"] {
                let sql = format!("CREATE OR REPLACE TABLE t {} {} {}{rest}", orders[x], orders[y], orders[z]);
                let made = layout(&sql).unwrap();
                assert!(made.partitioning.is_some() && made.copies == Some(2) && made.sort.len() == 1, "{sql}: {made:?}");
            }
        }
        for sql in ["CREATE TABLE t (a INT) PARTITION BY a", "CREATE TABLE t (a INT) PARTITION BY (a)"] {
            assert_eq!(layout(sql).unwrap().partitioning, Some(PartitionBy::Hash(vec!["a".into()])), "{sql}");
        }
        assert_eq!(
            layout("CREATE TABLE t (a INT) PARTITION BY round_robin()").unwrap().partitioning,
            Some(PartitionBy::RoundRobin)
        );
        assert_eq!(layout("CREATE TABLE t AS SELECT 1").unwrap(), Layout::default());
    }

    #[test]
    fn what_cannot_be_a_layout_is_told() {
        for sql in [
            "CREATE TABLE t (a INT) PARTITION BY hash()",
            "CREATE TABLE t (a INT) PARTITION BY range(a, b)",
            "CREATE TABLE t (a INT) PARTITION BY a + 1",
            "CREATE TABLE t (a INT) WITH (copies = 0)",
            "CREATE TABLE t (a INT) WITH (copys = 2)",
        ] {
            let fault = layout(sql).unwrap_err();
            assert!(fault.blame == Blame::User && fault.hint.is_some(), "{sql}: {fault}");
        }
    }
}
