//! `--plans`: the sub-plans of statements as files, with what was executed of them.

use std::path::{Path, PathBuf};

use pithead_host::{QueryProfile, WrittenPlan};

use crate::error::CliError;
use crate::terminal;

/// A folder that statements' sub-plans go to.
pub(crate) struct PlanFolder {
    folder: PathBuf,
    /// Statements that had sub-plans.
    statements: usize,
}

impl PlanFolder {
    /// Makes the folder. One that has files already is refused, so that all that is in it is of one run.
    pub(crate) fn make(folder: &Path) -> Result<Self, CliError> {
        let is_in = |error| CliError::file(folder, error);
        std::fs::create_dir_all(folder).map_err(is_in)?;
        if std::fs::read_dir(folder).map_err(is_in)?.next().is_some() {
            return Err(CliError::user(format!("{} is not empty; --plans wants a new folder", folder.display())));
        }
        Ok(Self { folder: folder.to_owned(), statements: 0 })
    }

    /// Writes the sub-plans of a statement that has ended, in whatever way.
    pub(crate) fn write(&mut self, profile: &QueryProfile) -> Result<(), CliError> {
        let plans = WrittenPlan::all(profile);
        self.statements += usize::from(!plans.is_empty());
        for plan in &plans {
            let Some(bytes) = &plan.plan else {
                let (number, dataset) = (plan.number, &plan.dataset);
                terminal::tell(format_args!(
                    "sub-plan {number} is a bare scan of {dataset}, of which there is no Substrait plan"
                ));
                continue;
            };
            let path = self.folder.join(file_name(self.statements, plan.number, plan.partition));
            std::fs::write(&path, bytes).map_err(|error| CliError::file(&path, error))?;
        }
        Ok(())
    }
}

fn file_name(statement: usize, sub_plan: usize, partition: Option<usize>) -> String {
    let partition = partition.map(|partition| format!("-partition-{partition}")).unwrap_or_default();
    format!("{statement}-sub-plan-{sub_plan}{partition}.binpb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_of_one_run() {
        let folder = tempfile::tempdir().unwrap();
        let plans = folder.path().join("plans");
        assert!(PlanFolder::make(&plans).is_ok());
        std::fs::write(plans.join(file_name(1, 2, Some(0))), b"").unwrap();
        assert!(plans.join("1-sub-plan-2-partition-0.binpb").is_file());
        assert!(PlanFolder::make(&plans).is_err());
        assert_eq!(file_name(3, 1, None), "3-sub-plan-1.binpb");
    }
}
