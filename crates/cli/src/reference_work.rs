//! Work of a drive's operators that a core of this machine is timed at, so that it can be compared with a profile's core.

use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_model::{Blame, ByLevel, Counts, Fault};

use crate::counting::{WHOLE, count_all, drain};
use crate::error::CliError;
use crate::scratch::Folder;

const PREFIX: &str = "pithead-reference-";
/// Numbers in no order, and others to add up.
const TABLE: &str = "CREATE TABLE reference AS SELECT (value * 2654435761) % 65536 AS k, value * 7 % 1000003 AS v
    FROM generate_series(1, 1000000)";
/// Not quite half of them pass.
const QUERY: &str = "SELECT sum(v) FROM reference WHERE k < 30000";
/// The fastest run counts, because other work made the others longer.
const RUNS: usize = 5;

/// What the work counted, and what a core of this machine took for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReferenceWork {
    pub(crate) counts: Counts,
    pub(crate) cpu_s: f64,
}

/// Does the work, on a drive of this process that is gone afterwards. Takes about a second.
pub(crate) async fn reference_work() -> Result<ReferenceWork, CliError> {
    let folder = Folder::make(PREFIX)?;
    let options = EmbedOptions { threads: Some(1), ..EmbedOptions::default() };
    let engine = connect(&Target::Data(folder.path().to_owned()), &options).await?;
    let timed = timed(&engine).await;
    engine.shutdown().await;
    timed
}

async fn timed(engine: &Engine) -> Result<ReferenceWork, CliError> {
    let session = engine.host.session();
    count_all(&session).await?;
    for statement in [TABLE, WHOLE] {
        drain(&session, statement).await?;
    }
    let mut fastest: Option<ReferenceWork> = None;
    for _ in 0..RUNS {
        let sub_plans = drain(&session, QUERY).await?.sub_plans();
        let rounds: Vec<_> = sub_plans.iter().flat_map(|sub_plan| sub_plan.sessions()).flat_map(|it| it.annotations).collect();
        let cpu_s = rounds.iter().map(|round| round.cpu_ns).sum::<u64>() as f64 / 1e9;
        if cpu_s > 0.0 && fastest.is_none_or(|fastest| cpu_s < fastest.cpu_s) {
            fastest = Some(ReferenceWork { counts: ByLevel::<Counts>::of(&rounds).sum(), cpu_s });
        }
    }
    fastest.ok_or_else(|| Fault::new(Blame::Bug, "the reference work took no time at the drive").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_work_is_counted_and_leaves_nothing() {
        // A folder of somebody else, by a name that can be guessed, is in nobody's way.
        let guessed = std::env::temp_dir().join(format!("{PREFIX}{}", std::process::id()));
        std::fs::write(&guessed, "").unwrap();
        let work = reference_work().await.unwrap();
        assert_eq!((work.counts.rows, work.counts.out_rows), (1_000_000, 1));
        assert!((400_000..500_000).contains(&work.counts.passed_rows), "{work:?}");
        assert!(work.counts.read_bytes > 1_000_000 && work.cpu_s > 1e-5, "{work:?}");
        std::fs::remove_file(&guessed).unwrap();
        let own = format!("{PREFIX}{}-", std::process::id());
        let left = std::fs::read_dir(std::env::temp_dir()).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(left.filter(|name| name.to_string_lossy().starts_with(&own)).count(), 0);
    }
}
