//! What texts are as digits, and how far two of them are from each other, byte by byte, as in DuckDB: `hex`, `bin`, `jaccard` and `hamming`.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, StringViewArray, StringViewBuilder};
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use datafusion::common::{Result, exec_err, internal_err, plan_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use crate::wall_time::as_given;

/// What such a function asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Asked {
    /// Digits of a whole number, or of each byte of a text.
    Digits(Base),
    /// How many of the bytes that either text has are in both.
    Jaccard,
    /// How many bytes are different in two texts of one length.
    Mismatches,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Base {
    Two,
    Sixteen,
}

const FUNCTIONS: [(&str, &[&str], Asked); 4] = [
    ("hex", &[], Asked::Digits(Base::Sixteen)),
    ("bin", &["to_binary"], Asked::Digits(Base::Two)),
    ("jaccard", &[], Asked::Jaccard),
    ("hamming", &["mismatches"], Asked::Mismatches),
];

pub(crate) fn text_measures_udfs() -> impl Iterator<Item = ScalarUDF> {
    FUNCTIONS.into_iter().map(|(name, aliases, asked)| {
        let signature = match asked {
            Asked::Digits(_) => Signature::user_defined(Volatility::Immutable),
            Asked::Jaccard | Asked::Mismatches => {
                Signature::exact(vec![DataType::Utf8View, DataType::Utf8View], Volatility::Immutable)
            }
        };
        let aliases = aliases.iter().map(|alias| (*alias).to_owned()).collect();
        ScalarUDF::new_from_impl(TextMeasure { name, aliases, asked, signature })
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TextMeasure {
    name: &'static str,
    aliases: Vec<String>,
    asked: Asked,
    signature: Signature,
}

impl ScalarUDFImpl for TextMeasure {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [DataType::UInt64] => Ok(vec![DataType::UInt64]),
            [of] if of.is_integer() => Ok(vec![DataType::Int64]),
            [of] if of.is_string() || of.is_null() => Ok(vec![DataType::Utf8View]),
            [of] if of.is_binary() => Ok(vec![DataType::BinaryView]),
            [other] => plan_err!("{} expects a text, bytes or a whole number, and {other} was given", self.name),
            _ => plan_err!("{} expects one argument", self.name),
        }
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(match self.asked {
            Asked::Digits(_) => DataType::Utf8View,
            Asked::Jaccard => DataType::Float64,
            Asked::Mismatches => DataType::Int64,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let columns = args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let found: ArrayRef = match (self.asked, &columns[..]) {
            (Asked::Digits(base), [values]) => Arc::new(digits(values, base)?),
            (Asked::Jaccard, [one, other]) => Arc::new(each(one, other, jaccard)?.into_iter().collect::<Float64Array>()),
            (Asked::Mismatches, [one, other]) => Arc::new(each(one, other, mismatches)?.into_iter().collect::<Int64Array>()),
            _ => return internal_err!("{} was given {} arguments", self.name, columns.len()),
        };
        as_given(found, is_scalar)
    }
}

fn digits(values: &ArrayRef, base: Base) -> Result<StringViewArray> {
    let mut texts = StringViewBuilder::with_capacity(values.len());
    match values.data_type() {
        DataType::Int64 => {
            values
                .as_primitive::<Int64Type>()
                .iter()
                .for_each(|value| texts.append_option(value.map(|it| base.number(it as u64))));
        }
        DataType::UInt64 => {
            values.as_primitive::<UInt64Type>().iter().for_each(|value| texts.append_option(value.map(|it| base.number(it))));
        }
        DataType::Utf8View => {
            values.as_string_view().iter().for_each(|text| texts.append_option(text.map(|it| base.bytes(it.as_bytes()))));
        }
        DataType::BinaryView => {
            values.as_binary_view().iter().for_each(|bytes| texts.append_option(bytes.map(|it| base.bytes(it))));
        }
        other => return internal_err!("no digits are made of {other}"),
    }
    Ok(texts.finish())
}

impl Base {
    fn number(self, number: u64) -> String {
        match self {
            Base::Two => format!("{number:b}"),
            Base::Sixteen => format!("{number:X}"),
        }
    }

    /// The digits of all bytes, with as many for each.
    fn bytes(self, bytes: &[u8]) -> String {
        bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // To write to a text never fails.
            let _ = match self {
                Base::Two => write!(text, "{byte:08b}"),
                Base::Sixteen => write!(text, "{byte:02X}"),
            };
            text
        })
    }
}

/// A measure of the two texts of each row; none where one is NULL.
fn each<T>(one: &ArrayRef, other: &ArrayRef, measure: impl Fn(&str, &str) -> Result<T>) -> Result<Vec<Option<T>>> {
    let texts = one.as_string_view().iter().zip(other.as_string_view().iter());
    texts.map(|(one, other)| one.zip(other).map(|(one, other)| measure(one, other)).transpose()).collect()
}

fn jaccard(one: &str, other: &str) -> Result<f64> {
    if one.is_empty() || other.is_empty() {
        return exec_err!("jaccard() compares texts of at least one character, and one is empty");
    }
    let bytes = |text: &str| {
        text.bytes().fold([false; 256], |mut found, byte| {
            found[usize::from(byte)] = true;
            found
        })
    };
    let (one, other) = (bytes(one), bytes(other));
    let count = |is_counted: fn(bool, bool) -> bool| one.iter().zip(&other).filter(|(a, b)| is_counted(**a, **b)).count();
    Ok(count(|a, b| a && b) as f64 / count(|a, b| a || b) as f64)
}

fn mismatches(one: &str, other: &str) -> Result<i64> {
    if one.len() != other.len() || one.is_empty() {
        return exec_err!(
            "hamming() compares texts of the same length that are not empty, and they have {} and {} bytes",
            one.len(),
            other.len()
        );
    }
    Ok(one.bytes().zip(other.bytes()).filter(|(a, b)| a != b).count() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_of_numbers_and_bytes() {
        let of =
            |values: ArrayRef, base| digits(&values, base).unwrap().iter().map(|it| it.map(str::to_owned)).collect::<Vec<_>>();
        let some = |texts: &[&str]| texts.iter().map(|text| Some((*text).to_owned())).chain([None]).collect::<Vec<_>>();
        let numbers = || Arc::new(Int64Array::from(vec![Some(0), Some(255), Some(-1), None])) as ArrayRef;
        assert_eq!(of(numbers(), Base::Sixteen), some(&["0", "FF", "FFFFFFFFFFFFFFFF"]));
        assert_eq!(of(numbers(), Base::Two), some(&["0", "11111111", &"1".repeat(64)]));
        let texts = || Arc::new(StringViewArray::from(vec![Some("aé"), Some(""), None])) as ArrayRef;
        assert_eq!(of(texts(), Base::Sixteen), some(&["61C3A9", ""]));
        assert_eq!(of(texts(), Base::Two), some(&["011000011100001110101001", ""]));
    }

    #[test]
    fn texts_are_compared_byte_by_byte() {
        for (one, other, expected) in
            [("abc", "abd", 0.5), ("aa", "aab", 0.5), ("é", "e", 0.0), ("éa", "ê", 0.25), ("x", "x", 1.0)]
        {
            assert_eq!(jaccard(one, other).unwrap(), expected, "{one} {other}");
        }
        assert!(jaccard("a", "").unwrap_err().to_string().contains("one is empty"));
        assert_eq!(mismatches("abc", "abd").unwrap(), 1);
        assert_eq!(mismatches("é", "ea").unwrap(), 2);
        assert!(mismatches("a", "").unwrap_err().to_string().contains("1 and 0 bytes"));
        assert!(mismatches("", "").is_err());
    }
}
