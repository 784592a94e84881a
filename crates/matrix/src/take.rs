//! [`take_cells`]: a gene's row, reduced to some of the cells.

use crate::bytes::Result;
use crate::cells::Cells;
use crate::row::{Codec, Row, RowBuffer, Values};

/// Appends to `out` the row of the cells that count, by their numbers among the counting cells, with transformed
/// values.
pub fn take_cells(bytes: &[u8], cells: &Cells, row: &mut RowBuffer, out: &mut Vec<u8>) -> Result<()> {
    row.decode(bytes)?;
    cells.check(row.n_cells)?;
    let counting = |cell: &u32| Some(cells.numbers[*cell as usize]).filter(|number| *number != u32::MAX);
    let taken: Vec<u32> = row.cells.iter().filter_map(counting).collect();
    let n_cells = cells.counting() as usize;
    if cells.transform.is_none()
        && let Values::Counts(counts) = row.values()
    {
        let counts: Vec<u32> = picked(&row.cells, counts, counting);
        Row { n_cells, cells: &taken, values: Values::Counts(&counts) }.encode(Codec::None, out);
        return Ok(());
    }
    let mut values = Vec::new();
    cells.transform.apply(&row.cells, row.values(), &mut values);
    let values: Vec<f32> = picked(&row.cells, &values, counting);
    Row { n_cells, cells: &taken, values: Values::Floats(&values) }.encode(Codec::None, out);
    Ok(())
}

fn picked<T: Copy>(cells: &[u32], values: &[T], counting: impl Fn(&u32) -> Option<u32>) -> Vec<T> {
    cells.iter().zip(values).filter(|(cell, _)| counting(cell).is_some()).map(|(_, value)| *value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::CellsSpec;
    use crate::row::tests::encoded;

    #[test]
    fn cells_are_taken_and_numbered_anew() {
        let spec = CellsSpec { n_cells: 5, n_groups: 0, codes: vec![0, 9, 0, 9, 0], ..CellsSpec::default() };
        let cells = Cells::decode(&spec.encode().unwrap()).unwrap();
        let (mut row, mut out) = (RowBuffer::default(), Vec::new());
        take_cells(&encoded(5, &[1, 2, 4], Values::Counts(&[7, 8, 9]), Codec::Zstd), &cells, &mut row, &mut out).unwrap();
        row.decode(&out).unwrap();
        assert_eq!((row.n_cells, &row.cells[..], &row.counts[..]), (3, &[1, 2][..], &[8, 9][..]));
    }
}
