//! SQL functions over expression matrices, whose rows are a gene's values in all cells as bytes (crate `matrix`), as extensions of
//! an engine.
//!
//! | function | from | gives |
//! |---|---|---|
//! | `accumulate(expression, cells)` | a gene's row, the cells | its partials: moments in every group (Accumulate) |
//! | `rank_sums(expression, cells)` | the same | its sums of ranks in every group |
//! | `take_cells(expression, cells)` | the same | the row of the cells that count alone |
//! | `dense_row(value, …)` | a value for each cell | a gene's row |
//! | `t_stat(partials, test[, ranks])` | partials, a test as JSON | a list of outcomes, one for each group (TStat) |
//! | `combine(partials)` | partials of other cells or genes | one partial of all (Combine), an aggregate |
//! | `cell_sums(expression)` | rows | sums over genes for each cell, an aggregate |
//! | `gram_part(expression, cells)` | a gene's row, what is known of the cells | its part of a Gram matrix |
//! | `gram(parts)` | parts | the cells' Gram matrix, or its product with a basis, an aggregate |
//!
//! Accumulate, Combine and TStat are the functions of MSG Express (Montana et al. 2023, section 6; see
//! `docs/bibliography.md`). Aggregates take no `cells`: DataFusion hands them a copy of a constant for every row.

mod aggregates;
mod blobs;
mod combine_groups;
mod counted;
mod known_cells;
mod outcomes;
mod scalars;

use pithead_functions::Extension;

/// All of them.
pub fn matrix_functions() -> Vec<Extension> {
    let scalars = scalars::all().into_iter().map(|function| Extension::scalar(function, "1"));
    let aggregates = aggregates::all().into_iter().map(|aggregate| Extension::aggregate(aggregate, "1").merged_by(COMBINE));
    scalars.chain(aggregates).collect()
}

/// The aggregate that merges the results of all of them: Combine.
const COMBINE: &str = "combine";
