//! Commands about keys.

use std::io::Read as _;
use std::path::PathBuf;

use bytes::Bytes;
use clap::{Args, Subcommand, ValueEnum};
use pithead_kinetic::client::Client;
use pithead_kinetic::proto::{Body, Command, KeyValue, Range};
use pithead_kinetic::{Code, RequestKind};
use pithead_model::Fault;

use super::{about, done, parts, show, value_bytes_max};
use crate::error::CliError;
use crate::store_keys::key_bytes;

/// What can be done with keys.
#[derive(Debug, Subcommand)]
pub(super) enum KeyCommand {
    /// Print a value
    Get(GetOneArgs),
    /// Put a value
    Put(PutArgs),
    /// Delete a key
    Delete(DeleteArgs),
    /// List keys
    Range(RangeArgs),
    /// Print the value of the next key
    Next(GetArgs),
    /// Print the value of the key before
    Previous(GetArgs),
    /// Print the version of a value
    Version(KeyArgs),
}

#[derive(Debug, Args)]
pub(super) struct KeyArgs {
    /// The key
    key: String,
}

#[derive(Debug, Args)]
pub(super) struct GetArgs {
    /// The key
    key: String,
    /// Print what is said of the value, and not the value
    #[arg(long)]
    metadata: bool,
}

#[derive(Debug, Args)]
pub(super) struct GetOneArgs {
    #[command(flatten)]
    get: GetArgs,
    /// Print the values of KEY/0, KEY/1 and so on, one after the other
    #[arg(long, conflicts_with = "metadata")]
    parts: bool,
}

#[derive(Debug, Args)]
pub(super) struct PutArgs {
    /// The key
    key: String,
    /// The value; -: what comes from stdin
    #[arg(required_unless_present = "file")]
    value: Option<String>,
    /// Take the value from a file
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    file: Option<PathBuf>,
    /// Put the file as values of KEY/0, KEY/1 and so on, each as long as the drive takes: it may be of any length, and
    /// programs read it by the name KEY. It is not there until all of it is, nor is one that it replaces; of two who put
    /// one at the same time, at least one is told so
    #[arg(long, requires = "file", conflicts_with_all = ["value", "expect", "sync"])]
    parts: bool,
    /// The version that the value gets
    #[arg(long, value_name = "VERSION", default_value = "")]
    version: String,
    #[command(flatten)]
    write: WriteArgs,
}

#[derive(Debug, Args)]
pub(super) struct DeleteArgs {
    /// The key
    key: String,
    /// Delete KEY/0, KEY/1 and so on
    #[arg(long, conflicts_with_all = ["expect", "sync"])]
    parts: bool,
    #[command(flatten)]
    write: WriteArgs,
}

#[derive(Debug, Args)]
struct WriteArgs {
    /// Only if the key has this version; empty: only if it has none [default: whatever it has]
    #[arg(long, value_name = "VERSION")]
    expect: Option<String>,
    /// When the drive answers
    #[arg(long, value_name = "WHEN", default_value = "through")]
    sync: When,
}

/// When a write is answered.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum When {
    /// When it is durable
    Through,
    /// When it is accepted
    Back,
    /// When it and all before it are durable
    Flush,
}

#[derive(Debug, Args)]
pub(super) struct RangeArgs {
    /// The first key
    #[arg(long, value_name = "KEY", default_value = "")]
    from: String,
    /// The last key [default: the last of all]
    #[arg(long, value_name = "KEY")]
    to: Option<String>,
    /// Leave out the first key itself
    #[arg(long)]
    after: bool,
    /// Leave out the last key itself
    #[arg(long)]
    before: bool,
    /// From the last key to the first
    #[arg(long)]
    reverse: bool,
    /// The most keys [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
}

/// Keys that one request names at most.
const NAMED_MAX: u64 = 200;

/// Runs the command.
pub(super) async fn run(client: &mut Client, command: KeyCommand, json: bool) -> Result<(), CliError> {
    match command {
        KeyCommand::Get(GetOneArgs { get: args, parts: false }) => get(client, RequestKind::Get, &args, json).await,
        KeyCommand::Get(_) if json => Err(CliError::user("--parts prints bytes, and --json does not go with it")),
        KeyCommand::Get(GetOneArgs { get: args, .. }) => parts::get(client, &args.key).await,
        KeyCommand::Next(args) => get(client, RequestKind::GetNext, &args, json).await,
        KeyCommand::Previous(args) => get(client, RequestKind::GetPrevious, &args, json).await,
        KeyCommand::Version(KeyArgs { key }) => {
            let reply = done(client.call(RequestKind::GetVersion, about(key_of(&key)?), Bytes::new()).await)?;
            show::version(reply.body.key_value.unwrap_or_default(), json)
        }
        KeyCommand::Put(args) => put(client, args, json).await,
        KeyCommand::Delete(args) if args.parts => parts::delete_all(client, &args.key, json).await,
        KeyCommand::Delete(args) => {
            let asked = written(key_of(&args.key)?, &args.write)?;
            if args.write.expect.is_none() {
                check_there(client, &args.key).await?;
            }
            done(client.call(RequestKind::Delete, about(asked), Bytes::new()).await)?;
            show::done(json)
        }
        KeyCommand::Range(args) => range(client, args, json).await,
    }
}

/// A delete of whatever version succeeds also where there is nothing to delete, so the key is looked for first. Who may not read
/// deletes unseen.
async fn check_there(client: &mut Client, key: &str) -> Result<(), CliError> {
    let looked = client.call(RequestKind::GetVersion, about(key_of(key)?), Bytes::new()).await;
    match looked {
        Ok(reply) if reply.code != Code::NotFound => Ok(()),
        looked => done(looked).map(drop),
    }
}

async fn get(client: &mut Client, kind: RequestKind, args: &GetArgs, json: bool) -> Result<(), CliError> {
    let asked = KeyValue { metadata_only: Some(args.metadata), ..key_of(&args.key)? };
    let reply = done(client.call(kind, about(asked), Bytes::new()).await)?;
    let entry = reply.body.key_value.unwrap_or_default();
    match (args.metadata, kind == RequestKind::Get || json) {
        (true, _) => show::metadata(&entry, json),
        (false, true) => show::value(&entry, &reply.value, json),
        // Of another key than that which was named, the key is told, too.
        (false, false) => show::key_and_value(&entry, &reply.value),
    }
}

async fn put(client: &mut Client, args: PutArgs, json: bool) -> Result<(), CliError> {
    if let (Some(file), true) = (&args.file, args.parts) {
        return parts::put(client, &args.key, file, &key_bytes(&args.version)?, json).await;
    }
    let value = match (&args.file, args.value.as_deref()) {
        (Some(file), _) => {
            let bytes = std::fs::metadata(file).map_err(|error| CliError::file(file, error))?.len();
            check_length(client.greeting(), bytes)?;
            std::fs::read(file).map_err(|error| CliError::file(file, error))?
        }
        (None, Some("-")) => {
            let mut value = Vec::new();
            std::io::stdin().lock().read_to_end(&mut value)?;
            value
        }
        (None, value) => value.unwrap_or_default().as_bytes().to_vec(),
    };
    check_length(client.greeting(), value.len() as u64)?;
    let asked = KeyValue { new_version: Some(key_bytes(&args.version)?.into()), ..written(key_of(&args.key)?, &args.write)? };
    done(client.call(RequestKind::Put, about(asked), value.into()).await)?;
    show::done(json)
}

/// Refuses a value that is longer than the drive says it takes: it may close the connection before it has read such a one.
fn check_length(greeting: &Command, bytes: u64) -> Result<(), CliError> {
    match value_bytes_max(greeting) {
        Some(most) if bytes > most => {
            let text = format!("a value of {bytes} bytes; at most {most} are allowed");
            Err(Fault::invalid(text).hint("`--file FILE --parts` puts a longer file as several values").into())
        }
        _ => Ok(()),
    }
}

/// Prints the keys as they come, a request after the other, until there are none left.
async fn range(client: &mut Client, args: RangeArgs, json: bool) -> Result<(), CliError> {
    let last = match &args.to {
        Some(key) => key_bytes(key)?,
        // No key is longer, and so none is larger.
        None => vec![u8::MAX; 4_096],
    };
    let mut asked = Range {
        start_key: Some(key_bytes(&args.from)?.into()),
        end_key: Some(last.into()),
        start_key_inclusive: Some(!args.after),
        end_key_inclusive: Some(!args.before),
        reverse: Some(args.reverse),
        ..Range::default()
    };
    let mut left = args.limit.unwrap_or(u64::MAX);
    while left > 0 {
        asked.max_returned = Some(left.min(NAMED_MAX) as i32);
        let body = Body { range: Some(asked.clone()), ..Body::default() };
        let reply = done(client.call(RequestKind::GetKeyRange, body, Bytes::new()).await)?;
        let keys = reply.body.range.unwrap_or_default().keys;
        let Some(reached) = keys.last().cloned() else { return Ok(()) };
        show::keys(&keys, json)?;
        left = left.saturating_sub(keys.len() as u64);
        match args.reverse {
            true => (asked.end_key, asked.end_key_inclusive) = (Some(reached), Some(false)),
            false => (asked.start_key, asked.start_key_inclusive) = (Some(reached), Some(false)),
        }
    }
    Ok(())
}

fn key_of(key: &str) -> Result<KeyValue, CliError> {
    Ok(KeyValue { key: Some(key_bytes(key)?.into()), ..KeyValue::default() })
}

fn written(key_value: KeyValue, args: &WriteArgs) -> Result<KeyValue, CliError> {
    let synchronization = match args.sync {
        When::Through => 1,
        When::Back => 2,
        When::Flush => 3,
    };
    let expected = args.expect.as_deref().map(key_bytes).transpose()?;
    Ok(KeyValue {
        force: Some(expected.is_none()),
        db_version: expected.map(Bytes::from),
        synchronization: Some(synchronization),
        ..key_value
    })
}

#[cfg(test)]
mod tests {
    use pithead_kinetic::proto::{GetLog, LogLimits};

    use super::*;

    /// The connection was closed in the midst of such a value, and nothing said why.
    #[test]
    fn a_value_that_the_drive_does_not_take_is_not_sent() {
        let limits = Some(LogLimits { max_value_size: Some(10), ..LogLimits::default() });
        let log = Some(GetLog { limits, ..GetLog::default() });
        let greeting = Command { body: Some(Box::new(Body { get_log: log, ..Body::default() })), ..Command::default() };
        assert!(check_length(&greeting, 10).is_ok() && check_length(&Command::default(), 11).is_ok());
        assert!(check_length(&greeting, 11).unwrap_err().to_string().contains("at most 10"));
    }
}
