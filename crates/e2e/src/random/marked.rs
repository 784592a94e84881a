//! Tables that lost rows: slices with deletion marks, and slices that were written anew or are stored once for two runs.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, UInt64Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::Int64Type;

/// Of rows that go, the `id` is as much larger than that of the row that they are copies of. No other row has such a one.
const GONE: i64 = 1 << 40;

/// The rows and others between them, and the statements after which the rows are left. Which ones hangs on their number alone.
pub(super) fn with_others(table: &str, rows: &RecordBatch) -> (RecordBatch, Vec<String>) {
    let total = rows.num_rows() as u64;
    // In some tables most rows go, in others none from the first third.
    let others = |place: u64| match total % 3 {
        0 => 3,
        _ if place < total / 3 => 0,
        remainder => u64::from(place.is_multiple_of(3 * remainder)),
    };
    let places = (0..total).flat_map(|place| (0..=others(place)).map(move |other| (place, other > 0)));
    let (places, goes): (Vec<u64>, Vec<bool>) = places.unzip();
    let all = take_record_batch(rows, &UInt64Array::from(places)).expect("places are within the table");
    let ids = all.column(0).as_primitive::<Int64Type>().values().iter();
    let ids: Int64Array = ids.zip(&goes).map(|(id, goes)| if *goes { id + GONE } else { *id }).collect();
    let mut columns: Vec<ArrayRef> = all.columns().to_vec();
    columns[0] = Arc::new(ids);
    let all = RecordBatch::try_new(all.schema(), columns).expect("the same types");
    let delete = |condition: &str| format!("DELETE FROM {table} WHERE {condition}");
    let statements = match total % 4 {
        0 => vec![delete(&format!("id >= {GONE}"))],
        1 => vec![delete(&format!("id % 2 = 1 AND id >= {GONE}")), delete(&format!("NOT id < {GONE}"))],
        2 => vec![delete(&format!("id BETWEEN {} AND {}", GONE - 1, GONE + 20)), delete(&format!("id + 1 > {GONE}"))],
        _ => vec![delete(&format!("id / {GONE} = 1 OR id / {GONE} = 2"))],
    };
    (all, statements)
}

#[cfg(test)]
mod tests {
    use arrow::array::BooleanArray;
    use arrow::compute::filter_record_batch;

    use super::*;

    #[test]
    fn the_rows_are_left() {
        for total in 0..40_i64 {
            let ids: ArrayRef = Arc::new((0..total).collect::<Int64Array>());
            let rows = RecordBatch::try_from_iter([("id", ids)]).expect("one column");
            let (all, _) = with_others("t", &rows);
            let stays: BooleanArray =
                all.column(0).as_primitive::<Int64Type>().values().iter().map(|id| Some(*id < GONE)).collect();
            assert_eq!(filter_record_batch(&all, &stays).expect("a bit for each row"), rows);
            assert!(total < 10 || all.num_rows() > rows.num_rows());
        }
    }
}
