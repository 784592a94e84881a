//! Where each column of a dataset comes from in a file, and how its values become the dataset's.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, StringArray, UInt32Array, new_null_array};
use arrow::compute::{CastOptions, cast_with_options, take};
use arrow::datatypes::{DataType, Field, FieldRef, SchemaRef};

use super::casts::fits;
use crate::SliceError;
use crate::nans::one_nan;
use crate::normalise::convert;

/// What the name of a folder says where it stands for NULL.
const HIVE_NULL: &str = "__HIVE_DEFAULT_PARTITION__";
const CAST: CastOptions<'static> = CastOptions { safe: false, format_options: arrow::util::display::FormatOptions::new() };

/// Where a column of a dataset comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The root column of the file with this number, whose values are cast to the dataset's type where that loses nothing.
    Column(usize),
    /// The file lacks it: all rows are NULL.
    Null,
    /// All rows have this value, which the name of a folder gives as text; `__HIVE_DEFAULT_PARTITION__` is NULL.
    Text(String),
}

/// The columns of a dataset over one file.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    /// The dataset's.
    pub(crate) schema: SchemaRef,
    pub(crate) sources: Arc<[Source]>,
    /// Whether somebody else wrote the file. Then its types may be others, and it may have any NaN.
    pub(super) foreign: bool,
}

/// Where a column's values are.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// In this root column of the file.
    Root(usize),
    /// All rows have the one value of this array.
    Constant(ArrayRef),
}

impl Columns {
    /// The columns of a slice that this crate encoded: the file's as they are.
    pub(super) fn own(schema: SchemaRef) -> Self {
        let sources = (0..schema.fields().len()).map(Source::Root).collect();
        Self { schema, sources, foreign: false }
    }

    /// The columns of a dataset over a file with these normalised columns.
    pub(crate) fn new(schema: SchemaRef, file: &SchemaRef, origins: &[Origin]) -> Result<Self, SliceError> {
        if origins.len() != schema.fields().len() {
            let (origins, columns) = (origins.len(), schema.fields().len());
            return Err(SliceError::Schema(format!("the dataset has {columns} columns, and origins of {origins} are given")));
        }
        let sources = schema.fields().iter().zip(origins).map(|(field, origin)| source(field, file, origin));
        let sources = sources.collect::<Result<_, _>>()?;
        Ok(Self { schema, sources, foreign: true })
    }

    /// The root column behind a column of the dataset.
    pub(crate) fn root(&self, column: usize) -> Option<usize> {
        match self.sources.get(column)? {
            Source::Root(root) => Some(*root),
            Source::Constant(_) => None,
        }
    }

    /// The values of a column of the dataset, as the decoder gives them.
    pub(crate) fn values(&self, column: usize, decoded: &ArrayRef) -> Result<ArrayRef, SliceError> {
        let field = self.schema.field(column);
        if !self.foreign {
            return Ok(Arc::clone(decoded));
        }
        let damaged = |error: &dyn std::fmt::Display| SliceError::Corrupt(format!("column {:?}: {error}", field.name()));
        let values = match decoded.data_type() == field.data_type() {
            true => Arc::clone(decoded),
            false => {
                let normal = crate::normalise::normalise_type(decoded.data_type());
                let normal = convert(decoded, &Field::new(field.name(), normal, true))?;
                cast_with_options(&normal, field.data_type(), &CAST).map_err(|error| damaged(&error))?
            }
        };
        one_nan(&values).map_err(|error| damaged(&error))
    }

    /// So many rows of a column that has one value.
    pub(crate) fn constant(&self, column: usize, rows: usize) -> Result<Option<ArrayRef>, SliceError> {
        match &self.sources[column] {
            Source::Root(_) => Ok(None),
            Source::Constant(value) if value.is_null(0) => Ok(Some(new_null_array(value.data_type(), rows))),
            Source::Constant(value) => {
                let places = UInt32Array::from(vec![0; rows]);
                take(value, &places, None).map(Some).map_err(|error| SliceError::Corrupt(error.to_string()))
            }
        }
    }
}

fn source(field: &FieldRef, file: &SchemaRef, origin: &Origin) -> Result<Source, SliceError> {
    let refused = |what: String| Err(SliceError::Schema(format!("column {:?}: {what}", field.name())));
    match origin {
        Origin::Column(root) => match file.fields().get(*root) {
            None => refused(format!("the file has no column {root}")),
            Some(found) if fits(found.data_type(), field.data_type()) => Ok(Source::Root(*root)),
            Some(found) => refused(format!("the file has it as {}, the dataset as {}", found.data_type(), field.data_type())),
        },
        Origin::Null if !field.is_nullable() => refused("the file lacks it, and the dataset has no NULL there".into()),
        Origin::Null => Ok(Source::Constant(new_null_array(field.data_type(), 1))),
        Origin::Text(text) if text == HIVE_NULL => source(field, file, &Origin::Null),
        Origin::Text(text) => match constant(text, field.data_type()) {
            Some(value) => Ok(Source::Constant(value)),
            None => refused(format!("the folder's {text:?} is no {}", field.data_type())),
        },
    }
}

/// The value that a text says, in a type.
fn constant(text: &str, data_type: &DataType) -> Option<ArrayRef> {
    let value = cast_with_options(&StringArray::from(vec![text]), data_type, &CAST).ok()?;
    let value = one_nan(&value).ok()?;
    value.is_valid(0).then_some(value)
}

/// The origins as one text, for a file's footer: `c3;` a column, `n;` NULL, `t5:hello;` a text of so many bytes.
pub(super) fn origins_text(origins: &[Origin]) -> String {
    let text = |origin: &Origin| match origin {
        Origin::Column(root) => format!("c{root};"),
        Origin::Null => "n;".to_owned(),
        Origin::Text(text) => format!("t{}:{text};", text.len()),
    };
    origins.iter().map(text).collect()
}

/// Reads what [`origins_text`] wrote.
pub(super) fn origins_of(mut text: &str) -> Option<Vec<Origin>> {
    let mut origins = Vec::new();
    while let Some(kind) = text.chars().next() {
        let rest = text.get(1..)?;
        let (origin, rest) = match kind {
            'n' => (Origin::Null, rest),
            'c' => {
                let end = rest.find(';')?;
                (Origin::Column(rest[..end].parse().ok()?), &rest[end..])
            }
            't' => {
                let (bytes, rest) = rest.split_once(':')?;
                let (value, rest) = rest.split_at_checked(bytes.parse().ok()?)?;
                (Origin::Text(value.to_owned()), rest)
            }
            _ => return None,
        };
        origins.push(origin);
        text = rest.strip_prefix(';')?;
    }
    Some(origins)
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::{Date32Type, Int32Type, Schema};

    use super::*;

    fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
        Arc::new(Schema::new(columns.iter().map(|(name, kind)| Field::new(*name, kind.clone(), true)).collect::<Vec<_>>()))
    }

    #[test]
    fn origins_come_back_from_their_text() {
        let origins =
            [Origin::Column(17), Origin::Null, Origin::Text("a;b:é".into()), Origin::Text(String::new()), Origin::Column(0)];
        assert_eq!(origins_of(&origins_text(&origins)).unwrap(), origins);
        for lie in ["c;", "c1", "t9:abc;", "t1:é;", "x", "n", "é;", "t99999999999999999999:a;"] {
            assert_eq!(origins_of(lie), None, "{lie}");
        }
    }

    #[test]
    fn folders_give_typed_values() {
        let dataset = schema(&[("year", DataType::Int32), ("day", DataType::Date32), ("text", DataType::Utf8View)]);
        let file = schema(&[]);
        let of = |values: [&str; 3]| {
            let origins: Vec<Origin> = values.iter().map(|value| Origin::Text((*value).to_owned())).collect();
            Columns::new(dataset.clone(), &file, &origins)
        };
        let columns = of(["2024", "2024-02-29", "2024"]).unwrap();
        let values: Vec<ArrayRef> = (0..3).map(|column| columns.constant(column, 2).unwrap().unwrap()).collect();
        assert_eq!(values[0].as_primitive::<Int32Type>().values(), &[2024, 2024]);
        assert_eq!(values[1].as_primitive::<Date32Type>().values(), &[19_782, 19_782]);
        assert_eq!(values[2].as_string_view().value(1), "2024");
        let columns = of([HIVE_NULL, HIVE_NULL, "x"]).unwrap();
        assert_eq!(columns.constant(1, 3).unwrap().unwrap().null_count(), 3);
        let error = of(["2024", "2023-02-29", "x"]).unwrap_err().to_string();
        assert_eq!(error, "column \"day\": the folder's \"2023-02-29\" is no Date32");
    }

    #[test]
    fn a_type_that_does_not_fit_is_named() {
        let dataset = schema(&[("n", DataType::Int32)]);
        let error = Columns::new(dataset, &schema(&[("m", DataType::Int64)]), &[Origin::Column(0)]).unwrap_err().to_string();
        assert_eq!(error, "column \"n\": the file has it as Int64, the dataset as Int32");
    }
}
