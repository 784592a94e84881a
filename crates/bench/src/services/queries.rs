//! Queries as the foreground.

use std::time::{Duration, Instant};

use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_model::Fault;
use serde::Serialize;

use super::puts::Latencies;
use crate::drives::DriveProcess;
use crate::timing::{run, unhelped};

/// A table whose rows are made at the drive that stores them.
const MAKE: &str = "CREATE TABLE IF NOT EXISTS numbers AS SELECT value AS k, value % 1000 AS g FROM range(2000000)";
/// Reads all of it.
const ASK: &str = "SELECT g, count(*), sum(k) FROM numbers WHERE k % 7 = 3 GROUP BY g ORDER BY g LIMIT 3";

/// Queries one after the other.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Queries {
    /// None: services were paused.
    pub(crate) policy: Option<&'static str>,
    pub(crate) latencies: Latencies,
}

pub(super) async fn measure(drive: &DriveProcess, policy: Option<&'static str>, seconds: f64) -> Result<Queries, Fault> {
    let engine = connect(&Target::Drives(vec![drive.address().to_owned()]), &EmbedOptions::default()).await?;
    let measured = ask(&engine, seconds).await;
    engine.shutdown().await;
    Ok(Queries { policy, latencies: Latencies::of(&mut measured?) })
}

async fn ask(engine: &Engine, seconds: f64) -> Result<Vec<f64>, Fault> {
    let session = unhelped(engine).await?;
    run(&session, MAKE).await?;
    run(&session, ASK).await?;
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let mut latencies = Vec::new();
    while Instant::now() < until {
        latencies.push(run(&session, ASK).await?.seconds);
    }
    Ok(latencies)
}
