//! TPC-H by a DuckDB that is a client: of `pithead serve` by its extension for PostgreSQL, and of another DuckDB by the Quack protocol.
//! Either sends whole queries, or has the server's tables attached and answers over them itself.

use std::path::{Path, PathBuf};

use pithead_model::{Blame, Fault};
use serde::Serialize;

use super::flight;
use super::serving::Serving;
use crate::QUERIES;
use crate::answers::{difference_between_engines, read_answer};
use crate::kv::free_port;
use crate::neardata::needs;
use crate::neardata::quack::{Quack, client};
use crate::neardata::runner::{RunRequest, Runner};
use crate::tables::io;
use crate::timing::Spread;

/// Threads of each DuckDB.
const THREADS: usize = 2;
/// Nothing that Pithead has kept of earlier runs answers a query.
const UNHELPED: &str = "options='-c pithead.summary_cache=off -c pithead.slice_cache=0'";
/// What the kernel has received on the interface of this machine with itself.
const LOOPBACK: &str = "/sys/class/net/lo/statistics/rx_bytes";

/// All queries by all ways.
#[derive(Debug, Serialize)]
pub(super) struct Attached {
    pub(super) scale: f64,
    pub(super) duckdb: String,
    pub(super) queries: Vec<AttachedQuery>,
}

/// One query.
#[derive(Debug, Serialize)]
pub(super) struct AttachedQuery {
    pub(super) name: &'static str,
    pub(super) pithead_query: Way,
    pub(super) pithead_attached: Way,
    pub(super) quack_query: Way,
    pub(super) quack_attached: Way,
}

/// What one way took.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Way {
    /// Of all runs. None: it was not answered, or otherwise.
    pub(super) taken: Option<WayTaken>,
    /// Why not.
    pub(super) note: Option<String>,
}

/// Seconds, and bytes between both processes in both directions, with what TCP adds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct WayTaken {
    pub(super) seconds: Spread,
    pub(super) bytes: Spread,
}

/// A figure of a way.
pub(super) type Figure = fn(&WayTaken) -> f64;

impl Attached {
    /// A figure over all queries that both ways answered: the sum of one way's over the sum of the other's.
    pub(super) fn ratio(
        &self,
        figure: Figure,
        own: fn(&AttachedQuery) -> &Way,
        other: fn(&AttachedQuery) -> &Way,
    ) -> Option<f64> {
        let both = self.queries.iter().filter_map(|query| own(query).taken.zip(other(query).taken));
        let (own, other) = both.fold((0.0, 0.0), |sum, (own, other)| (sum.0 + figure(&own), sum.1 + figure(&other)));
        (other > 0.0).then(|| own / other)
    }
}

/// Runs all queries in turns. `tables` has the Parquet files of what is served; DuckDB is installed below `directory` where it is not
/// there yet.
pub(super) async fn attached(
    serving: &Serving,
    (directory, scratch): (&Path, &Path),
    tables: &Path,
    (scale, runs): (f64, usize),
) -> Result<Attached, Fault> {
    let python = needs::python(directory).await?;
    let home = std::path::absolute(scratch).map_err(|error| io(scratch, &error))?;
    let postgres = format!("postgres:{} {UNHELPED}", serving.name());
    let quack = format!("quack:127.0.0.1:{}", free_port()?);
    let mut quack = Quack::start(&python, [&[], &[]], &quack, tables, &home, THREADS).await?;
    let mut query = client((&python, &[]), "query", &postgres, THREADS).await?;
    let mut attached = client((&python, &[]), "attached", &postgres, THREADS).await?;
    let duckdb = quack.version();
    let mut reference = flight::client(&serving.flight).await?;
    let answer = home.join("answer.arrow");
    let mut queries = Vec::new();
    for tpch in QUERIES {
        let expected = flight::asked(&mut reference, tpch.statement()).await.map_err(|fault| fault.at(tpch.name))?;
        let mut ways = Vec::new();
        for runner in [&mut query, &mut attached, &mut quack.query, &mut quack.attached] {
            ways.push(Turns { runner, note: None, seconds: vec![], bytes: vec![] });
        }
        for turn in 0..=runs {
            for way in &mut ways {
                way.run(tpch.statement(), &answer, turn > 0).await?;
                if turn == 0 && way.note.is_none() {
                    way.note = difference_between_engines(&expected, &read_answer(&answer)?)?;
                }
            }
        }
        let mut ways = ways.into_iter().map(Turns::way);
        let mut next = || ways.next().ok_or_else(|| Fault::new(Blame::Bug, "fewer ways than there are"));
        queries.push(AttachedQuery {
            name: tpch.name,
            pithead_query: next()?,
            pithead_attached: next()?,
            quack_query: next()?,
            quack_attached: next()?,
        });
    }
    Ok(Attached { scale, duckdb, queries })
}

/// A way and what it has taken so far.
struct Turns<'a> {
    runner: &'a mut Runner,
    note: Option<String>,
    seconds: Vec<f64>,
    bytes: Vec<f64>,
}

impl Turns<'_> {
    async fn run(&mut self, sql: &str, answer: &Path, counts: bool) -> Result<(), Fault> {
        if self.note.is_some() {
            return Ok(());
        }
        let before = loopback_bytes()?;
        let request = RunRequest { sql: sql.to_owned(), answer: PathBuf::from(answer), pushdown: false };
        match self.runner.run(request).await {
            Err(fault) => self.note = Some(fault.message),
            Ok(ran) if counts => {
                self.seconds.push(ran.seconds);
                self.bytes.push(loopback_bytes()?.saturating_sub(before) as f64);
            }
            Ok(_) => {}
        }
        Ok(())
    }

    fn way(self) -> Way {
        let taken = WayTaken { seconds: Spread::of(self.seconds), bytes: Spread::of(self.bytes) };
        Way { taken: self.note.is_none().then_some(taken), note: self.note }
    }
}

fn loopback_bytes() -> Result<u64, Fault> {
    let path = Path::new(LOOPBACK);
    let text = std::fs::read_to_string(path).map_err(|error| io(path, &error))?;
    text.trim().parse().map_err(|_| Fault::new(Blame::Device, format!("{LOOPBACK} is no number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(seconds: Option<f64>) -> Way {
        let taken = seconds.map(|seconds| WayTaken { seconds: Spread::of(vec![seconds]), bytes: Spread::of(vec![1.0]) });
        Way { taken, note: None }
    }

    #[test]
    fn only_queries_that_both_answer_are_compared() {
        let query = |own, other| AttachedQuery {
            name: "q",
            pithead_query: way(own),
            pithead_attached: way(None),
            quack_query: way(other),
            quack_attached: way(None),
        };
        let queries = vec![query(Some(1.0), Some(2.0)), query(Some(5.0), None), query(Some(2.0), Some(4.0))];
        let attached = Attached { scale: 1.0, duckdb: String::new(), queries };
        let seconds: Figure = |taken| taken.seconds.median;
        assert_eq!(attached.ratio(seconds, |query| &query.pithead_query, |query| &query.quack_query), Some(0.5));
        assert_eq!(attached.ratio(seconds, |query| &query.pithead_attached, |query| &query.quack_query), None);
    }
}
