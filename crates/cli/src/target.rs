//! Where datasets are: drives inside this process on a directory, or drives on the network.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use pithead_embed::{Attach, ConnectOptions, EmbedOptions, Engine, HISTORY, Target};
use pithead_model::{Blame, Fault, parse_bytes};

use crate::error::CliError;
use crate::interrupt::Interrupts;
use crate::link_args::LinkArgs;
use crate::scratch::{self, Scratch, is_scratch};

/// Used when neither flags nor environment say otherwise.
const DATA_DEFAULT: &str = "pithead-data";
/// How long drives have to take note of what was cancelled.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Where datasets are.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Where datasets are")]
pub(crate) struct TargetArgs {
    /// Directory whose drives run inside this process [default: $PITHEAD_DATA, else ./pithead-data]
    #[arg(long, value_name = "DIR", conflicts_with = "drives")]
    pub(crate) data: Option<PathBuf>,
    /// Drives on the network [default: $PITHEAD_DRIVES]
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',')]
    pub(crate) drives: Vec<String>,
    /// Offer Parquet and Arrow files where they lie: each entry of DIR as a dataset, or all below DIR as one; DIR may be s3://BUCKET/FOLDER
    /// or https://HOST/FILE, too; may be repeated. Needs no --data
    #[arg(long, value_name = "[[DOMAIN.]DATASET=]DIR", conflicts_with = "drives")]
    pub(crate) attach: Vec<Attach>,
    /// Threads of this process for queries [default: one a core]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    pub(crate) threads: Option<usize>,
    /// Memory of this process for queries, such as 4GiB [default: a part of what the machine has]
    #[arg(long, value_name = "BYTES", value_parser = parse_memory)]
    pub(crate) memory: Option<u64>,
    /// Whether the command can do without a directory: where none is named and none is there, its drives go when it ends.
    #[arg(skip)]
    pub(crate) or_scratch: bool,
    // Last: the heading of its options would go on.
    #[command(flatten)]
    pub(crate) link: LinkArgs,
}

impl TargetArgs {
    /// The target by flags, then by environment, then by default.
    pub(crate) fn target(&self) -> Target {
        self.resolve(variable)
    }

    /// How to connect to it.
    pub(crate) fn options(&self) -> Result<EmbedOptions, CliError> {
        let connect = match self.target() {
            Target::Drives(_) => self.link.options(variable)?,
            Target::Data(_) => ConnectOptions::default(),
        };
        Ok(EmbedOptions {
            threads: self.threads,
            memory: self.memory,
            attach: self.attach.clone(),
            history: HISTORY,
            connect,
            ..EmbedOptions::default()
        })
    }

    fn resolve(&self, variable: impl Fn(&str) -> Option<String>) -> Target {
        if !self.drives.is_empty() {
            return Target::Drives(self.drives.clone());
        }
        if let Some(data) = &self.data {
            return Target::Data(data.clone());
        }
        // Files that are attached are offered by drives of this process.
        let drives = variable("PITHEAD_DRIVES").filter(|_| self.attach.is_empty());
        match (drives, variable("PITHEAD_DATA")) {
            (Some(drives), _) => Target::Drives(drives.split(',').map(|drive| drive.trim().to_owned()).collect()),
            (None, Some(here)) => Target::Data(here.into()),
            // Files alone need no store that stays.
            (None, None) if (self.or_scratch || !self.attach.is_empty()) && !Path::new(DATA_DEFAULT).exists() => {
                Target::Data(scratch::folder())
            }
            (None, None) => Target::Data(DATA_DEFAULT.into()),
        }
    }
}

/// A variable of the environment, unless it is empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Connects to what is there, runs `body`, and shuts down also when `body` fails.
pub(crate) async fn connected<T>(
    args: &TargetArgs,
    interrupts: &Interrupts,
    body: impl AsyncFnOnce(&Engine) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let target = args.target();
    must_exist(&target)?;
    within(&target, &args.options()?, interrupts, body).await
}

/// The same with options of the command's own, and a directory that is not there is made.
pub(crate) async fn connected_or_new<T>(
    args: &TargetArgs,
    options: EmbedOptions,
    interrupts: &Interrupts,
    body: impl AsyncFnOnce(&Engine) -> Result<T, CliError>,
) -> Result<T, CliError> {
    within(&args.target(), &options, interrupts, body).await
}

/// A directory that was mistyped must not become a new, empty one.
pub(crate) fn must_exist(target: &Target) -> Result<(), CliError> {
    match target {
        Target::Data(data) if !data.exists() && !is_scratch(target) => {
            let fault = Fault::new(Blame::User, format!("there is no data directory {}", data.display()));
            Err(fault
                .hint("`pithead load` makes one, and so does `pithead sql --create`; --data or --drives names another")
                .into())
        }
        _ => Ok(()),
    }
}

/// Cores that this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

async fn within<T>(
    target: &Target,
    options: &EmbedOptions,
    interrupts: &Interrupts,
    body: impl AsyncFnOnce(&Engine) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let tasks_before = alive_tasks();
    let _scratch = Scratch::of(target)?;
    let engine = interrupts.cancels(async { Ok(pithead_embed::connect(target, options).await?) }).await?;
    interrupts.removes(engine.host.spills());
    let result = body(&engine).await;
    engine.shutdown().await;
    wait_for_tasks(tasks_before);
    result
}

/// Sessions of an answer that was dropped are closed by tasks; ending the process before they have run would leave the
/// sessions to the drives' idle limits. Blocks, since the runtime's timers stand still while its threads are busy.
fn wait_for_tasks(tasks_before: usize) {
    let start = Instant::now();
    while alive_tasks() > tasks_before && start.elapsed() < CLOSE_TIMEOUT {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Tasks of this process's runtime that have not ended.
fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Less is refused when it is asked for, and not by the first statement that runs out of it.
const MEMORY_MIN: (&str, u64) = ("16MiB", 16 << 20);

/// Memory that queries and sessions share.
pub(crate) fn parse_memory(text: &str) -> Result<u64, Fault> {
    match parse_bytes(text)? {
        few if few < MEMORY_MIN.1 => Err(Fault::new(Blame::User, format!("expected {} or more, got {text:?}", MEMORY_MIN.0))),
        enough => Ok(enough),
    }
}

fn parse_threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads @ 1..=1024) => Ok(threads),
        _ => Err("expected a number from 1 to 1024".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_enough_for_a_session() {
        assert_eq!((parse_memory("16MiB"), parse_memory("2GB")), (Ok(16 << 20), Ok(2_000_000_000)));
        for few in ["0", "1", "16MB", "0.5MiB"] {
            assert!(parse_memory(few).unwrap_err().message.contains("or more, got"), "{few}");
        }
        assert!(parse_memory("much").unwrap_err().message.contains("a size such as 512MiB"));
    }

    fn resolved(args: &TargetArgs, drives: Option<&str>, data: Option<&str>) -> Target {
        args.resolve(|name| if name == "PITHEAD_DRIVES" { drives } else { data }.map(str::to_owned))
    }

    #[test]
    fn flags_go_before_the_environment() {
        let none = TargetArgs::default();
        assert_eq!(resolved(&none, None, None), Target::Data(DATA_DEFAULT.into()));
        assert_eq!(resolved(&none, None, Some("/d")), Target::Data("/d".into()));
        assert_eq!(resolved(&none, Some("a:1, b:2"), Some("/d")), Target::Drives(vec!["a:1".into(), "b:2".into()]));
        let data = TargetArgs { data: Some("/x".into()), ..TargetArgs::default() };
        assert_eq!(resolved(&data, Some("a:1"), Some("/d")), Target::Data("/x".into()));
        let attach = TargetArgs { attach: vec!["/lake".parse().unwrap()], ..TargetArgs::default() };
        assert_eq!(resolved(&attach, Some("a:1"), None), Target::Data(scratch::folder()));
        assert_eq!(resolved(&attach, None, Some("/d")), Target::Data("/d".into()));
        let without = TargetArgs { or_scratch: true, ..TargetArgs::default() };
        assert_eq!(resolved(&without, None, None), Target::Data(scratch::folder()));
        assert_eq!(resolved(&without, None, Some("/d")), Target::Data("/d".into()));
    }
}
