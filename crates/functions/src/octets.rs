//! `octet_length`, `bit_length` and `character_length` (`length`) that take bytes, too, as in PostgreSQL. The engine's take texts
//! only, or bytes as if they were one.

use std::sync::Arc;

use arrow::array::AsArray;
use arrow::compute::cast;
use arrow::compute::kernels::length::length;
use arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::common::{Result, internal_err};
use datafusion::functions::string::{bit_length, octet_length};
use datafusion::functions::unicode::character_length;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use crate::delegated::as_standard;
use crate::wall_time::as_given;

/// Bits of a byte.
const BITS: i64 = 8;

/// All of them, under the engine's names.
pub(crate) fn octets_udfs() -> impl Iterator<Item = ScalarUDF> {
    [(octet_length(), 1), (character_length(), 1), (bit_length(), BITS)].into_iter().map(|(standard, unit)| of(standard, unit))
}

/// The bytes in each value of an expression.
pub(crate) fn octets(expr: Expr) -> Expr {
    of(octet_length(), 1).call(vec![expr])
}

/// The characters in each text of an expression.
pub(crate) fn text_length(expr: Expr) -> Expr {
    of(character_length(), 1).call(vec![expr])
}

fn of(standard: Arc<ScalarUDF>, unit: i64) -> ScalarUDF {
    ScalarUDF::new_from_impl(Octets { standard, unit, signature: Signature::user_defined(Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Octets {
    /// The engine's.
    standard: Arc<ScalarUDF>,
    /// What a byte counts.
    unit: i64,
    signature: Signature,
}

impl ScalarUDFImpl for Octets {
    as_standard!(name aliases documentation);

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        if matches!(types, [of] if of.is_binary()) {
            return Ok(types.to_vec());
        }
        let given: Vec<_> = types.iter().map(|of| Arc::new(Field::new("", of.clone(), true))).collect();
        Ok(fields_with_udf(&given, self.standard.as_ref())?.iter().map(|field| field.data_type().clone()).collect())
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [of] if of.is_binary() => Ok(DataType::Int64),
            texts => self.standard.return_type(texts),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [of] = args.args.as_slice() else { return internal_err!("{} has one argument", self.name()) };
        if !of.data_type().is_binary() {
            return self.standard.invoke_with_args(args);
        }
        let is_scalar = matches!(of, ColumnarValue::Scalar(_));
        let bytes = of.to_array(if is_scalar { 1 } else { args.number_rows })?;
        let octets = cast(&length(&bytes)?, &DataType::Int64)?;
        let counted = octets.as_primitive::<Int64Type>().unary::<_, Int64Type>(|octets| octets * self.unit);
        as_given(Arc::new(counted), is_scalar)
    }
}
