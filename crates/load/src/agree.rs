//! One schema for all files of a load.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use pithead_files::{Source, damaged};
use pithead_model::{Fault, RESERVED, near_names};
use pithead_slice::{normalise, normalise_batch};

use crate::members::{are_alike, loosened, with_members, without_notes};

/// The schema that all files are stored as: `wanted`, or what the files say. Columns are matched by name. Files without
/// types of their own are told to read as the others; a file that does not fit is an error that names file, column and
/// both types.
pub(crate) fn agree(sources: &mut [Box<dyn Source>], wanted: Option<&SchemaRef>) -> Result<SchemaRef, Fault> {
    let normals = sources.iter().map(|source| stored(source.path(), source.schema())).collect::<Result<Vec<_>, _>>()?;
    let typed = |index: &usize| sources[*index].is_typed();
    let (schema, said_by) = match (wanted, (0..sources.len()).find(typed)) {
        (Some(wanted), _) => (Arc::clone(wanted), "the dataset".to_owned()),
        (None, Some(first)) => {
            let all_typed = (0..sources.len()).all(|index| typed(&index));
            let nullable = |column: &str| !all_typed || normals.iter().any(|schema| is_nullable(schema, column));
            let others: Vec<&SchemaRef> = (first + 1..sources.len()).filter(typed).map(|index| &normals[index]).collect();
            let schema = with_nullability(&with_loose_members(&normals[first], &others), nullable);
            (schema, sources[first].path().display().to_string())
        }
        (None, None) => (widest(&normals), sources[0].path().display().to_string()),
    };
    for (source, normal) in sources.iter_mut().zip(&normals) {
        check(source.path(), normal, &schema, &said_by, source.is_typed())?;
        if !source.is_typed() {
            let fields: Vec<Field> =
                normal.fields().iter().filter_map(|field| schema.field_with_name(field.name()).ok().cloned()).collect();
            source.retype(Arc::new(Schema::new(fields)), wanted.is_none());
        }
    }
    Ok(schema)
}

/// The stored form of rows that a program gives, checked against `wanted`.
pub(crate) fn agree_one(schema: &SchemaRef, wanted: Option<&SchemaRef>) -> Result<SchemaRef, Fault> {
    let place = Path::new("the rows");
    let normal = stored(place, schema)?;
    match wanted {
        None => Ok(normal),
        Some(wanted) => check(place, &normal, wanted, "the dataset", true).map(|()| Arc::clone(wanted)),
    }
}

/// Brings batches of one source into the stored schema: columns by name, types normalised.
#[derive(Debug)]
pub(crate) struct Conform {
    schema: SchemaRef,
    /// Where each stored column is in the source; none: in order.
    order: Option<Vec<usize>>,
    /// The source's own columns in the stored types and order, where their members have other notes, or are NOT NULL.
    own: Option<SchemaRef>,
}

impl Conform {
    /// From the source's columns, which [`agree`] found to fit.
    pub(crate) fn new(from: &Schema, schema: &SchemaRef) -> Result<Self, Fault> {
        let order = schema.fields().iter().map(|field| from.index_of(field.name())).collect::<Result<Vec<_>, _>>();
        let order = order.map_err(|error| Fault::invalid(error.to_string()))?;
        let in_order = order.iter().enumerate().all(|(to, from)| to == *from);
        let normal = normalise(from).map_err(|error| Fault::invalid(error.to_string()))?;
        let own = order.iter().map(|column| normal.field(*column).clone().with_nullable(true));
        let own = Arc::new(Schema::new(own.collect::<Vec<Field>>()));
        let is_own = own.fields().iter().zip(schema.fields()).all(|(own, field)| own.data_type() == field.data_type());
        Ok(Self { schema: Arc::clone(schema), order: (!in_order).then_some(order), own: (!is_own).then_some(own) })
    }

    pub(crate) fn batch(&self, batch: &RecordBatch) -> Result<RecordBatch, Fault> {
        let ordered = match &self.order {
            Some(order) => &batch.project(order).map_err(|error| Fault::invalid(error.to_string()))?,
            None => batch,
        };
        let normal = normalise_batch(ordered, self.own.as_ref().unwrap_or(&self.schema));
        let normal = normal.map_err(|error| Fault::invalid(error.to_string()))?;
        if self.own.is_some() { with_members(&normal, &self.schema) } else { Ok(normal) }
    }
}

/// The stored form of a file's columns, without what its writer noted about them.
fn stored(path: &Path, schema: &Schema) -> Result<SchemaRef, Fault> {
    let normal = normalise(schema).map_err(|error| damaged(path, error))?;
    if let Some(field) = normal.fields().iter().find(|field| field.name().contains(RESERVED)) {
        return Err(damaged(path, format_args!("the column {:?} has a NUL character in its name", field.name())));
    }
    let fields: Vec<Field> = normal.fields().iter().map(|field| without_notes(field)).collect();
    Ok(Arc::new(Schema::new(fields)))
}

fn check(path: &Path, file: &Schema, schema: &Schema, said_by: &str, typed: bool) -> Result<(), Fault> {
    for field in schema.fields() {
        let Ok(found) = file.field_with_name(field.name()) else {
            let near = near_names(field.name(), file.fields().iter().map(|field| field.name().as_str()));
            let rest = if near.is_empty() { String::new() } else { format!("; near: {}", near.join(", ")) };
            return Err(damaged(path, format_args!("no column {}, which {said_by} has{rest}", field.name())));
        };
        if typed && !are_alike(found.data_type(), field.data_type()) {
            let (name, is, should) = (field.name(), found.data_type(), field.data_type());
            return Err(damaged(path, format_args!("column {name} is {is}, in {said_by} it is {should}")));
        }
    }
    match file.fields().iter().find(|field| schema.index_of(field.name()).is_err()) {
        Some(extra) => Err(damaged(path, format_args!("column {} is not in {said_by}", extra.name()))),
        None => Ok(()),
    }
}

fn is_nullable(schema: &Schema, column: &str) -> bool {
    schema.field_with_name(column).is_ok_and(Field::is_nullable)
}

/// The columns, whose members may be NULL where they may be so in others.
fn with_loose_members(schema: &Schema, others: &[&SchemaRef]) -> Schema {
    let fields = schema.fields().iter().map(|field| {
        let found = others.iter().filter_map(|other| other.field_with_name(field.name()).ok());
        let data_type = found.fold(field.data_type().clone(), |known, other| loosened(&known, other.data_type()));
        field.as_ref().clone().with_data_type(data_type)
    });
    Schema::new(fields.collect::<Vec<Field>>())
}

fn with_nullability(schema: &Schema, nullable: impl Fn(&str) -> bool) -> SchemaRef {
    let fields: Vec<Field> =
        schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(nullable(field.name()))).collect();
    Arc::new(Schema::new(fields))
}

/// The columns of the first schema, each with a type that holds the guesses of all. Columns of which nothing was seen
/// are texts.
fn widest(schemas: &[SchemaRef]) -> SchemaRef {
    let mut types: BTreeMap<&str, DataType> = BTreeMap::new();
    for field in schemas.iter().flat_map(|schema| schema.fields()) {
        let wide = types.entry(field.name()).or_insert(DataType::Null);
        *wide = wider(wide, field.data_type());
    }
    let fields: Vec<Field> = schemas[0]
        .fields()
        .iter()
        .map(|field| match &types[field.name().as_str()] {
            DataType::Null => Field::new(field.name(), DataType::Utf8View, true),
            seen => Field::new(field.name(), seen.clone(), true),
        })
        .collect();
    Arc::new(Schema::new(fields))
}

/// A type that holds the values of both guesses.
fn wider(a: &DataType, b: &DataType) -> DataType {
    use DataType::{Date32, Float64, Int64, Null, Timestamp, UInt64};
    match (a, b) {
        (a, b) if a == b => a.clone(),
        (Null, other) | (other, Null) => other.clone(),
        (Int64 | UInt64, Float64) | (Float64, Int64 | UInt64) => Float64,
        // A number below 0 is an error then, where floats would lose the last digits of the large ones.
        (Int64, UInt64) | (UInt64, Int64) => UInt64,
        (Date32, Timestamp(unit, None)) | (Timestamp(unit, None), Date32) => Timestamp(*unit, None),
        (Timestamp(a, zone), Timestamp(b, other)) if zone == other => Timestamp(*a.max(b), zone.clone()),
        _ => DataType::Utf8View,
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, ArrayRef, Int64Array, ListArray, StructArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::TimeUnit;

    use super::*;

    #[test]
    fn guesses_widen() {
        let seconds = DataType::Timestamp(TimeUnit::Second, None);
        let nanoseconds = DataType::Timestamp(TimeUnit::Nanosecond, None);
        assert_eq!(wider(&DataType::Int64, &DataType::Float64), DataType::Float64);
        assert_eq!(wider(&DataType::Null, &DataType::Date32), DataType::Date32);
        assert_eq!(wider(&seconds, &nanoseconds), nanoseconds);
        assert_eq!(wider(&DataType::Date32, &seconds), seconds);
        assert_eq!(wider(&DataType::Boolean, &DataType::Int64), DataType::Utf8View);
        assert_eq!(wider(&DataType::UInt64, &DataType::Float64), DataType::Float64);
    }

    #[test]
    fn large_whole_numbers_of_one_file_keep_their_digits_beside_small_ones() {
        assert_eq!(wider(&DataType::Int64, &DataType::UInt64), DataType::UInt64);
        assert_eq!(wider(&DataType::UInt64, &DataType::Int64), DataType::UInt64);
    }

    #[test]
    fn moments_of_which_some_say_a_zone_are_texts() {
        let wall = DataType::Timestamp(TimeUnit::Microsecond, None);
        let zoned = |unit| DataType::Timestamp(unit, Some("UTC".into()));
        assert_eq!(wider(&zoned(TimeUnit::Microsecond), &zoned(TimeUnit::Nanosecond)), zoned(TimeUnit::Nanosecond));
        for other in [&wall, &DataType::Date32] {
            assert_eq!(wider(&zoned(TimeUnit::Microsecond), other), DataType::Utf8View);
            assert_eq!(wider(other, &zoned(TimeUnit::Microsecond)), DataType::Utf8View);
        }
    }

    #[test]
    fn rows_of_other_types_are_refused_by_name() {
        let of = |data_type| Arc::new(Schema::new(vec![Field::new("k", data_type, true)]));
        let fault = agree_one(&of(DataType::Int32), Some(&of(DataType::Int64))).unwrap_err();
        assert_eq!(fault.message, "the rows: column k is Int32, in the dataset it is Int64");
        let member = |name: &str| DataType::Struct(vec![Field::new(name, DataType::Int64, true)].into());
        let fault = agree_one(&of(member("a")), Some(&of(member("b")))).unwrap_err();
        assert!(fault.message.contains("in the dataset it is"), "{fault}");
    }

    /// Rows of a list of structs, whose items and members are NOT NULL, or not, and have a field id.
    fn items(is_nullable: bool, id: &str, values: Vec<Option<i64>>) -> RecordBatch {
        let note = [("PARQUET:field_id".to_owned(), id.to_owned())];
        let member = Field::new("x", DataType::Int64, is_nullable).with_metadata(note.clone().into());
        let lengths = OffsetBuffer::from_lengths([values.len()]);
        let values: ArrayRef = Arc::new(Int64Array::from(values));
        let structs: ArrayRef = Arc::new(StructArray::new(vec![member].into(), vec![values], None));
        let item = Field::new("element", structs.data_type().clone(), is_nullable);
        let list: ArrayRef = Arc::new(ListArray::new(Arc::new(item), lengths, structs, None));
        let column = Field::new("l", list.data_type().clone(), true).with_metadata(note.into());
        RecordBatch::try_new(Arc::new(Schema::new(vec![column])), vec![list]).unwrap()
    }

    /// A regression: columns that were equal but for notes and NOT NULL of their members were of different types.
    #[test]
    fn notes_and_not_null_of_members_make_no_other_type() {
        let (strict, loose) = (items(false, "3", vec![Some(1)]), items(true, "4", vec![Some(2), None]));
        let stored_loose = agree_one(&loose.schema(), None).unwrap();
        assert_eq!(agree_one(&strict.schema(), Some(&stored_loose)).unwrap(), stored_loose);
        let conformed = Conform::new(&strict.schema(), &stored_loose).unwrap().batch(&strict).unwrap();
        assert_eq!((conformed.schema(), conformed.num_rows()), (Arc::clone(&stored_loose), 1));
        // Of two files, both have rows in what is stored.
        let stored_strict = agree_one(&strict.schema(), None).unwrap();
        assert_ne!(stored_strict, stored_loose);
        let both = with_nullability(&with_loose_members(&stored_strict, &[&stored_loose]), |_| true);
        assert_eq!(both, stored_loose);
        // What fits goes into a dataset without NULLs, and no NULL does.
        let some = items(true, "4", vec![Some(5), Some(6)]);
        let conform = Conform::new(&loose.schema(), &agree_one(&loose.schema(), Some(&stored_strict)).unwrap()).unwrap();
        assert_eq!(conform.batch(&some).unwrap().schema(), stored_strict);
        assert!(conform.batch(&loose).unwrap_err().message.contains("column l"));
    }
}
