//! Functions of users at an array: the drives below keep their modules.

use bytes::Bytes;
use futures::future::{join_all, try_join_all};
use pithead_door::{FunctionAsk, FunctionModule};
use pithead_model::{Blame, Fault, RUNS_USER_FUNCTIONS};

use crate::array::Inner;

impl Inner {
    /// Keeps a module on all drives below, or says which one does not.
    pub(crate) async fn keep_function(&self, module: FunctionModule) -> Result<String, Fault> {
        self.check_running()?;
        let keeping = self.drives.iter().map(|drive| {
            let kept = drive.door.keep_function(module.clone());
            async move { kept.await.map_err(|fault| fault.at_drive(drive.label())) }
        });
        let mut hashes = try_join_all(keeping).await?;
        hashes.pop().ok_or_else(|| Fault::new(Blame::Bug, "an array without drives"))
    }

    /// A module that all drives below have: one that lacks it is brought it by whoever asks.
    pub(crate) async fn function(&self, ask: FunctionAsk) -> Result<Option<Bytes>, Fault> {
        let mut found = None;
        for answer in join_all(self.drives.iter().map(|drive| drive.door.function(ask.clone()))).await {
            match (answer?, ask.bytes) {
                (Some(bytes), _) => found = Some(bytes),
                (None, true) => {}
                (None, false) => return Ok(None),
            }
        }
        Ok(found)
    }

    /// What the array announces: functions of users only if all drives below run them.
    pub(crate) fn announced(&self) -> Vec<String> {
        let runs = |extensions: &[String]| extensions.iter().any(|there| there == RUNS_USER_FUNCTIONS);
        let all_run = self.drives.iter().all(|drive| runs(&drive.welcome.extensions));
        let announced = self.options.functions.announced().iter();
        announced.filter(|there| all_run || *there != RUNS_USER_FUNCTIONS).cloned().collect()
    }
}
