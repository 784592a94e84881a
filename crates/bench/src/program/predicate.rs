//! A query whose predicate is a function in WebAssembly, beside the same predicate in SQL.

use std::path::Path;

use arrow::util::display::array_value_to_string;
use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_host::Session;
use pithead_model::{Blame, Fault};
use serde::Serialize;

use crate::timing::{Spread, run};

/// What the two queries took, in seconds.
#[derive(Debug, Serialize)]
pub(super) struct Predicate {
    rows: usize,
    pub(super) wasm: Spread,
    pub(super) native: Spread,
    /// Time with the function over time without, by medians.
    pub(super) ratio: f64,
}

impl Predicate {
    pub(super) fn print(&self) {
        let (wasm, native) = (self.wasm.median, self.native.median);
        println!(
            "a query with a predicate in WebAssembly over {} rows: {wasm:.3} s, with the same in SQL {native:.3} s, ratio {:.2}",
            self.rows, self.ratio
        );
    }
}

/// Measures both over numbers in a drive of this process, in turns. `folder` has the module, and room for the drive.
pub(super) async fn predicate(folder: &Path, module: &Path, rows: usize, runs: usize) -> Result<Predicate, Fault> {
    let options = EmbedOptions { drives: Some(1), ..EmbedOptions::default() };
    let engine = connect(&Target::Data(folder.join("drive")), &options).await?;
    let measured = measured(&engine, module, rows, runs).await;
    engine.shutdown().await;
    measured
}

async fn measured(engine: &Engine, module: &Path, rows: usize, runs: usize) -> Result<Predicate, Fault> {
    let session = engine.host.session().with_files();
    let create = format!("CREATE FUNCTION passes(bigint) RETURNS boolean LANGUAGE wasm AS '{}'", module.display());
    for statement in [
        "SET pithead.summary_cache = off",
        "SET pithead.slice_cache = 0",
        &format!("CREATE TABLE numbers AS SELECT value AS n FROM range({rows})"),
        &create,
    ] {
        run(&session, statement).await?;
    }
    let query = |predicate: &str| format!("SELECT count(*), sum(n) FROM numbers WHERE {predicate}");
    let (wasm, native) = (query("passes(n)"), query("xor(n, n >> 7) & 255 = 17"));
    let (mut with, mut without) = (Vec::new(), Vec::new());
    // The first run of each reads what the others find in the cache.
    for number in 0..=runs {
        let [(one, took), (other, native_took)] = [answer(&session, &wasm).await?, answer(&session, &native).await?];
        if one != other {
            return Err(Fault::new(Blame::Bug, format!("the function finds {one}, and SQL finds {other}")));
        }
        if number > 0 {
            with.push(took);
            without.push(native_took);
        }
    }
    let (wasm, native) = (Spread::of(with), Spread::of(without));
    Ok(Predicate { rows, wasm, native, ratio: wasm.median / native.median })
}

/// The one row, and the seconds that it took.
async fn answer(session: &Session, query: &str) -> Result<(String, f64), Fault> {
    let found = run(session, query).await?;
    let row = found.batches.iter().find(|batch| batch.num_rows() > 0);
    let row = row.ok_or_else(|| Fault::new(Blame::Bug, "no row came back"))?;
    let values: Vec<String> = row.columns().iter().map(|column| array_value_to_string(column, 0).unwrap_or_default()).collect();
    Ok((values.join(", "), found.seconds))
}
