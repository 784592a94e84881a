//! The drive's directory, and a drive on it with the speeds of a cell.

use std::path::PathBuf;

use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_host::Session;
use pithead_model::{Blame, Fault};

use super::AdaptiveOptions;
use super::cores::Cores;
use super::table::load;
use crate::drives::DriveProcess;
use crate::tables::io;

/// A directory with the table in it.
pub(super) struct TableDirectory {
    folder: PathBuf,
    program: PathBuf,
    pub(super) cores: Cores,
}

/// A drive that serves the table, and a host beside it.
pub(super) struct Served {
    drive: DriveProcess,
    pub(super) engine: Engine,
    pub(super) target: Target,
}

impl TableDirectory {
    /// Makes it anew, on a drive that is not paced.
    pub(super) async fn make(options: &AdaptiveOptions, cores: Cores) -> Result<TableDirectory, Fault> {
        let folder = options.directory.join("adaptive");
        if folder.exists() {
            std::fs::remove_dir_all(&folder).map_err(|error| io(&folder, &error))?;
        }
        std::fs::create_dir_all(&folder).map_err(|error| io(&folder, &error))?;
        let program = std::env::current_exe().map_err(|error| io("pithead".as_ref(), &error))?;
        let place = TableDirectory { folder, program, cores };
        let served = place.serve("1", None).await?;
        let loaded = load(&served.engine, &place.folder, options.slices, options.slice_rows).await;
        served.stop().await?;
        loaded.map(|()| place)
    }

    /// Starts the drive as if it had never run a query, and a host that knows nothing of it. CPU and link are as `drive serve` takes
    /// them; no link: not paced.
    pub(super) async fn serve(&self, cpu: &str, link: Option<&str>) -> Result<Served, Fault> {
        let data = self.folder.join("drive");
        let costs = data.join("costs.json");
        if costs.exists() {
            std::fs::remove_file(&costs).map_err(|error| io(&costs, &error))?;
        }
        let mut arguments = vec!["--slow-session-ms", "0"];
        // A CPU at its full speed is not paced at all.
        arguments.extend((cpu != "1").then_some(["--cpu", cpu]).into_iter().flatten());
        arguments.extend(link.map(|link| ["--link", link]).into_iter().flatten());
        let drive = DriveProcess::start_on(self.cores.drive, &self.program, &data, &arguments)?;
        let target = Target::Drives(vec![drive.address().to_owned()]);
        let engine = connect(&target, &EmbedOptions::default()).await?;
        Ok(Served { drive, engine, target })
    }

    /// Deletes it: the table can be made again, only results are worth keeping.
    pub(super) fn remove(self) -> Result<(), Fault> {
        std::fs::remove_dir_all(&self.folder).map_err(|error| io(&self.folder, &error))
    }
}

impl Served {
    /// A session that keeps nothing for later queries: no slices, no partial results.
    pub(super) async fn session(&self, level: &str) -> Result<Session, Fault> {
        let session = self.engine.host.session();
        for (name, value) in [("slice_cache", "0"), ("summary_cache", "off"), ("level", level)] {
            session.run(&format!("SET pithead.{name} = {value}")).await?;
        }
        Ok(session)
    }

    /// Ends both.
    pub(super) async fn stop(self) -> Result<(), Fault> {
        self.engine.shutdown().await;
        let drive = self.drive;
        let stopped = tokio::task::spawn_blocking(move || drive.stop()).await;
        stopped.unwrap_or_else(|lost| Err(Fault::new(Blame::Bug, format!("stopping a drive ended early: {lost}"))))
    }
}
