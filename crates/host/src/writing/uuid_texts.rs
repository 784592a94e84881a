//! Texts that a statement writes to columns of UUIDs. The planner casts what is written to its column's type, and texts to no bytes.

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::sql::parser::Statement as Syntax;
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, CastKind, DataType as SqlType, Expr, Ident, Insert, Merge, MergeAction, MergeInsertKind,
    ObjectName, SelectItem, SetExpr, Statement as Sql, TableFactor, TableObject,
};
use pithead_fleet::Snapshot;
use pithead_model::is_uuid;

use crate::dialect::{normal, null};
use crate::statement::Named;
use crate::tokens::parts;

/// The statement, with a cast at each value that an INSERT, an UPDATE or a MERGE writes to a column of UUIDs. `domain`: that of bare
/// names.
pub(crate) fn with_uuids(mut statement: Syntax, snapshot: &Snapshot, domain: &str) -> Syntax {
    if let Syntax::Statement(sql) = &mut statement
        && let Some(columns) = table(sql).and_then(|name| columns_of(name, snapshot, domain))
        && columns.fields().iter().any(|field| is_uuid(field))
    {
        cast_values(sql, &columns);
    }
    statement
}

/// The table that a statement writes.
fn table(statement: &Sql) -> Option<&ObjectName> {
    match statement {
        Sql::Insert(insert) => match &insert.table {
            TableObject::TableName(name) => Some(name),
            _ => None,
        },
        Sql::Update(update) => named(&update.table.relation),
        Sql::Merge(merge) => named(&merge.table),
        _ => None,
    }
}

fn named(table: &TableFactor) -> Option<&ObjectName> {
    match table {
        TableFactor::Table { name, .. } => Some(name),
        _ => None,
    }
}

/// Its columns; none: it is not there, which planning complains of.
fn columns_of(name: &ObjectName, snapshot: &Snapshot, domain: &str) -> Option<SchemaRef> {
    let name = Named::new(parts(name).ok()?).resolve(domain).ok()?;
    snapshot.readable(&name).ok().map(|found| SchemaRef::clone(&found.dataset().schema))
}

fn is_column_of_uuids(name: &ObjectName, columns: &Schema) -> bool {
    let last = name.0.last().and_then(|part| part.as_ident()).map(normal);
    last.is_some_and(|name| columns.field_with_name(&name).is_ok_and(is_uuid))
}

fn cast_values(statement: &mut Sql, columns: &Schema) {
    match statement {
        Sql::Insert(insert) => inserted(insert, columns),
        Sql::Update(update) => update.assignments.iter_mut().for_each(|one| assigned(one, columns)),
        Sql::Merge(merge) => merged(merge, columns),
        _ => {}
    }
}

fn inserted(insert: &mut Insert, columns: &Schema) {
    let places = places(&insert.columns, columns);
    match insert.source.as_mut().map(|source| source.body.as_mut()) {
        Some(SetExpr::Values(values)) => values.rows.iter_mut().for_each(|row| cast_row(row.iter_mut(), &places)),
        Some(SetExpr::Select(select)) => {
            let items = select.projection.iter_mut().map_while(|item| match item {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
                _ => None,
            });
            cast_row(items, &places);
        }
        _ => {}
    }
}

fn merged(merge: &mut Merge, columns: &Schema) {
    for clause in &mut merge.clauses {
        match &mut clause.action {
            MergeAction::Update(update) => update.assignments.iter_mut().for_each(|one| assigned(one, columns)),
            MergeAction::Insert(insert) => {
                let places = places(&insert.columns, columns);
                if let MergeInsertKind::Values(values) = &mut insert.kind {
                    values.rows.iter_mut().for_each(|row| cast_row(row.iter_mut(), &places));
                }
            }
            MergeAction::Delete { .. } => {}
        }
    }
}

/// Which values of a row are of UUIDs. `named`: the columns that a statement names; none: all.
fn places(named: &[ObjectName], columns: &Schema) -> Vec<bool> {
    match named {
        [] => columns.fields().iter().map(|field| is_uuid(field)).collect(),
        some => some.iter().map(|name| is_column_of_uuids(name, columns)).collect(),
    }
}

fn cast_row<'a>(values: impl Iterator<Item = &'a mut Expr>, places: &[bool]) {
    values.zip(places).filter(|(_, is_uuid)| **is_uuid).for_each(|(value, _)| cast_value(value));
}

fn assigned(assignment: &mut Assignment, columns: &Schema) {
    if let AssignmentTarget::ColumnName(name) = &assignment.target
        && is_column_of_uuids(name, columns)
    {
        cast_value(&mut assignment.value);
    }
}

/// Casts a value, but for the word DEFAULT, which the planner takes for a name.
fn cast_value(value: &mut Expr) {
    let is_default = |name: &Ident| name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default");
    if !matches!(value, Expr::Identifier(name) if is_default(name)) {
        let expr = Box::new(std::mem::replace(value, null()));
        *value = Expr::Cast { kind: CastKind::Cast, expr, data_type: SqlType::Uuid, array: false, format: None };
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    #[test]
    fn values_for_columns_of_uuids_are_cast() {
        let columns = Schema::new(vec![
            Field::new("id", DataType::FixedSizeBinary(16), true).with_metadata(pithead_model::uuid_metadata()),
            Field::new("t", DataType::Utf8, true),
        ]);
        for (sql, expected) in [
            (
                "INSERT INTO u VALUES ('a', 'b'), (NULL, 'c'), (DEFAULT, $1), ($2, $3)",
                "INSERT INTO u VALUES (CAST('a' AS UUID), 'b'), (CAST(NULL AS UUID), 'c'), (DEFAULT, $1), (CAST($2 AS UUID), $3)",
            ),
            ("INSERT INTO u (t, ID) VALUES ('a', ('b'))", "INSERT INTO u (t, ID) VALUES ('a', CAST(('b') AS UUID))"),
            ("INSERT INTO u (t) VALUES ('a')", "INSERT INTO u (t) VALUES ('a')"),
            ("INSERT INTO u SELECT a AS b, c FROM v", "INSERT INTO u SELECT CAST(a AS UUID) AS b, c FROM v"),
            ("INSERT INTO u SELECT * FROM v", "INSERT INTO u SELECT * FROM v"),
            ("UPDATE u SET id = 'a', t = 'b' WHERE t = 'c'", "UPDATE u SET id = CAST('a' AS UUID), t = 'b' WHERE t = 'c'"),
            ("UPDATE u SET id = default", "UPDATE u SET id = default"),
            (
                "MERGE INTO u USING v ON u.t = v.t WHEN MATCHED THEN UPDATE SET id = 'a' \
                 WHEN NOT MATCHED THEN INSERT (t, id) VALUES ('a', v.b)",
                "MERGE INTO u USING v ON u.t = v.t WHEN MATCHED THEN UPDATE SET id = CAST('a' AS UUID) \
                 WHEN NOT MATCHED THEN INSERT (t, id) VALUES ('a', CAST(v.b AS UUID))",
            ),
            ("DELETE FROM u WHERE id = 'a'", "DELETE FROM u WHERE id = 'a'"),
        ] {
            let mut statement = Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0);
            cast_values(&mut statement, &columns);
            assert_eq!(statement.to_string(), expected);
        }
    }
}
