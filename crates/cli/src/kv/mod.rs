//! `pithead kv`: a client of the Kinetic protocol.

mod admin;
mod execute;
mod keys;
mod parts;
mod scan;
mod show;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use pithead_entry::ClientTlsFiles;
use pithead_kinetic::client::{Client, ClientError, ClientOptions, Reply, Trust};
use pithead_kinetic::proto::{Body, Command, KeyValue};
use pithead_kinetic::{Code, FACTORY_IDENTITY, FACTORY_KEY, Limits};
use pithead_model::{Blame, Fault};

use crate::error::CliError;
use crate::target::variable;
use crate::{secret_file, terminal};

const EXAMPLES: &str = "\
Examples:
  pithead kv put greeting hello
  pithead kv get greeting
  pithead kv range --from a --to z --limit 10 --json
  pithead kv put big --file photo.jpg --at server1:8443 --tls --identity 7 --key-file 7.key
  pithead kv put words --file words.txt --parts
  pithead kv log capacities
  pithead kv execute pithead/engine/main/lineitem plans/q6 > rows.arrow
  pithead kv acl 7 --new-key-file 7.key --allow read,range --prefix photos/ --tls --at 127.0.0.1:8443

Keys and versions are written as they are; \\x00, \\n, \\\\ and so on stand for one byte each.";

/// Put, get and list key-values of a drive that serves Kinetic, this one or others'.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct KvArgs {
    #[command(subcommand)]
    command: KvCommand,
    #[command(flatten)]
    link: KvLinkArgs,
}

/// Whom to call, and as whom.
#[derive(Debug, Args)]
#[command(next_help_heading = "The link to the drive")]
struct KvLinkArgs {
    /// The drive [default: $PITHEAD_KINETIC, or 127.0.0.1:8123, with TLS 127.0.0.1:8443]
    #[arg(long, value_name = "HOST:PORT", global = true)]
    at: Option<String>,
    /// Speak TLS, and take every certificate: drives sign theirs themselves
    #[arg(long, global = true)]
    tls: bool,
    /// Speak TLS, and trust drives whose certificate this CA has signed
    #[arg(long, value_name = "FILE", global = true)]
    tls_ca: Option<PathBuf>,
    /// Who signs requests
    #[arg(long, value_name = "N", default_value_t = FACTORY_IDENTITY, global = true)]
    identity: i64,
    /// File with the key of its signatures [default: the key that every new drive has]
    #[arg(long, value_name = "FILE", global = true)]
    key_file: Option<PathBuf>,
    /// How long the drive may take for an answer
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400), global = true)]
    wait: u64,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

/// What can be done.
#[derive(Debug, Subcommand)]
enum KvCommand {
    #[command(flatten)]
    Keys(keys::KeyCommand),
    /// Run a program at the drive, and print what it puts out
    Execute(execute::ExecuteArgs),
    #[command(flatten)]
    Admin(admin::AdminCommand),
}

/// Who waits for answers, and for how long.
struct Waiting {
    wait: Duration,
    identity: i64,
}

impl KvCommand {
    /// How long the answer may take at least, whatever is waited for otherwise.
    fn wait_min(&self) -> Duration {
        match self {
            KvCommand::Keys(_) => Duration::ZERO,
            KvCommand::Execute(args) => args.wait_min(),
            KvCommand::Admin(command) => command.wait_min(),
        }
    }
}

/// Runs the command.
pub(crate) async fn run(args: KvArgs) -> Result<(), CliError> {
    let mut options = args.link.options()?;
    options.wait = options.wait.max(args.command.wait_min());
    let waiting = Waiting { wait: options.wait, identity: options.identity };
    let place = format!("{}:{}", options.host, options.port);
    let mut client = Client::connect(&options).await.map_err(|error| unreachable_drive(&place, &error))?;
    let done = match args.command {
        KvCommand::Keys(command) => keys::run(&mut client, command, args.link.json).await,
        KvCommand::Execute(args) => execute::run(&mut client, args).await,
        KvCommand::Admin(command) => admin::run(&mut client, command, &waiting, args.link.json).await,
    };
    done.map_err(|error| error.at(place))
}

impl KvLinkArgs {
    fn options(&self) -> Result<ClientOptions, CliError> {
        let ca = self.tls_ca.clone().map(|ca| Trust::Ca(ClientTlsFiles { ca, identity: None }));
        let tls = ca.or(self.tls.then_some(Trust::Anyone));
        let default = if tls.is_some() { "127.0.0.1:8443" } else { "127.0.0.1:8123" };
        let at = self.at.clone().or_else(|| variable("PITHEAD_KINETIC")).unwrap_or_else(|| default.to_owned());
        let (host, port) = place(&at)?;
        let key = match &self.key_file {
            None => FACTORY_KEY.to_vec(),
            Some(file) => read_key(file)?,
        };
        let wait = Duration::from_secs(self.wait);
        Ok(ClientOptions { host, port, tls, identity: self.identity, key, wait, limits: Limits::default() })
    }
}

/// The key in a file, without the line's end.
fn read_key(file: &std::path::Path) -> Result<Vec<u8>, CliError> {
    let bytes = std::fs::read(file).map_err(|error| CliError::file(file, error))?;
    let key = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    match key.len() {
        1..=4_096 => Ok(key.to_vec()),
        length => Err(CliError::user(format!("{}: a key has 1 to 4096 bytes, and not {length}", file.display()))),
    }
}

/// Writes a new key for an identity, which nobody else can read.
fn write_key(file: &std::path::Path, key: &str) -> Result<(), CliError> {
    secret_file::write_new(file, &format!("{key}\n"), secret_file::Mode::Secret, "name another file")?;
    terminal::tell(format_args!("made {}", file.display()));
    Ok(())
}

fn place(at: &str) -> Result<(String, u16), CliError> {
    let (host, port) = at.rsplit_once(':').unwrap_or((at, ""));
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match port.parse() {
        Ok(port) if !host.is_empty() => Ok((host.to_owned(), port)),
        _ => Err(CliError::user(format!("expected HOST:PORT, such as server1:8123, and not {at:?}"))),
    }
}

fn unreachable_drive(place: &str, error: &ClientError) -> CliError {
    let fault = match error {
        ClientError::Ended(_) => Fault::new(Blame::Limit, format!("the Kinetic drive at {place}: {error}")),
        ClientError::Certificate(_) => {
            let fault = Fault::new(Blame::Access, format!("the Kinetic drive at {place} is not believed: {error}"));
            fault.hint(
                "--tls-ca takes the CA of its certificate, or the drive's own DIR/kinetic.pem, and --at a name that is in it",
            )
        }
        _ => {
            let fault = Fault::new(Blame::Device, format!("no Kinetic drive at {place}: {error}"));
            fault.hint("start one: pithead drive serve --data DIR --kinetic")
        }
    };
    fault.into()
}

/// What a request was answered, if it was done.
fn done(answer: Result<Reply, ClientError>) -> Result<Reply, CliError> {
    let reply = answer.map_err(|error| {
        let blame = if matches!(error, ClientError::Signature) { Blame::Access } else { Blame::Device };
        CliError::from(Fault::new(blame, error.to_string()))
    })?;
    let blame = match reply.code {
        Code::Success | Code::ExecuteComplete => return Ok(reply),
        Code::NotFound
        | Code::InvalidRequest
        | Code::HeaderRequired
        | Code::NoSuchHmacAlgorithm
        | Code::DeviceAlreadyUnlocked => Blame::User,
        Code::VersionMismatch | Code::VersionFailure | Code::InvalidBatch => Blame::Conflict,
        Code::HmacFailure | Code::NotAuthorized | Code::DeviceLocked => Blame::Access,
        Code::ServiceBusy | Code::Expired | Code::NoSpace => Blame::Limit,
        Code::InvalidExecute => Blame::Unsupported,
        _ => Blame::Device,
    };
    let what = if reply.what.is_empty() { String::new() } else { format!(": {}", reply.what) };
    Err(Fault::new(blame, format!("{}{what}", reply.code.name())).into())
}

/// The longest value that a drive says it takes.
fn value_bytes_max(greeting: &Command) -> Option<u64> {
    let log = greeting.body.as_ref()?.get_log.as_ref()?;
    log.limits.as_ref()?.max_value_size.map(u64::from)
}

/// A request about a key.
fn about(key_value: KeyValue) -> Body {
    Body { key_value: Some(key_value), ..Body::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_a_port() {
        assert_eq!(place("server1:8123").unwrap(), ("server1".to_owned(), 8123));
        assert_eq!(place("[::1]:8443").unwrap(), ("::1".to_owned(), 8443));
        for wrong in ["", "server1", ":8123", "server1:", "server1:70000"] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }

    /// A drive that ran was to be started.
    #[test]
    fn a_drive_that_is_not_believed_is_not_to_be_started() {
        let said = |error: ClientError| unreachable_drive("server1:8443", &error).to_string();
        let of_certificate = said(ClientError::Certificate("UnknownIssuer".to_owned()));
        assert!(of_certificate.contains("UnknownIssuer") && of_certificate.contains("kinetic.pem"), "{of_certificate}");
        assert!(!of_certificate.contains("start one"), "{of_certificate}");
        let refused = said(std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into());
        assert!(refused.contains("start one"), "{refused}");
    }

    #[test]
    fn a_key_file_ends_with_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("7.key");
        write_key(&file, "secret").unwrap();
        assert_eq!(read_key(&file).unwrap(), b"secret");
        assert!(write_key(&file, "other").is_err(), "it is there");
        std::fs::write(&file, "\n").unwrap();
        assert!(read_key(&file).is_err());
    }
}
