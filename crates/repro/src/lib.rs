//! The papers' experiments, run again on emulated devices: real pages and real counts, in virtual time.
//!
//! Each experiment counts work by doing it, has the model of `pithead-emulate` turn the counts into time and joules, and
//! puts the paper's figures beside ours. `docs/internals/repro.md` explains every difference.

mod biscuit;
mod bts;
mod figure;
mod random;
mod skytether;
mod smart_ssd;
mod svg;
mod table;
mod yoursql;

pub use figure::{Chart, Claim, Figure, FigureKind, Line, Missing, Report, ReproSummary};
pub use svg::{svg, svg_of};
pub use table::synthetic;

use pithead_emulate::{ModelError, PageError, ProfileError};

/// Why an experiment could not be run.
#[derive(Debug, thiserror::Error)]
pub enum ReproError {
    /// No experiment has this name.
    #[error("no experiment {name}; there are {}, and all", NAMES.join(", "))]
    Unknown {
        /// The name.
        name: String,
    },
    /// Two layouts, or two ways, gave different answers.
    #[error("the answers of {0} differ between layouts")]
    Differs(String),
    /// A built-in profile is not right.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The model refused.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A page that was written is not right.
    #[error(transparent)]
    Page(#[from] PageError),
}

/// The experiments, by the paper that has them.
pub const NAMES: &[&str] = &["smart-ssd", "biscuit", "yoursql", "skytether", "bts"];

/// What the paper of an experiment is, in one line.
pub fn about(name: &str) -> &'static str {
    match name {
        "smart-ssd" => "Do et al. 2013: scans in a Smart SSD, time and energy beside SSD and HDD",
        "biscuit" => "Gu et al. 2016: read latency, pointer chasing, and a filter over lineitem on the PM1725",
        "yoursql" => "Jo et al. 2016: early filters in MySQL",
        "skytether" => "Montana et al. 2023: Envoy, the processor of a Kinetic drive, beside its client",
        "bts" => "Park et al. 2022: put latency beside background work on a drive's cores",
        _ => "",
    }
}

/// The names that a list stands for: each once, in the order of [`NAMES`]; `all` stands for all of them.
pub fn chosen(names: &[String]) -> Result<Vec<&'static str>, ReproError> {
    if let Some(name) = names.iter().find(|name| *name != "all" && !NAMES.contains(&name.as_str())) {
        return Err(ReproError::Unknown { name: name.clone() });
    }
    let all = names.iter().any(|name| name == "all");
    Ok(NAMES.iter().copied().filter(|known| all || names.iter().any(|name| name == known)).collect())
}

/// Runs one experiment on tables of 1/`scale` of the paper's rows.
pub fn run(name: &str, scale: u64) -> Result<Report, ReproError> {
    match name {
        "smart-ssd" => smart_ssd::run(scale),
        "biscuit" => biscuit::run(scale),
        "yoursql" => Ok(yoursql::report()),
        "skytether" => skytether::run(scale),
        "bts" => Ok(bts::run()),
        _ => Err(ReproError::Unknown { name: name.to_owned() }),
    }
}

#[cfg(test)]
mod tests;
