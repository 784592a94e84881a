//! [`Arithmetic`]: an expression over decimals as one function.

use std::hash::Hash;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Datum, Decimal128Array, Scalar};
use arrow::buffer::NullBuffer;
use arrow::compute::kernels::numeric::{add, mul, sub};
use arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef};
use arrow::error::ArrowError;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};
use pithead_functions::{check_decimals, name_overflow};

/// Arrow's checked arithmetic.
type Kernel = fn(&dyn Datum, &dyn Datum) -> std::result::Result<ArrayRef, ArrowError>;

/// What is done with two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Operation {
    Add,
    Subtract,
    Multiply,
}

/// A part of an expression.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Node {
    /// One of the function's arguments.
    Argument(usize),
    /// A constant, and its precision and scale.
    Literal(i64, u8, i8),
    /// Two parts, each with the power of ten that it is multiplied by first.
    Operation {
        operation: Operation,
        parts: Box<[(Node, i64); 2]>,
        /// Precision and scale of the result.
        decimal: (u8, i8),
    },
}

/// Values of a part in 64 bits.
enum Narrow {
    One(i64),
    Each(Vec<i64>),
}

impl Node {
    /// None: the value does not fit in 64 bits.
    pub(super) fn literal(value: i128, precision: u8, scale: i8) -> Option<Self> {
        Some(Self::Literal(i64::try_from(value).ok()?, precision, scale))
    }

    /// An operation on parts of these scales. None: its result has another scale than the engine would give it, or a part would
    /// have to be multiplied by more than fits.
    pub(super) fn operation(
        operation: Operation,
        (left, left_scale): (Node, i8),
        (right, right_scale): (Node, i8),
        decimal: (u8, i8),
    ) -> Option<Self> {
        let widest = left_scale.max(right_scale);
        let (expected, left_factor, right_factor) = match operation {
            Operation::Multiply => (left_scale.checked_add(right_scale)?, 1, 1),
            _ => (widest, power_of_ten(widest, left_scale)?, power_of_ten(widest, right_scale)?),
        };
        let parts = Box::new([(left, left_factor), (right, right_factor)]);
        (expected == decimal.1).then_some(Self::Operation { operation, parts, decimal })
    }

    /// Its values in 64 bits; none if one of them does not fit. What stands at NULLs counts, and does no harm.
    fn narrow(&self, arguments: &[&[i128]]) -> Option<Narrow> {
        match self {
            Self::Argument(index) => narrowed(arguments.get(*index)?).map(Narrow::Each),
            Self::Literal(value, ..) => Some(Narrow::One(*value)),
            Self::Operation { operation, parts, .. } => {
                let [left, right] = Self::operands(parts, arguments)?;
                match operation {
                    Operation::Add => combine(left, right, i64::overflowing_add),
                    Operation::Subtract => combine(left, right, i64::overflowing_sub),
                    Operation::Multiply => combine(left, right, i64::overflowing_mul),
                }
            }
        }
    }

    fn operands(parts: &[(Node, i64); 2], arguments: &[&[i128]]) -> Option<[Narrow; 2]> {
        let operand = |(node, factor): &(Node, i64)| match (node.narrow(arguments)?, *factor) {
            (values, 1) => Some(values),
            (values, factor) => combine(values, Narrow::One(factor), i64::overflowing_mul),
        };
        Some([operand(&parts[0])?, operand(&parts[1])?])
    }

    /// The result of the last operation in 128 bits, where no operation on 64 bits can overflow.
    fn wide(&self, arguments: &[&[i128]]) -> Option<Vec<i128>> {
        let Self::Operation { operation, parts, .. } = self else { return None };
        let [left, right] = Self::operands(parts, arguments)?;
        Some(match operation {
            Operation::Add => widen(left, right, |left, right| i128::from(left) + i128::from(right)),
            Operation::Subtract => widen(left, right, |left, right| i128::from(left) - i128::from(right)),
            Operation::Multiply => widen(left, right, |left, right| i128::from(left) * i128::from(right)),
        })
    }

    /// The same as the engine computes it, an operation at a time.
    fn as_engine(&self, arguments: &[ArrayRef]) -> Result<ArrayRef> {
        match self {
            Self::Argument(index) => match arguments.get(*index) {
                Some(argument) => Ok(Arc::clone(argument)),
                None => internal_err!("there is no argument {index}"),
            },
            Self::Literal(value, precision, scale) => {
                let array = Decimal128Array::from_value(i128::from(*value), 1).with_precision_and_scale(*precision, *scale)?;
                Ok(Arc::new(array))
            }
            Self::Operation { operation, parts, .. } => {
                let [(left, _), (right, _)] = parts.as_ref();
                let (kernel, noun): (Kernel, _) = match operation {
                    Operation::Add => (add, "addition"),
                    Operation::Subtract => (sub, "subtraction"),
                    Operation::Multiply => (mul, "multiplication"),
                };
                let (left_values, right_values) = (left.as_engine(arguments)?, right.as_engine(arguments)?);
                let result = match (left.is_one(), right.is_one()) {
                    (true, true) => kernel(&left_values, &right_values),
                    (true, false) => kernel(&Scalar::new(Arc::clone(&left_values)), &right_values),
                    (false, true) => kernel(&left_values, &Scalar::new(right_values)),
                    (false, false) => kernel(&left_values, &right_values),
                };
                let result = result.map_err(|error| name_overflow(noun, left_values.data_type(), error.into()))?;
                check_decimals(noun, result.as_ref())?;
                Ok(result)
            }
        }
    }

    /// Whether it has one value for all rows.
    fn is_one(&self) -> bool {
        match self {
            Self::Argument(_) => false,
            Self::Literal(..) => true,
            Self::Operation { parts, .. } => parts.iter().all(|(part, _)| part.is_one()),
        }
    }
}

fn power_of_ten(to: i8, from: i8) -> Option<i64> {
    10i64.checked_pow(u32::try_from(to.checked_sub(from)?).ok()?)
}

/// The values in 64 bits, if all fit.
fn narrowed(values: &[i128]) -> Option<Vec<i64>> {
    let mut lost = 0;
    let narrowed = values.iter().map(|value| {
        let narrow = *value as i64;
        lost |= i128::from(narrow) ^ *value;
        narrow
    });
    let narrowed: Vec<i64> = narrowed.collect();
    (lost == 0).then_some(narrowed)
}

fn combine(left: Narrow, right: Narrow, operation: impl Fn(i64, i64) -> (i64, bool)) -> Option<Narrow> {
    let mut overflows = false;
    let mut one = |left: i64, right: i64| {
        let (value, overflow) = operation(left, right);
        overflows |= overflow;
        value
    };
    let combined = match (left, right) {
        (Narrow::One(left), Narrow::One(right)) => Narrow::One(one(left, right)),
        (Narrow::One(left), Narrow::Each(mut right)) => {
            right.iter_mut().for_each(|right| *right = one(left, *right));
            Narrow::Each(right)
        }
        (Narrow::Each(mut left), Narrow::One(right)) => {
            left.iter_mut().for_each(|left| *left = one(*left, right));
            Narrow::Each(left)
        }
        (Narrow::Each(mut left), Narrow::Each(right)) => {
            left.iter_mut().zip(right).for_each(|(left, right)| *left = one(*left, right));
            Narrow::Each(left)
        }
    };
    (!overflows).then_some(combined)
}

fn widen(left: Narrow, right: Narrow, operation: impl Fn(i64, i64) -> i128) -> Vec<i128> {
    match (left, right) {
        (Narrow::One(left), Narrow::One(right)) => vec![operation(left, right)],
        (Narrow::One(left), Narrow::Each(right)) => right.into_iter().map(|right| operation(left, right)).collect(),
        (Narrow::Each(left), Narrow::One(right)) => left.into_iter().map(|left| operation(left, right)).collect(),
        (Narrow::Each(left), Narrow::Each(right)) => {
            left.into_iter().zip(right).map(|(left, right)| operation(left, right)).collect()
        }
    }
}

/// The expression. It runs at a drive only, and never travels.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Arithmetic {
    root: Node,
    signature: Signature,
}

impl Arithmetic {
    /// An operation over this many arguments, at least one.
    pub(super) fn new(root: Node, arguments: usize) -> Self {
        Self { root, signature: Signature::any(arguments, Volatility::Immutable) }
    }

    fn evaluate(&self, arguments: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let decimals: Option<Vec<&Decimal128Array>> =
            arguments.iter().map(|argument| argument.as_primitive_opt::<Decimal128Type>()).collect();
        let values: Vec<&[i128]> = decimals.iter().flatten().map(|decimals| decimals.values().as_ref()).collect();
        let result = if values.len() == arguments.len() { self.root.wide(&values) } else { None };
        match result.filter(|result| result.len() == rows) {
            Some(result) => {
                let nulls = NullBuffer::union_many(arguments.iter().map(|argument| argument.nulls()));
                let result = Decimal128Array::try_new(result.into(), nulls)?;
                Ok(Arc::new(result.with_data_type(self.data_type())))
            }
            None => self.root.as_engine(arguments),
        }
    }

    fn data_type(&self) -> DataType {
        match self.root {
            Node::Operation { decimal: (precision, scale), .. } | Node::Literal(_, precision, scale) => {
                DataType::Decimal128(precision, scale)
            }
            Node::Argument(_) => DataType::Null,
        }
    }
}

impl ScalarUDFImpl for Arithmetic {
    fn name(&self) -> &str {
        "narrow_decimals"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(self.data_type())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.data_type(), nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let arguments: Vec<ArrayRef> =
            args.args.into_iter().map(|argument| argument.into_array(rows)).collect::<Result<_>>()?;
        self.evaluate(&arguments, rows).map(ColumnarValue::Array)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decimals(values: Vec<Option<i128>>, precision: u8, scale: i8) -> ArrayRef {
        Arc::new(Decimal128Array::from(values).with_precision_and_scale(precision, scale).unwrap())
    }

    /// `a * (1 - b) * (2.5 + c)` with the types that the engine gives it: a (15, 2), b (15, 2), c (9, 4).
    fn expression() -> Node {
        let literal = |value, precision, scale| Node::literal(value, precision, scale).unwrap();
        let less = Node::operation(Operation::Subtract, (literal(1, 20, 0), 0), (Node::Argument(1), 2), (23, 2)).unwrap();
        let first = Node::operation(Operation::Multiply, (Node::Argument(0), 2), (less, 2), (38, 4)).unwrap();
        let more = Node::operation(Operation::Add, (literal(25, 2, 1), 1), (Node::Argument(2), 4), (10, 4)).unwrap();
        Node::operation(Operation::Multiply, (first, 4), (more, 4), (38, 8)).unwrap()
    }

    fn value() -> impl Strategy<Value = Option<i128>> {
        prop_oneof![
            6 => (-1_000_000i128..1_000_000).prop_map(Some),
            1 => Just(None),
            1 => any::<i64>().prop_map(|value| Some(i128::from(value))),
            1 => any::<i128>().prop_map(Some),
        ]
    }

    fn outcome(result: Result<ArrayRef>) -> Result<ArrayRef, String> {
        result.map_err(|error| error.to_string())
    }

    proptest! {
        #[test]
        fn answers_and_errors_are_the_engines(rows in prop::collection::vec([value(), value(), value()], 0..40)) {
            let column = |index: usize| rows.iter().map(|row: &[Option<i128>; 3]| row[index]).collect::<Vec<_>>();
            let arguments = [decimals(column(0), 15, 2), decimals(column(1), 15, 2), decimals(column(2), 9, 4)];
            let arithmetic = Arithmetic::new(expression(), 3);
            let (ours, engines) = (arithmetic.evaluate(&arguments, rows.len()), expression().as_engine(&arguments));
            prop_assert_eq!(outcome(ours), outcome(engines));
        }
    }

    #[test]
    fn values_of_every_size_are_computed_one_way_or_the_other() {
        let small = [
            decimals(vec![Some(10), None], 15, 2),
            decimals(vec![Some(6), Some(1)], 15, 2),
            decimals(vec![None, Some(7)], 9, 4),
        ];
        let values = |arrays: &[ArrayRef]| {
            expression().wide(&arrays.iter().map(|a| a.as_primitive::<Decimal128Type>().values().as_ref()).collect::<Vec<_>>())
        };
        assert!(values(&small).is_some());
        let large = decimals(vec![Some(i128::from(i64::MAX) + 1), None], 38, 2);
        assert!(values(&[large, Arc::clone(&small[1]), Arc::clone(&small[2])]).is_none());
        let product = decimals(vec![Some(1 << 60), None], 38, 2);
        assert!(values(&[product, Arc::clone(&small[1]), Arc::clone(&small[2])]).is_none());
    }

    #[test]
    fn what_the_engine_would_scale_otherwise_is_left_to_it() {
        assert!(Node::operation(Operation::Multiply, (Node::Argument(0), 2), (Node::Argument(1), 2), (38, 3)).is_none());
        assert!(Node::operation(Operation::Add, (Node::Argument(0), 0), (Node::Argument(1), 30), (38, 30)).is_none());
        assert!(Node::literal(i128::MAX, 38, 0).is_none());
    }
}
