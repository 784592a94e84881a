//! MSG Express, the part that is not on the drives: matrices from files into datasets, however large, and the queries that ask the
//! drives for differential expression, sums, Gram matrices and parts of a matrix.
//!
//! A matrix (cells × genes) is a dataset with a row a gene: `gene` Int32, its position; `id` Utf8; `nonzeros` Int64; `expression`
//! Binary, its values in all cells (`pithead_matrix::Row`). Or, as in the paper, `gene`, `id`, and a Float32 column `c0`, `c1`, … for
//! each cell.

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
pub use query::{Part, Ranked, cell_sums, encoded, gram, moments, rank_genes, take};
pub use result::{GroupMoments, Taken, rankings};
pub use writer::{Kind, MatrixWriter, Progress, WriterOptions};
