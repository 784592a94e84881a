//! [`Checked`]: an operator in the form of a function that checks its result.

use std::fmt::Write;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::kernels::{Operation, combine, negate};

/// The function that takes the place of an operator. It has no name that SQL can spell, is never registered, and never
/// travels: it is replaced by the operator before anybody but the optimiser and the engine sees it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Checked {
    operation: Operation,
    signature: Signature,
}

impl Checked {
    /// The function for an operator that must be checked over whole numbers and decimals. None if the operator needs no
    /// check.
    pub(super) fn of(operator: Operator) -> Option<Operation> {
        match operator {
            Operator::Plus => Some(Operation::Add),
            Operator::Minus => Some(Operation::Subtract),
            Operator::Multiply => Some(Operation::Multiply),
            Operator::Divide => Some(Operation::Divide),
            Operator::BitwiseShiftLeft => Some(Operation::ShiftLeft),
            Operator::BitwiseShiftRight => Some(Operation::ShiftRight),
            Operator::BitwiseXor => Some(Operation::ExclusiveOr),
            _ => None,
        }
    }

    pub(super) fn call(operation: Operation, arguments: Vec<Expr>) -> Expr {
        let signature = Signature::any(arguments.len(), Volatility::Immutable);
        ScalarUDF::new_from_impl(Self { operation, signature }).call(arguments)
    }

    /// The function of each operation.
    pub(super) fn all() -> Vec<ScalarUDF> {
        use Operation::{Add, Divide, ExclusiveOr, Multiply, Negate, ShiftLeft, ShiftRight, Subtract};
        let function = |operation| {
            let arguments = if operation == Negate { 1 } else { 2 };
            ScalarUDF::new_from_impl(Self { operation, signature: Signature::any(arguments, Volatility::Immutable) })
        };
        [Add, Subtract, Multiply, Divide, Negate, ShiftLeft, ShiftRight, ExclusiveOr].map(function).to_vec()
    }

    fn operator(&self) -> Option<Operator> {
        match self.operation {
            Operation::Add => Some(Operator::Plus),
            Operation::Subtract => Some(Operator::Minus),
            Operation::Multiply => Some(Operator::Multiply),
            Operation::Divide => Some(Operator::Divide),
            Operation::ShiftLeft => Some(Operator::BitwiseShiftLeft),
            Operation::ShiftRight => Some(Operator::BitwiseShiftRight),
            Operation::ExclusiveOr => Some(Operator::BitwiseXor),
            Operation::Negate => None,
        }
    }

    /// The original operator over these arguments.
    pub(super) fn as_operator(&self, mut arguments: Vec<Expr>) -> Result<Expr> {
        match (self.operator(), arguments.pop(), arguments.pop()) {
            (Some(operator), Some(right), Some(left)) => {
                Ok(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right))))
            }
            (None, Some(value), None) => Ok(Expr::Negative(Box::new(value))),
            _ => internal_err!("{:?} has other arguments than its operator", self.operation),
        }
    }

    /// Writes the operator's name. A chain of operators is as deep as it is long, and rules ask for the name of each part of it: to make
    /// a text of each operand first would take the cube of its length.
    fn write_name(&self, arguments: &[Expr], name: &mut String) -> Result<()> {
        match (self.operator(), arguments) {
            (Some(operator), [left, right]) => {
                write_operand(left, name)?;
                write!(name, " {operator} ")?;
                write_operand(right, name)
            }
            (None, [value]) => {
                name.push_str("(- ");
                write_operand(value, name)?;
                name.push(')');
                Ok(())
            }
            _ => internal_err!("{:?} has other arguments than its operator", self.operation),
        }
    }
}

fn write_operand(operand: &Expr, name: &mut String) -> Result<()> {
    if let Expr::ScalarFunction(call) = operand
        && let Some(checked) = call.func.inner().downcast_ref::<Checked>()
    {
        return checked.write_name(&call.args, name);
    }
    Ok(write!(name, "{}", operand.schema_name())?)
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        match self.operation {
            Operation::Add => "checked +",
            Operation::Subtract => "checked -",
            Operation::Multiply => "checked *",
            Operation::Divide => "checked /",
            Operation::Negate => "checked negation",
            Operation::ShiftLeft => "checked <<",
            Operation::ShiftRight => "checked >>",
            Operation::ExclusiveOr => "checked exclusive or",
        }
    }

    /// The operator's name, so that columns keep their names.
    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        let mut name = String::new();
        self.write_name(arguments, &mut name)?;
        Ok(name)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match (self.operator(), types) {
            (Some(operator), [left, right]) => BinaryTypeCoercer::new(left, &operator, right).get_result_type(),
            (None, [value]) => Ok(value.clone()),
            _ => internal_err!("{:?} has other arguments than its operator", self.operation),
        }
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
        match args.args.as_slice() {
            [left, right] => combine(self.operation, left, right),
            [value] => negate(value),
            _ => internal_err!("{:?} has other arguments than its operator", self.operation),
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{col, lit};

    use super::*;

    #[test]
    fn a_checked_operator_is_named_as_the_plain_one() {
        let product = Checked::call(Operation::Multiply, vec![col("b"), lit(2)]);
        let sum = Checked::call(Operation::Add, vec![col("a"), product]);
        let negated = Checked::call(Operation::Negate, vec![sum]);
        let plain = -(col("a") + col("b") * lit(2));
        assert_eq!(negated.schema_name().to_string(), plain.schema_name().to_string());
        let chain = (0..200).fold(col("a"), |chain, _| Checked::call(Operation::Add, vec![chain, col("a")]));
        assert_eq!(chain.schema_name().to_string().len(), 1 + 200 * " + a".len());
    }
}
