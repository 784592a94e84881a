//! How tables are laid out over drives.

use arrow::datatypes::DataType;
use pithead_host::PartitionBy;
use rand::Rng;
use rand::rngs::StdRng;

use crate::random::values::{TypeKind, Values};

/// Slices of a table at most: each is work for every query.
const SLICES_MAX: usize = 80;

/// How a table is loaded.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) partitioning: PartitionBy,
    /// None: one a drive.
    pub(crate) partitions: Option<usize>,
    pub(crate) sort: Option<String>,
    pub(crate) slice_rows: usize,
    pub(crate) copies: usize,
    /// How its rows came there.
    pub(crate) arrival: Arrival,
}

/// How the first rows of a table came there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Whole,
    /// In two parts, the second one appended.
    Appended,
    /// Others were there before, which they replaced.
    Replaced,
    /// In two parts, the first one when the columns were others.
    Altered,
    /// With others, which are gone.
    Marked,
}

impl Layout {
    /// For a table of so many rows with these columns, the first two of which are `id` and `k`.
    pub(crate) fn random(random: &mut StdRng, columns: &[(String, DataType, Values)], rows: usize) -> Layout {
        let flat: Vec<&(String, DataType, Values)> =
            columns[2..].iter().filter(|(_, data_type, _)| !TypeKind::of(data_type).nested()).collect();
        let floats = columns[1..].iter().find(|(_, data_type, _)| TypeKind::of(data_type) == TypeKind::Float);
        let other = |random: &mut StdRng| match flat.is_empty() {
            true => "id".to_owned(),
            false => flat[random.random_range(0..flat.len())].0.clone(),
        };
        let partitioning = match random.random_range(0..12) {
            0 => PartitionBy::RoundRobin,
            1 => PartitionBy::Range("id".to_owned()),
            2 => PartitionBy::Range("k".to_owned()),
            3 => PartitionBy::Range(floats.map_or("k", |(name, ..)| name).to_owned()),
            4 => PartitionBy::Hash(vec!["k".to_owned(), other(random)]),
            5 => PartitionBy::Hash(vec![other(random)]),
            _ => PartitionBy::Hash(vec!["k".to_owned()]),
        };
        let sort = match random.random_range(0..4) {
            0 => Some("k".to_owned()),
            1 => Some(other(random)),
            _ => None,
        };
        Layout {
            partitioning,
            partitions: [None, None, None, None, None, None, Some(1), Some(3)][random.random_range(0..8)],
            sort,
            slice_rows: [4, 16, 64, 1_000][random.random_range(0..4)].max(rows / SLICES_MAX),
            copies: if random.random_bool(0.2) { 2 } else { 1 },
            arrival: match random.random_range(0..10) {
                0..2 => Arrival::Appended,
                2 => Arrival::Replaced,
                3 => Arrival::Altered,
                4 => Arrival::Marked,
                _ => Arrival::Whole,
            },
        }
    }

    /// What a report counts it as.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        let mut names = vec![match &self.partitioning {
            PartitionBy::RoundRobin => "round robin",
            PartitionBy::Range(_) => "range",
            PartitionBy::Hash(columns) if columns.len() > 1 => "hash of two",
            PartitionBy::Hash(_) => "hash",
        }];
        names.extend((self.partitions == Some(1)).then_some("one partition"));
        names.extend(self.sort.is_some().then_some("sorted"));
        names.extend((self.copies > 1).then_some("copies"));
        match self.arrival {
            Arrival::Whole => {}
            Arrival::Appended => names.push("appended"),
            Arrival::Replaced => names.push("replaced"),
            Arrival::Altered => names.push("altered"),
            Arrival::Marked => names.push("marked"),
        }
        names
    }
}
