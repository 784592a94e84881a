//! How the columns of a dataset lie in pages: which have values of one width, and which have not.

use arrow::datatypes::{DataType, Field, Schema};

use crate::SliceError;

/// How the values of a column are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// All are NULL.
    Nothing,
    /// True or false.
    Bits,
    /// So many bytes each, as Arrow has them, small end first.
    Fixed(usize),
    /// UTF-8.
    Texts,
    /// Any bytes.
    Bytes,
    /// Lists and the like: each value is a row of Arrow's row format.
    Rows,
}

impl Form {
    fn of(data_type: &DataType) -> Form {
        match data_type {
            DataType::Null => Form::Nothing,
            DataType::Boolean => Form::Bits,
            DataType::Utf8View => Form::Texts,
            DataType::BinaryView => Form::Bytes,
            DataType::FixedSizeBinary(bytes) => Form::Fixed(usize::try_from(*bytes).unwrap_or(0)),
            other => other.primitive_width().map_or(Form::Rows, Form::Fixed),
        }
    }

    /// Whether values have lengths of their own.
    pub(crate) fn is_variable(self) -> bool {
        matches!(self, Form::Texts | Form::Bytes | Form::Rows)
    }
}

/// How many bytes an offset within a page has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// Two, in a page.
    Narrow,
    /// Four, in a run of pages.
    Wide,
}

impl Width {
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Width::Narrow => 2,
            Width::Wide => 4,
        }
    }

    /// The offset at a place; beyond all bytes if the place lies outside.
    pub(crate) fn get(self, bytes: &[u8], at: usize) -> usize {
        let number = match self {
            Width::Narrow => bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|two| u16::from_le_bytes(*two).into()),
            Width::Wide => bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|four| u32::from_le_bytes(*four) as usize),
        };
        number.unwrap_or(usize::MAX)
    }

    pub(crate) fn put(self, bytes: &mut [u8], at: usize, offset: usize) {
        match self {
            Width::Narrow => bytes[at..at + 2].copy_from_slice(&(offset as u16).to_le_bytes()),
            Width::Wide => bytes[at..at + 4].copy_from_slice(&(offset as u32).to_le_bytes()),
        }
    }
}

/// The columns of a dataset, as pages have them.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) forms: Vec<Form>,
    /// For each column its place among those of its kind: for values of one width, the bytes of those before it in a row where
    /// a truth takes one byte; for others, how many are before it.
    pub(crate) places: Vec<usize>,
    /// Bytes of the values of one width in a row, where a truth takes one.
    pub(crate) fixed_bytes: usize,
    /// Columns of truths.
    pub(crate) truths: usize,
    /// Columns whose values have lengths of their own.
    pub(crate) variable: usize,
    /// Columns that may have a value.
    pub(crate) valued: usize,
}

impl Shape {
    pub(crate) fn of(schema: &Schema) -> Shape {
        let forms: Vec<Form> = schema.fields().iter().map(|field| Form::of(field.data_type())).collect();
        let (mut fixed_bytes, mut variable) = (0, 0);
        let mut places = Vec::with_capacity(forms.len());
        for form in &forms {
            places.push(if form.is_variable() { variable } else { fixed_bytes });
            match form {
                Form::Nothing => {}
                Form::Bits => fixed_bytes += 1,
                Form::Fixed(bytes) => fixed_bytes += bytes,
                Form::Texts | Form::Bytes | Form::Rows => variable += 1,
            }
        }
        let count = |form: Form| forms.iter().filter(|other| **other == form).count();
        let (truths, valued) = (count(Form::Bits), forms.len() - count(Form::Nothing));
        Shape { forms, places, fixed_bytes, truths, variable, valued }
    }

    pub(crate) fn columns(&self) -> usize {
        self.forms.len()
    }
}

/// Whether pages can hold these columns.
pub(super) fn supports(schema: &Schema, encoding: &'static str) -> Result<(), SliceError> {
    let unfit = schema.fields().iter().find(|field| !can_hold(field.data_type(), false));
    unfit.map_or(Ok(()), |field| {
        Err(SliceError::Unsupported { column: field.name().clone(), data_type: field.data_type().to_string(), encoding })
    })
}

/// What the row format gives back as it was, and what has a form of its own.
fn can_hold(data_type: &DataType, within: bool) -> bool {
    let inside = |field: &Field| can_hold(field.data_type(), true);
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => inside(item),
        DataType::FixedSizeList(item, items) => *items > 0 && inside(item),
        DataType::Struct(members) => !members.is_empty() && members.iter().all(|member| inside(member)),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => within,
        DataType::Null | DataType::Boolean | DataType::Utf8View | DataType::BinaryView | DataType::FixedSizeBinary(_) => true,
        plain => plain.primitive_width().is_some(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn columns_have_their_places() {
        let types = [
            DataType::Int32,
            DataType::Utf8View,
            DataType::Boolean,
            DataType::Null,
            DataType::Decimal128(12, 2),
            DataType::FixedSizeBinary(3),
            DataType::new_list(DataType::Int8, true),
            DataType::Date32,
        ];
        let fields: Vec<Field> = types.iter().map(|data_type| Field::new("", data_type.clone(), true)).collect();
        let shape = Shape::of(&Schema::new(fields));
        assert_eq!(shape.forms[3..7], [Form::Nothing, Form::Fixed(16), Form::Fixed(3), Form::Rows]);
        assert_eq!(shape.places, [0, 0, 4, 5, 5, 21, 1, 24]);
        assert_eq!((shape.fixed_bytes, shape.truths, shape.variable, shape.valued), (28, 1, 2, 7));
    }

    #[test]
    fn types_that_would_not_come_back_are_named() {
        let of = |data_type: DataType| supports(&Schema::new(vec![Field::new("c", data_type, true)]), "nsm");
        let dictionary = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
        let list = |item: DataType| DataType::List(Arc::new(Field::new_list_field(item, true)));
        assert!(of(list(list(DataType::Utf8))).is_ok() && of(DataType::Decimal256(70, 3)).is_ok());
        let none = DataType::FixedSizeList(Arc::new(Field::new_list_field(DataType::Int8, true)), 0);
        for unfit in [dictionary.clone(), list(dictionary), DataType::Utf8, DataType::Struct(Default::default()), none] {
            let error = of(unfit.clone()).unwrap_err().to_string();
            assert!(
                error.starts_with("column \"c\" of type") && error.ends_with("cannot be stored as nsm"),
                "{unfit}: {error}"
            );
        }
    }
}
