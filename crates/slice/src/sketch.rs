//! Distinct counts that add up over batches and slices: exact up to [`EXACT_MAX`] values, from then on by HyperLogLog
//! (Flajolet et al. 2007; see `docs/bibliography.md`).

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, ByteView, GenericByteViewArray, PrimitiveArray, RecordBatch};
use arrow::datatypes::*;
use xxhash_rust::xxh3::xxh3_64;

use crate::bounds::for_integers;

/// The most distinct values that are counted exactly.
const EXACT_MAX: usize = 256;
/// The slots of the table that counts them.
const TABLE_SLOTS: usize = 1024;
/// The number of registers, as a power of two; it gives a standard error of 2.3 %.
const REGISTER_BITS: u32 = 11;
const REGISTERS: usize = 1 << REGISTER_BITS;
/// The largest rank minus one: the bits of a hash that are left after the register's number.
const RANK_BITS: usize = 64 - REGISTER_BITS as usize;

/// One sketch for each column.
#[derive(Clone, Debug)]
pub struct ColumnSketches {
    columns: Vec<Sketch>,
}

impl ColumnSketches {
    /// Sketches of no rows, for this many columns.
    pub fn new(columns: usize) -> Self {
        Self { columns: vec![Sketch::default(); columns] }
    }

    /// Adds a batch of the dataset's types. Nested columns are not counted.
    pub fn update(&mut self, batch: &RecordBatch) {
        for (sketch, column) in self.columns.iter_mut().zip(batch.columns()) {
            sketch.update(column);
        }
    }

    /// Adds what another sketch has counted of the same columns.
    pub fn merge(&mut self, other: &ColumnSketches) {
        for (sketch, other) in self.columns.iter_mut().zip(&other.columns) {
            sketch.merge(other);
        }
    }

    /// Estimates of each column's distinct values; 0 for columns that are not counted.
    pub fn estimates(&self) -> Vec<u64> {
        self.columns.iter().map(Sketch::estimate).collect()
    }
}

/// A set of hashes that can be counted and merged with other sets.
#[derive(Clone, Debug)]
pub struct Sketch(SketchForm);

#[derive(Clone, Debug)]
enum SketchForm {
    /// A table of the hashes themselves, with open addressing; 0 is an empty slot.
    Exact { table: Vec<u64>, len: usize },
    /// For each register, the longest run of zeros that occurred, plus one.
    Registers(Box<[u8; REGISTERS]>),
}

impl Default for Sketch {
    fn default() -> Self {
        Self(SketchForm::Exact { table: Vec::new(), len: 0 })
    }
}

impl Sketch {
    /// Adds the non-null values of a column.
    pub fn update(&mut self, array: &ArrayRef) {
        macro_rules! integer {
            ($type:ty) => {
                self.add_primitive(array.as_primitive::<$type>(), |value| {
                    let value: i128 = value.into();
                    mix(value as u64, (value >> 64) as u64)
                })
            };
        }
        for_integers!(array.data_type(), integer, self.update_other(array))
    }

    fn update_other(&mut self, array: &ArrayRef) {
        match array.data_type() {
            DataType::Boolean => {
                let array = array.as_boolean();
                for value in [false, true] {
                    let there = if value { array.true_count() } else { array.false_count() };
                    if there > 0 {
                        self.add(mix(value.into(), 0));
                    }
                }
            }
            DataType::Float16 => {
                self.add_primitive(array.as_primitive::<Float16Type>(), |value| mix(value.to_bits().into(), 0))
            }
            DataType::Float32 => {
                self.add_primitive(array.as_primitive::<Float32Type>(), |value| mix(value.to_bits().into(), 0))
            }
            DataType::Float64 => self.add_primitive(array.as_primitive::<Float64Type>(), |value| mix(value.to_bits(), 0)),
            DataType::Utf8View => self.add_views(array.as_string_view()),
            DataType::BinaryView => self.add_views(array.as_binary_view()),
            DataType::FixedSizeBinary(_) => {
                array.as_fixed_size_binary().iter().flatten().for_each(|value| self.add(xxh3_64(value)));
            }
            _ => {}
        }
    }

    fn add_primitive<T: ArrowPrimitiveType>(&mut self, array: &PrimitiveArray<T>, hash: impl Fn(T::Native) -> u64) {
        match array.nulls().filter(|nulls| nulls.null_count() > 0) {
            None => array.values().iter().for_each(|value| self.add(hash(*value))),
            Some(nulls) => nulls.valid_indices().for_each(|row| self.add(hash(array.values()[row]))),
        }
    }

    fn add_views<T: ByteViewType>(&mut self, array: &GenericByteViewArray<T>) {
        let hash = |view: u128| match ByteView::from(view).length as usize {
            // The whole value is in the view, including its length.
            0..=12 => mix(view as u64, (view >> 64) as u64),
            _ => {
                let view = ByteView::from(view);
                let start = view.offset as usize;
                xxh3_64(&array.data_buffers()[view.buffer_index as usize][start..start + view.length as usize])
            }
        };
        match array.nulls().filter(|nulls| nulls.null_count() > 0) {
            None => array.views().iter().for_each(|view| self.add(hash(*view))),
            Some(nulls) => nulls.valid_indices().for_each(|row| self.add(hash(array.views()[row]))),
        }
    }

    /// Adds a hash.
    #[inline]
    fn add(&mut self, hash: u64) {
        match &mut self.0 {
            SketchForm::Registers(registers) => add_to_registers(registers, hash),
            SketchForm::Exact { .. } => self.add_exact(hash),
        }
    }

    fn add_exact(&mut self, hash: u64) {
        let SketchForm::Exact { table, len } = &mut self.0 else { return };
        if table.is_empty() {
            table.resize(TABLE_SLOTS, 0);
        }
        // 0 marks an empty slot, so one hash in 2^64 is counted as another one.
        let hash = hash.max(1);
        let mut slot = hash as usize % TABLE_SLOTS;
        while table[slot] != 0 {
            if table[slot] == hash {
                return;
            }
            slot = (slot + 1) % TABLE_SLOTS;
        }
        table[slot] = hash;
        *len += 1;
        if *len > EXACT_MAX {
            self.spread();
        }
    }

    /// Moves the hashes from the table to registers.
    fn spread(&mut self) -> &mut [u8; REGISTERS] {
        if let SketchForm::Exact { table, .. } = &self.0 {
            let mut registers = Box::new([0; REGISTERS]);
            table.iter().filter(|hash| **hash != 0).for_each(|hash| add_to_registers(&mut registers, *hash));
            self.0 = SketchForm::Registers(registers);
        }
        match &mut self.0 {
            SketchForm::Registers(registers) => registers,
            SketchForm::Exact { .. } => unreachable!("the table was spread above"),
        }
    }

    /// Adds what another set has counted.
    pub fn merge(&mut self, other: &Sketch) {
        match &other.0 {
            SketchForm::Exact { table, .. } => table.iter().filter(|hash| **hash != 0).for_each(|hash| self.add(*hash)),
            SketchForm::Registers(others) => {
                for (register, other) in self.spread().iter_mut().zip(others.iter()) {
                    *register = (*register).max(*other);
                }
            }
        }
    }

    /// An estimate of the distinct values that were added.
    pub fn estimate(&self) -> u64 {
        match &self.0 {
            SketchForm::Exact { len, .. } => *len as u64,
            SketchForm::Registers(registers) => estimate(registers).round() as u64,
        }
    }
}

#[inline]
fn add_to_registers(registers: &mut [u8; REGISTERS], hash: u64) {
    let register = (hash >> (64 - REGISTER_BITS)) as usize;
    // The bit that is set below bounds the rank.
    let rank = ((hash << REGISTER_BITS) | (1 << (REGISTER_BITS - 1))).leading_zeros() as u8 + 1;
    registers[register] = registers[register].max(rank);
}

/// A hash of 128 bits by one widening multiplication, as in wyhash.
#[inline]
fn mix(low: u64, high: u64) -> u64 {
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        (product as u64) ^ ((product >> 64) as u64)
    };
    fold(fold(low ^ 0xa076_1d64_78bd_642f, high ^ 0xe703_7ed1_a0b4_28db), 0x8ebc_6af0_9c88_c6e3)
}

/// The improved raw estimator of Ertl 2017 ("New cardinality estimation algorithms for HyperLogLog sketches", algorithm
/// 6), which is without bias at both ends of the range.
fn estimate(registers: &[u8; REGISTERS]) -> f64 {
    let m = REGISTERS as f64;
    let mut counts = [0u32; RANK_BITS + 2];
    registers.iter().for_each(|rank| counts[(*rank as usize).min(RANK_BITS + 1)] += 1);
    let mut z = m * tau(1.0 - f64::from(counts[RANK_BITS + 1]) / m);
    for count in counts[1..=RANK_BITS].iter().rev() {
        z = 0.5 * (z + f64::from(*count));
    }
    z += m * sigma(f64::from(counts[0]) / m);
    m * m / (2.0 * std::f64::consts::LN_2 * z)
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x).powi(2) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{BooleanArray, Int64Array, StringViewArray};

    use super::*;

    fn count(array: impl Array + 'static) -> u64 {
        let mut sketch = Sketch::default();
        let array: ArrayRef = Arc::new(array);
        sketch.update(&array);
        sketch.estimate()
    }

    #[test]
    fn small_counts_are_exact() {
        assert_eq!(count(Int64Array::from_iter((0..5000).map(|n| (n % 7 != 0).then_some(n % 200)))), 200);
        assert_eq!(count(StringViewArray::from(vec!["", "a", "a", "a text that is not short", "a text that is not short"])), 3);
        assert_eq!(count(BooleanArray::from(vec![Some(true), None, Some(true)])), 1);
        assert_eq!(count(Int64Array::from(vec![None, None])), 0);
    }

    #[test]
    fn large_counts_are_near() {
        for distinct in [300i64, 2_000, 10_000, 200_000] {
            let found = count(Int64Array::from_iter_values((0..distinct * 2).map(|n| n % distinct))) as f64;
            let error = (found / distinct as f64 - 1.0).abs();
            assert!(error < 0.08, "{distinct} distinct values, estimated {found}");
        }
    }

    #[test]
    fn parts_add_up_as_the_whole() {
        let mut whole = Sketch::default();
        let mut merged = Sketch::default();
        for part in 0..6i64 {
            let array: ArrayRef = Arc::new(Int64Array::from_iter_values((part * 100..part * 100 + 180).map(|n| n * n)));
            let mut sketch = Sketch::default();
            sketch.update(&array);
            merged.merge(&sketch);
            whole.update(&array);
        }
        assert_eq!(merged.estimate(), whole.estimate());
    }
}
