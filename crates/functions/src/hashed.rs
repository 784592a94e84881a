//! `hash(x, …)`: 64 bits that are the same for equal values, on every drive and in every release. They are not those of DuckDB, which
//! change from one of its releases to another.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, UInt64Array};
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use arrow::row::{RowConverter, SortField};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

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
        other => other.clone(),
    }
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
    Ok(UInt64Array::from_iter_values(rows.iter().map(|row| hash(row.data()))))
}

/// What multiplies the bits of a word into all others: 2^64 divided by the golden ratio, made odd.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Words are rotated and multiplied into each other; in the end the bits are mixed as by Steele, Lea and Flood, "Fast Splittable
/// Pseudorandom Number Generators", 2014, figure 18.
fn hash(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    let mut hash = words.fold(bytes.len() as u64, |hash, word| (hash.rotate_left(23) ^ word).wrapping_mul(SPREAD));
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use arrow::util::display::array_value_to_string;
    use datafusion::prelude::SessionContext;

    use super::*;
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
        assert_eq!(hash(b"drive"), 6_282_260_519_167_587_075);
        assert_eq!(value("SELECT hash(1)").await, "9305545006309354177");
    }

    #[test]
    fn each_bit_of_a_value_changes_half_of_the_bits() {
        let of = |value: u64| hash(&value.to_le_bytes());
        for bit in 0..64 {
            let changed: u32 = (0..256_u64).map(|value| (of(value) ^ of(value ^ (1 << bit))).count_ones()).sum();
            assert!((28 * 256..36 * 256).contains(&changed), "bit {bit}: {changed}");
        }
        let low: HashSet<u64> = (0..1_000).map(|value| of(value) % 65_536).collect();
        assert!(low.len() > 980, "{}", low.len());
    }
}
