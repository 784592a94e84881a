//! Names that plans make up for columns and tables: none that SQL text or a dataset's columns can have.

use datafusion::common::Column;
use datafusion::logical_expr::Expr;
use pithead_model::RESERVED;

/// The name of the `number`th thing of a kind.
pub(crate) fn own(kind: &str, number: usize) -> String {
    format!("{RESERVED}{kind}_{number}")
}

/// The column of that name.
pub(crate) fn own_column(kind: &str, number: usize) -> Expr {
    Expr::Column(Column::new_unqualified(own(kind, number)))
}
