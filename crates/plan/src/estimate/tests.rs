use datafusion::arrow::datatypes::Field;
use datafusion::common::JoinType;
use datafusion::logical_expr::{Join, LogicalPlan, LogicalPlanBuilder, table_scan};

use super::*;

/// A join of two tables by so many of their columns.
fn join(kind: JoinType, columns: usize) -> Join {
    let schema = Schema::new(vec![Field::new("a", DataType::Int64, false), Field::new("b", DataType::Int64, false)]);
    let table = |name| table_scan(Some(name), &schema, None).unwrap();
    let keys = |table: &str| ["a", "b"][..columns].iter().map(|column| format!("{table}.{column}")).collect::<Vec<_>>();
    let right = table("r").build().unwrap();
    let joined = LogicalPlanBuilder::from(table("l").build().unwrap()).join(right, kind, (keys("l"), keys("r")), None);
    match joined.unwrap().build().unwrap() {
        LogicalPlan::Join(join) => join,
        other => panic!("{other}"),
    }
}

/// A table of so many rows, with the distinct values of `a` and `b`.
fn table(rows: f64, distinct: [f64; 2]) -> Estimate {
    let column = |distinct| ColumnEstimate { table_rows: rows, ..ColumnEstimate::of(distinct, 8.0) };
    Estimate { rows, columns: distinct.map(column).to_vec() }
}

/// TPC-H's lineitem and partsupp, by part and supplier.
fn lineitem_and_partsupp() -> (Estimate, Estimate) {
    (table(6e6, [2e5, 1e4]), table(8e5, [2e5, 1e4]))
}

#[test]
fn keys_of_several_columns_have_no_more_values_than_the_smaller_table_has_rows() {
    let (lineitem, partsupp) = lineitem_and_partsupp();
    assert_eq!(lineitem.join(&partsupp, &join(JoinType::Inner, 2)).rows, 6e6);
    let few = partsupp.with_rows(8e3);
    assert_eq!(lineitem.join(&few, &join(JoinType::Inner, 2)).rows, 6e4);
    assert_eq!(few.join(&lineitem, &join(JoinType::Inner, 2)).rows, 6e4);
    assert_eq!(lineitem.join(&few, &join(JoinType::LeftSemi, 2)).rows, 6e4);
    assert_eq!(few.join(&lineitem, &join(JoinType::RightSemi, 2)).rows, 6e4);
}

#[test]
fn keys_of_one_column_and_of_no_table_are_judged_by_their_values() {
    let (lineitem, partsupp) = lineitem_and_partsupp();
    assert_eq!(lineitem.join(&partsupp, &join(JoinType::Inner, 1)).rows, 6e6 * 8e5 / 2e5);
    let unknown = Estimate { rows: 1e3, columns: vec![ColumnEstimate::of(1e3, 8.0), ColumnEstimate::of(1e3, 8.0)] };
    assert_eq!(unknown.join(&unknown, &join(JoinType::Inner, 2)).rows, 1e3);
}
