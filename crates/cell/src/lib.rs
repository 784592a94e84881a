//! The part of MSG Express (Montana et al. 2023, section 6; see `docs/bibliography.md`) that does not run on the
//! drives. It writes matrices of any size from files into datasets, and has the queries that ask the drives for
//! differential expression, sums, Gram matrices and parts of a matrix.
//!
//! A matrix (cells × genes) is a dataset with one row for each gene: `gene` Int32, its position; `id` Utf8; `nonzeros`
//! Int64; `expression` Binary, its values in all cells (`pithead_matrix::Row`). In the dense layout of Montana et al.
//! 2023, section 5.1, the columns are `gene`, `id`, and a Float32 column `c0`, `c1`, … for each cell.

mod entries;
mod fault;
mod load;
mod mtx;
mod query;
mod result;
mod sorted;
mod spill;
mod writer;

pub use load::{Layout, MatrixLoad};
pub use query::{MatrixPart, Ranked, cell_sums, encoded, gram, moments, rank_genes, take};
pub use result::{GroupMoments, MatrixByGene, rankings};
pub use writer::{MatrixWriter, Progress, ValueKind, WriterOptions};
