//! `pithead array serve`: a server in front of drives, which hosts see as one drive.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use pithead_array::{Array, ArrayOptions, serve};
use pithead_drive::{address, bind};
use pithead_embed::doors;
use pithead_model::Bytes;

use crate::drive_serve::stop_signal;
use crate::entry_args::EntryArgs;
use crate::error::CliError;
use crate::link_args::LinkArgs;
use crate::target::parse_memory;
use crate::{entry_args, target, terminal};

const EXAMPLES: &str = "\
Examples:
  pithead drive serve --data /disk0 --listen 127.0.0.1:7441 &
  pithead drive serve --data /disk1 --listen 127.0.0.1:7442 &
  pithead array serve --data /array --drives 127.0.0.1:7441,127.0.0.1:7442 --listen 127.0.0.1:7440
  pithead load trips 'trips-*.parquet' --drives 127.0.0.1:7440
  pithead sql --drives 127.0.0.1:7440 -c 'SELECT count(*) FROM trips'

An array's drives may be arrays. Links to drives on other machines take --drives-tls-ca and
--drives-token-file.";

/// Serve drives as one drive, until SIGTERM or Ctrl-C.
///
/// Queries are cut again for the drives below, and what they send is put together here. A new directory becomes a new array; the
/// drives that it is first started with are its drives for life. When it is ready, it says so in one line on stderr.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ArrayServeArgs {
    /// Directory of the array's identity and manifests; only one process may use it. Rows are kept by the drives
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The drives below, all of them; drives or arrays
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',', required = true)]
    drives: Vec<String>,
    /// Where to listen; port 0 takes any that is free
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7433")]
    listen: String,
    /// Threads that put together what drives send [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Memory for that
    #[arg(long, value_name = "BYTES", value_parser = parse_memory, default_value = "1GiB")]
    memory: u64,
    /// Sessions at one time at most
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    sessions: u32,
    /// Close a session whose rows nobody has pulled for this long
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    idle: u64,
    /// End a session that is open for this long, however busy it is; 0: never
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    session_limit: u64,
    #[command(flatten)]
    entry: EntryArgs,
    #[command(flatten)]
    below: BelowArgs,
}

/// Flags of the links to the drives below; `--tls-cert` and the like are those of the server's own entry.
#[derive(Debug, Args)]
#[command(next_help_heading = "The links to the drives")]
pub(crate) struct BelowArgs {
    /// Speak TLS to the drives, and trust those whose certificate this CA has signed [default: $PITHEAD_TLS_CA]
    #[arg(long, value_name = "FILE")]
    drives_tls_ca: Option<PathBuf>,
    /// Certificate of this server, for drives that ask for one [default: $PITHEAD_TLS_CERT]
    #[arg(long, value_name = "FILE", requires = "drives_tls_key")]
    drives_tls_cert: Option<PathBuf>,
    /// Its key [default: $PITHEAD_TLS_KEY]
    #[arg(long, value_name = "FILE", requires = "drives_tls_cert")]
    drives_tls_key: Option<PathBuf>,
    /// File with the token that says to the drives who this is [default: $PITHEAD_TOKEN_FILE, or the token in $PITHEAD_TOKEN]
    #[arg(long, value_name = "FILE")]
    drives_token_file: Option<PathBuf>,
    /// Connect to drives on other machines without TLS: whoever is on the way can read and change everything
    #[arg(long)]
    drives_insecure: bool,
}

impl BelowArgs {
    /// How the drives below are connected to.
    pub(crate) fn link(&self) -> LinkArgs {
        LinkArgs {
            tls_ca: self.drives_tls_ca.clone(),
            tls_cert: self.drives_tls_cert.clone(),
            tls_key: self.drives_tls_key.clone(),
            token_file: self.drives_token_file.clone(),
            insecure: self.drives_insecure,
        }
    }
}

impl ArrayServeArgs {
    /// Threads that were asked for.
    pub(crate) fn threads(&self) -> Option<usize> {
        self.threads.map(usize::from)
    }
}

/// Runs the command.
pub(crate) async fn run(args: ArrayServeArgs) -> Result<(), CliError> {
    let stop = stop_signal()?;
    let doors = doors(&args.drives, &args.below.link().options(target::variable)?)?;
    let listener = bind(&args.listen).await?;
    let entry = args.entry.options();
    entry_args::check(&entry, address(&listener)?)?;
    let array = Arc::new(Array::open(options(&args), doors).await?);
    let (threads, drives) = (options(&args).threads, array.drives().len());
    let facts = format!(
        "{}, {}, {} memory, {}",
        terminal::counted(drives as u64, "drive"),
        terminal::counted(threads as u64, "thread"),
        Bytes(args.memory),
        entry_args::facts(&entry)
    );
    terminal::tell(format_args!("array {} listening on {} ({facts})", array.id(), address(&listener)?));
    Ok(serve(array, listener, entry, stop).await?)
}

fn options(args: &ArrayServeArgs) -> ArrayOptions {
    ArrayOptions {
        data: args.data.clone(),
        threads: args.threads.map_or_else(target::cores, usize::from),
        memory: args.memory,
        sessions_max: args.sessions as usize,
        session_limits: entry_args::session_limits(args.idle, args.session_limit),
        functions: pithead_embed::functions(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::*;
    use crate::args::{ArrayCommand, Cli, Command};

    fn parsed(line: &str) -> Result<ArrayServeArgs, clap::Error> {
        match Cli::try_parse_from(line.split(' '))?.command {
            Command::Array(ArrayCommand::Serve(args)) => Ok(*args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_become_options() {
        let args =
            parsed("pithead array serve --data d --drives a:1,b:2 --threads 3 --memory 512MiB --sessions 5 --idle 7").unwrap();
        let options = options(&args);
        assert_eq!((options.threads, options.memory, options.sessions_max), (3, 512 << 20, 5));
        assert_eq!(args.drives, ["a:1", "b:2"]);
        assert_eq!((options.session_limits.idle, options.session_limits.open), (Duration::from_secs(7), None));
    }

    #[test]
    fn both_ends_have_certificates_of_their_own() {
        let line =
            "pithead array serve --data d --drives a:1,b:2 --tls-cert c --tls-key k --drives-tls-ca ca --drives-insecure";
        let args = parsed(line).unwrap();
        let link = args.below.link().options(|_| None).unwrap();
        assert_eq!((link.tls.unwrap().ca, link.insecure), ("ca".into(), true));
        assert!(args.entry.options().tls.is_some() && !args.entry.options().insecure);
        assert!(parsed("pithead array serve --data d").is_err());
        assert!(parsed("pithead array serve --data d --drives a:1 --drives-tls-cert c").is_err());
    }
}
