//! Floats in JSON that it has no numbers for: they are written as DuckDB writes and reads them, `NaN` and `Infinity`, and not as null.

use std::sync::LazyLock;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, FieldRef, Float16Type, Float32Type, Float64Type};
use arrow::error::ArrowError;
use arrow::json::writer::{Encoder, EncoderFactory, EncoderOptions, NullableEncoder, make_encoder};

/// Options without this factory, by which all other floats are written.
static PLAIN: LazyLock<EncoderOptions> = LazyLock::new(EncoderOptions::default);

/// Encodes columns with such floats, within lists and structs, too.
#[derive(Debug)]
pub(super) struct AllFloats;

impl EncoderFactory for AllFloats {
    fn make_default_encoder<'a>(
        &self,
        field: &'a FieldRef,
        array: &'a dyn Array,
        _options: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        let all_are_numbers = match array.data_type() {
            DataType::Float16 => array.as_primitive::<Float16Type>().values().iter().all(|value| value.is_finite()),
            DataType::Float32 => array.as_primitive::<Float32Type>().values().iter().all(|value| value.is_finite()),
            DataType::Float64 => array.as_primitive::<Float64Type>().values().iter().all(|value| value.is_finite()),
            _ => true,
        };
        if all_are_numbers {
            return Ok(None);
        }
        let floats = Floats { plain: make_encoder(field, array, &PLAIN)?, array };
        Ok(Some(NullableEncoder::new(Box::new(floats), array.nulls().cloned())))
    }
}

/// A column of floats, of which some are no numbers.
struct Floats<'a> {
    plain: NullableEncoder<'a>,
    array: &'a dyn Array,
}

impl Encoder for Floats<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let value = match self.array.data_type() {
            DataType::Float16 => self.array.as_primitive::<Float16Type>().value(row).to_f64(),
            DataType::Float32 => f64::from(self.array.as_primitive::<Float32Type>().value(row)),
            _ => self.array.as_primitive::<Float64Type>().value(row),
        };
        match value {
            value if value.is_nan() => out.extend_from_slice(b"NaN"),
            f64::INFINITY => out.extend_from_slice(b"Infinity"),
            f64::NEG_INFINITY => out.extend_from_slice(b"-Infinity"),
            _ => self.plain.encode(row, out),
        }
    }
}
