//! [`Bounded`]: a function that reserves memory for its result before it makes it.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::{Result, internal_err, resources_err};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr as PhysicalBinary, Column};
use pithead_model::{Blame, Fault};

use super::growth::Growth;
use super::parts::VALUE_BYTES;
use super::session_memory::{Holder, SessionMemory};
use crate::one_value::is_constant;

/// The most bytes of a result that need no reservation.
const UNCOUNTED_BYTES: u64 = 1 << 20;
/// The most steps for a row: some seconds, in which its thread does nothing else.
const STEPS_MAX: u64 = 1 << 30;
/// The most bytes of a text whose end is told by 32 bits.
const TEXT_BYTES_MAX: u64 = i32::MAX as u64;
/// The most values of all lists of a batch, whose ends are told by 32 bits.
const LIST_VALUES_MAX: u64 = i32::MAX as u64;

/// A function that takes the place of another and does the same, except that it reserves memory. It is never registered
/// and never travels: it is replaced by the original before anybody but the optimiser and the engine sees it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Bounded {
    inner: Arc<ScalarUDF>,
    growth: Growth,
    /// Whether it is there for as long as the optimiser works. What that computes becomes a part of the plan, which holds no
    /// reservation, so large constants are left to the run.
    folds: bool,
}

/// The function that takes an expression's place; none where the expression cannot make a large result of its
/// arguments.
pub(crate) fn bounded(expr: &Expr) -> Option<Bounded> {
    match expr {
        Expr::ScalarFunction(function) => {
            let growth = Growth::of(function.func.name())?;
            let is_bounded = function.func.inner().downcast_ref::<Bounded>().is_some();
            (!is_bounded).then(|| Bounded { inner: Arc::clone(&function.func), growth, folds: false })
        }
        Expr::BinaryExpr(binary) if binary.op == Operator::StringConcat => {
            let inner = Arc::new(ScalarUDF::new_from_impl(Joined::default()));
            Some(Bounded { inner, growth: Growth::Together, folds: false })
        }
        _ => None,
    }
}

/// Whether the optimiser may make a large constant of such an expression.
pub(crate) fn may_fold(expr: &Expr) -> bool {
    let growth = match expr {
        Expr::ScalarFunction(function) => Growth::of(function.func.name()),
        Expr::BinaryExpr(binary) if binary.op == Operator::StringConcat => Some(Growth::Together),
        _ => None,
    };
    growth.is_some_and(|growth| growth.multiplies() || is_constant(expr))
}

/// The original function over its arguments; the expression itself where nothing took its place.
pub(crate) fn plain(function: ScalarFunction) -> (bool, Expr) {
    match function.func.inner().downcast_ref::<Bounded>() {
        Some(bounded) => (true, bounded.plain(function.args)),
        None => (false, Expr::ScalarFunction(function)),
    }
}

impl Bounded {
    pub(super) fn growth(&self) -> Growth {
        self.growth
    }

    /// The same for the optimiser.
    pub(crate) fn folding(self) -> Bounded {
        Bounded { folds: true, ..self }
    }

    fn plain(&self, mut args: Vec<Expr>) -> Expr {
        if self.inner.inner().is::<Joined>()
            && args.len() == 2
            && let Some((right, left)) = args.pop().zip(args.pop())
        {
            return Expr::BinaryExpr(BinaryExpr { left: Box::new(left), op: Operator::StringConcat, right: Box::new(right) });
        }
        Expr::ScalarFunction(ScalarFunction { func: Arc::clone(&self.inner), args })
    }

    /// The function, over the arguments of the expression that it was made for.
    pub(crate) fn call(self, expr: Expr) -> Expr {
        let arguments = match expr {
            Expr::ScalarFunction(function) => function.args,
            Expr::BinaryExpr(BinaryExpr { left, right, .. }) => vec![*left, *right],
            other => vec![other],
        };
        ScalarUDF::new_from_impl(self).call(arguments)
    }

    /// Refuses series with more values than lists can have, whatever memory there is.
    fn check_values(&self, bytes: u64) -> Result<()> {
        if self.growth != Growth::Series || bytes / VALUE_BYTES <= LIST_VALUES_MAX {
            return Ok(());
        }
        let what = format!("{} makes more than {LIST_VALUES_MAX} values, and lists have no more", self.name());
        let hint = "take longer steps, or write the series in FROM, where numbers come in batches";
        Err(DataFusionError::External(Box::new(Fault::new(Blame::Limit, what).hint(hint))))
    }

    /// Computes the result in pieces of rows, each of which can take little memory. All together may take far less than
    /// their bound.
    fn in_pieces(&self, args: &ScalarFunctionArgs, bytes: &[u64], holder: &mut Holder) -> Result<ArrayRef> {
        let mut parts: Vec<ArrayRef> = Vec::new();
        let mut first = 0;
        while first < bytes.len() {
            let mut end = first + 1;
            let mut most = bytes[first];
            while end < bytes.len() && most.saturating_add(bytes[end]) <= UNCOUNTED_BYTES {
                most += bytes[end];
                end += 1;
            }
            holder.grow(most)?;
            let part = self.inner.invoke_with_args(rows_of(args, first, end - first))?.to_array(end - first)?;
            holder.shrink(most.saturating_sub(part.get_array_memory_size() as u64));
            parts.push(part);
            first = end;
        }
        let made: u64 = parts.iter().map(|part| part.get_array_memory_size() as u64).sum();
        holder.grow(made)?;
        let parts: Vec<&dyn arrow::array::Array> = parts.iter().map(AsRef::as_ref).collect();
        Ok(concat(&parts)?)
    }
}

/// The arguments of some rows.
fn rows_of(args: &ScalarFunctionArgs, first: usize, rows: usize) -> ScalarFunctionArgs {
    let slice = |argument: &ColumnarValue| match argument {
        ColumnarValue::Array(array) => ColumnarValue::Array(array.slice(first, rows)),
        ColumnarValue::Scalar(value) => ColumnarValue::Scalar(value.clone()),
    };
    ScalarFunctionArgs { args: args.args.iter().map(slice).collect(), number_rows: rows, ..args.clone() }
}

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        self.inner.inner().schema_name(arguments)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.inner().return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.inner.inner().return_field_from_args(args)
    }

    fn is_strict(&self) -> bool {
        self.inner.inner().is_strict()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.inner().coerce_types(types)
    }

    fn simplify(&self, arguments: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        // It joins constants, whatever their size.
        if self.growth == Growth::Separators && joined_bytes(&arguments) > UNCOUNTED_BYTES {
            return Ok(ExprSimplifyResult::Original(arguments));
        }
        self.inner.inner().simplify(arguments, context)
    }

    fn conditional_arguments<'a>(&self, arguments: &'a [Expr]) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.inner().conditional_arguments(arguments)
    }

    fn short_circuits(&self) -> bool {
        self.inner.inner().short_circuits()
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = args.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { args.number_rows };
        let mut bytes = self.growth.bytes(&args.args, rows)?;
        let all = bytes.iter().copied().fold(0, u64::saturating_add);
        if all <= UNCOUNTED_BYTES {
            return self.inner.invoke_with_args(args);
        }
        if self.growth == Growth::Listed && bytes.iter().any(|bytes| *bytes > TEXT_BYTES_MAX) {
            return resources_err!("a result of {} has more than {TEXT_BYTES_MAX} bytes", self.name());
        }
        self.check_values(all)?;
        if self.growth == Growth::Steps && !self.folds {
            return match bytes.iter().find(|steps| **steps > STEPS_MAX) {
                Some(steps) => resources_err!("{} of such long texts takes {steps} steps; at most {STEPS_MAX}", self.name()),
                None => self.inner.invoke_with_args(args),
            };
        }
        if is_constant && self.folds {
            return resources_err!("the result of {} is too large for a plan", self.name());
        }
        if is_constant && let Some(first) = args.args.first_mut() {
            // As a column, the result can hold its memory.
            *first = ColumnarValue::Array(first.to_array(args.number_rows)?);
            bytes = self.growth.bytes(&args.args, args.number_rows)?;
            self.check_values(bytes.iter().copied().fold(0, u64::saturating_add))?;
        }
        let mut holder = SessionMemory::of(&args.config_options).holder(self.name());
        let result = if self.growth.is_close() {
            holder.grow(bytes.iter().copied().fold(0, u64::saturating_add))?;
            let rows = args.number_rows;
            self.inner.invoke_with_args(args)?.to_array(rows)?
        } else {
            self.in_pieces(&args, &bytes, &mut holder)?
        };
        Ok(ColumnarValue::Array(holder.hold(&result)))
    }
}

/// The bytes of constants and the separators between them.
fn joined_bytes(arguments: &[Expr]) -> u64 {
    let bytes = |argument: &Expr| match argument {
        Expr::Literal(value, _) => value.try_as_str().flatten().map_or(0, str::len) as u64,
        _ => 0,
    };
    let separators = arguments.first().map_or(0, bytes).saturating_mul(arguments.len() as u64);
    arguments.iter().map(bytes).fold(separators, u64::saturating_add)
}

/// `||` as a function.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Joined {
    signature: Signature,
}

impl Default for Joined {
    fn default() -> Self {
        Self { signature: Signature::any(2, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Joined {
    fn name(&self) -> &str {
        "||"
    }

    /// The operator's name, so that columns keep their names.
    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        let [left, right] = arguments else { return internal_err!("|| has two arguments") };
        Ok(format!("{} || {}", left.schema_name(), right.schema_name()))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let [left, right] = types else { return internal_err!("|| has two arguments") };
        BinaryTypeCoercer::new(left, &Operator::StringConcat, right).get_result_type()
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let columns = args.args.iter().map(|argument| argument.to_array(args.number_rows)).collect::<Result<Vec<_>>>()?;
        let fields: Vec<Field> = columns.iter().map(|column| Field::new("", column.data_type().clone(), true)).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(args.number_rows));
        let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?;
        let operand = |index| Arc::new(Column::new("", index)) as Arc<dyn PhysicalExpr>;
        PhysicalBinary::new(operand(0), Operator::StringConcat, operand(1)).evaluate(&batch)
    }
}

#[cfg(test)]
mod tests;
