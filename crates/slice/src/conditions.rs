//! Which of the decoded rows are wanted: predicates and sets of keys, evaluated over a batch.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Datum, Scalar, StringViewArray, downcast_integer_array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::kernels::cmp;
use arrow::compute::{and_kleene, is_not_null, is_null, like, nlike, or_kleene};
use arrow::datatypes::*;
use arrow::error::ArrowError;
use pithead_model::Value;

use crate::bounds::for_integers;
use crate::prune::columns_of;
use crate::scalars::{native, one_row};
use crate::{Compare, KeySet, Predicate, SliceError};

/// Values of a list up to which each is compared by itself.
const FEW_VALUES: usize = 8;
/// Rows after which a set of keys must have left out half of them to be asked on.
const TRIAL_ROWS: usize = 1 << 16;

/// The conditions of a scan that are evaluated row by row.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    /// Cheap ones first.
    predicates: Vec<Predicate>,
    keyed: Vec<Keyed>,
    /// The columns that all of these read, ascending.
    pub(crate) columns: Vec<usize>,
    /// Which of the request's predicates they are exactly.
    pub(crate) applied: Vec<usize>,
}

/// A column whose numbers are to be in a set.
#[derive(Debug)]
struct Keyed {
    column: usize,
    keys: Arc<KeySet>,
    rows_in: usize,
    rows_out: usize,
}

/// Whether a predicate is evaluated, and how far its result can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Meaning {
    /// Here it lets through rows that it should not, but all that it should.
    Near,
    Exact,
}

impl Filter {
    /// Of the conditions on columns of this schema those whose columns are stored, and whose meaning is certain.
    pub(crate) fn new(
        predicates: &[Predicate],
        keys: &[(usize, Arc<KeySet>)],
        schema: &Schema,
        is_stored: &dyn Fn(usize) -> bool,
    ) -> Self {
        let mut filter = Self::default();
        for (index, predicate) in predicates.iter().enumerate() {
            let mut read = Vec::new();
            columns_of(predicate, &mut read);
            let are_stored = !read.is_empty() && read.iter().all(|column| is_stored(*column));
            let Some(meaning) = meaning(predicate, schema).filter(|_| are_stored) else { continue };
            if meaning == Meaning::Exact {
                filter.applied.push(index);
            }
            filter.columns.extend(read);
            filter.predicates.push(predicate.clone());
        }
        filter.predicates.sort_by_key(cost);
        for (column, keys) in keys {
            let whole = schema.fields().get(*column).filter(|_| is_stored(*column)).map(|field| field.data_type());
            if whole.is_some_and(|data_type| data_type.is_integer() || *data_type == DataType::Date32) {
                filter.columns.push(*column);
                filter.keyed.push(Keyed { column: *column, keys: Arc::clone(keys), rows_in: 0, rows_out: 0 });
            }
        }
        filter.columns.sort_unstable();
        filter.columns.dedup();
        filter
    }

    /// Which rows of a batch are wanted. `values` gives the columns in the dataset's types.
    pub(crate) fn rows(&mut self, values: &dyn Fn(usize) -> ArrayRef, rows: usize) -> Result<BooleanBuffer, SliceError> {
        let mut wanted = BooleanBuffer::new_set(rows);
        for predicate in &self.predicates {
            let found = evaluate(predicate, values).map_err(|error| SliceError::Corrupt(error.to_string()))?;
            wanted = &wanted & &certain(&found);
            if wanted.count_set_bits() == 0 {
                return Ok(wanted);
            }
        }
        for keyed in self.keyed.iter_mut().filter(|keyed| keyed.pays()) {
            let rows_in = wanted.count_set_bits();
            wanted = &wanted & &in_set(&keyed.keys, &values(keyed.column));
            keyed.rows_in += rows_in;
            keyed.rows_out += wanted.count_set_bits();
        }
        Ok(wanted)
    }
}

impl Keyed {
    fn pays(&self) -> bool {
        self.rows_in < TRIAL_ROWS || self.rows_out < self.rows_in / 2
    }
}

/// Rows for which the condition holds: NULL is not enough.
fn certain(found: &BooleanArray) -> BooleanBuffer {
    match found.nulls().filter(|nulls| nulls.null_count() > 0) {
        Some(nulls) => found.values() & nulls.inner(),
        None => found.values().clone(),
    }
}

fn in_set(keys: &KeySet, values: &ArrayRef) -> BooleanBuffer {
    let found = downcast_integer_array!(
        values => BooleanBuffer::collect_bool(values.len(), |row| keys.has(values.values()[row] as i64)),
        DataType::Date32 => {
            let days = values.as_primitive::<Date32Type>().values();
            BooleanBuffer::collect_bool(days.len(), |row| keys.has(days[row].into()))
        }
        _ => BooleanBuffer::new_set(values.len()),
    );
    match values.nulls() {
        Some(nulls) => &found & nulls.inner(),
        None => found,
    }
}

/// Texts cost more than numbers, and patterns more than comparisons.
fn cost(predicate: &Predicate) -> u8 {
    let of = |value: &Value| if matches!(value, Value::Int(_) | Value::Float(_)) { 1 } else { 3 };
    match predicate {
        Predicate::IsNull(_) | Predicate::IsNotNull(_) => 0,
        Predicate::Compare { value, .. } => of(value),
        Predicate::In { values, .. } => 1 + values.first().map_or(0, of),
        Predicate::Like { .. } => 5,
        Predicate::Any(parts) | Predicate::All(parts) => parts.iter().map(cost).max().unwrap_or(0),
    }
}

/// What a predicate means here; none where that is not certain.
fn meaning(predicate: &Predicate, schema: &Schema) -> Option<Meaning> {
    let data_type = |column: usize| schema.fields().get(column).map(|field| field.data_type());
    match predicate {
        Predicate::IsNull(column) | Predicate::IsNotNull(column) => {
            (!data_type(*column)?.is_nested()).then_some(Meaning::Exact)
        }
        Predicate::Compare { column, value, .. } => value_meaning(data_type(*column)?, value),
        Predicate::In { column, values } => {
            let data_type = data_type(*column)?;
            let meanings = values.iter().map(|value| value_meaning(data_type, value));
            meanings.collect::<Option<Vec<_>>>()?.into_iter().min()
        }
        // There a backslash escapes, while here it is a character.
        Predicate::Like { column, pattern, .. } => {
            (*data_type(*column)? == DataType::Utf8View && !pattern.contains('\\')).then_some(Meaning::Exact)
        }
        Predicate::Any(parts) | Predicate::All(parts) => {
            let meanings = parts.iter().map(|part| meaning(part, schema));
            meanings.collect::<Option<Vec<_>>>()?.into_iter().min()
        }
    }
}

/// Both zeros and NaN have an order of their own in SQL; comparisons with other floats mean the same to all.
fn value_meaning(data_type: &DataType, value: &Value) -> Option<Meaning> {
    match value {
        Value::Float(value) => (*value != 0.0 && !value.is_nan()).then_some(())?,
        Value::Bytes(_) if *data_type != DataType::BinaryView => return None,
        _ => {}
    }
    one_row(data_type, value)?;
    Some(if data_type.is_floating() { Meaning::Near } else { Meaning::Exact })
}

fn evaluate(predicate: &Predicate, values: &dyn Fn(usize) -> ArrayRef) -> Result<BooleanArray, ArrowError> {
    match predicate {
        Predicate::IsNull(column) => is_null(&values(*column)),
        Predicate::IsNotNull(column) => is_not_null(&values(*column)),
        Predicate::Compare { column, op, value } => compare(&values(*column), *op, value),
        Predicate::In { column, values: list } => is_in(&values(*column), list),
        Predicate::Like { column, pattern, negated } => {
            let pattern = Scalar::new(StringViewArray::from(vec![pattern.as_str()]));
            let texts = values(*column);
            if *negated { nlike(&texts, &pattern) } else { like(&texts, &pattern) }
        }
        Predicate::Any(parts) => combined(parts, values, or_kleene),
        Predicate::All(parts) => combined(parts, values, and_kleene),
    }
}

type Combine = fn(&BooleanArray, &BooleanArray) -> Result<BooleanArray, ArrowError>;

fn combined(parts: &[Predicate], values: &dyn Fn(usize) -> ArrayRef, combine: Combine) -> Result<BooleanArray, ArrowError> {
    let mut parts = parts.iter().map(|part| evaluate(part, values));
    let first = parts.next().unwrap_or_else(|| Err(ArrowError::ComputeError("a condition has no parts".into())))?;
    parts.try_fold(first, |found, part| combine(&found, &part?))
}

fn compare(values: &ArrayRef, op: Compare, value: &Value) -> Result<BooleanArray, ArrowError> {
    let other = one_row(values.data_type(), value).ok_or_else(|| ArrowError::ComputeError("a value has no type".into()))?;
    let other = Scalar::new(other);
    let (values, other): (&dyn Datum, &dyn Datum) = (values, &other);
    match op {
        Compare::Eq => cmp::eq(values, other),
        Compare::Ne => cmp::neq(values, other),
        Compare::Lt => cmp::lt(values, other),
        Compare::Le => cmp::lt_eq(values, other),
        Compare::Gt => cmp::gt(values, other),
        Compare::Ge => cmp::gt_eq(values, other),
    }
}

fn is_in(values: &ArrayRef, list: &[Value]) -> Result<BooleanArray, ArrowError> {
    if list.len() > FEW_VALUES
        && let Some(found) = is_among(values, list)
    {
        return Ok(BooleanArray::new(found, values.nulls().cloned()));
    }
    let mut each = list.iter().map(|value| compare(values, Compare::Eq, value));
    let first = each.next().unwrap_or_else(|| Err(ArrowError::ComputeError("a list has no values".into())))?;
    each.try_fold(first, |found, one| or_kleene(&found, &one?))
}

/// Membership in a long list; none for types that have no fast way.
fn is_among(values: &ArrayRef, list: &[Value]) -> Option<BooleanBuffer> {
    macro_rules! among {
        ($type:ty) => {{
            let set: HashSet<<$type as ArrowPrimitiveType>::Native> =
                list.iter().filter_map(|value| native::<$type>(value)).collect();
            let values = values.as_primitive::<$type>().values();
            Some(BooleanBuffer::collect_bool(values.len(), |row| set.contains(&values[row])))
        }};
    }
    for_integers!(values.data_type(), among, {
        let texts = values.as_string_view_opt()?;
        let text = |value: &'_ Value| if let Value::Text(text) = value { Some(text.clone()) } else { None };
        let set: HashSet<String> = list.iter().filter_map(text).collect();
        Some(BooleanBuffer::collect_bool(texts.len(), |row| set.contains(texts.value(row))))
    })
}
