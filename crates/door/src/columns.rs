//! Schemas from outside.

use arrow::datatypes::{DataType, Field, Schema};
use pithead_model::{Blame, COLUMNS_MAX, Fault};

/// Most fields of a schema, nested ones included.
const FIELDS_MAX: usize = 4 * COLUMNS_MAX;

/// Refuses a schema from outside that is too large, or has types that Arrow trusts to be consistent and are not.
pub fn check_columns(schema: &Schema) -> Result<(), Fault> {
    let columns = schema.fields().len();
    if columns > COLUMNS_MAX {
        return Err(wrong(format!("{columns} columns; at most {COLUMNS_MAX} are allowed")));
    }
    let mut fields = 0;
    schema.fields().iter().try_for_each(|field| check_type(field.name(), field.data_type(), &mut fields))
}

fn check_type(name: &str, data_type: &DataType, fields: &mut usize) -> Result<(), Fault> {
    *fields += 1;
    let sound = *fields <= FIELDS_MAX
        && match data_type {
            DataType::FixedSizeBinary(size) | DataType::FixedSizeList(_, size) => (0..=1 << 24).contains(size),
            DataType::Decimal32(precision, scale) => decimal(*precision, *scale, 9),
            DataType::Decimal64(precision, scale) => decimal(*precision, *scale, 18),
            DataType::Decimal128(precision, scale) => decimal(*precision, *scale, 38),
            DataType::Decimal256(precision, scale) => decimal(*precision, *scale, 76),
            DataType::Dictionary(key, value) => key.is_dictionary_key_type() && !matches!(**value, DataType::Dictionary(_, _)),
            DataType::RunEndEncoded(ends, _) => ends.data_type().is_run_ends_type() && !ends.is_nullable(),
            DataType::Map(entries, _) => matches!(entries.data_type(), DataType::Struct(pair) if pair.len() == 2),
            _ => true,
        };
    if !sound {
        return Err(wrong(format!("column {name:?} has the type {data_type}, which cannot be")));
    }
    if let DataType::Dictionary(_, value) = data_type {
        return check_type(name, value, fields);
    }
    children(data_type).into_iter().try_for_each(|child| check_type(name, child.data_type(), fields))
}

fn decimal(precision: u8, scale: i8, precision_max: u8) -> bool {
    let digits_after_point = u8::try_from(scale).unwrap_or(0);
    (1..=precision_max).contains(&precision) && digits_after_point <= precision
}

fn wrong(why: String) -> Fault {
    Fault::new(Blame::User, format!("malformed schema: {why}"))
}

/// Whether two schemas have the same columns: names, types and nullability, whatever their metadata.
pub fn same_columns(a: &Schema, b: &Schema) -> bool {
    let same = |a: &Field, b: &Field| {
        a.name() == b.name() && a.data_type().equals_datatype(b.data_type()) && a.is_nullable() == b.is_nullable()
    };
    a.fields().len() == b.fields().len() && a.fields().iter().zip(b.fields()).all(|(a, b)| same(a, b))
}

/// Arrays inside an array of a type, but a dictionary's values, which have a message of their own.
pub fn children(data_type: &DataType) -> Vec<&Field> {
    match data_type {
        DataType::List(child)
        | DataType::LargeList(child)
        | DataType::ListView(child)
        | DataType::LargeListView(child)
        | DataType::FixedSizeList(child, _)
        | DataType::Map(child, _) => vec![child.as_ref()],
        DataType::Struct(fields) => fields.iter().map(|field| field.as_ref()).collect(),
        DataType::Union(fields, _) => fields.iter().map(|(_, field)| field.as_ref()).collect(),
        DataType::RunEndEncoded(ends, values) => vec![ends.as_ref(), values.as_ref()],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_the_same_whatever_their_metadata() {
        let field = |nullable| Field::new("a", DataType::Int64, nullable);
        let tagged = field(true).with_metadata([("unit".to_owned(), "m".to_owned())].into());
        assert!(same_columns(&Schema::new(vec![field(true)]), &Schema::new(vec![tagged])));
        assert!(!same_columns(&Schema::new(vec![field(true)]), &Schema::new(vec![field(false)])));
        assert!(!same_columns(&Schema::new(vec![field(true)]), &Schema::empty()));
    }
}
