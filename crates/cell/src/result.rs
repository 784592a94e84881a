//! Rows of the drives' answers as arrays, in the order of genes.

use arrow::array::{ArrayRef, AsArray, BinaryViewArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int32Type};
use pithead_host::ProfileSnapshot;
use pithead_matrix::{Correction, Partials, RowBuffer, Values, adjust};
use pithead_model::Fault;

use crate::fault::{bug, malformed};
use crate::query::Ranked;

/// Fields of an outcome, behind its group.
const FIELDS: [&str; 7] = ["score", "p_value", "log2_fold_change", "share", "share_other", "mean", "mean_other"];

/// A column of bytes.
pub(crate) fn bytes(column: &ArrayRef) -> Result<BinaryViewArray, Fault> {
    Ok(cast(column, &DataType::BinaryView).map_err(bug)?.as_binary_view().clone())
}

/// What genes are told apart by: positions, or ids.
#[derive(Debug, Default)]
struct Keys {
    genes: Vec<i32>,
    ids: Vec<String>,
}

impl Keys {
    /// Takes a batch's first column; gives the rows that are wanted.
    fn add(&mut self, batch: &RecordBatch, wanted: Option<&[i32]>) -> Result<Vec<usize>, Fault> {
        let column = batch.column(0);
        if let Some(genes) = column.as_primitive_opt::<Int32Type>() {
            let keep = |gene: i32| wanted.is_none_or(|wanted| wanted.binary_search(&gene).is_ok());
            let rows: Vec<usize> = (0..genes.len()).filter(|row| keep(genes.value(*row))).collect();
            self.genes.extend(rows.iter().map(|row| genes.value(*row)));
            return Ok(rows);
        }
        let texts = cast(column, &DataType::Utf8View).map_err(bug)?;
        self.ids.extend(texts.as_string_view().iter().map(|id| id.unwrap_or_default().to_owned()));
        Ok((0..batch.num_rows()).collect())
    }

    /// Where each gene stands among rows, in the order of genes; the keys are brought in that order.
    fn order(&mut self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.genes.len().max(self.ids.len())).collect();
        if self.ids.is_empty() {
            order.sort_by_key(|row| self.genes[*row]);
            self.genes = order.iter().map(|row| self.genes[*row]).collect();
        } else {
            order.sort_by(|a, b| self.ids[*a].cmp(&self.ids[*b]));
            self.ids = order.iter().map(|row| std::mem::take(&mut self.ids[*row])).collect();
        }
        order
    }
}

/// For each row of `width` values, positions from the largest to the smallest, or by how far values are from 0. Equal ones keep their
/// order; NaN comes last.
pub fn rankings(values: &[f64], width: usize, absolute: bool) -> Vec<i32> {
    by_rows(values, width, |row| ranking(row, absolute))
}

fn ranking(values: &[f64], absolute: bool) -> Vec<i32> {
    // As numbers of the opposite order, floats sort without a comparison of their own.
    let key = |value: f64| {
        let value = if absolute { value.abs() } else { value };
        let bits = if value == 0.0 { 0 } else { value.to_bits() };
        let ascending = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
        if value.is_nan() { u64::MAX } else { !ascending }
    };
    let mut order: Vec<(u64, i32)> = values.iter().zip(0..).map(|(value, place)| (key(*value), place)).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, place)| place).collect()
}

/// Outcomes of `t_stat`, gene after gene.
#[derive(Debug)]
pub(crate) struct Outcomes {
    groups: usize,
    keys: Keys,
    fields: [Vec<f64>; FIELDS.len()],
}

impl Outcomes {
    pub(crate) fn new(groups: usize) -> Self {
        Self { groups, keys: Keys::default(), fields: Default::default() }
    }

    pub(crate) fn add(&mut self, batch: &RecordBatch, wanted: Option<&[i32]>) -> Result<(), Fault> {
        let rows = self.keys.add(batch, wanted)?;
        let lists = batch.column(1).as_list_opt::<i32>().ok_or_else(|| bug("outcomes are no list"))?;
        let items = lists.values().as_struct_opt().ok_or_else(|| bug("outcomes are no structures"))?;
        for (values, name) in self.fields.iter_mut().zip(FIELDS) {
            let column = items.column_by_name(name).and_then(|column| column.as_primitive_opt::<Float64Type>());
            let column = column.ok_or_else(|| bug(format!("outcomes lack {name}")))?;
            for row in &rows {
                let start = lists.value_offsets()[*row] as usize;
                let outcomes = column.values().get(start..start + self.groups);
                values.extend_from_slice(outcomes.ok_or_else(|| bug("a gene has too few outcomes"))?);
            }
        }
        Ok(())
    }

    /// Turned, so that groups come first.
    pub(crate) fn ranked(mut self, correction: Correction, cost: ProfileSnapshot) -> Ranked {
        let order = self.keys.order();
        let groups = self.groups;
        let turn = |values: &mut Vec<f64>| -> Vec<f64> {
            let values = std::mem::take(values);
            let mut turned = vec![0.0; values.len()];
            for (place, row) in order.iter().enumerate() {
                let line = &values[row * groups..][..groups];
                line.iter().enumerate().for_each(|(group, value)| turned[group * order.len() + place] = *value);
            }
            turned
        };
        let [scores, p_values, fold_changes, share, share_other, mean, mean_other] = self.fields.each_mut().map(turn);
        let adjusted = by_rows(&p_values, order.len(), |values| adjust(values, correction));
        let Keys { genes, ids } = self.keys;
        let (shares, means) = ([share, share_other], [mean, mean_other]);
        Ranked { genes, ids, scores, p_values, adjusted, fold_changes, shares, means, cost }
    }
}

/// What `of` makes of each row of so many values, row after row, on all cores.
fn by_rows<T: Send>(values: &[f64], width: usize, of: impl Fn(&[f64]) -> Vec<T> + Sync) -> Vec<T> {
    let rows: Vec<&[f64]> = values.chunks(width.max(1)).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let part = rows.len().div_ceil(threads).max(1);
    let run = |rows: &[&[f64]]| rows.iter().flat_map(|row| of(row)).collect::<Vec<T>>();
    std::thread::scope(|scope| {
        let parts: Vec<_> = rows.chunks(part).map(|rows| scope.spawn(|| run(rows))).collect();
        // A panic of a part is passed on.
        parts.into_iter().flat_map(|part| part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// Moments of each gene in every group and, last, in the cells of none. Arrays hold a value for each gene, group after group.
#[derive(Clone, Debug, Default)]
pub struct GroupMoments {
    /// The genes: positions, ascending, for one dataset.
    pub genes: Vec<i32>,
    /// Their ids, ascending, for several.
    pub ids: Vec<String>,
    /// Cells of each group.
    pub sizes: Vec<u64>,
    /// Means.
    pub means: Vec<f64>,
    /// Sums of squared distances from the mean.
    pub m2: Vec<f64>,
    /// Cells whose value is not zero.
    pub nonzeros: Vec<f64>,
    /// Sums of `expm1`; zeros where they were not asked for.
    pub sums_expm1: Vec<f64>,
    /// What it cost.
    pub cost: ProfileSnapshot,
}

/// Partials of genes, as they come.
#[derive(Debug, Default)]
pub(crate) struct GenePartials {
    keys: Keys,
    partials: Vec<Partials>,
}

impl GenePartials {
    pub(crate) fn add(&mut self, batch: &RecordBatch, wanted: Option<&[i32]>) -> Result<(), Fault> {
        let rows = self.keys.add(batch, wanted)?;
        let column = bytes(batch.column(1))?;
        for row in rows {
            self.partials.push(Partials::decode(column.value(row)).map_err(malformed)?);
        }
        Ok(())
    }

    pub(crate) fn moments(self, cost: ProfileSnapshot) -> Result<GroupMoments, Fault> {
        let GenePartials { mut keys, partials } = self;
        let order = keys.order();
        let groups = partials.first().map_or(0, |partials| partials.groups.len());
        let sizes = partials.first().map_or_else(Vec::new, |partials| partials.groups.iter().map(|group| group.n).collect());
        if partials.iter().any(|partials| partials.groups.len() != groups) {
            return Err(bug("genes have partials of different groups"));
        }
        let turn = |value: fn(&pithead_matrix::Moments) -> f64| -> Vec<f64> {
            let partials = &partials;
            let group = |group: usize| order.iter().map(move |row| value(&partials[*row].groups[group]));
            (0..groups).flat_map(group).collect()
        };
        let (means, m2) = (turn(|moments| moments.mean), turn(|moments| moments.m2));
        let (nonzeros, sums_expm1) = (turn(|moments| moments.nonzeros as f64), turn(|moments| moments.sum_expm1));
        Ok(GroupMoments { genes: keys.genes, ids: keys.ids, sizes, means, m2, nonzeros, sums_expm1, cost })
    }
}

/// Part of a matrix, by gene.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MatrixByGene {
    /// The genes' positions, ascending.
    pub genes: Vec<i32>,
    /// Where each gene's entries begin, and where the last one's end.
    pub starts: Vec<i64>,
    /// Cells, by their number among those that count.
    pub cells: Vec<i32>,
    /// Their values.
    pub values: Vec<f32>,
}

impl MatrixByGene {
    pub(crate) fn add(&mut self, batch: &RecordBatch, wanted: Option<&[i32]>) -> Result<(), Fault> {
        let mut keys = Keys { genes: std::mem::take(&mut self.genes), ids: Vec::new() };
        let rows = keys.add(batch, wanted)?;
        self.genes = keys.genes;
        let column = bytes(batch.column(1))?;
        let mut row = RowBuffer::default();
        for place in rows {
            row.decode(column.value(place)).map_err(malformed)?;
            self.starts.push(self.cells.len() as i64);
            self.cells.extend(row.cells.iter().map(|cell| *cell as i32));
            match row.values() {
                Values::Counts(counts) => self.values.extend(counts.iter().map(|count| *count as f32)),
                Values::Floats(floats) => self.values.extend_from_slice(floats),
            }
        }
        Ok(())
    }

    /// With its end, and genes in order.
    pub(crate) fn in_order(mut self) -> MatrixByGene {
        self.starts.push(self.cells.len() as i64);
        if self.genes.is_sorted() {
            return self;
        }
        let mut order: Vec<usize> = (0..self.genes.len()).collect();
        order.sort_by_key(|row| self.genes[*row]);
        let mut taken = MatrixByGene::default();
        taken.cells.reserve(self.cells.len());
        taken.values.reserve(self.values.len());
        for row in order {
            let range = self.starts[row] as usize..self.starts[row + 1] as usize;
            taken.genes.push(self.genes[row]);
            taken.starts.push(taken.cells.len() as i64);
            taken.cells.extend_from_slice(&self.cells[range.clone()]);
            taken.values.extend_from_slice(&self.values[range]);
        }
        taken.starts.push(taken.cells.len() as i64);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rankings_are_stable() {
        let values = [0.0, 3.0, -5.0, f64::NAN, -0.0, 3.0, f64::INFINITY];
        assert_eq!(ranking(&values, false), [6, 1, 5, 0, 4, 2, 3]);
        assert_eq!(ranking(&values, true), [6, 2, 1, 5, 0, 4, 3]);
    }
}
