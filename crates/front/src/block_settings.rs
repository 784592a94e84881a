//! Settings within a block: what SET LOCAL sets ends with it, and what SET sets is taken back where it is rolled back.

use std::collections::BTreeMap;

use crate::connection::{Halt, Talk};
use crate::error::Complaint;
use crate::settings::is_of_host;
use crate::transaction::Transaction;

/// Values of settings to go back to, by their names in small letters; none: the default.
type Values = BTreeMap<String, Option<String>>;

/// What a block has changed.
#[derive(Debug, Default)]
pub(crate) struct BlockSettings {
    /// The values before the block.
    before: Values,
    /// The values that COMMIT brings back, of what is set by SET LOCAL.
    local: Values,
}

impl Talk {
    /// SET and SET LOCAL.
    pub(crate) async fn set_in_block(&mut self, name: &str, value: &str, local: bool) -> Result<(), Halt> {
        if self.transaction == Transaction::None {
            return match local {
                true => {
                    self.notice(Some(Complaint::warning("25P01", "SET LOCAL can only be used in transaction blocks")));
                    Ok(())
                }
                false => self.set(name, value).await,
            };
        }
        let was = if is_of_host(name) { self.shown_by_host(name).await? } else { self.settings.value(name) };
        self.set(name, value).await?;
        let settings = &mut self.block_settings;
        settings.before.entry(name.to_owned()).or_insert_with(|| was.clone());
        match local {
            true => {
                settings.local.entry(name.to_owned()).or_insert(was);
            }
            false => {
                settings.local.remove(name);
            }
        }
        Ok(())
    }

    /// Brings back what the block that has ended does not leave behind.
    pub(crate) async fn end_settings(&mut self, committed: bool) -> Result<(), Halt> {
        let BlockSettings { before, local } = std::mem::take(&mut self.block_settings);
        for (name, value) in if committed { local } else { before } {
            self.set(&name, value.as_deref().unwrap_or("default")).await?;
        }
        Ok(())
    }
}
