//! Texts that a statement writes to columns of UUIDs, and that PostgreSQL reads as such there.

use arrow::datatypes::{Field, Schema};
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, CastKind, DataType, Expr, Insert, ObjectName, SelectItem, SetExpr, Statement,
};

use crate::syntax::{literal, parts};
use crate::types::pg_type;

/// The number of the type of UUIDs.
const UUID: u32 = 2950;

/// Reads the texts of an INSERT or an UPDATE as UUIDs where the columns of its table are.
pub(crate) fn read_uuids(statement: &mut Statement, columns: &Schema) {
    match statement {
        Statement::Insert(insert) => inserted(insert, columns),
        Statement::Update(update) => update.assignments.iter_mut().for_each(|one| assigned(one, columns)),
        _ => {}
    }
}

fn is_uuid(field: &Field) -> bool {
    pg_type(field) == UUID
}

fn column<'a>(name: &ObjectName, columns: &'a Schema) -> Option<&'a Field> {
    columns.field_with_name(parts(name).last()?).ok()
}

fn inserted(insert: &mut Insert, columns: &Schema) {
    let places: Vec<bool> = match insert.columns.as_slice() {
        [] => columns.fields().iter().map(|field| is_uuid(field)).collect(),
        some => some.iter().map(|name| column(name, columns).is_some_and(is_uuid)).collect(),
    };
    match insert.source.as_mut().map(|source| source.body.as_mut()) {
        Some(SetExpr::Values(values)) => values.rows.iter_mut().for_each(|row| read(row.iter_mut(), &places)),
        Some(SetExpr::Select(select)) => {
            let items = select.projection.iter_mut().map_while(|item| match item {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
                _ => None,
            });
            read(items, &places);
        }
        _ => {}
    }
}

fn read<'a>(values: impl Iterator<Item = &'a mut Expr>, places: &[bool]) {
    values.zip(places).filter(|(_, is_uuid)| **is_uuid).for_each(|(value, _)| as_uuid(value));
}

fn assigned(assignment: &mut Assignment, columns: &Schema) {
    if let AssignmentTarget::ColumnName(name) = &assignment.target
        && column(name, columns).is_some_and(is_uuid)
    {
        as_uuid(&mut assignment.value);
    }
}

fn as_uuid(value: &mut Expr) {
    if literal(value).is_some() {
        let expr = Box::new(value.clone());
        *value = Expr::Cast { kind: CastKind::DoubleColon, expr, data_type: DataType::Uuid, array: false, format: None };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use ::arrow::datatypes as arrow_types;
    use datafusion::sql::parser::{DFParser, Statement as Parsed};

    use super::*;

    #[test]
    fn texts_for_columns_of_uuids_are_read_as_such() {
        let metadata = HashMap::from([("ARROW:extension:name".to_owned(), "arrow.uuid".to_owned())]);
        let columns = Schema::new(vec![
            arrow_types::Field::new("id", arrow_types::DataType::FixedSizeBinary(16), true).with_metadata(metadata),
            arrow_types::Field::new("t", arrow_types::DataType::Utf8, true),
        ]);
        for (sql, expected) in [
            ("INSERT INTO u VALUES ('a', 'b'), (NULL, 'c')", "INSERT INTO u VALUES ('a'::UUID, 'b'), (NULL, 'c')"),
            ("INSERT INTO u (t, ID) VALUES ('a', 'b')", "INSERT INTO u (t, ID) VALUES ('a', 'b'::UUID)"),
            ("INSERT INTO u (t) VALUES ('a')", "INSERT INTO u (t) VALUES ('a')"),
            ("INSERT INTO u SELECT 'a', 'b' FROM v", "INSERT INTO u SELECT 'a'::UUID, 'b' FROM v"),
            ("UPDATE u SET id = 'a', t = 'b' WHERE t = 'c'", "UPDATE u SET id = 'a'::UUID, t = 'b' WHERE t = 'c'"),
            ("DELETE FROM u WHERE id = 'a'", "DELETE FROM u WHERE id = 'a'"),
        ] {
            let Some(Parsed::Statement(mut statement)) = DFParser::parse_sql(sql).unwrap().pop_front() else { panic!("{sql}") };
            read_uuids(&mut statement, &columns);
            assert_eq!(statement.to_string(), expected);
        }
    }
}
