//! Datasets over files that a drive did not write: what it tells hosts of them.

use arrow::datatypes::SchemaRef;
use pithead_model::{Blame, COLUMNS_MAX, ColumnSummary, DatasetName, Fault, Run};
use serde::{Deserialize, Serialize};

use crate::columns::check_columns;

/// Files that one drive attaches at most.
pub const ATTACHED_FILES_MAX: usize = 100_000;

/// What a drive attaches in place. Its files are no part of any manifest: a host reads them beside what manifests name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Attachments {
    /// Another one whenever anything else here is another.
    pub version: u64,
    /// The datasets, by name.
    pub datasets: Vec<AttachedDataset>,
    /// What cannot be read, and why.
    pub refused: Vec<RefusedDataset>,
    /// There is more, in domains that the caller may not read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hides: bool,
}

/// A drive's part of a dataset that lies in files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttachedDataset {
    /// Its name.
    pub name: DatasetName,
    /// Its columns, with the types that stored datasets have.
    pub schema: SchemaRef,
    /// One run for each file that has rows; the run of a file that was changed has another id.
    pub runs: Vec<Run>,
    /// One summary for each column, over all runs.
    pub columns: Vec<ColumnSummary>,
    /// What its files are, in words; empty: a release that does not tell has them.
    #[serde(default)]
    pub encoding: String,
}

/// A dataset whose files cannot be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RefusedDataset {
    /// Its name.
    pub name: DatasetName,
    /// The reason.
    #[serde(flatten)]
    pub refusal: Refusal,
}

/// Why files cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The reason, which names the file.
    pub why: String,
    /// Whether they may be readable later as they are: a medium or a server failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub passes: bool,
}

impl From<String> for Refusal {
    fn from(why: String) -> Refusal {
        Refusal { why, passes: false }
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Refusal {
        match fault.blame {
            Blame::Device => Refusal { why: fault.message, passes: true },
            _ => Refusal { why: fault.to_string(), passes: false },
        }
    }
}

impl Refusal {
    /// The same, with the place that it is told of.
    #[must_use]
    pub fn at(self, place: impl std::fmt::Display) -> Refusal {
        Refusal { why: format!("{place}: {}", self.why), ..self }
    }
}

impl Attachments {
    /// The names of all that is attached, be it that it can be read or not.
    pub fn all_names(&self) -> impl Iterator<Item = &DatasetName> {
        self.datasets.iter().map(|dataset| &dataset.name).chain(self.refused.iter().map(|refused| &refused.name))
    }

    /// The same of one domain, without the domain.
    pub fn names(&self, domain: &str) -> impl Iterator<Item = &str> {
        self.all_names().filter(move |name| name.domain == domain).map(|name| name.dataset.as_str())
    }
}

/// Checks what a drive says that it attaches.
pub fn check_attachments(attachments: &Attachments) -> Result<(), Fault> {
    let wrong = |what: String| Err(Fault::new(Blame::Device, what));
    for dataset in &attachments.datasets {
        let name = &dataset.name;
        DatasetName::new(name.domain.clone(), name.dataset.clone())?;
        check_columns(&dataset.schema)?;
        let columns = dataset.schema.fields().len();
        if columns == 0 || columns > COLUMNS_MAX {
            return wrong(format!("attached dataset {name} has {columns} columns; expected 1 to {COLUMNS_MAX}"));
        }
        if !dataset.runs.is_empty() && dataset.columns.len() != columns {
            return wrong(format!("attached dataset {name} has {columns} columns, and {} summaries", dataset.columns.len()));
        }
        if dataset.runs.len() > ATTACHED_FILES_MAX {
            return wrong(format!("attached dataset {name} has {} files; at most {ATTACHED_FILES_MAX}", dataset.runs.len()));
        }
    }
    Ok(())
}
