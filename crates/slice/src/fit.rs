//! [`Fit`]: how a dataset's columns are found in slices that were written before some of them were renamed, added, dropped or made
//! wider (see `pithead_model::lasting`).

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, SchemaRef};
use pithead_model::lasting::{fill, lasting_name};
use pithead_model::{ColumnSummary, SliceEntry};

use crate::bounds::bounds;
use crate::one_row;

/// How columns that are wanted come from those that are stored.
#[derive(Debug)]
pub struct Fit {
    stored: SchemaRef,
    wanted: SchemaRef,
    columns: Vec<Origin>,
}

/// Where a column comes from.
#[derive(Debug)]
pub(crate) enum Origin {
    /// The stored column at this place, as it is.
    Stored(usize),
    /// The same with values of a wider type.
    Widened(usize),
    /// It was not there: this value in all rows, NULL as none.
    Filled(Option<ArrayRef>),
}

impl Fit {
    /// None: they are stored as they are wanted. The error says which column is neither stored nor known to have been added, or cannot
    /// be read as it is wanted.
    pub fn of(stored: &SchemaRef, wanted: &SchemaRef) -> Result<Option<Arc<Fit>>, String> {
        if stored == wanted {
            return Ok(None);
        }
        let names = stored.fields().iter().enumerate().map(|(place, field)| (lasting_name(field), place));
        let places: HashMap<Cow<'_, str>, usize> = names.collect();
        let columns = wanted.fields().iter().map(|field| origin(stored, &places, field)).collect::<Result<Vec<_>, _>>()?;
        let is_same = |(place, origin): (usize, &Origin)| {
            let as_it_is =
                |stored: &Field, wanted: &Field| stored.name() == wanted.name() && stored.is_nullable() == wanted.is_nullable();
            matches!(origin, Origin::Stored(at) if *at == place) && as_it_is(stored.field(place), wanted.field(place))
        };
        if stored.fields().len() == wanted.fields().len() && columns.iter().enumerate().all(is_same) {
            return Ok(None);
        }
        Ok(Some(Arc::new(Fit { stored: Arc::clone(stored), wanted: Arc::clone(wanted), columns })))
    }

    /// The columns that are stored.
    pub fn stored(&self) -> &SchemaRef {
        &self.stored
    }

    /// The columns that are wanted.
    pub fn wanted(&self) -> &SchemaRef {
        &self.wanted
    }

    /// Where a column that is wanted is stored, its values the same; none: it was not there.
    pub fn place(&self, column: usize) -> Option<usize> {
        match self.columns.get(column)? {
            Origin::Stored(place) | Origin::Widened(place) => Some(*place),
            Origin::Filled(_) => None,
        }
    }

    pub(crate) fn origin(&self, column: usize) -> Option<&Origin> {
        self.columns.get(column)
    }

    /// A slice's entry in the directory, with summaries of the columns that are wanted.
    pub fn entry(&self, stored: &SliceEntry) -> SliceEntry {
        SliceEntry { rows: stored.rows, bytes: stored.bytes, columns: self.summaries(&stored.columns, stored.rows) }
    }

    /// Summaries of the columns that are wanted, over so many rows.
    pub fn summaries(&self, stored: &[ColumnSummary], rows: u64) -> Vec<ColumnSummary> {
        let one = |origin: &Origin| match origin {
            Origin::Stored(place) | Origin::Widened(place) => stored.get(*place).cloned().unwrap_or_default(),
            Origin::Filled(None) => ColumnSummary { exact: true, nulls: rows, ..ColumnSummary::default() },
            Origin::Filled(Some(value)) => ColumnSummary { distinct: 1, ..bounds(value) },
        };
        self.columns.iter().map(one).collect()
    }

    /// How many of so many rows are NULL in each column that is wanted, where it is known of those that are stored.
    pub fn nulls(&self, stored: &[u64], rows: u64) -> Vec<u64> {
        let one = |origin: &Origin| match origin {
            Origin::Stored(place) | Origin::Widened(place) => stored.get(*place).copied().unwrap_or_default(),
            Origin::Filled(None) => rows,
            Origin::Filled(Some(_)) => 0,
        };
        self.columns.iter().map(one).collect()
    }
}

/// `places`: where columns are stored, by the name that they keep.
fn origin(stored: &SchemaRef, places: &HashMap<Cow<'_, str>, usize>, wanted: &Field) -> Result<Origin, String> {
    let Some(&place) = places.get(&lasting_name(wanted)) else {
        return match fill(wanted) {
            None => Err(format!("column {} is not stored", wanted.name())),
            Some(None) => Ok(Origin::Filled(None)),
            Some(Some(value)) => match one_row(wanted.data_type(), &value) {
                Some(value) => Ok(Origin::Filled(Some(value))),
                None => Err(format!("column {} has no value of its type in rows from before it was added", wanted.name())),
            },
        };
    };
    let (from, to) = (stored.field(place).data_type(), wanted.data_type());
    match from.equals_datatype(to) {
        true => Ok(Origin::Stored(place)),
        false if is_wider(to, from) => Ok(Origin::Widened(place)),
        false => Err(format!("column {} is stored as {from}, and not as {to}", wanted.name())),
    }
}

/// Whether every value of a type is a value of another one, the same in directories.
fn is_wider(to: &DataType, from: &DataType) -> bool {
    let signed = |data_type: &DataType| match data_type {
        DataType::Int8 => Some(8),
        DataType::Int16 => Some(16),
        DataType::Int32 => Some(32),
        DataType::Int64 => Some(64),
        _ => None,
    };
    let unsigned = |data_type: &DataType| match data_type {
        DataType::UInt8 => Some(8),
        DataType::UInt16 => Some(16),
        DataType::UInt32 => Some(32),
        DataType::UInt64 => Some(64),
        _ => None,
    };
    match (from, to) {
        (DataType::Float32, DataType::Float64) => true,
        (DataType::Decimal128(digits, scale), DataType::Decimal128(more, same)) => more > digits && same == scale,
        _ => match (signed(from), unsigned(from), signed(to), unsigned(to)) {
            (Some(from), _, Some(to), _) | (_, Some(from), _, Some(to)) | (_, Some(from), Some(to), _) => to > from,
            _ => false,
        },
    }
}
