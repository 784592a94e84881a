//! Estimates beside numbers of rows that were counted in generated data.

use std::collections::BTreeSet;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{JoinType, TableReference};
use datafusion::logical_expr::{Join, LogicalPlan, LogicalPlanBuilder, col, lit, table_scan};

use super::*;

const KEYS: i64 = 1_000;

/// Rows of a table: a key, and a number that does not depend on it.
fn rows(name: &str, count: i64) -> Vec<(i64, i64)> {
    let seed = i64::try_from(name.len()).unwrap() * 7_919;
    let mixed = |row: i64, factor: i64| ((row + seed).wrapping_mul(factor) >> 7).rem_euclid(1_000_003);
    (0..count).map(|row| (row % KEYS, mixed(row, 48_271_000_003) % 100)).collect()
}

fn estimate(rows: &[(i64, i64)]) -> Estimate {
    let column = |values: BTreeSet<i64>| ColumnEstimate {
        range: Some((*values.first().unwrap() as f64, *values.last().unwrap() as f64)),
        domain_rows: rows.len() as f64,
        ..ColumnEstimate::of(values.len() as f64, 8.0)
    };
    let columns = vec![column(rows.iter().map(|row| row.0).collect()), column(rows.iter().map(|row| row.1).collect())];
    Estimate { rows: rows.len() as f64, columns }
}

fn scan(name: &str) -> LogicalPlan {
    let schema = Schema::new(vec![Field::new("k", DataType::Int64, false), Field::new("v", DataType::Int64, false)]);
    table_scan(Some(TableReference::bare(name)), &schema, None).unwrap().build().unwrap()
}

fn join(join_type: JoinType) -> Join {
    join_by(join_type, (vec!["a.k"], vec!["bb.k"]))
}

fn join_by(join_type: JoinType, on: (Vec<&str>, Vec<&str>)) -> Join {
    let plan = LogicalPlanBuilder::from(scan("a")).join(scan("bb"), join_type, on, None).unwrap().build().unwrap();
    let LogicalPlan::Join(join) = plan else { panic!("no join: {plan}") };
    join
}

fn close(expected: f64, counted: usize) -> bool {
    let counted = counted as f64;
    expected <= counted * 1.5 && counted <= expected * 1.5
}

/// Two tables with the same keys, filtered by other columns: the filters choose keys without regard to each other.
#[test]
fn filtered_sides_are_not_taken_to_have_the_same_keys() {
    let (a, b) = (rows("a", 1_000), rows("bb", 5_000));
    let few = |rows: &[(i64, i64)], below: i64| rows.iter().copied().filter(|row| row.1 < below).collect::<Vec<_>>();
    let (a_schema, b_schema) = (scan("a").schema().clone(), scan("bb").schema().clone());
    for (below_a, below_b) in [(100, 100), (10, 100), (100, 10), (10, 10), (30, 20)] {
        let left = estimate(&a).filter(&col("a.v").lt(lit(below_a)), &a_schema);
        let right = estimate(&b).filter(&col("bb.v").lt(lit(below_b)), &b_schema);
        let (a, b) = (few(&a, below_a), few(&b, below_b));
        let matches = a.iter().map(|row| b.iter().filter(|other| other.0 == row.0).count()).sum();
        let inner = left.join(&right, &join(JoinType::Inner));
        assert!(close(inner.rows, matches), "{below_a} {below_b}: {} expected, {matches} counted", inner.rows);
        let keys: BTreeSet<i64> = b.iter().map(|row| row.0).collect();
        let semi = left.join(&right, &join(JoinType::LeftSemi));
        let matches = a.iter().filter(|row| keys.contains(&row.0)).count();
        assert!(close(semi.rows, matches), "{below_a} {below_b}: {} expected, {matches} counted", semi.rows);
        // A third table with the keys of what is joined, all of them: as many rows as there are.
        let all = estimate(&rows("a", 1_000));
        let again = inner.join(&all, &join(JoinType::Inner));
        assert!(close(again.rows, inner.rows as usize), "{below_a} {below_b}: {} of {}", again.rows, inner.rows);
    }
}

/// A table that is filtered by the keys of another, and then joined with it, has the rows that the filter left.
#[test]
fn what_keys_have_reduced_is_not_reduced_again() {
    let (a, b) = (rows("a", 1_000), rows("bb", 5_000));
    let (a_schema, b_schema) = (scan("a").schema().clone(), scan("bb").schema().clone());
    let first = estimate(&b).filter(&col("bb.v").lt(lit(2_i64)), &b_schema);
    for known in [first.clone().settled(), first.measured(300.0, 4_800.0)] {
        let keys = known.group(&[col("bb.k")], &b_schema, &b_schema);
        let reduced = estimate(&a).join(&keys, &join(JoinType::LeftSemi));
        let joined = reduced.join(&known, &join(JoinType::Inner));
        assert!(reduced.rows < 400.0 && close(joined.rows, known.rows as usize), "{} {}", reduced.rows, joined.rows);
        // Another condition takes rows away as it would without.
        let half = known.filter(&col("bb.v").lt(lit(1_i64)), &b_schema);
        let joined = reduced.join(&half, &join(JoinType::Inner));
        assert!(close(joined.rows, half.rows as usize), "{} {}", half.rows, joined.rows);
        let left = reduced.filter(&col("a.v").lt(lit(50_i64)), &a_schema);
        let joined = left.join(&known, &join(JoinType::Inner));
        assert!(close(joined.rows, (known.rows / 2.0) as usize), "{} {}", known.rows, joined.rows);
    }
}

/// Conditions on the key itself choose the same keys on both sides.
#[test]
fn conditions_on_keys_narrow_their_domain() {
    let (a, b) = (rows("a", 1_000), rows("bb", 5_000));
    let (a_schema, b_schema) = (scan("a").schema().clone(), scan("bb").schema().clone());
    let conditions = |table: &str| {
        let key = col(format!("{table}.k"));
        vec![
            (key.clone().lt(lit(100_i64)), 500),
            (key.clone().gt_eq(lit(900_i64)).and(key.clone().lt(lit(950_i64))), 250),
            (key.clone().eq(lit(7_i64)), 5),
            (key.in_list(vec![lit(1_i64), lit(2_i64), lit(3_i64), lit(4_i64)], false), 20),
        ]
    };
    for ((left, matches), (right, _)) in conditions("a").into_iter().zip(conditions("bb")) {
        let (on_a, on_b) = (estimate(&a).filter(&left, &a_schema), estimate(&b).filter(&right, &b_schema));
        let inner = on_a.join(&on_b, &join(JoinType::Inner));
        assert!(close(inner.rows, matches), "{left}: {} expected, {matches} counted", inner.rows);
        let groups = on_b.group(&[col("bb.k")], &b_schema, &scan("bb").schema().clone());
        assert!(close(groups.rows, matches / 5), "{right}: {} groups expected", groups.rows);
    }
}

/// A table with a key of two columns, and one whose rows each have such a key: a part of the first matches that part of the second.
#[test]
fn several_keys_are_as_many_as_the_side_has_that_has_each_once() {
    let keys: BTreeSet<(i64, i64)> = rows("bb", 5_000).into_iter().collect();
    let keys: Vec<(i64, i64)> = keys.into_iter().collect();
    let details: Vec<(i64, i64)> = keys.iter().flat_map(|key| [*key; 4]).collect();
    let few: BTreeSet<(i64, i64)> = keys.iter().copied().step_by(10).collect();
    let matches = details.iter().filter(|row| few.contains(row)).count();
    let by = |join_type| join_by(join_type, (vec!["a.k", "a.v"], vec!["bb.k", "bb.v"]));
    let (left, right) = (estimate(&details), estimate(&keys).with_rows(few.len() as f64));
    let inner = left.join(&right, &by(JoinType::Inner));
    assert!(close(inner.rows, matches), "{} expected, {matches} counted", inner.rows);
    let semi = left.join(&right, &by(JoinType::LeftSemi));
    assert!(close(semi.rows, matches), "{} expected, {matches} counted", semi.rows);
    // What the keys have reduced is not reduced again by them.
    let again = semi.join(&right.settled(), &by(JoinType::Inner));
    assert!(close(again.rows, matches), "{} expected, {matches} counted", again.rows);
    let all = left.join(&estimate(&keys), &by(JoinType::Inner));
    assert!(close(all.rows, details.len()), "{} expected, {} counted", all.rows, details.len());
}
