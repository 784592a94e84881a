//! Commands about the drive: its logs, its set-up, who may use it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use clap::{Args, Subcommand, ValueEnum};
use pithead_entry::Token;
use pithead_kinetic::client::Client;
use pithead_kinetic::proto::{Acl, AclScope, Body, DeviceLog, GetLog, PowerManagement, Range, Security, Setup};
use pithead_kinetic::{Permission, RequestKind};

use super::scan::{self, ScanArgs};
use super::{Waiting, done, read_key, show, write_key};
use crate::error::CliError;
use crate::store_keys::key_bytes;

/// How long a compaction of the whole store may take.
const COMPACTION_WAIT: Duration = Duration::from_secs(3_600);

/// What can be done with a drive.
#[derive(Debug, Subcommand)]
pub(super) enum AdminCommand {
    /// Ask whether the drive answers
    Noop,
    /// Make all that was written durable
    Flush,
    /// Print what the drive says of itself
    Log(LogArgs),
    /// Read all values and compare checksums and tags; prints the keys of values that are damaged, or that are not those of their tags
    Scan(ScanArgs),
    /// Give back the room of what was deleted
    Optimize,
    /// Set the version of the cluster, which every request then has to name
    ClusterVersion(ClusterArgs),
    /// Make an identity, or change one (over TLS)
    Acl(AclArgs),
    /// Set or change a PIN (over TLS)
    SetPin(SetPinArgs),
    /// Lock the drive, so that it does nothing until it is unlocked (over TLS)
    Lock(PinArgs),
    /// Unlock the drive (over TLS)
    Unlock(PinArgs),
    /// Delete all keys, identities and PINs of Kinetic clients; datasets stay (over TLS)
    Erase(EraseArgs),
    /// Change the power level
    Power(PowerArgs),
}

#[derive(Debug, Args)]
pub(super) struct LogArgs {
    /// What to tell
    #[arg(value_enum, required_unless_present = "device")]
    logs: Vec<Log>,
    /// A log by its name, such as com.pithead.store
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
}

/// The drive's logs.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Log {
    Utilizations,
    Temperatures,
    Capacities,
    Configuration,
    Statistics,
    Messages,
    Limits,
}

#[derive(Debug, Args)]
pub(super) struct ClusterArgs {
    /// The version
    #[arg(allow_negative_numbers = true)]
    version: i64,
}

#[derive(Debug, Args)]
pub(super) struct AclArgs {
    /// The identity's number
    number: i64,
    /// File with its key; a file that is not there is made, with a random key
    #[arg(long, value_name = "FILE")]
    new_key_file: PathBuf,
    /// What it may do
    #[arg(long, value_name = "WHAT,…", value_delimiter = ',', value_enum)]
    allow: Vec<Allow>,
    /// Only with keys that begin so (repeatable)
    #[arg(long, value_name = "KEY", default_value = "")]
    prefix: Vec<String>,
    /// Where in a key each --prefix has to be, in place of its beginning
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
    offset: i64,
    /// Only over TLS
    #[arg(long)]
    only_tls: bool,
    /// The highest priority that its requests may have, from 1 to 9 [default: any]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=9))]
    max_priority: Option<i32>,
}

/// Permissions.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Allow {
    Read,
    Write,
    Delete,
    Range,
    Setup,
    P2p,
    Log,
    Security,
    Power,
    Applet,
}

#[derive(Debug, Args)]
pub(super) struct SetPinArgs {
    /// Which one
    #[arg(value_enum)]
    which: Pin,
    /// File with the new PIN
    #[arg(long, value_name = "FILE")]
    new_pin_file: PathBuf,
    /// File with the PIN as it is [default: none was set]
    #[arg(long, value_name = "FILE")]
    pin_file: Option<PathBuf>,
}

/// The drive's PINs.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Pin {
    /// For lock and unlock
    Lock,
    /// For erase
    Erase,
}

#[derive(Debug, Args)]
pub(super) struct PinArgs {
    /// File with the PIN; where none was set, any does
    #[arg(long, value_name = "FILE")]
    pin_file: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct EraseArgs {
    /// File with the PIN [default: none was set]
    #[arg(long, value_name = "FILE")]
    pin_file: Option<PathBuf>,
    /// Give the room of large values back to the file system, too. Nothing is overwritten: keys, values under 64 KiB, PINs and
    /// identities' keys may stay in the drive's files until these are written anew
    #[arg(long)]
    secure: bool,
}

#[derive(Debug, Args)]
pub(super) struct PowerArgs {
    /// The level
    #[arg(value_enum)]
    level: Power,
}

/// Power levels.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Power {
    Operational,
    Hibernate,
    Shutdown,
}

impl AdminCommand {
    /// How long the answer may take at least: the drive moves all values of its store.
    pub(super) fn wait_min(&self) -> Duration {
        match self {
            AdminCommand::Optimize | AdminCommand::Erase(EraseArgs { secure: true, .. }) => COMPACTION_WAIT,
            _ => Duration::ZERO,
        }
    }
}

/// Runs the command.
pub(super) async fn run(client: &mut Client, command: AdminCommand, waiting: &Waiting, json: bool) -> Result<(), CliError> {
    let (kind, body) = match command {
        AdminCommand::Log(args) => return log(client, args, json).await,
        AdminCommand::Scan(args) => return scan::run(client, args, waiting, json).await,
        AdminCommand::Lock(args) => return pin(client, 2, Some(&args.pin_file), json).await,
        AdminCommand::Unlock(args) => return pin(client, 1, Some(&args.pin_file), json).await,
        AdminCommand::Erase(args) => {
            return pin(client, if args.secure { 4 } else { 3 }, args.pin_file.as_deref(), json).await;
        }
        AdminCommand::Noop => (RequestKind::Noop, Body::default()),
        AdminCommand::Flush => (RequestKind::FlushAllData, Body::default()),
        AdminCommand::Optimize => (RequestKind::MediaOptimize, everything()),
        AdminCommand::ClusterVersion(ClusterArgs { version }) => {
            let setup = Setup { new_cluster_version: Some(version), ..Setup::default() };
            (RequestKind::Setup, Body { setup: Some(setup), ..Body::default() })
        }
        AdminCommand::Acl(args) => {
            (RequestKind::Security, security(Security { acl: vec![acl(&args)?], ..Security::default() }))
        }
        AdminCommand::SetPin(args) => (RequestKind::Security, security(new_pin(&args)?)),
        AdminCommand::Power(PowerArgs { level }) => {
            let power = PowerManagement { level: Some(level as i32 + 1) };
            (RequestKind::SetPowerLevel, Body { power: Some(power), ..Body::default() })
        }
    };
    done(client.call(kind, body, Bytes::new()).await)?;
    show::done(json)
}

async fn log(client: &mut Client, args: LogArgs, json: bool) -> Result<(), CliError> {
    const DEVICE: i32 = 7;
    let types = args.logs.iter().map(|log| *log as i32).chain(args.device.is_some().then_some(DEVICE)).collect();
    let device = args.device.map(|name| DeviceLog { name: Some(name.into()) });
    let asked = GetLog { types, device, ..GetLog::default() };
    let body = Body { get_log: Some(asked), ..Body::default() };
    let reply = done(client.call(RequestKind::GetLog, body, Bytes::new()).await)?;
    show::log(&reply.body.get_log.unwrap_or_default(), &reply.value, json)
}

async fn pin(client: &mut Client, operation: i32, pin_file: Option<&Path>, json: bool) -> Result<(), CliError> {
    let pin = pin_file.map(read_key).transpose()?.unwrap_or_default();
    done(client.pin(operation, &pin).await)?;
    show::done(json)
}

/// All keys.
fn everything() -> Body {
    let range = Range {
        start_key: Some(Bytes::new()),
        end_key: Some(vec![u8::MAX; 4_096].into()),
        start_key_inclusive: Some(true),
        end_key_inclusive: Some(true),
        max_returned: Some(200),
        ..Range::default()
    };
    Body { range: Some(range), ..Body::default() }
}

fn security(security: Security) -> Body {
    Body { security: Some(security), ..Body::default() }
}

fn new_pin(args: &SetPinArgs) -> Result<Security, CliError> {
    let new = Some(Bytes::from(read_key(&args.new_pin_file)?));
    let old = args.pin_file.as_deref().map(read_key).transpose()?.map(Bytes::from);
    Ok(match args.which {
        Pin::Lock => Security { old_lock_pin: old, new_lock_pin: new, ..Security::default() },
        Pin::Erase => Security { old_erase_pin: old, new_erase_pin: new, ..Security::default() },
    })
}

fn acl(args: &AclArgs) -> Result<Acl, CliError> {
    if !args.new_key_file.exists() {
        write_key(&args.new_key_file, Token::random().text())?;
    }
    let permission = args.allow.iter().map(|allow| allow.permission() as i32).collect::<Vec<_>>();
    let scope = |prefix: &String| -> Result<AclScope, CliError> {
        let (value, permission) = (Some(key_bytes(prefix)?.into()), permission.clone());
        Ok(AclScope { offset: Some(args.offset), value, permission, tls_required: Some(args.only_tls) })
    };
    let scopes = args.prefix.iter().map(scope).collect::<Result<_, CliError>>()?;
    Ok(Acl {
        identity: Some(args.number),
        key: Some(read_key(&args.new_key_file)?.into()),
        hmac_algorithm: Some(1),
        // Without a permission it may do nothing.
        scope: if args.allow.is_empty() { Vec::new() } else { scopes },
        max_priority: args.max_priority,
    })
}

impl Allow {
    fn permission(self) -> Permission {
        match self {
            Allow::Read => Permission::Read,
            Allow::Write => Permission::Write,
            Allow::Delete => Permission::Delete,
            Allow::Range => Permission::Range,
            Allow::Setup => Permission::Setup,
            Allow::P2p => Permission::Push,
            Allow::Log => Permission::GetLog,
            Allow::Security => Permission::Security,
            Allow::Power => Permission::Power,
            Allow::Applet => Permission::Applet,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This command could set neither, and took them away from identities that had them.
    #[test]
    fn an_identity_is_sent_with_its_priority_and_the_place_of_its_prefixes() {
        let folder = tempfile::tempdir().unwrap();
        let args = AclArgs {
            number: 7,
            new_key_file: folder.path().join("7.key"),
            allow: vec![Allow::Read, Allow::Range],
            prefix: vec!["a".to_owned(), "\\x00".to_owned()],
            offset: 3,
            only_tls: true,
            max_priority: Some(4),
        };
        let sent = acl(&args).unwrap();
        assert_eq!((sent.identity, sent.max_priority), (Some(7), Some(4)));
        let scopes: Vec<_> =
            sent.scope.iter().map(|scope| (scope.offset, scope.value.as_deref().unwrap_or_default())).collect();
        assert_eq!(scopes, [(Some(3), &b"a"[..]), (Some(3), &b"\0"[..])]);
        assert!(sent.scope.iter().all(|scope| scope.tls_required == Some(true) && scope.permission == [0, 3]));
    }
}
