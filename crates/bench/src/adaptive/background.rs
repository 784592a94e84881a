//! Somebody else who keeps the drive busy.

use std::process::{Child, Command, Stdio};

use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_model::Fault;
use tokio::task::JoinHandle;

use super::cell::{Cell, Query};
use super::cores::Cores;
use crate::tables::io;
use crate::timing::run;

/// Load that lasts until it is stopped, or dropped.
#[derive(Default)]
pub(super) struct Background {
    spinning: Option<Spinning>,
    client: Option<(Engine, JoinHandle<()>)>,
}

/// A process that takes all of a core that it is given.
struct Spinning(Child);

impl Drop for Spinning {
    fn drop(&mut self) {
        // It may be gone already; nothing is left to do about it either way.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Background {
    /// What the cell asks for. A drive at its full speed shares its core with a process that always computes. A paced one, which leaves
    /// its core idle most of the time, serves another client that always asks for an aggregate over all rows.
    pub(super) async fn start(cell: &Cell, cores: Cores, target: &Target) -> Result<Background, Fault> {
        if !cell.busy {
            return Ok(Background::default());
        }
        if cell.drive_cpu == "1" {
            return Ok(Background { spinning: Some(spin(cores.drive)?), client: None });
        }
        let engine = connect(target, &EmbedOptions::default()).await?;
        let session = engine.host.session();
        session.run("SET pithead.level = 3").await?;
        session.run("SET pithead.summary_cache = off").await?;
        let sql = Cell { query: Query::Aggregate, selected: 1.0, ..*cell }.sql();
        let asking = tokio::spawn(async move { while run(&session, &sql).await.is_ok() {} });
        Ok(Background { spinning: None, client: Some((engine, asking)) })
    }

    /// Whether it still works, where there is any.
    pub(super) fn is_alive(&mut self) -> bool {
        let spins = self.spinning.as_mut().is_none_or(|spinning| matches!(spinning.0.try_wait(), Ok(None)));
        spins && self.client.as_ref().is_none_or(|(_, asking)| !asking.is_finished())
    }

    /// Ends it.
    pub(super) async fn stop(self) {
        if let Some((engine, asking)) = self.client {
            asking.abort();
            // Cancelled is what it should be.
            let _ = asking.await;
            engine.shutdown().await;
        }
    }
}

fn spin(core: usize) -> Result<Spinning, Fault> {
    let mut command = Command::new("taskset");
    command.args(["-c", &core.to_string(), "sh", "-c", "while :; do :; done"]);
    let child = command.stdin(Stdio::null()).spawn().map_err(|error| io("taskset".as_ref(), &error))?;
    Ok(Spinning(child))
}
