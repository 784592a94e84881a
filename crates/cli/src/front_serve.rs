//! `pithead serve`: a host for clients that speak PostgreSQL's protocol, or Flight SQL, and for browsers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use futures::future::{BoxFuture, FutureExt, OptionFuture};
use pithead_console::Console;
use pithead_drive::{address, bind};
use pithead_embed::{Attach, Engine, Target};
use pithead_flight_sql::FlightSql;
use pithead_front::Front;
use pithead_model::{Blame, Bytes, Fault, parse_period};
use pithead_observe::{Health, Observed};
use pithead_workers::{Links, Workers};
use tokio::net::TcpListener;

use crate::array_serve::BelowArgs;
use crate::drive_serve::{observe_listener, stop_signal};
use crate::entry_args::EntryArgs;
use crate::error::CliError;
use crate::scratch::Scratch;
use crate::target::{TargetArgs, must_exist, parse_memory};
use crate::{entry_args, mending, target, terminal};

const EXAMPLES: &str = "\
Examples:
  pithead serve --data ./pithead-data                      # drives in this process, clients of this machine
  pithead serve --drives server1:7433,server2:7433 --drives-tls-ca ca.pem --drives-token-file host.token \\
      --listen 0.0.0.0:5432 --tls-cert host.pem --tls-key host.key --access access.toml
  psql -h 127.0.0.1 -p 5432 -U me pithead -c 'SELECT count(*) FROM trips'
  pithead serve --data ./pithead-data --flight 127.0.0.1:8815      # Flight SQL for ADBC and JDBC, too
  pithead serve --data ./pithead-data --console            # and a page for browsers at http://127.0.0.1:8080
  pithead serve --worker --drives server1:7433,server2:7433 --drives-tls-ca ca.pem --drives-token-file host.token \\
      --listen 0.0.0.0:7500 --tls-cert host2.pem --tls-key host2.key --access workers.toml

A client's user is an identity of the access file, and its password that identity's token. Several
servers may stand before the same drives.";

/// Serve datasets to clients of PostgreSQL (psql, psycopg and others) and of Flight SQL (ADBC, JDBC), until SIGTERM or Ctrl-C.
///
/// Their statements are cut, pushed down and finished as those of `pithead sql`. When it is ready, it says so in one line on stderr.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FrontServeArgs {
    /// Directory whose drives run inside this process [default: $PITHEAD_DATA, else ./pithead-data]
    #[arg(long, value_name = "DIR", conflicts_with = "drives")]
    data: Option<PathBuf>,
    /// Drives on the network [default: $PITHEAD_DRIVES]
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',')]
    drives: Vec<String>,
    /// Offer Parquet and Arrow files where they lie: each entry of DIR as a dataset, or all below DIR as one; DIR may be s3://BUCKET/FOLDER
    /// or https://HOST/FILE, too; may be repeated
    #[arg(long, value_name = "[[DOMAIN.]DATASET=]DIR", conflicts_with = "drives")]
    attach: Vec<Attach>,
    /// Where to listen; port 0 takes any that is free
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:5432")]
    listen: String,
    /// Serve Flight SQL there, too, as 127.0.0.1:8815; port 0 takes any that is free
    #[arg(long, value_name = "HOST:PORT")]
    flight: Option<String>,
    /// Serve the console there, a page for browsers: HOST:PORT, or a port that only this machine reaches [default without a value: 8080]
    #[arg(long, value_name = "[HOST:]PORT", num_args = 0..=1, default_missing_value = "8080")]
    console: Option<String>,
    /// Divide queries among these workers; they are reached as the drives are
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',', conflicts_with = "worker")]
    workers: Vec<String>,
    /// Be a worker: take tasks of other hosts' queries at --listen, and serve no clients. Needs drives on the network
    #[arg(long, conflicts_with_all = ["data", "attach", "flight", "console"])]
    worker: bool,
    /// Threads of this process for queries [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Memory of this process for queries, such as 4GiB [default: a part of what the machine has]
    #[arg(long, value_name = "BYTES", value_parser = parse_memory)]
    memory: Option<u64>,
    /// So often, write anew what drives have found damaged, and make copies that are missing: such as 10m; 0: not
    #[arg(long, value_name = "PERIOD", default_value = "10m", value_parser = parse_period)]
    mend_every: Duration,
    /// Do without a drive that has been away for so long, where copies of all that it has are elsewhere: such as 1h [default: never]
    #[arg(long, value_name = "PERIOD", value_parser = parse_period)]
    lost_after: Option<Duration>,
    /// Serve /metrics and /health there: HOST:PORT, or a port that only this machine reaches
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    #[command(flatten)]
    entry: EntryArgs,
    #[command(flatten)]
    below: BelowArgs,
}

impl FrontServeArgs {
    /// Threads that were asked for.
    pub(crate) fn threads(&self) -> Option<usize> {
        self.threads.map(usize::from)
    }

    fn target(&self) -> TargetArgs {
        TargetArgs {
            data: self.data.clone(),
            drives: self.drives.clone(),
            attach: self.attach.clone(),
            threads: self.threads(),
            memory: self.memory,
            link: self.below.link(),
            or_scratch: false,
        }
    }
}

/// Runs the command.
pub(crate) async fn run(args: FrontServeArgs) -> Result<(), CliError> {
    if args.worker {
        return run_worker(args).await;
    }
    let stop = stop_signal()?.shared();
    let wanted = args.target();
    must_exist(&wanted.target())?;
    let listener = bind(&args.listen).await?;
    let flight_listener = bind_if(args.flight.as_deref()).await?;
    let console_listener = console_listener(args.console.as_deref()).await?;
    let metrics = observe_listener(args.metrics.as_deref()).await?;
    let entry = args.entry.options();
    for listener in [Some(&listener), flight_listener.as_ref(), console_listener.as_ref()].into_iter().flatten() {
        entry_args::check(&entry, address(listener)?)?;
    }
    let _scratch = Scratch::of(&wanted.target())?;
    let engine = pithead_embed::connect(&wanted.target(), &wanted.options()?).await?;
    divide(&engine, &args.workers, &wanted).await?;
    let servers = Arc::new(Servers {
        front: Front::new(engine.host.clone()),
        flight: flight_listener.as_ref().map(|_| FlightSql::new(engine.host.clone())),
    });
    let options = engine.host.options();
    let facts = format!(
        "{}, {}, {} memory, {}",
        terminal::counted(engine.host.fleet().drives().len() as u64, "drive"),
        terminal::counted(args.threads().unwrap_or_else(target::cores) as u64, "thread"),
        Bytes(options.memory),
        entry_args::facts(&entry)
    );
    if let Some(listener) = &flight_listener {
        terminal::tell(format_args!("Flight SQL at {}", address(listener)?));
    }
    if let Some(listener) = &console_listener {
        let scheme = if entry.tls.is_some() { "https" } else { "http" };
        terminal::tell(format_args!("console at {scheme}://{}/", address(listener)?));
    }
    terminal::tell(format_args!("host listening on {} for PostgreSQL clients ({facts})", address(&listener)?));
    let observing = match metrics {
        Some(listener) => {
            let told = listener.local_addr()?;
            terminal::tell(format_args!("metrics at http://{told}/metrics, health at http://{told}/health"));
            Some(tokio::spawn(pithead_observe::serve(listener, Arc::clone(&servers) as Arc<dyn Observed>)))
        }
        None => None,
    };
    let flying = servers
        .flight
        .clone()
        .zip(flight_listener)
        .map(|(flight, listener)| pithead_flight_sql::serve(flight, listener, entry.clone(), Box::pin(stop.clone())));
    let shown = console_listener.map(|listener| {
        pithead_console::serve(Console::new(engine.host.clone()), listener, entry.clone(), Box::pin(stop.clone()))
    });
    let mending = (!args.mend_every.is_zero())
        .then(|| tokio::spawn(mending::mend_for_ever(engine.host.clone(), args.mend_every, args.lost_after)));
    let front = pithead_front::serve(Arc::clone(&servers.front), listener, entry.clone(), Box::pin(stop));
    // Where one of them fails, the others end with it.
    let served = tokio::try_join!(front, async { OptionFuture::from(flying).await.unwrap_or(Ok(())) }, async {
        OptionFuture::from(shown).await.unwrap_or(Ok(()))
    },);
    for task in [observing, mending].into_iter().flatten() {
        task.abort();
        // It holds the host, too.
        let _ = task.await;
    }
    drop(servers);
    engine.shutdown().await;
    served?;
    Ok(())
}

/// Has queries divided among workers, if there are any.
pub(crate) async fn divide(engine: &Engine, workers: &[String], target: &TargetArgs) -> Result<(), CliError> {
    if workers.is_empty() {
        return Ok(());
    }
    if let Target::Data(_) = target.target() {
        let fault = Fault::new(Blame::User, "workers cannot reach drives that are inside this process");
        return Err(fault.hint("start the drives with `pithead drive serve`, and name them with --drives").into());
    }
    let functions = &engine.host.options().functions;
    engine.host.runs_at(Workers::connect(workers, &target.options()?.connect, functions).await?);
    Ok(())
}

/// Takes tasks of other hosts' queries.
async fn run_worker(args: FrontServeArgs) -> Result<(), CliError> {
    let stop = stop_signal()?;
    let wanted = args.target();
    if let Target::Data(_) = wanted.target() {
        let fault = Fault::new(Blame::User, "a worker reads from drives on the network");
        return Err(fault.hint("name those of its coordinator: --drives HOST:PORT,…").into());
    }
    let listener = bind(&args.listen).await?;
    let metrics = observe_listener(args.metrics.as_deref()).await?;
    let entry = args.entry.options();
    entry_args::check(&entry, address(&listener)?)?;
    let options = wanted.options()?;
    let engine = pithead_embed::connect(&wanted.target(), &options).await?;
    terminal::tell(format_args!(
        "worker listening on {} ({}, {}, {} memory, {})",
        address(&listener)?,
        terminal::counted(engine.host.fleet().drives().len() as u64, "drive"),
        terminal::counted(args.threads().unwrap_or_else(target::cores) as u64, "thread"),
        Bytes(engine.host.options().memory),
        entry_args::facts(&entry)
    ));
    let observing = metrics.map(|listener| tokio::spawn(pithead_observe::serve(listener, Arc::new(engine.host.clone()))));
    let served = pithead_workers::serve(engine.host.clone(), Links::new(options.connect), listener, entry, stop).await;
    if let Some(task) = observing {
        task.abort();
        // It holds the host, too.
        let _ = task.await;
    }
    engine.shutdown().await;
    Ok(served?)
}

/// Takes the address for the console; a port alone is one that only this machine reaches.
async fn console_listener(listen: Option<&str>) -> Result<Option<TcpListener>, CliError> {
    let listen =
        listen.map(|listen| listen.parse::<u16>().map_or_else(|_| listen.to_owned(), |port| format!("127.0.0.1:{port}")));
    bind_if(listen.as_deref()).await
}

/// Takes an address, where there is one to take.
async fn bind_if(listen: Option<&str>) -> Result<Option<TcpListener>, CliError> {
    match listen {
        Some(listen) => Ok(Some(bind(listen).await?)),
        None => Ok(None),
    }
}

/// What stands before the host, as it is observed.
struct Servers {
    front: Arc<Front>,
    flight: Option<Arc<FlightSql>>,
}

impl Observed for Servers {
    fn metrics(&self) -> BoxFuture<'_, String> {
        Box::pin(async {
            let front = Observed::metrics(&*self.front).await;
            match &self.flight {
                // Only the last may say that it ends.
                Some(flight) => format!("{}{}", front.strip_suffix("# EOF\n").unwrap_or(&front), flight.metrics_text()),
                None => front,
            }
        })
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        Observed::health(&*self.front)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn parsed(line: &str) -> Result<FrontServeArgs, clap::Error> {
        match Cli::try_parse_from(line.split(' '))?.command {
            Command::Serve(args) => Ok(*args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn both_ends_have_certificates_of_their_own() {
        let args = parsed("pithead serve --drives a:1,b:2 --threads 3 --tls-cert c --tls-key k --drives-tls-ca ca").unwrap();
        assert_eq!((args.target().drives, args.target().threads), (vec!["a:1".to_owned(), "b:2".to_owned()], Some(3)));
        assert_eq!(args.target().link.tls_ca, Some("ca".into()));
        assert!(args.entry.options().tls.is_some());
        assert!(parsed("pithead serve --data d --drives a:1").is_err());
    }

    #[test]
    fn a_console_has_a_usual_port() {
        let console = |line: &str| parsed(line).unwrap().console;
        assert_eq!(console("pithead serve"), None);
        assert_eq!(console("pithead serve --console --data d").as_deref(), Some("8080"));
        assert_eq!(console("pithead serve --console 0.0.0.0:9090").as_deref(), Some("0.0.0.0:9090"));
    }
}
