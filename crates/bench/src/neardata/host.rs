//! The host in its namespace: what `pithead bench neardata` starts as a process of its own.

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use pithead_embed::{ConnectOptions, EmbedOptions, Engine, Target, connect};
use pithead_host::Session;
use pithead_model::{Blame, Fault, boxed};

use super::runner::{Ran, Ready, Reply, Request, RunRequest};
use crate::answers::write_answer;
use crate::demo::{Layout, load};
use crate::timing::run;

/// Caches that would answer from what an earlier run has fetched or computed.
const CACHES_OFF: [(&str, &str); 2] = [("pithead.summary_cache", "off"), ("pithead.slice_cache", "0")];

/// What the process does.
#[derive(Clone, Debug)]
pub struct NearDataHostOptions {
    /// Where drives listen.
    pub drives: Vec<String>,
    /// Threads of the host.
    pub threads: usize,
    /// Threads of each drive.
    pub drive_threads: usize,
}

/// Takes requests from stdin, a line of JSON each, until it ends.
#[boxed]
pub async fn near_data_host(options: &NearDataHostOptions) -> Result<(), Fault> {
    // The namespaces are reached from nowhere else.
    let link = ConnectOptions { insecure: true, ..ConnectOptions::default() };
    let embed = EmbedOptions { threads: Some(options.threads), connect: link, ..EmbedOptions::default() };
    let engine = connect(&Target::Drives(options.drives.clone()), &embed).await?;
    let session = engine.host.session();
    session.run(&format!("SET pithead.drive_threads = {}", options.drive_threads)).await?;
    let settings = caches_off(&session).await?;
    say(&Reply::Ready(Ready { version: env!("CARGO_PKG_VERSION").to_owned(), settings }))?;
    while let Some(line) = next_line().await? {
        let request = serde_json::from_str(&line)
            .map_err(|error| Fault::new(Blame::User, format!("expected a request as a line of JSON: {error}")))?;
        let reply = answer(&engine, &session, request).await;
        say(&reply.unwrap_or_else(|fault| Reply::Failed { message: fault.message }))?;
    }
    engine.shutdown().await;
    Ok(())
}

async fn answer(engine: &Engine, session: &Session, request: Request) -> Result<Reply, Fault> {
    match request {
        Request::Load { tables } => {
            load(engine, &tables, Layout::Keyed).await?;
            Ok(Reply::Loaded {})
        }
        Request::Run(RunRequest { sql, answer, pushdown }) => {
            session.run(&format!("SET pithead.pushdown = {}", if pushdown { "on" } else { "off" })).await?;
            let ran = run(session, &sql).await?;
            let schema = ran.batches.first().map_or_else(|| Schema::empty().into(), RecordBatch::schema);
            write_answer(&answer, &schema, &ran.batches)?;
            Ok(Reply::Ran(Ran { seconds: ran.seconds, rows: ran.rows() }))
        }
    }
}

/// What was set. A release without such a cache has nothing to switch off.
async fn caches_off(session: &Session) -> Result<Vec<String>, Fault> {
    let mut settings = Vec::new();
    for (name, value) in CACHES_OFF {
        match session.run(&format!("SET {name} = {value}")).await {
            Ok(_) => settings.push(format!("{name} = {value}")),
            Err(fault) if fault.message.contains("there is no setting") => {
                settings.push(format!("{name}: there is no such cache"));
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(settings)
}

/// The next line of stdin, read where waiting for it holds nothing up.
async fn next_line() -> Result<Option<String>, Fault> {
    let read = tokio::task::spawn_blocking(|| std::io::stdin().lines().next().transpose()).await;
    let read = read.map_err(|lost| Fault::new(Blame::Bug, format!("stdin is not read any more: {lost}")))?;
    read.map_err(|error| Fault::new(Blame::Device, format!("stdin: {error}")))
}

fn say(reply: &Reply) -> Result<(), Fault> {
    println!("{}", serde_json::to_string(reply).map_err(|error| Fault::new(Blame::Bug, error.to_string()))?);
    Ok(())
}
