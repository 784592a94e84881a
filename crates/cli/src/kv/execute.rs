//! `pithead kv execute`: MANAGE_APPLET EXECUTE.

use std::io::Write as _;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use pithead_kinetic::RequestKind;
use pithead_kinetic::client::Client;
use pithead_kinetic::proto::{Body, ManageApplet};
use pithead_model::{Blame, Fault};

use super::done;
use crate::error::CliError;
use crate::store_keys::key_bytes;

/// EXECUTE, of the vendor's own language, answered on completion: the protocol's numbers.
const EXECUTE: i32 = 1;
const VENDOR_DEPENDENT: i32 = 1;
const ON_COMPLETION: i32 = 2;

#[derive(Debug, Args)]
pub(super) struct ExecuteArgs {
    /// Keys whose values are the program, in order; or pithead/program/NAME; or pithead/engine/DOMAIN/DATASET and the keys of a
    /// sub-plan's Substrait, whose rows come as Arrow IPC
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,
    /// What the program is told (repeatable)
    #[arg(long = "param", value_name = "TEXT")]
    params: Vec<String>,
    /// Put the output to this key, too
    #[arg(long, value_name = "KEY")]
    output_key: Option<String>,
    /// How long it may run
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(i64).range(1..))]
    max_run_time: Option<i64>,
}

/// How long the answer may take beyond the program's time.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

impl ExecuteArgs {
    /// How long the answer may take at least: the program's time, and a little more.
    pub(super) fn wait_min(&self) -> Duration {
        let time = self.max_run_time.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
        time.map_or(Duration::ZERO, |time| time.saturating_add(ANSWER_WAIT))
    }
}

/// Runs the command.
pub(super) async fn run(client: &mut Client, args: ExecuteArgs) -> Result<(), CliError> {
    let keys = args.keys.iter().map(|key| Ok(Bytes::from(key_bytes(key)?))).collect::<Result<Vec<Bytes>, CliError>>()?;
    let applet = ManageApplet {
        applet_type: Some(EXECUTE),
        language: Some(VENDOR_DEPENDENT),
        program_key: keys,
        max_run_time: args.max_run_time,
        program_param: args.params,
        acknowledge_mode: Some(ON_COMPLETION),
        output_key: args.output_key.as_deref().map(key_bytes).transpose()?.map(Bytes::from),
        set_value_in_response: Some(true),
    };
    let body = Body { manage_applet: Some(applet), ..Body::default() };
    let reply = done(client.call(RequestKind::ManageApplet, body, Bytes::new()).await)?;
    // The exit code, the signal, what is wrong, and the output.
    let mut parts = reply.what.splitn(4, ':');
    let (code, wrong) = (parts.next().unwrap_or_default(), parts.nth(1).unwrap_or_default());
    if code != "0" {
        return Err(Fault::new(Blame::User, format!("the program failed: {wrong}")).into());
    }
    let mut stdout = std::io::stdout();
    stdout.write_all(&reply.value)?;
    Ok(stdout.flush()?)
}
