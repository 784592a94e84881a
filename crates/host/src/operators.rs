//! How many operators a statement has, before anything works through it by recursion, and how many columns, before these are compared
//! with each other.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as Syntax;
use datafusion::sql::sqlparser::ast::{Query, Select, SetExpr, Visitor};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use pithead_model::{Blame, COLUMNS_MAX, Fault, OPERATORS_MAX};
use pithead_syntax::walk;

/// Chains of operators nest as deep as they are long, and everything from here on works through them by recursion.
pub(crate) fn refuse_what_is_too_deep(tokens: &[TokenWithSpan]) -> Result<(), Fault> {
    let operators = operators(tokens);
    if operators <= OPERATORS_MAX {
        return Ok(());
    }
    let message = format!("the statement has {operators} operators; at most {OPERATORS_MAX} are allowed");
    Err(Fault::new(Blame::Limit, message)
        .hint("put long chains of AND, OR or UNION as lists, `x IN (…)`, or as a table to join with"))
}

/// The planner compares the columns of a query with each other: hundreds of thousands would keep it for hours.
pub(crate) fn refuse_what_is_too_wide(statement: &Syntax) -> Result<(), Fault> {
    let mut widest = Widest(0);
    match statement {
        Syntax::Statement(statement) => {
            let _ = walk(statement.as_ref(), &mut widest);
        }
        Syntax::Explain(explain) => return refuse_what_is_too_wide(&explain.statement),
        _ => {}
    }
    if widest.0 <= COLUMNS_MAX {
        return Ok(());
    }
    let message = format!("a query of the statement has {} columns; at most {COLUMNS_MAX} are allowed", widest.0);
    Err(Fault::new(Blame::Limit, message).hint("put many values as rows, `VALUES (1), (2)`, or as a list, `[1, 2]`"))
}

/// How many columns the widest query of a statement lists.
struct Widest(usize);

impl Visitor for Widest {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        if let SetExpr::Values(values) = query.body.as_ref() {
            self.0 = values.rows.iter().map(|row| row.len()).fold(self.0, usize::max);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        self.0 = self.0.max(select.projection.len());
        ControlFlow::Continue(())
    }
}

/// Counts operators. Rows of VALUES stand side by side and nest nothing, so the one with most operators counts for all.
pub(crate) fn operators(tokens: &[TokenWithSpan]) -> usize {
    const WORDS: [&str; 9] = ["AND", "OR", "XOR", "NOT", "IS", "UNION", "INTERSECT", "EXCEPT", "JOIN"];
    let mut operators = 0;
    let mut follows_value = false;
    let mut rows = Rows::default();
    for TokenWithSpan { token, .. } in tokens {
        let is_operator = match token {
            Token::Whitespace(_) => continue,
            Token::Word(word) => word.quote_style.is_none() && WORDS.iter().any(|known| word.value.eq_ignore_ascii_case(known)),
            Token::Comma | Token::LParen | Token::SemiColon | Token::Period | Token::EOF => false,
            // The sign of a number, as in a list of numbers.
            Token::Minus | Token::Plus => follows_value,
            token => !is_value(token),
        };
        operators = rows.counted(token, operators) + usize::from(is_operator);
        follows_value = is_value(token) || matches!(token, Token::Word(_));
    }
    operators + rows.most
}

/// Whether a token ends something that has a value, other than a name.
fn is_value(token: &Token) -> bool {
    use Token::{DollarQuotedString, DoubleQuotedString, EscapedStringLiteral, HexStringLiteral, SingleQuotedString};
    let is_text = matches!(
        token,
        SingleQuotedString(_) | DoubleQuotedString(_) | HexStringLiteral(_) | EscapedStringLiteral(_) | DollarQuotedString(_)
    );
    is_text || matches!(token, Token::Number(..) | Token::Placeholder(_) | Token::RParen | Token::RBracket)
}

/// The rows of the outermost VALUES, while they are read.
#[derive(Default)]
struct Rows {
    /// How many parentheses are open.
    depth: i32,
    /// How many are open around VALUES; none: no rows are read.
    around: Option<i32>,
    /// Operators in front of the row.
    before: usize,
    /// Operators of the row of these VALUES that has most.
    most: usize,
}

impl Rows {
    /// The operators in front of a token: without those of rows that are read, until the rows end.
    fn counted(&mut self, token: &Token, operators: usize) -> usize {
        let is_between = self.around == Some(self.depth);
        match token {
            Token::LParen => {
                self.before = if is_between { operators } else { self.before };
                self.depth += 1;
                operators
            }
            Token::RParen if self.around == Some(self.depth - 1) => {
                self.depth -= 1;
                self.most = self.most.max(operators - self.before);
                self.before
            }
            Token::Comma if is_between => operators,
            token => {
                let ended = if is_between { std::mem::take(&mut self.most) } else { 0 };
                if is_between {
                    self.around = None;
                }
                self.depth -= i32::from(*token == Token::RParen);
                if self.around.is_none() && is_values(token) {
                    self.around = Some(self.depth);
                }
                operators + ended
            }
        }
    }
}

fn is_values(token: &Token) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("VALUES"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Parameters;
    use crate::statement::parse;
    use crate::tokens::tokens;

    fn count(sql: &str) -> usize {
        operators(&tokens(sql).unwrap())
    }

    #[test]
    fn long_chains_are_refused_and_long_lists_are_not() {
        let chain = |operator: &str, count: usize| format!("SELECT {}", vec!["a"; count + 1].join(operator));
        for operator in [" OR ", " and ", "+", " - ", "||", " UNION SELECT "] {
            assert!(refuse_what_is_too_deep(&tokens(&chain(operator, OPERATORS_MAX)).unwrap()).is_ok(), "{operator}");
            let fault = parse(&chain(operator, 100_000), &Parameters::default()).err().unwrap();
            assert!(fault.blame == Blame::Limit && fault.message.contains("100000 operators"), "{operator}: {fault}");
        }
        for list in [vec!["-1"; 50_000], vec!["+ 1"; 50_000], vec!["'a-b OR c'"; 50_000], vec!["(1, 2.5)"; 50_000]] {
            assert!(count(&format!("SELECT a IN ({})", list.join(", "))) <= OPERATORS_MAX, "{}", list[0]);
        }
    }

    /// A regression: 300,000 columns were planned for longer than anybody waited.
    #[test]
    fn queries_list_no_more_columns_than_datasets_have() {
        let listed = |count: usize| vec!["1"; count].join(", ");
        for (before, after) in
            [("SELECT ", ""), ("EXPLAIN SELECT a FROM (VALUES (2), (", ")) AS t"), ("INSERT INTO t VALUES (", ")")]
        {
            let read = |count: usize| parse(&format!("{before}{}{after}", listed(count)), &Parameters::default());
            assert!(read(COLUMNS_MAX).is_ok(), "{before}");
            let fault = read(COLUMNS_MAX + 1).err().unwrap();
            assert!(fault.blame == Blame::Limit && fault.message.contains("columns"), "{before}: {fault}");
        }
    }

    /// A regression: 2,049 rows of casts or lists were refused as too deep.
    #[test]
    fn rows_of_values_do_not_add_up() {
        for (row, own) in
            [("(1, '2024-01-01'::date)", 1), ("($1::BIGINT, $2::VARCHAR)", 2), ("(1, [0.1, 0.2])", 1), ("((1) + (2))", 1)]
        {
            let rows = vec![row; 50_000].join(", ");
            assert_eq!(count(&format!("INSERT INTO t VALUES {rows}")), own, "{row}");
            assert_eq!(count(&format!("SELECT 1 + a FROM (VALUES {rows}) AS t (a) WHERE a + 1 IS NULL;")), own + 3, "{row}");
        }
        let deep = vec!["1"; OPERATORS_MAX + 2].join(" + ");
        for chain in [
            format!("INSERT INTO t VALUES (1), ({deep}), (2)"),
            format!("INSERT INTO t VALUES (1, (SELECT a FROM (VALUES (1), ({deep})) AS v (a)))"),
            format!("SELECT values ({deep})"),
            format!("SELECT {}", vec!["values (1)"; OPERATORS_MAX + 2].join(" + ")),
            format!("SELECT \"values\" ({})", vec!["(1 + 1)"; OPERATORS_MAX + 1].join(", ")),
            format!("VALUES (1){}", " UNION VALUES (1 + 1), (2)".repeat(OPERATORS_MAX / 2 + 1)),
        ] {
            assert!(count(&chain) > OPERATORS_MAX, "{}", &chain[..80]);
        }
        // Parentheses that do not match are the parser's to refuse.
        assert_eq!(count("VALUES ))) (1 + 1), (VALUES"), 1);
    }
}
