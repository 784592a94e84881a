//! Queries that are run for what they count.

use std::sync::Arc;

use futures::StreamExt;
use pithead_host::{QueryProfile, Session};

use crate::error::CliError;

/// What is counted must be all of the work: nothing kept from before, and no other plan in the middle.
const SETTINGS: [&str; 3] = ["SET pithead.summary_cache = off", "SET pithead.slice_cache = 0", "SET pithead.replan = off"];
/// The drives do everything.
pub(crate) const WHOLE: &str = "SET pithead.level = '3'";
/// The drives do nothing, so that stored bytes are counted, too.
pub(crate) const STORED: &str = "SET pithead.level = '0'";

/// Has a session count all of the work of its queries.
pub(crate) async fn count_all(session: &Session) -> Result<(), CliError> {
    for setting in SETTINGS {
        drain(session, setting).await?;
    }
    Ok(())
}

/// Runs a statement to its last row.
pub(crate) async fn drain(session: &Session, statement: &str) -> Result<Arc<QueryProfile>, CliError> {
    let mut answer = session.run(statement).await?;
    while let Some(batch) = answer.rows.next().await {
        batch?;
    }
    Ok(answer.profile)
}
