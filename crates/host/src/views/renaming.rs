//! A view that gets another name, in its domain. Views that read it by the old one say that it is not there.

use pithead_fleet::{Edit, check_free};
use pithead_model::{Blame, DatasetName, Fault, Manifest};

/// Another name for a view.
pub(crate) struct ViewRename<'a> {
    pub(crate) from: &'a DatasetName,
    pub(crate) to: &'a DatasetName,
}

impl Edit for ViewRename<'_> {
    type Output = ();

    fn domain(&self) -> &str {
        &self.from.domain
    }

    fn subject(&self) -> String {
        format!("view {}", self.from)
    }

    fn apply(&self, manifest: &mut Manifest) -> Result<(), Fault> {
        check_free(self.to, manifest)?;
        let view = manifest.views.remove(&self.from.dataset).ok_or_else(|| {
            let message = format!("view {} was dropped or renamed by others meanwhile", self.from);
            Fault::new(Blame::Conflict, message).hint("run the statement again")
        })?;
        manifest.views.insert(self.to.dataset.clone(), view);
        Ok(())
    }

    fn is_in(&self, manifest: &Manifest) -> bool {
        !manifest.views.contains_key(&self.from.dataset) && manifest.views.contains_key(&self.to.dataset)
    }
}
