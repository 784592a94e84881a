//! Rows that come in order, and that the engine is told so only where it is certain.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use pithead_model::SortKey;

use super::{How, Lab};
use crate::order::order_of;

fn schema() -> SchemaRef {
    let field = |name, data_type| Field::new(name, data_type, true);
    Arc::new(Schema::new(vec![field("k", DataType::Int64), field("f", DataType::Float64)]))
}

/// A dataset of slices with these keys, which says that it is sorted by a column.
fn sorted(column: &str, descending: bool, slices: &[&[Option<i64>]]) -> Arc<Lab> {
    let batch = |keys: &&[Option<i64>]| {
        let keys: ArrayRef = Arc::new(Int64Array::from(keys.to_vec()));
        let floats: ArrayRef = Arc::new(Float64Array::from_iter_values((0..keys.len()).map(|row| row as f64)));
        RecordBatch::try_new(schema(), vec![keys, floats]).unwrap()
    };
    let mut lab = Lab::new("vortex").dataset("t", &schema(), slices.iter().map(batch).collect());
    lab.parts[0].sort = vec![SortKey { column: column.to_owned(), descending }];
    Arc::new(lab)
}

fn order(lab: &Lab) -> Option<(usize, SortOptions)> {
    let part = &lab.parts[0];
    order_of(&part.schema, &part.sort, &part.slices)
}

const UP: [&[Option<i64>]; 3] = [&[Some(1), Some(1), Some(4)], &[Some(4), Some(5)], &[Some(7)]];
const DOWN: [&[Option<i64>]; 2] = [&[Some(9), Some(3)], &[Some(3), Some(-2)]];
const OVERLAPPING: [&[Option<i64>]; 2] = [&[Some(1), Some(6)], &[Some(5), Some(8)]];
const WITH_NULL: [&[Option<i64>]; 2] = [&[Some(1), Some(2)], &[Some(2), None]];

#[test]
fn order_is_told_where_bounds_show_it() {
    let options = |descending| SortOptions { descending, nulls_first: descending };
    assert_eq!(order(&sorted("k", false, &UP)), Some((0, options(false))));
    assert_eq!(order(&sorted("k", true, &DOWN)), Some((0, options(true))));
    assert_eq!(order(&sorted("k", true, &UP)), None);
    // Runs that were appended overlap; NULLs and floats have no place that bounds tell.
    assert_eq!(order(&sorted("k", false, &OVERLAPPING)), None);
    assert_eq!(order(&sorted("k", false, &WITH_NULL)), None);
    assert_eq!(order(&sorted("f", false, &UP)), None);
}

#[tokio::test]
async fn answers_do_not_hang_on_the_order() {
    for lab in
        [sorted("k", false, &UP), sorted("k", true, &DOWN), sorted("k", false, &OVERLAPPING), sorted("k", false, &WITH_NULL)]
    {
        for slices_max in [1, usize::MAX] {
            let how = How { slices_max, ..How::default() };
            lab.same("SELECT k, count(*), sum(f) FROM main.t GROUP BY k", how).await;
            lab.same("SELECT k FROM main.t WHERE f < 2 ORDER BY k LIMIT 3", how).await;
            lab.same("SELECT k FROM main.t ORDER BY k DESC LIMIT 3", how).await;
            lab.same("SELECT a.k FROM main.t a JOIN main.t b ON a.k = b.k", How { slices_max: usize::MAX, ..how }).await;
        }
    }
}
