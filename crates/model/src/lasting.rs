//! Columns that were renamed, added or made wider after slices had been written. The slices stay as they are: a column's field says
//! under which name they know it, and what it is in slices that were written before it was there.
//!
//! This is metadata of the field, so that it goes wherever the schema goes: into manifests, metadata slices and requests. A dataset
//! whose columns were never changed has none.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};

use crate::Value;

/// The metadata of a field that has it: [`Lasting`] as JSON.
const KEY: &str = "pithead.column";

/// What slices know of a column.
#[derive(Debug, Serialize, Deserialize)]
struct Lasting {
    /// The name that it keeps.
    name: String,
    /// Whether it was added to a dataset that may have had slices.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    added: bool,
    /// Its value in rows from before that; none: NULL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fill: Option<Value>,
}

impl Lasting {
    fn of(field: &Field) -> Option<Lasting> {
        serde_json::from_str(field.metadata().get(KEY)?).ok()
    }

    fn put_on(&self, field: Field) -> Field {
        let mut metadata = field.metadata().clone();
        metadata.insert(KEY.to_owned(), serde_json::to_string(self).unwrap_or_default());
        field.with_metadata(metadata)
    }
}

/// The name under which slices know a column: its first one, unless it was added to a dataset that had slices.
pub fn lasting_name(field: &Field) -> Cow<'_, str> {
    Lasting::of(field).map_or(Cow::Borrowed(field.name()), |lasting| Cow::Owned(lasting.name))
}

/// The value of a column in rows from before it was added, NULL as none. None: it was there from the first.
pub fn fill(field: &Field) -> Option<Option<Value>> {
    Lasting::of(field).filter(|lasting| lasting.added).map(|lasting| lasting.fill)
}

/// A column that is added to a dataset which may have slices: `fill` is its value in their rows.
pub fn added(field: Field, lasting_name: String, fill: Option<Value>) -> Field {
    Lasting { name: lasting_name, added: true, fill }.put_on(field)
}

/// The same column under another name.
pub fn renamed(field: Field, name: &str) -> Field {
    let lasting = Lasting::of(&field);
    let lasting = lasting.unwrap_or_else(|| Lasting { name: field.name().clone(), added: false, fill: None });
    let field = field.with_name(name);
    match lasting.name == name && !lasting.added {
        true => plain(&field),
        false => lasting.put_on(field),
    }
}

/// The columns as readers of rows see them.
pub fn plain_columns(schema: &SchemaRef) -> SchemaRef {
    if !schema.fields().iter().any(|field| field.metadata().contains_key(KEY)) {
        return Arc::clone(schema);
    }
    let fields: Vec<Field> = schema.fields().iter().map(|field| plain(field)).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn plain(field: &Field) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.remove(KEY);
    field.clone().with_metadata(metadata)
}

#[cfg(test)]
mod tests {
    use arrow_schema::DataType;

    use super::*;

    #[test]
    fn a_column_keeps_its_lasting_name() {
        let first = Field::new("a", DataType::Int64, true);
        let second = renamed(first.clone(), "b");
        assert_eq!((second.name().as_str(), &*lasting_name(&second)), ("b", "a"));
        assert_eq!(lasting_name(&renamed(second.clone(), "c")), "a");
        assert_eq!(renamed(second, "a"), first);
    }

    #[test]
    fn an_added_column_is_never_taken_for_another() {
        let field = Field::new("a", DataType::Int64, true);
        for value in [None, Some(Value::Int(7)), Some(Value::Text("x".into()))] {
            let column = added(field.clone(), "a#1".into(), value.clone());
            assert_eq!((&*lasting_name(&column), fill(&column)), ("a#1", Some(value.clone())));
            // Under the very name that slices know it by, too.
            let again = renamed(column, "a#1");
            assert_eq!((&*lasting_name(&again), fill(&again)), ("a#1", Some(value)));
        }
        assert_eq!(fill(&field), None);
    }

    #[test]
    fn plain_columns_tell_nothing_of_before() {
        let other = Field::new("c", DataType::Utf8View, true).with_metadata([("kept".into(), "1".into())].into());
        let column = added(Field::new("a", DataType::Int64, true), "a#1".into(), None);
        let plain = plain_columns(&Arc::new(Schema::new(vec![column, renamed(other.clone(), "d")])));
        assert_eq!(plain.fields()[0].as_ref(), &Field::new("a", DataType::Int64, true));
        assert_eq!(plain.fields()[1].as_ref(), &other.with_name("d"));
        assert!(Arc::ptr_eq(&plain, &plain_columns(&plain)));
    }
}
