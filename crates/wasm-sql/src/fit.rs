//! Which arguments a user's function takes as they are, or made to fit.
//!
//! The engine's own rules refuse an integer literal, which is a bigint, where a function takes integers, and name the function by
//! the name that plans have for it. Here the rules are: numbers of a narrower type fit, NULL fits everything, and so does a
//! literal whose value does.

use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use pithead_model::{Blame, Fault};

use crate::external::external;

/// The types to which arguments are cast before the call. What does not fit stays as it is, for [`check`] to judge: an error from
/// here would be told with the name that plans have.
pub(crate) fn fitted(takes: &[DataType], given: &[DataType]) -> Vec<DataType> {
    let missing = takes.iter().map(Some).chain(std::iter::repeat(None));
    let fitted = |(given, takes): (&DataType, Option<&DataType>)| match takes {
        Some(takes) if fits(takes, given) => takes.clone(),
        _ => given.clone(),
    };
    given.iter().zip(missing).map(fitted).collect()
}

/// Refuses arguments that do not fit. `literals`: the values of those that are constants.
pub(crate) fn check(name: &str, takes: &[DataType], given: &[DataType], literals: &[Option<&ScalarValue>]) -> Result<()> {
    let refuse = |what: String| Err(external(Fault::new(Blame::User, what)));
    if given.len() != takes.len() {
        let plural = if takes.len() == 1 { "" } else { "s" };
        return refuse(format!("{name} takes {} argument{plural}, and {} were given", takes.len(), given.len()));
    }
    for (at, (takes, given)) in takes.iter().zip(given).enumerate() {
        let literal = literals.get(at).copied().flatten();
        let is_value = literal.is_some_and(|value| given.is_integer() && takes.is_integer() && holds(takes, value));
        if !fits(takes, given) && !is_value {
            let (takes, given, number) = (named(takes), named(given), at + 1);
            return refuse(format!("argument {number} of {name} is {takes}, and {given} was given; cast it"));
        }
    }
    Ok(())
}

/// Whether every value of a type is one of the other, or may be rounded to one.
fn fits(takes: &DataType, given: &DataType) -> bool {
    use DataType::{
        Binary, BinaryView, Boolean, Float64, Int8, Int16, Int32, Int64, LargeBinary, LargeUtf8, Null, UInt8, UInt16, UInt32,
        Utf8, Utf8View,
    };
    let given = if let DataType::Dictionary(_, values) = given { values } else { given };
    match takes {
        _ if takes == given || *given == Null => true,
        Boolean => false,
        Int32 => matches!(given, Int8 | Int16 | UInt8 | UInt16),
        Int64 => matches!(given, Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32),
        Float64 => given.is_numeric(),
        Utf8View => matches!(given, Utf8 | LargeUtf8),
        BinaryView => matches!(given, Binary | LargeBinary),
        _ => false,
    }
}

/// Whether a type has this value.
fn holds(takes: &DataType, value: &ScalarValue) -> bool {
    value.is_null() || value.cast_to(takes).is_ok_and(|cast| !cast.is_null())
}

/// A type as people write it.
fn named(of: &DataType) -> String {
    let name = match of {
        DataType::Boolean => "boolean",
        DataType::Int16 => "smallint",
        DataType::Int32 => "integer",
        DataType::Int64 => "bigint",
        DataType::Float32 => "real",
        DataType::Float64 => "double precision",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "bytea",
        DataType::Date32 => "date",
        DataType::Decimal128(digits, scale) => return format!("decimal({digits},{scale})"),
        other => return other.to_string(),
    };
    name.to_owned()
}
