//! `UPDATE t SET (a, b) = (1, 2)`, and the same with the row of a subquery: each column by itself, as the planner knows them.

use datafusion::sql::sqlparser::ast::{Assignment, AssignmentTarget, Expr, Query, SelectItem, SetExpr, Statement as Sql};
use pithead_model::{Blame, Fault};

/// Writes such assignments of an UPDATE out.
pub(crate) fn take_apart(statement: &mut Sql) -> Result<(), Fault> {
    let Sql::Update(update) = statement else { return Ok(()) };
    if !update.assignments.iter().any(|one| matches!(one.target, AssignmentTarget::Tuple(_))) {
        return Ok(());
    }
    let mut apart = Vec::new();
    for Assignment { target, value } in std::mem::take(&mut update.assignments) {
        let AssignmentTarget::Tuple(columns) = target else {
            apart.push(Assignment { target, value });
            continue;
        };
        let values = values(value, columns.len())?;
        let targets = columns.into_iter().map(AssignmentTarget::ColumnName);
        apart.extend(targets.zip(values).map(|(target, value)| Assignment { target, value }));
    }
    update.assignments = apart;
    Ok(())
}

/// The value of each column.
fn values(value: Expr, columns: usize) -> Result<Vec<Expr>, Fault> {
    let values = match value {
        Expr::Tuple(values) => values,
        Expr::Nested(one) if columns == 1 => vec![*one],
        Expr::Subquery(query) => {
            let count = items(&query).map_or(0, Vec::len);
            (0..count).map(|place| Expr::Subquery(Box::new(only(&query, place)))).collect()
        }
        other => {
            let message = format!("expected a row of {columns} values after SET (…) =, got {other}");
            return Err(Fault::new(Blame::User, message).hint("write (value, …), or a subquery with as many columns"));
        }
    };
    match values.len() == columns {
        true => Ok(values),
        false => {
            let message = format!("SET (…) = has {columns} columns, and {} values", values.len());
            Err(Fault::new(Blame::User, message).hint("give each column a value; a subquery is to name its columns one by one"))
        }
    }
}

/// What a subquery selects; none where it does not say it one by one.
fn items(query: &Query) -> Option<&Vec<SelectItem>> {
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let is_one = |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
    (select.distinct.is_none() && select.projection.iter().all(is_one)).then_some(&select.projection)
}

/// The query with one of its columns.
fn only(query: &Query, place: usize) -> Query {
    let mut query = query.clone();
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.projection = vec![select.projection.swap_remove(place)];
    }
    query
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    #[test]
    fn each_column_gets_its_value() {
        let read = |sql: &str| Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0);
        for (written, expected) in [
            ("UPDATE t SET (a, b) = (1, b + 1), c = 2", "UPDATE t SET a = 1, b = b + 1, c = 2"),
            (
                "UPDATE t SET (a, b) = (SELECT x, max(y) AS z FROM u WHERE u.k = t.k)",
                "UPDATE t SET a = (SELECT x FROM u WHERE u.k = t.k), b = (SELECT max(y) AS z FROM u WHERE u.k = t.k)",
            ),
            ("UPDATE t SET (a) = (1)", "UPDATE t SET a = 1"),
        ] {
            let mut statement = read(written);
            take_apart(&mut statement).unwrap();
            assert_eq!(statement.to_string(), read(expected).to_string());
        }
        for refused in ["UPDATE t SET (a, b) = (1, 2, 3)", "UPDATE t SET (a, b) = (SELECT * FROM u)", "UPDATE t SET (a, b) = 1"]
        {
            assert!(take_apart(&mut read(refused)).is_err(), "{refused}");
        }
    }
}
