//! Decimal arithmetic in 64 bits where the values fit.
//!
//! Decimals are 128 bits wide, and the engine multiplies them with a check of each product, an operator at a time. Values of real
//! columns nearly always fit in 64 bits, whatever their type would allow. So a whole expression of `+`, `-` and `*` becomes one
//! function ([`arithmetic::Arithmetic`]), which looks at the values of each batch: if they fit, and so does every result between,
//! it computes in 64 bits; if not, it does what the engine does. The last operation yields 128 bits and cannot overflow. Answers,
//! types and errors are those of the engine.

mod arithmetic;

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, ScalarUDF};

use arithmetic::{Arithmetic, Node, Operation};

/// The plan with decimal arithmetic of its projections and aggregates in 64 bits where the values fit.
pub(crate) fn narrow(plan: LogicalPlan) -> Result<LogicalPlan> {
    let narrowed = plan.transform_down(|node| {
        if !matches!(node, LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_)) {
            return Ok(Transformed::no(node));
        }
        let [input] = node.inputs()[..] else { return Ok(Transformed::no(node)) };
        let schema = Arc::clone(input.schema());
        let names = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let saved = names.save(&expr);
            Ok(expr.transform_down(|expr| rewritten(expr, &schema))?.update_data(|expr| saved.restore(expr)))
        })
    })?;
    Ok(narrowed.data)
}

fn rewritten(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let mut arguments = Vec::new();
    let made = match &expr {
        // Arguments that are alike become one, which of a volatile function would be another answer.
        Expr::BinaryExpr(binary) if !expr.is_volatile() => operation(binary, &expr, schema, &mut arguments)?,
        _ => None,
    };
    // Without arguments it is a constant.
    let Some(root) = made.filter(|_| !arguments.is_empty()) else { return Ok(Transformed::no(expr)) };
    let function = ScalarUDF::new_from_impl(Arithmetic::new(root, arguments.len()));
    // What is an argument has no such arithmetic at its top, and what is deeper is not worth looking for.
    Ok(Transformed::new(function.call(arguments), true, TreeNodeRecursion::Jump))
}

/// An operation on decimals that gives a decimal of the scale that is expected, with what it needs among the arguments.
fn operation(binary: &BinaryExpr, expr: &Expr, schema: &DFSchema, arguments: &mut Vec<Expr>) -> Result<Option<Node>> {
    let operation = match binary.op {
        Operator::Plus => Operation::Add,
        Operator::Minus => Operation::Subtract,
        Operator::Multiply => Operation::Multiply,
        _ => return Ok(None),
    };
    let types = (binary.left.get_type(schema)?, binary.right.get_type(schema)?, expr.get_type(schema)?);
    let (DataType::Decimal128(_, left_scale), DataType::Decimal128(_, right_scale), DataType::Decimal128(precision, scale)) =
        types
    else {
        return Ok(None);
    };
    let known = arguments.len();
    let (Some(left), Some(right)) = (node(&binary.left, schema, arguments)?, node(&binary.right, schema, arguments)?) else {
        arguments.truncate(known);
        return Ok(None);
    };
    let made = Node::operation(operation, (left, left_scale), (right, right_scale), (precision, scale));
    if made.is_none() {
        arguments.truncate(known);
    }
    Ok(made)
}

fn node(expr: &Expr, schema: &DFSchema, arguments: &mut Vec<Expr>) -> Result<Option<Node>> {
    match expr {
        Expr::BinaryExpr(binary) => {
            if let Some(node) = operation(binary, expr, schema, arguments)? {
                return Ok(Some(node));
            }
        }
        Expr::Literal(ScalarValue::Decimal128(Some(value), precision, scale), _) => {
            return Ok(Node::literal(*value, *precision, *scale));
        }
        _ => {}
    }
    let index = arguments.iter().position(|argument| argument == expr).unwrap_or(arguments.len());
    if index == arguments.len() {
        arguments.push(expr.clone());
    }
    Ok(Some(Node::Argument(index)))
}
