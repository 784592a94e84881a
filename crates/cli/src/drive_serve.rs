//! `pithead drive serve`: a directory as a drive on the network.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use futures::FutureExt;
use pithead_drive::{Attach, BackgroundPolicy, Drive, DriveOptions, address, bind, serve};
use pithead_entry::Shutdown;
use pithead_model::{Blame, Bytes, Fault, parse_bytes, parse_period};
use pithead_sched::parse_cores;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::entry_args::EntryArgs;
use crate::error::CliError;
use crate::kinetic_serve::{self, KineticArgs};
use crate::pace_args::{Pace, PaceArgs};
use crate::target::parse_memory;
use crate::{entry_args, target, terminal};

const EXAMPLES: &str = "\
Examples:
  pithead drive serve --data /disk1
  pithead drive serve --data /disk1 --listen 0.0.0.0:7433 \\
      --tls-cert server1.pem --tls-key server1.key --access access.toml
  pithead drive serve --data /disk1 --cores 0-3 --memory 8GiB
  pithead drive serve --data /tmp/d0 --listen 127.0.0.1:7433 --link 1gbit  # as on a slower network
  pithead drive serve --data /tmp/d0 --listen 127.0.0.1:7433 --cpu 1/15     # as a weaker engine
  pithead drive serve --data /tmp/d0 --listen 127.0.0.1:7433 --device smart-ssd  # as a device of a profile
  pithead drive serve --data /disk1 --tail-goal 1.5 --scrub-period 7d
  pithead drive serve --data /disk1 --attach /lake --attach events=/lake/raw/2024  # files as they are
  pithead drive serve --data /disk1 --attach s3://lake/trips --attach-cache 100GiB  # and in a bucket
  pithead drive serve --data /disk1 --kinetic           # and for Kinetic clients, on this machine

Other machines reach the drive only with TLS, and only known callers: `pithead cert` makes
certificates, `pithead token` tokens for the access file.";

/// Serve a directory as a drive on the network, until SIGTERM or Ctrl-C.
///
/// A new directory becomes a new drive. When it is ready, the drive says so in one line on stderr. It may be killed at
/// any time: what was acknowledged is kept.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Directory of the drive; only one process may use it
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Offer Parquet and Arrow files where they lie, read-only: each entry of DIR as a dataset, or all below DIR as one; DIR may be
    /// s3://BUCKET/FOLDER or https://HOST/FILE, too; may be repeated
    #[arg(long, value_name = "[[DOMAIN.]DATASET=]DIR")]
    attach: Vec<Attach>,
    /// What of the drive's medium may be taken for bytes of attached objects that were read and may be read again; 0: nothing
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "1GiB")]
    attach_cache: u64,
    /// Where to listen; port 0 takes any that is free
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7433")]
    listen: String,
    /// Cores to pin its threads to, one thread each, such as 0,2-3 [default: a thread a core, not pinned]
    #[arg(long, value_name = "LIST", value_parser = parse_core_list)]
    cores: Option<CoreList>,
    /// Threads, where they are not pinned [default: one a core]
    #[arg(long, value_name = "N", conflicts_with = "cores", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Memory for sessions and loads
    #[arg(long, value_name = "BYTES", value_parser = parse_memory, default_value = "1GiB")]
    memory: u64,
    /// Memory for slices that were read and may be read again [default: as much as --memory]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    cache: Option<u64>,
    #[command(flatten)]
    pace: PaceArgs,
    /// Sessions at one time at most
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    sessions: u32,
    /// Sessions of one host at one time at most [default: three quarters of --sessions]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    host_sessions: Option<u32>,
    /// Close a session whose rows nobody has pulled for this long
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    idle: u64,
    /// End a session that is open for this long, however busy it is; 0: never
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    session_limit: u64,
    /// Serve /metrics and /health there: HOST:PORT, or a port that only this machine reaches
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// Tell in the log of sessions that take so long, with their sub-plan and what they waited for; 0: never
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    slow_session_ms: u64,
    /// Delete what killed loads and moves left, once no manifest has named it for so long; what versions name stays for --history
    #[arg(long, value_name = "SECONDS", default_value_t = 900, value_parser = clap::value_parser!(u64).range(1..))]
    collect_after: u64,
    /// How cores are chosen for background services: none, bts, shares:SHARE or tail:FACTOR; see `pithead service policy`
    #[arg(long, value_name = "POLICY", default_value = "tail", value_parser = parse_policy)]
    background_policy: BackgroundPolicy,
    /// With the policy `tail`: how many times as long as without services foreground tasks may wait [default: 1.2]
    #[arg(long, value_name = "FACTOR", value_parser = parse_goal)]
    tail_goal: Option<f64>,
    /// Read all that is stored within this time, again and again, to find damage: such as 14d, 12h or 30m; 0: not
    #[arg(long, value_name = "PERIOD", default_value = "14d", value_parser = parse_scrub)]
    scrub_period: Period,
    /// Keep versions of a domain for so long after they were replaced, unless the domain says otherwise: such as 7d; 0: not
    #[arg(long, value_name = "PERIOD", default_value = "24h", value_parser = parse_period)]
    history: Duration,
    #[command(flatten)]
    kinetic: KineticArgs,
    #[command(flatten)]
    entry: EntryArgs,
}

/// A time; none: never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Period(Option<Duration>);

/// Cores by number.
#[derive(Clone, Debug)]
struct CoreList(Vec<usize>);

/// Runs the command.
pub(crate) async fn run(args: ServeArgs) -> Result<(), CliError> {
    refuse_data_directory(&args.data)?;
    let stop = stop_signal()?;
    let listener = bind(&args.listen).await?;
    let metrics = observe_listener(args.metrics.as_deref()).await?;
    let kinetic = args.kinetic.listen().await?;
    let entry = args.entry.options();
    entry_args::check(&entry, address(&listener)?)?;
    let pace = args.pace.pace().await?;
    let options = DriveOptions { background_policy: policy(&args)?, ..options(&args, &pace) };
    let facts = format!("{}, {}, {}", facts(&options), pace.facts(), entry_args::facts(&entry));
    let drive = Drive::open(options)?;
    drive.collect_orphans_after(Duration::from_secs(args.collect_after));
    terminal::tell(format_args!("drive {} listening on {} ({facts})", drive.id(), address(&listener)?));
    let kinetic = kinetic.map(|bound| kinetic_serve::open(&args.kinetic, &drive, bound, entry.connections)).transpose()?;
    let observing = match metrics {
        Some(listener) => {
            let told = listener.local_addr()?;
            tracing::info!(address = %told, "serving metrics");
            terminal::tell(format_args!("metrics at http://{told}/metrics, health at http://{told}/health"));
            Some(tokio::spawn(pithead_observe::serve(listener, kinetic_serve::observed(&drive, kinetic.as_ref()))))
        }
        None => None,
    };
    let served = match kinetic {
        None => serve(drive, listener, entry, stop).await,
        Some(kinetic) => {
            let stop = stop.shared();
            let serving = tokio::spawn(kinetic.serve(Box::pin(stop.clone())));
            // The drive stops last: it flushes what Kinetic clients have written.
            let stopped = Box::pin(async {
                stop.await;
                kinetic_serve::ended(serving).await;
            });
            serve(drive, listener, entry, stopped).await
        }
    };
    if let Some(observing) = observing {
        // Until now: while a drive stops, its health says so.
        observing.abort();
    }
    Ok(served?)
}

/// Takes the address for metrics before the drive is opened, so that a wrong one is told at once.
pub(crate) async fn observe_listener(listen: Option<&str>) -> Result<Option<TcpListener>, CliError> {
    let Some(listen) = listen else { return Ok(None) };
    match pithead_observe::bind(listen).await {
        Ok(listener) => Ok(Some(listener)),
        Err(error) => {
            let fault = Fault::new(Blame::User, format!("cannot serve metrics at {listen}: {error}"));
            Err(fault.hint("name a free address of this machine, such as 127.0.0.1:9433").into())
        }
    }
}

fn options(args: &ServeArgs, pace: &Pace) -> DriveOptions {
    let cores = args.cores.clone().map(|CoreList(cores)| cores);
    let given = args.threads.map(usize::from).or(cores.as_ref().map(Vec::len));
    let threads = given.or(pace.cores()).unwrap_or_else(target::cores);
    DriveOptions {
        cores,
        threads,
        memory: pace.memory(args.memory),
        cache: args.cache,
        sessions_max: args.sessions as usize,
        host_sessions_max: args.host_sessions.map(|sessions| sessions as usize),
        slow_session: (args.slow_session_ms > 0).then(|| Duration::from_millis(args.slow_session_ms)),
        session_limits: entry_args::session_limits(args.idle, args.session_limit),
        device: pace.device(threads),
        functions: pithead_embed::functions(),
        scrub_period: args.scrub_period.0,
        history: args.history,
        sets_history: true,
        attach: args.attach.clone(),
        attach_cache: args.attach_cache,
        ..DriveOptions::new(&args.data)
    }
}

/// The policy, with its goal where that is given by itself.
fn policy(args: &ServeArgs) -> Result<BackgroundPolicy, CliError> {
    match (args.background_policy, args.tail_goal) {
        (policy, None) => Ok(policy),
        (BackgroundPolicy::Tail(_), Some(goal)) => Ok(BackgroundPolicy::Tail(goal)),
        (policy, Some(_)) => {
            let fault = Fault::new(Blame::User, format!("--tail-goal is of the policy tail, not of {policy}"));
            Err(fault.hint("leave one of --background-policy and --tail-goal out").into())
        }
    }
}

/// What the drive has to work with, in words.
fn facts(options: &DriveOptions) -> String {
    format!("{}, {} memory", terminal::counted(options.threads as u64, "thread"), Bytes(options.memory))
}

fn parse_policy(text: &str) -> Result<BackgroundPolicy, String> {
    text.parse()
}

fn parse_goal(text: &str) -> Result<f64, String> {
    let goal = text.parse().ok().filter(|goal| (1.0..1e6).contains(goal));
    goal.ok_or_else(|| "expected a factor of 1 or more, such as 1.2".to_owned())
}

fn parse_scrub(text: &str) -> Result<Period, Fault> {
    Ok(Period(Some(parse_period(text)?).filter(|period| !period.is_zero())))
}

/// A directory of in-process drives is not itself a drive, and neither is one with files of somebody else.
fn refuse_data_directory(data: &Path) -> Result<(), CliError> {
    if data.exists() && !data.is_dir() {
        let fault = Fault::new(Blame::User, format!("{} is no directory", data.display()));
        return Err(fault.hint("give a directory that is empty or not there, or one of a drive").into());
    }
    let inner = data.join("drive-0");
    if inner.exists() {
        let fault = Fault::new(Blame::User, format!("{} holds drives, and is not one", data.display()));
        return Err(fault.hint(format!("serve each of them: pithead drive serve --data {}", inner.display())).into());
    }
    match foreign_entry(data) {
        Some(name) => {
            let what = format!("{} is not a drive's directory: it has {name:?}, and no {MARKER}", data.display());
            Err(Fault::new(Blame::User, what).hint("give a directory that is empty or not there, or one of a drive").into())
        }
        None => Ok(()),
    }
}

/// The file that says that a directory is a drive's.
const MARKER: &str = "FORMAT";
/// What may be there before it: what a file system has, and what a drive makes first.
const BEFORE_MARKER: [&str; 7] = ["lost+found", "LOCK", "FORMAT.new", "index.redb", "journal", "segments", "tmp"];

/// Something in a directory that no drive has made; none: there is nothing, or a drive has made all of it.
fn foreign_entry(data: &Path) -> Option<String> {
    let has_files = |folder: &Path| folder.read_dir().is_ok_and(|mut entries| entries.next().is_some());
    if data.join(MARKER).exists() || has_files(&data.join("journal")) {
        return None;
    }
    let entries = data.read_dir().ok()?.filter_map(Result::ok);
    let mut foreign = entries.filter_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_ours = name.starts_with('.') || BEFORE_MARKER.contains(&&*name) && !(name == "tmp" && has_files(&entry.path()));
        (!is_ours).then_some(name)
    });
    foreign.next()
}

/// Ends at the first SIGTERM or SIGINT; a second one ends the process as if there were no drive.
pub(crate) fn stop_signal() -> Result<Shutdown, CliError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(Box::pin(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        terminal::tell("stopping");
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            std::process::exit(1);
        });
    }))
}

fn parse_core_list(text: &str) -> Result<CoreList, String> {
    parse_cores(text).map(CoreList).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command, DriveCommand};

    fn parsed(line: &str) -> Result<ServeArgs, clap::Error> {
        match Cli::try_parse_from(line.split(' '))?.command {
            Command::Drive(DriveCommand::Serve(args)) => Ok(args),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn flags_become_options() {
        let args = parsed(
            "pithead drive serve --data d --cores 0,2-3 --memory 512MiB --cache 1GiB --link 1gbit --cpu 1/4 --sessions 5 --idle 7 --host-sessions 4 --slow-session-ms 0",
        )
        .unwrap();
        let pace = args.pace.pace().await.unwrap();
        let options = options(&args, &pace);
        assert_eq!(facts(&options), "3 threads, 537 MB memory");
        assert_eq!(pace.facts(), "link paced to 1 Gbit/s, CPU paced to 0.250 of its speed");
        assert_eq!((options.cores, options.memory, options.cache), (Some(vec![0, 2, 3]), 512 << 20, Some(1 << 30)));
        assert_eq!((options.sessions_max, options.session_limits.idle), (5, Duration::from_secs(7)));
        assert_eq!((options.host_sessions_max, options.slow_session), (Some(4), None));
        assert_eq!(options.device.link_bits_per_second(), Some(1e9));
        assert_eq!((options.history, options.sets_history), (Duration::from_secs(86_400), true));
    }

    #[test]
    fn background_work_has_a_policy_and_a_period() {
        let of = |flags: &str| {
            let args = parsed(format!("pithead drive serve --data d {flags}").trim_end()).unwrap();
            (policy(&args).ok(), args.scrub_period.0)
        };
        let days = |days: u64| Some(Duration::from_secs(days * 86_400));
        assert_eq!(of(""), (Some(BackgroundPolicy::Tail(1.2)), days(14)));
        assert_eq!(of("--tail-goal 1.5 --scrub-period 7d"), (Some(BackgroundPolicy::Tail(1.5)), days(7)));
        assert_eq!(of("--background-policy shares:0.3 --scrub-period 0"), (Some(BackgroundPolicy::Shares(0.3)), None));
        assert_eq!(of("--background-policy bts --tail-goal 2"), (None, days(14)));
        assert_eq!(of("--scrub-period 1.5m").1, Some(Duration::from_secs(90)));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for line in [
            "",
            "--data d --cores 3-1",
            "--data d --cores 0 --threads 2",
            "--data d --memory much",
            "--data d --link fast",
            "--data d --cpu 2",
            "--data d --cpu 1/0",
            "--data d --background-policy best",
            "--data d --tail-goal 0.5",
            "--data d --scrub-period soon",
            "--data d --scrub-period -1d",
            "--data d --history long",
        ] {
            assert!(parsed(format!("pithead drive serve {line}").trim_end()).is_err(), "{line}");
        }
    }

    #[test]
    fn a_directory_of_drives_is_no_drive() {
        let folder = tempfile::tempdir().unwrap();
        assert!(refuse_data_directory(folder.path()).is_ok());
        let file = folder.path().join("tmp");
        std::fs::write(&file, "").unwrap();
        assert!(refuse_data_directory(&file).unwrap_err().to_string().contains("is no directory"));
        std::fs::create_dir(folder.path().join("drive-0")).unwrap();
        assert!(refuse_data_directory(folder.path()).is_err());
    }

    #[test]
    fn a_directory_with_files_of_others_is_no_drive() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["LOCK", ".hidden", "index.redb"] {
            std::fs::write(path(name), "").unwrap();
        }
        std::fs::create_dir(path("tmp")).unwrap();
        assert_eq!(foreign_entry(folder.path()), None, "a creation that was broken off");
        std::fs::write(path("tmp").join("thesis.tex"), "years").unwrap();
        assert_eq!(foreign_entry(folder.path()).as_deref(), Some("tmp"));
        std::fs::write(path(MARKER), "pithead store 4").unwrap();
        assert_eq!(foreign_entry(folder.path()), None, "a drive's own temporary files");
        std::fs::remove_file(path(MARKER)).unwrap();
        std::fs::remove_dir_all(path("tmp")).unwrap();
        std::fs::write(path("notes.txt"), "").unwrap();
        assert!(refuse_data_directory(folder.path()).is_err());
    }
}
