//! A process of clients: what `pithead bench soak` starts several of.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use pithead_embed::{EmbedOptions, Target, connect};
use pithead_model::{Blame, Fault, boxed};

use super::expected;
use super::report::ClientReport;
use super::work::{Board, Client};
use crate::QUERIES;

/// Memory of each client's host.
const HOST_MEMORY: u64 = 256 << 20;

/// What a process of clients does.
#[derive(Clone, Debug)]
pub struct SoakClientsOptions {
    /// Where drives listen.
    pub drives: Vec<String>,
    /// Number of the first client.
    pub first: usize,
    /// How many clients.
    pub clients: usize,
    /// How long they work, seconds.
    pub seconds: f64,
    /// Drives that each partition of what they load is on.
    pub copies: usize,
    /// Decides what each client does when.
    pub seed: u64,
    /// Where the right answers are.
    pub answers: PathBuf,
}

/// The right answers.
pub(super) struct Answers {
    pub(super) queries: BTreeMap<&'static str, Vec<RecordBatch>>,
    pub(super) points: RecordBatch,
}

/// Runs the clients, then writes a line of JSON for each to stdout.
#[boxed]
pub async fn soak_clients(options: &SoakClientsOptions) -> Result<(), Fault> {
    let answers = Arc::new(read_answers(options)?);
    let board: Board = Arc::new((0..options.clients).map(|_| Mutex::default()).collect());
    let target = Target::Drives(options.drives.clone());
    let embed = EmbedOptions { threads: Some(1), memory: Some(HOST_MEMORY), ..EmbedOptions::default() };
    let until = Instant::now() + Duration::from_secs_f64(options.seconds);
    let mut working = Vec::new();
    for place in 0..options.clients {
        let number = options.first + place;
        let client = Client {
            number,
            place,
            first: options.first,
            engine: connect(&target, &embed).await.map_err(|fault| fault.at(format_args!("client {number}")))?,
            answers: Arc::clone(&answers),
            board: Arc::clone(&board),
            copies: options.copies,
            random: Client::random(options.seed, number),
            report: ClientReport { client: number, ..ClientReport::default() },
        };
        working.push(tokio::spawn(client.work(until)));
    }
    for client in working {
        let report = client.await.map_err(|lost| Fault::new(Blame::Bug, format!("a client ended early: {lost}")))?;
        println!("{}", serde_json::to_string(&report).map_err(|error| Fault::new(Blame::Bug, error.to_string()))?);
    }
    Ok(())
}

fn read_answers(options: &SoakClientsOptions) -> Result<Answers, Fault> {
    let read = |name| expected::read(&options.answers, name);
    let queries = QUERIES.iter().map(|query| Ok((query.name, read(query.name)?))).collect::<Result<_, Fault>>()?;
    let points = read(expected::POINTS)?;
    let none = || Fault::new(Blame::User, format!("there are no orders to look up in {}", options.answers.display()));
    let schema = points.first().ok_or_else(none)?.schema();
    let points = concat_batches(&schema, &points).map_err(|error| Fault::new(Blame::Bug, error.to_string()))?;
    if points.num_rows() == 0 {
        return Err(none());
    }
    Ok(Answers { queries, points })
}
