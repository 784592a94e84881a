//! The smallest and the largest struct or list, of all rows and of each group, in the one order that DuckDB has for
//! them: field by field and element by element, with NULL larger than all values, and with the shorter list first where
//! one list begins the other.

use std::fmt;
use std::mem::{size_of, size_of_val};

use arrow::array::{Array, ArrayRef, BooleanArray, UInt32Array};
use arrow::compute::{SortOptions, nullif, take};
use arrow::datatypes::DataType;
use arrow::row::{OwnedRow, Row, RowConverter, Rows, SortField};
use datafusion::common::{Result, ScalarValue, internal_datafusion_err};
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

use crate::extreme_floats::Side;
use crate::one_value::canonical;

/// Whether values of this type are nested and have an order.
pub(crate) fn is_ordered(data_type: &DataType) -> bool {
    data_type.is_nested() && RowConverter::supports_fields(&[field(data_type)])
}

fn field(data_type: &DataType) -> SortField {
    SortField::new_with_options(data_type.clone(), SortOptions { descending: false, nulls_first: false })
}

impl Side {
    fn is_better(self, new: Row<'_>, held: &OwnedRow) -> bool {
        match self {
            Side::Min => new < held.row(),
            Side::Max => new > held.row(),
        }
    }
}

/// Values as bytes that compare as the values do.
struct Order {
    data_type: DataType,
    converter: RowConverter,
}

impl Order {
    fn new(data_type: &DataType) -> Result<Self> {
        Ok(Self { data_type: data_type.clone(), converter: RowConverter::new(vec![field(data_type)])? })
    }

    fn rows(&self, values: &[ArrayRef]) -> Result<Rows> {
        let [values] = values else { return Err(internal_datafusion_err!("expected one column")) };
        Ok(self.converter.convert_columns(&[canonical(values)?])?)
    }

    /// The values that were found; NULL for groups without a value.
    fn values<'a>(&self, found: impl Iterator<Item = Option<&'a OwnedRow>>) -> Result<ArrayRef> {
        let mut rows = Vec::new();
        let indices: UInt32Array = found
            .map(|found| {
                found.map(|row| {
                    rows.push(row.row());
                    rows.len() as u32 - 1
                })
            })
            .collect();
        if rows.is_empty() {
            return Ok(arrow::array::new_null_array(&self.data_type, indices.len()));
        }
        let values = self.converter.convert_rows(rows)?;
        let values = values.first().ok_or_else(|| internal_datafusion_err!("expected one column"))?;
        Ok(take(values.as_ref(), &indices, None)?)
    }
}

/// Of all rows.
pub(crate) struct NestedExtreme {
    side: Side,
    order: Order,
    found: Option<OwnedRow>,
}

impl NestedExtreme {
    pub(crate) fn new(side: Side, data_type: &DataType) -> Result<Self> {
        Ok(Self { side, order: Order::new(data_type)?, found: None })
    }
}

impl fmt::Debug for NestedExtreme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NestedExtreme({:?}, {})", self.side, self.order.data_type)
    }
}

impl Accumulator for NestedExtreme {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let rows = self.order.rows(values)?;
        for row in (0..rows.num_rows()).filter(|row| values[0].is_valid(*row)) {
            let new = rows.row(row);
            if self.found.as_ref().is_none_or(|held| self.side.is_better(new, held)) {
                self.found = Some(new.owned());
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::try_from_array(self.order.values([self.found.as_ref()].into_iter())?.as_ref(), 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.order.converter.size() + self.found.as_ref().map_or(0, |row| row.row().data().len())
    }
}

/// By group.
pub(crate) struct NestedExtremes {
    side: Side,
    order: Order,
    found: Vec<Option<OwnedRow>>,
    /// The bytes of the values that were found.
    bytes: usize,
}

impl NestedExtremes {
    pub(crate) fn new(side: Side, data_type: &DataType) -> Result<Self> {
        Ok(Self { side, order: Order::new(data_type)?, found: Vec::new(), bytes: 0 })
    }
}

impl GroupsAccumulator for NestedExtremes {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        let rows = self.order.rows(values)?;
        self.found.resize(total_num_groups, None);
        let counts = |row: usize| values[0].is_valid(row) && filter.is_none_or(|f| f.is_valid(row) && f.value(row));
        for (row, group) in group_indices.iter().enumerate().filter(|(row, _)| counts(*row)) {
            let (new, held) = (rows.row(row), &mut self.found[*group]);
            if held.as_ref().is_none_or(|held| self.side.is_better(new, held)) {
                self.bytes += new.data().len();
                self.bytes -= held.as_ref().map_or(0, |held| held.row().data().len());
                *held = Some(new.owned());
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, values: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> Result<()> {
        self.update_batch(values, group_indices, None, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let found = emit_to.take_needed(&mut self.found);
        self.bytes -= found.iter().flatten().map(|row| row.row().data().len()).sum::<usize>();
        self.order.values(found.iter().map(Option::as_ref))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit_to)?])
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        match (values, filter) {
            ([values], Some(filter)) => {
                let dropped = filter.iter().map(|kept| Some(kept != Some(true))).collect();
                Ok(vec![nullif(values.as_ref(), &dropped)?])
            }
            (values, _) => Ok(values.to_vec()),
        }
    }

    fn size(&self) -> usize {
        self.bytes + self.found.capacity() * size_of::<Option<OwnedRow>>() + self.order.converter.size()
    }
}
