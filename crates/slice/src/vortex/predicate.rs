//! Pithead's predicates as Vortex expressions, where both mean exactly the same.

use std::cell::Cell;
use std::collections::BTreeMap;

use ::vortex::array::dtype::{DType, PType};
use ::vortex::array::expr::transform::find_between;
use ::vortex::array::expr::{
    Expression, and_collect, col, eq, gt, gt_eq, in_list_of, is_not_null, is_null, like, lit, lt, lt_eq, not_eq, not_like,
    or_collect, root,
};
use ::vortex::array::scalar::{DecimalValue, PValue, Scalar, ScalarValue};
use ::vortex::buffer::ByteBuffer;
use ::vortex::error::{VortexResult, vortex_err};
use pithead_model::Value;

use super::column::{Condition, Test};
use super::members::Members;
use super::types::stored_name;
use crate::matcher::Matcher;
use crate::prune::columns_of;
use crate::{Compare, Predicate};

/// Comparing a page of numbers costs less than selecting a few of them first. For texts, selecting pays sooner.
pub(super) const FEW_NUMBERS: f64 = 0.04;
const FEW_TEXTS: f64 = 0.2;
const COST_OF_TEXT: u8 = 3;

/// One condition of a scan: all predicates that read the same columns.
#[derive(Debug)]
pub(super) struct Conjunct {
    /// The columns that it reads, each once and in order.
    pub(super) columns: Vec<usize>,
    /// The condition over the column, if it reads one; else over a row of these columns.
    pub(super) condition: Condition,
    /// How expensive it is: texts cost more than numbers, and patterns more than comparisons.
    cost: u8,
    rows_in: Cell<u64>,
    rows_out: Cell<u64>,
}

impl Conjunct {
    /// Records how many rows came in and how many passed.
    pub(super) fn observe(&self, rows_in: usize, rows_out: usize) {
        self.rows_in.set(self.rows_in.get() + rows_in as u64);
        self.rows_out.set(self.rows_out.get() + rows_out as u64);
    }

    /// The key by which conjuncts are evaluated, from the lowest on: cheap ones first, and of these the most selective
    /// so far.
    pub(super) fn rank(&self) -> (u8, u64) {
        (self.cost, self.rows_out.get().saturating_mul(1024) / self.rows_in.get().max(1))
    }
}

/// The conjuncts of those predicates that Vortex evaluates exactly, and the indices of these predicates.
pub(super) fn conjuncts(predicates: &[Predicate], row: &DType) -> VortexResult<(Vec<Conjunct>, Vec<usize>)> {
    let mut groups: BTreeMap<Vec<usize>, Vec<&Predicate>> = BTreeMap::new();
    let mut applied = Vec::new();
    for (index, predicate) in predicates.iter().enumerate() {
        let mut columns = Vec::new();
        columns_of(predicate, &mut columns);
        columns.sort_unstable();
        columns.dedup();
        if !columns.is_empty() && is_evaluated(predicate, row) {
            applied.push(index);
            groups.entry(columns).or_default().push(predicate);
        }
    }
    let conjuncts = groups.into_iter().map(|(columns, predicates)| conjunct(columns, &predicates, row));
    Ok((conjuncts.collect::<VortexResult<_>>()?, applied))
}

fn conjunct(columns: Vec<usize>, predicates: &[&Predicate], row: &DType) -> VortexResult<Conjunct> {
    let alone = columns.len() == 1;
    let scope = match row.as_struct_fields_opt().and_then(|fields| fields.field(stored_name(columns[0]))) {
        Some(dtype) if alone => dtype,
        _ => row.clone(),
    };
    let is_whole = alone && matches!(scope, DType::Primitive(ptype, _) if ptype.is_int());
    let test = match if is_whole { Members::of(predicates) } else { None } {
        Some(members) => Test::Members(members),
        None => {
            let parts = predicates.iter().filter_map(|predicate| expression(predicate, row, alone));
            let expression = and_collect(parts).ok_or_else(|| vortex_err!("a conjunct has no predicates"))?;
            Test::Expression(find_between(expression.bind(&scope)?)?.optimize_recursive()?)
        }
    };
    let cost = predicates.iter().map(|predicate| cost(predicate)).max().unwrap_or(0);
    let condition = Condition {
        test,
        strict: !predicates.iter().any(|predicate| may_take_null(predicate)),
        few: if cost < COST_OF_TEXT { FEW_NUMBERS } else { FEW_TEXTS },
        matcher: if alone && matches!(scope, DType::Utf8(_) | DType::Binary(_)) { Matcher::of(predicates) } else { None },
    };
    Ok(Conjunct { columns, condition, cost, rows_in: Cell::new(0), rows_out: Cell::new(0) })
}

/// Whether Vortex evaluates a predicate exactly. Long lists of whole numbers, which many slices are asked for, are not made into
/// expressions for that.
fn is_evaluated(predicate: &Predicate, row: &DType) -> bool {
    let dtype = |column: usize| row.as_struct_fields_opt()?.field(stored_name(column));
    match predicate {
        Predicate::In { column, values } => match dtype(*column) {
            Some(DType::Primitive(ptype, _)) if !values.is_empty() => {
                values.iter().all(|value| matches!(value, Value::Int(value) if whole_number(ptype, *value).is_some()))
            }
            _ => expression(predicate, row, false).is_some(),
        },
        predicate => expression(predicate, row, false).is_some(),
    }
}

/// Whether NULL can satisfy a predicate.
fn may_take_null(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::IsNull(_) => true,
        Predicate::Any(parts) | Predicate::All(parts) => parts.iter().any(may_take_null),
        _ => false,
    }
}

fn cost(predicate: &Predicate) -> u8 {
    match predicate {
        Predicate::IsNull(_) | Predicate::IsNotNull(_) => 0,
        Predicate::Compare { value, .. } => cost_of(value),
        Predicate::In { values, .. } => 1 + values.first().map_or(0, cost_of),
        Predicate::Like { .. } => 2 + COST_OF_TEXT,
        Predicate::Any(parts) | Predicate::All(parts) => parts.iter().map(cost).max().unwrap_or(0),
    }
}

fn cost_of(value: &Value) -> u8 {
    match value {
        Value::Int(_) | Value::Float(_) => 1,
        Value::Text(_) | Value::Bytes(_) => COST_OF_TEXT,
    }
}

/// The predicate over a row, or over the column that it reads `alone`. `None` if it may mean something else to Vortex.
fn expression(predicate: &Predicate, row: &DType, alone: bool) -> Option<Expression> {
    let column = |column: usize| {
        let name = stored_name(column);
        let dtype = row.as_struct_fields_opt()?.field(&name)?;
        Some((if alone { root() } else { col(name) }, dtype))
    };
    match predicate {
        Predicate::IsNull(index) => Some(is_null(column(*index)?.0)),
        Predicate::IsNotNull(index) => Some(is_not_null(column(*index)?.0)),
        Predicate::Compare { column: index, op, value } => {
            let (column, dtype) = column(*index)?;
            let compare = match op {
                Compare::Eq => eq,
                Compare::Ne => not_eq,
                Compare::Lt => lt,
                Compare::Le => lt_eq,
                Compare::Gt => gt,
                Compare::Ge => gt_eq,
            };
            Some(compare(column, lit(scalar(&dtype, value)?)))
        }
        Predicate::In { column: index, values } => {
            let (column, dtype) = column(*index)?;
            let scalars: Vec<Scalar> = values.iter().map(|value| scalar(&dtype, value)).collect::<Option<_>>()?;
            match scalars.is_empty() {
                true => None,
                false => in_list_of(column, dtype.as_nonnullable(), scalars).ok(),
            }
        }
        Predicate::Like { column: index, pattern, negated } => {
            let (column, dtype) = column(*index)?;
            // There a backslash escapes, while here it is a character.
            if !dtype.is_utf8() || pattern.contains('\\') {
                return None;
            }
            let pattern = lit(pattern.as_str());
            Some(if *negated { not_like(column, pattern) } else { like(column, pattern) })
        }
        Predicate::Any(parts) => or_collect(expressions(parts, row, alone)?),
        Predicate::All(parts) => and_collect(expressions(parts, row, alone)?),
    }
}

fn expressions(parts: &[Predicate], row: &DType, alone: bool) -> Option<Vec<Expression>> {
    parts.iter().map(|part| expression(part, row, alone)).collect()
}

/// The value as a scalar of a column's type. Floats are left out, since encodings need not agree on NaN and zeros.
fn scalar(dtype: &DType, value: &Value) -> Option<Scalar> {
    let value = match (dtype, value) {
        (DType::Bool(_), Value::Int(value @ (0 | 1))) => ScalarValue::Bool(*value == 1),
        (DType::Primitive(ptype, _), Value::Int(value)) => ScalarValue::Primitive(whole_number(*ptype, *value)?),
        (DType::Decimal(..), Value::Int(value)) => ScalarValue::Decimal(DecimalValue::I128(*value)),
        (DType::Utf8(_), Value::Text(text)) => ScalarValue::Utf8(text.as_str().into()),
        (DType::Binary(_), Value::Bytes(bytes)) => ScalarValue::Binary(ByteBuffer::copy_from(bytes)),
        _ => return None,
    };
    Scalar::try_new(dtype.clone(), Some(value)).ok()
}

fn whole_number(ptype: PType, value: i128) -> Option<PValue> {
    match ptype {
        PType::I8 => i8::try_from(value).ok().map(PValue::from),
        PType::I16 => i16::try_from(value).ok().map(PValue::from),
        PType::I32 => i32::try_from(value).ok().map(PValue::from),
        PType::I64 => i64::try_from(value).ok().map(PValue::from),
        PType::U8 => u8::try_from(value).ok().map(PValue::from),
        PType::U16 => u16::try_from(value).ok().map(PValue::from),
        PType::U32 => u32::try_from(value).ok().map(PValue::from),
        PType::U64 => u64::try_from(value).ok().map(PValue::from),
        PType::F16 | PType::F32 | PType::F64 => None,
    }
}
