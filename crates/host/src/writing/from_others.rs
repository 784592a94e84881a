//! UPDATE … FROM and DELETE … USING, as PostgreSQL and DuckDB have them: MERGE with one clause.
//!
//! Where several rows of the other tables say what a row is to become, PostgreSQL takes one of them; here that is an error, as in MERGE.

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    Delete, Expr, FromTable, Join, JoinConstraint, JoinOperator, Merge, MergeAction, MergeClause, MergeClauseKind,
    MergeUpdateExpr, Statement, TableFactor, TableWithJoins, Update, UpdateTableFromKind, Value,
};
use pithead_model::{Blame, Fault};

use crate::dialect::normal;
use crate::tokens::parts;

/// The MERGE that a statement is, if it changes rows by those of other tables; else the statement.
pub(crate) fn as_merge(statement: Statement) -> Result<Statement, Fault> {
    Ok(match statement {
        Statement::Update(update) => match changed_by(&update) {
            Some(from) => {
                let Update { table, assignments, selection, .. } = update;
                let action = MergeUpdateExpr {
                    update_token: AttachedToken::empty(),
                    assignments,
                    update_predicate: None,
                    delete_predicate: None,
                };
                refuse_same_name(&table.relation, &from)?;
                merge(table.relation, from, selection, MergeAction::Update(action))
            }
            None => Statement::Update(update),
        },
        Statement::Delete(delete) => match deleted_by(&delete) {
            Some((table, using)) => {
                let action = MergeAction::Delete { delete_token: AttachedToken::empty() };
                refuse_same_name(&table, &using)?;
                merge(table, using, delete.selection, action)
            }
            None => Statement::Delete(delete),
        },
        statement => statement,
    })
}

/// The planner would not tell the columns of the table that is changed from those of one that has its name.
fn refuse_same_name(table: &TableFactor, others: &TableFactor) -> Result<(), Fault> {
    let TableFactor::Table { name, .. } = table else { return Ok(()) };
    let own = parts(name)?;
    let is_own = |other: &[String]| {
        let shared = own.len().min(other.len());
        own[own.len() - shared..] == other[other.len() - shared..]
    };
    match names(others)?.iter().any(|other| is_own(other)) {
        false => Ok(()),
        true => {
            let message = format!("a statement that changes rows of {name} by a table that it calls {name}, too");
            let hint = format!("give the other one a name of its own: UPDATE {name} SET … FROM {name} AS other WHERE …");
            Err(Fault::new(Blame::Unsupported, message).hint(hint))
        }
    }
}

/// The names by which conditions know tables.
fn names(tables: &TableFactor) -> Result<Vec<Vec<String>>, Fault> {
    Ok(match tables {
        TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. } => {
            vec![vec![normal(&alias.name)]]
        }
        TableFactor::Table { name, alias: None, .. } => vec![parts(name)?],
        TableFactor::NestedJoin { table_with_joins, alias: None } => {
            let mut found = names(&table_with_joins.relation)?;
            for join in &table_with_joins.joins {
                found.extend(names(&join.relation)?);
            }
            found
        }
        _ => vec![],
    })
}

/// The tables by which an UPDATE changes rows, where nothing else in it is special.
fn changed_by(update: &Update) -> Option<TableFactor> {
    let (UpdateTableFromKind::BeforeSet(from) | UpdateTableFromKind::AfterSet(from)) = update.from.as_ref()?;
    let is_plain = update.table.joins.is_empty()
        && update.returning.is_none()
        && update.output.is_none()
        && update.or.is_none()
        && update.order_by.is_empty()
        && update.limit.is_none();
    joined(from).filter(|_| is_plain)
}

/// The same of a DELETE, with the table that loses rows.
fn deleted_by(delete: &Delete) -> Option<(TableFactor, TableFactor)> {
    let using = delete.using.as_ref()?;
    let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
    let [TableWithJoins { relation, joins }] = from.as_slice() else { return None };
    let is_plain = joins.is_empty()
        && delete.tables.is_empty()
        && delete.returning.is_none()
        && delete.output.is_none()
        && delete.order_by.is_empty()
        && delete.limit.is_none();
    joined(using).filter(|_| is_plain).map(|using| (relation.clone(), using))
}

/// A list of tables as one.
fn joined(tables: &[TableWithJoins]) -> Option<TableFactor> {
    let (first, others) = tables.split_first()?;
    let mut all = first.clone();
    for other in others {
        let join_operator = JoinOperator::CrossJoin(JoinConstraint::None);
        all.joins.push(Join { relation: nested(other.clone()), global: false, join_operator });
    }
    Some(nested(all))
}

fn nested(table: TableWithJoins) -> TableFactor {
    match table.joins.is_empty() {
        true => table.relation,
        false => TableFactor::NestedJoin { table_with_joins: Box::new(table), alias: None },
    }
}

fn merge(table: TableFactor, source: TableFactor, condition: Option<Expr>, action: MergeAction) -> Statement {
    let clause =
        MergeClause { when_token: AttachedToken::empty(), clause_kind: MergeClauseKind::Matched, predicate: None, action };
    Statement::Merge(Merge {
        merge_token: AttachedToken::empty(),
        optimizer_hints: vec![],
        into: true,
        table,
        source,
        on: Box::new(condition.unwrap_or_else(|| Expr::value(Value::Boolean(true)))),
        clauses: vec![clause],
        output: None,
    })
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn rewritten(sql: &str) -> String {
        let statement = Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0);
        as_merge(statement).map_or_else(|fault| fault.message, |statement| statement.to_string())
    }

    #[test]
    fn rows_of_other_tables_change_rows_as_in_merge() {
        for (sql, expected) in [
            (
                "UPDATE t SET v = s.v FROM s WHERE t.k = s.k",
                "MERGE INTO t USING s ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = s.v",
            ),
            (
                "UPDATE t AS x SET v = 1 FROM s JOIN u ON s.a = u.a, w",
                "MERGE INTO t AS x USING (s JOIN u ON s.a = u.a CROSS JOIN w) ON true WHEN MATCHED THEN UPDATE SET v = 1",
            ),
            ("DELETE FROM t USING s AS o WHERE t.k = o.k", "MERGE INTO t USING s AS o ON t.k = o.k WHEN MATCHED THEN DELETE"),
        ] {
            assert_eq!(rewritten(sql), expected);
        }
        for sql in [
            "UPDATE t AS a SET v = t.v FROM t WHERE a.k = t.k + 1",
            "UPDATE T SET v = s.v FROM (s CROSS JOIN main.t) WHERE s.k = 1",
            "DELETE FROM main.t AS a USING s AS T WHERE a.k = t.k",
        ] {
            assert!(rewritten(sql).contains("calls"), "{sql}: {}", rewritten(sql));
        }
        for other in [
            "UPDATE t AS a SET v = b.v FROM t AS b",
            "DELETE FROM a.t USING b.t",
            "UPDATE t SET v = 1 FROM (SELECT * FROM t) AS s",
        ] {
            assert!(rewritten(other).starts_with("MERGE INTO"), "{other}: {}", rewritten(other));
        }
        for same in ["UPDATE t SET v = 1 WHERE k = 2", "DELETE FROM t WHERE k = 2", "SELECT 1"] {
            assert_eq!(rewritten(same), same);
        }
    }
}
