//! Expression matrices (cells × genes) as bytes, and what is computed over them: the functions Accumulate, Combine and
//! TStat of MSG Express (Montana et al. 2023, section 6; the full entries of all sources are in
//! `docs/bibliography.md`), and ranks, sums and Gram matrices.
//!
//! A matrix is stored a gene at a time, as in the wide slices of Montana et al. 2023, section 6.2: a [`Row`] holds one
//! gene's values in all cells. What a computation must know of the cells (their groups, their size factors, and which
//! of them count) is a [`Cells`]. Both travel as bytes. Whatever these bytes hold, decoding them ends in a value or in
//! [`Malformed`].

mod accumulate;
mod adjust;
mod blob;
mod bytes;
mod cells;
mod gram;
mod partials;
mod ranks;
mod row;
mod special;
mod sums;
mod take;
mod test;
mod transform;

pub use accumulate::Accumulate;
pub use adjust::{Correction, adjust};
pub use blob::merge;
pub use bytes::Malformed;
pub use cells::{Cells, CellsSpec, GROUPS_MAX};
pub use gram::{Gram, GramParts, GramResult};
pub use partials::{Moments, Partials};
pub use ranks::{GroupRanks, RankSums, Ranks};
pub use row::{CELLS_MAX, Codec, Row, RowBuffer, Values};
pub use special::{normal_two_sided, student_two_sided};
pub use sums::{CellSums, CellTotals};
pub use take::take_cells;
pub use test::{FoldChange, Method, Outcome, Test};
