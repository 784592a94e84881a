//! `pithead_or_zero(count)`: a sum of counts, or 0 where there was nothing to add up.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, AsArray, Int64Array};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

static OR_ZERO: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new(ScalarUDF::from(OrZero::new())));

/// `count`, an Int64, with 0 for NULL. The result is never NULL, as the result of `count` is not. (`coalesce` runs only
/// after the optimiser has rewritten it, and to the planner its rewritten form may be NULL.) It is in no sub-plan.
pub fn or_zero(count: Expr) -> Expr {
    OR_ZERO.call(vec![count])
}

/// The function itself.
pub(crate) fn or_zero_udf() -> ScalarUDF {
    OR_ZERO.as_ref().clone()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OrZero {
    signature: Signature,
}

impl OrZero {
    fn new() -> Self {
        Self { signature: Signature::exact(vec![DataType::Int64], Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for OrZero {
    fn name(&self) -> &str {
        "pithead_or_zero"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        match args.arg_fields {
            [field] if *field.data_type() == DataType::Int64 => Ok(Arc::new(Field::new(self.name(), DataType::Int64, false))),
            _ => plan_err!("expected pithead_or_zero(Int64)"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let counts = arrays[0].as_primitive::<Int64Type>();
        if counts.null_count() == 0 {
            return Ok(ColumnarValue::Array(Arc::clone(&arrays[0])));
        }
        let filled: Int64Array = counts.iter().map(|count| Some(count.unwrap_or(0))).collect();
        Ok(ColumnarValue::Array(Arc::new(filled)))
    }
}
