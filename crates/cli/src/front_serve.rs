//! `pithead serve`: a host for clients that speak PostgreSQL's protocol.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use pithead_drive::{address, bind};
use pithead_front::{Front, serve};
use pithead_model::{Bytes, parse_bytes};
use pithead_observe::Observed;

use crate::array_serve::BelowArgs;
use crate::drive_serve::{observe_listener, stop_signal};
use crate::entry_args::EntryArgs;
use crate::error::CliError;
use crate::target::{TargetArgs, must_exist};
use crate::{entry_args, target, terminal};

const EXAMPLES: &str = "\
Examples:
  pithead serve --data ./pithead-data                      # drives in this process, clients of this machine
  pithead serve --drives server1:7433,server2:7433 --drives-tls-ca ca.pem --drives-token-file host.token \\
      --listen 0.0.0.0:5432 --tls-cert host.pem --tls-key host.key --access access.toml
  psql -h 127.0.0.1 -p 5432 -U me pithead -c 'SELECT count(*) FROM trips'

A client's user is an identity of the access file, and its password that identity's token. Several
servers may stand before the same drives.";

/// Serve datasets to PostgreSQL's clients (psql, JDBC, psycopg, R and others), until SIGTERM or Ctrl-C.
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
    /// Where to listen; port 0 takes any that is free
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:5432")]
    listen: String,
    /// Threads of this process for queries [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Memory of this process for queries, such as 4GiB [default: a part of what the machine has]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    memory: Option<u64>,
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
            threads: self.threads(),
            memory: self.memory,
            link: self.below.link(),
        }
    }
}

/// Runs the command.
pub(crate) async fn run(args: FrontServeArgs) -> Result<(), CliError> {
    let stop = stop_signal()?;
    let wanted = args.target();
    must_exist(&wanted.target())?;
    let listener = bind(&args.listen).await?;
    let metrics = observe_listener(args.metrics.as_deref()).await?;
    let entry = args.entry.options();
    entry_args::check(&entry, address(&listener)?)?;
    let engine = pithead_embed::connect(&wanted.target(), &wanted.options()?).await?;
    let front = Front::new(engine.host.clone());
    let options = engine.host.options();
    let facts = format!(
        "{}, {}, {} memory, {}",
        terminal::counted(engine.host.fleet().drives().len() as u64, "drive"),
        terminal::counted(args.threads().unwrap_or_else(target::cores) as u64, "thread"),
        Bytes(options.memory),
        entry_args::facts(&entry)
    );
    terminal::tell(format_args!("host listening on {} for PostgreSQL clients ({facts})", address(&listener)?));
    let observing = match metrics {
        Some(listener) => {
            let told = listener.local_addr()?;
            terminal::tell(format_args!("metrics at http://{told}/metrics, health at http://{told}/health"));
            Some(tokio::spawn(pithead_observe::serve(listener, Arc::clone(&front) as Arc<dyn Observed>)))
        }
        None => None,
    };
    let served = serve(front, listener, entry, stop).await;
    if let Some(observing) = observing {
        observing.abort();
        // It holds the host, too.
        let _ = observing.await;
    }
    engine.shutdown().await;
    Ok(served?)
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
}
