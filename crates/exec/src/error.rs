//! What can go wrong with a sub-plan, apart from what its slices, its expressions and the engine report.

use pithead_model::{Blame, DatasetName, Fault, FaultKind};

/// A sub-plan that cannot be bound or run.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// A request without a driving dataset.
    #[error("a sub-plan needs a driving dataset")]
    NoParts,
    /// Two tables of one name.
    #[error("two tables of the sub-plan are named {0}")]
    TwoTables(String),
    /// The plan names a table that did not come with it.
    #[error("the sub-plan reads {name}, which is in no part; the tables are {known}")]
    UnknownTable {
        /// The table.
        name: String,
        /// The tables there are.
        known: String,
    },
    /// A column that the driving dataset does not have.
    #[error("no column {column} in {dataset}; near: {near}")]
    UnknownColumn {
        /// The column.
        column: String,
        /// The dataset.
        dataset: DatasetName,
        /// The columns that may have been meant.
        near: String,
    },
    /// The plan does not read what it was bound to.
    #[error("the sub-plan does not read its driving dataset {0}")]
    NotDriven(DatasetName),
    /// The optimiser made two scans of the driving one.
    #[error("the sub-plan reads its driving dataset {0} in {1} places after optimisation")]
    DrivenTwice(DatasetName, usize),
    /// The output has another number of columns.
    #[error("the sub-plan gives {found} columns, expected {expected}")]
    Columns {
        /// What there is.
        found: usize,
        /// What was asked for.
        expected: usize,
    },
    /// A column of the output has another type.
    #[error("column {position} ({name}) of the sub-plan is {found}, expected {expected}")]
    Type {
        /// Counted from 0.
        position: usize,
        /// Its name in the expected schema.
        name: String,
        /// What there is.
        found: String,
        /// What was asked for.
        expected: String,
    },
    /// A NULL where the expected schema has none.
    #[error("the sub-plan's rows do not fit the expected schema: {0}")]
    Rows(String),
    /// More than a scan below level 3.
    #[error("below level 3 a sub-plan is columns of a scan, with filters; this one has {0}")]
    TooMuch(String),
    /// A scan of the driving dataset outside a round.
    #[error("a scan of a driving dataset runs in a round only")]
    NoRound,
}

impl From<ExecError> for Fault {
    fn from(error: ExecError) -> Fault {
        let blame = match &error {
            ExecError::DrivenTwice(..) | ExecError::NoRound => Blame::Bug,
            _ => Blame::User,
        };
        let kind = match &error {
            ExecError::UnknownColumn { .. } => FaultKind::NoColumn,
            _ => FaultKind::Other,
        };
        Fault::new(blame, error.to_string()).of_kind(kind)
    }
}
