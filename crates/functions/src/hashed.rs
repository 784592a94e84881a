//! `hash(x, …)`: 64 bits that are the same for equal values, on every drive and in every release. They are not those of DuckDB, which
//! change from one of its releases to another.
//!
//! Hashes may be kept: they are XXH3 of 64 bits, with the seed 0, of the values as Arrow's row format writes them. A release that would
//! give others fails the tests here.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, UInt64Array};
use arrow::datatypes::{DataType, FieldRef, Int64Type, UInt64Type};
use arrow::row::{RowConverter, SortField};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use xxhash_rust::xxh3::xxh3_64;

use crate::one_value::canonical;
use crate::wall_time::as_given;

/// `hash(any, …) -> UInt64`: of NULL it is a number, too.
pub(crate) fn hash_udf() -> ScalarUDF {
    ScalarUDF::new_from_impl(Hash { signature: Signature::user_defined(Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Hash {
    signature: Signature,
}

/// The type that values of several types are compared as.
fn compared_as(of: &DataType) -> DataType {
    match of {
        DataType::UInt64 => DataType::UInt64,
        whole if whole.is_integer() => DataType::Int64,
        float if float.is_floating() => DataType::Float64,
        text if text.is_string() => DataType::Utf8View,
        bytes if bytes.is_binary() => DataType::BinaryView,
        DataType::Dictionary(_, values) => compared_as(values),
        DataType::List(values) | DataType::LargeList(values) | DataType::FixedSizeList(values, _) => {
            DataType::List(part_compared_as(values))
        }
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(part_compared_as).collect()),
        other => other.clone(),
    }
}

fn part_compared_as(part: &FieldRef) -> FieldRef {
    Arc::new(part.as_ref().clone().with_data_type(compared_as(part.data_type())))
}

impl ScalarUDFImpl for Hash {
    fn name(&self) -> &'static str {
        "hash"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [] => plan_err!("hash expects at least one value"),
            types => Ok(types.iter().map(compared_as).collect()),
        }
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::UInt64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let columns = args.args.iter().map(|arg| signed(&arg.to_array(rows)?)).collect::<Result<Vec<_>>>()?;
        as_given(Arc::new(hashes(&columns)?), is_scalar)
    }
}

/// Whole numbers without a sign as those with one: what both have is the same.
fn signed(values: &ArrayRef) -> Result<ArrayRef> {
    match values.data_type() {
        DataType::UInt64 => Ok(Arc::new(values.as_primitive::<UInt64Type>().unary::<_, Int64Type>(|value| value as i64))),
        _ => canonical(values),
    }
}

fn hashes(columns: &[ArrayRef]) -> Result<UInt64Array> {
    let field = |column: &ArrayRef| SortField::new(column.data_type().clone());
    if let Some(column) = columns.iter().find(|column| !RowConverter::supports_fields(&[field(column)])) {
        return exec_err!("values of type {} have no hash; cast them to a text", column.data_type());
    }
    let fields = columns.iter().map(field).collect();
    let rows = RowConverter::new(fields)?.convert_columns(columns)?;
    Ok(UInt64Array::from_iter_values(rows.iter().map(|row| xxh3_64(row.data()))))
}

#[cfg(test)]
mod tests {
    use arrow::util::display::array_value_to_string;
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    async fn value(sql: &str) -> String {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let found = context.sql(sql).await.unwrap().collect().await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        array_value_to_string(found[0].column(0), 0).unwrap()
    }

    #[tokio::test]
    async fn equal_values_have_one_hash_and_others_another() {
        for equal in [
            "hash(0.0::double) = hash(-0.0::double)",
            "hash('NaN'::double) = hash(-('NaN'::double))",
            "hash([0.0::double]) = hash([-0.0::double])",
            "hash(1::tinyint) = hash(1::bigint)",
            "hash(1::bigint) = hash(1::bigint unsigned)",
            "hash(1.5::real) = hash(1.5::double)",
            "hash('NaN'::real) = hash(-('NaN'::double))",
            "hash('a'::text) = hash(arrow_cast('a', 'Utf8'))",
            "hash('a'::text) = hash(arrow_cast('a', 'Dictionary(Int32, Utf8)'))",
            "hash('a'::text) = hash(arrow_cast('a', 'LargeUtf8'))",
            "hash(NULL::text) = hash(arrow_cast(NULL, 'Dictionary(Int32, Utf8)'))",
            "hash(7) = hash(arrow_cast(7, 'Dictionary(Int32, Int16)'))",
            "hash(NULL::int) = hash(arrow_cast(NULL, 'Dictionary(Int32, Int16)'))",
            "hash(['a']) = hash([arrow_cast('a', 'Utf8')])",
            "hash([1::tinyint]) = hash([1::bigint])",
            "hash({'f': 1::tinyint}) = hash({'f': 1::bigint})",
            "hash([7, NULL]) = hash(arrow_cast([7, NULL], 'List(Dictionary(Int32, Int16))'))",
            "hash(NULL::int) = hash(NULL::int)",
            "hash(1, 'a') = hash(1, 'a')",
            "hash(1, 2) <> hash(2, 1)",
            "hash('a', 'b') <> hash('ab', '')",
            "hash('') <> hash(NULL::text)",
            "hash([1, 2]) <> hash([2, 1])",
            "hash(NULL) IS NOT NULL",
        ] {
            assert_eq!(value(&format!("SELECT {equal}")).await, "true", "{equal}");
        }
        assert_eq!(value("SELECT count(DISTINCT hash(value)) FROM range(100000)").await, "100000");
        assert_eq!(value("SELECT arrow_typeof(hash(1))").await, "UInt64");
    }

    /// A hash that is kept somewhere has to stay what it is.
    #[tokio::test]
    async fn hashes_are_the_same_in_every_release() {
        for (sql, expected) in [
            ("hash(1)", "9386959315897320766"),
            ("hash(-1.5::double)", "7775800452357071553"),
            ("hash('drive')", "11925187327568199975"),
            ("hash(NULL)", "4771980914496010191"),
            ("hash(DATE '2024-02-29', true)", "14978315729926358198"),
            ("hash([1, NULL])", "15366197987416995743"),
        ] {
            assert_eq!(value(&format!("SELECT {sql}")).await, expected, "{sql}");
        }
    }
}
