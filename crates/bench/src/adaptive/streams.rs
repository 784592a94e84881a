//! Several streams of one cell's query at one time: how evenly they share drive, link and host.

use std::time::Instant;

use futures::future::try_join_all;
use pithead_host::Session;
use pithead_model::Fault;
use serde::Serialize;

use super::answer::Answer;
use super::cell::{Cell, Query, WAYS, setting};
use super::measure::run;
use super::place::TableDirectory;

/// Streams at one time.
const STREAMS: [usize; 3] = [1, 4, 16];
/// Queries of each stream, one after another.
const QUERIES: usize = 3;
/// Where drive, link and host all have their part.
const CELL: Cell = Cell { query: Query::Aggregate, selected: 0.3, drive_cpu: "1/4", link: "1gbit", busy: false };

/// What so many streams took in one way.
#[derive(Debug, Serialize)]
pub(super) struct Streams {
    cell: String,
    pub(super) streams: usize,
    /// The level, as `SET pithead.level` takes it.
    pub(super) level: String,
    queries_each: usize,
    /// Until the last stream was through.
    pub(super) all_s: f64,
    /// When each stream was through.
    pub(super) stream_s: Vec<f64>,
    /// The slowest stream's time over the fastest one's.
    pub(super) max_over_min: f64,
}

/// Measures all of them on one drive. Another answer than the first one is an error.
pub(super) async fn measure(place: &TableDirectory) -> Result<Vec<Streams>, Fault> {
    let served = place.serve(CELL.drive_cpu, Some(CELL.link)).await?;
    let mut all = Vec::new();
    let mut expected = None;
    for streams in STREAMS {
        for way in WAYS {
            let level = setting(way);
            let mut sessions = Vec::new();
            for _ in 0..streams {
                sessions.push(served.session(&level).await?);
            }
            if let Some(session) = sessions.first() {
                let answer = Answer::of(run(session, &CELL.sql()).await?.batches)?;
                let expected = expected.get_or_insert(answer);
                let streams = together(&sessions, &level, expected).await?;
                println!("{}", streams.line());
                all.push(streams);
            }
        }
    }
    served.stop().await?;
    Ok(all)
}

async fn together(sessions: &[Session], level: &str, expected: &Answer) -> Result<Streams, Fault> {
    let (sql, started) = (&CELL.sql(), Instant::now());
    let one = |session| async move {
        for _ in 0..QUERIES {
            expected.check(&Answer::of(run(session, sql).await?.batches)?)?;
        }
        Ok::<f64, Fault>(started.elapsed().as_secs_f64())
    };
    let stream_s = try_join_all(sessions.iter().map(one)).await?;
    let most = stream_s.iter().copied().fold(0.0, f64::max);
    let least = stream_s.iter().copied().fold(f64::INFINITY, f64::min);
    Ok(Streams {
        cell: CELL.name(),
        streams: stream_s.len(),
        level: level.to_owned(),
        queries_each: QUERIES,
        all_s: most,
        stream_s,
        max_over_min: most / least,
    })
}

impl Streams {
    /// While it runs.
    fn line(&self) -> String {
        format!(
            "{} streams at level {}: {:.3} s, slowest/fastest {:.2}",
            self.streams, self.level, self.all_s, self.max_over_min
        )
    }
}
