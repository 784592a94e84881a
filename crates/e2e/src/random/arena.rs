//! One database in several arrangements, and what they answer.

use pithead_host::{LoadMode, Session};
use pithead_model::{Blame, Fault};
use tempfile::TempDir;

use crate::compare::{Table, bag_difference, row_difference};
use crate::random::opinion::Opinion;
use crate::random::queries::Query;
use crate::random::tables::Database;
use crate::{Mode, Setup, collect, load};

/// A database that is loaded.
pub(crate) struct Arena {
    setups: Vec<Setup>,
    voices: Vec<Voice>,
    duckdb: bool,
    _files: TempDir,
}

/// One of those that answer.
struct Voice {
    name: &'static str,
    session: Session,
}

/// Sessions with push-down in part.
const VARIANTS: [(&str, &[&str]); 6] = [
    ("four drives", &[]),
    ("filters only", Mode::FILTERS_ONLY.settings),
    ("levels by chance", &["SET pithead.level = 'random:11'", UNHELPED]),
    ("slices as stored", Mode::STORED.settings),
    ("four drives, joins as written", &["SET pithead.join_order = off", "SET pithead.join_filters = off", UNHELPED]),
    ("four drives, nothing shipped", &["SET pithead.ship_bytes_max = 0", "SET pithead.join_filters = off", UNHELPED]),
];

/// So that a voice speaks for itself, and not from what another's partial results left.
const UNHELPED: &str = "SET pithead.summary_cache = off";

/// What came of a query.
pub(crate) enum Verdict {
    /// All say the same; why DuckDB does not, if it was not asked or refuses.
    Agreed { silent: Option<String> },
    /// All refuse.
    Refused(String),
    /// Who differs, and how.
    Differ(Difference),
}

/// Two that do not say the same.
#[derive(Clone)]
pub(crate) struct Difference {
    /// Which of them: a shrunk query must have a difference with the same one.
    pub(crate) voice: String,
    pub(crate) told: String,
    /// One of them refuses.
    pub(crate) refused: bool,
}

impl Arena {
    /// Loads a database. The error says what could not be loaded.
    pub(crate) async fn load(database: &Database, seed: u64, opinion: Option<&mut Opinion>) -> Result<Arena, String> {
        let files = TempDir::new().expect("a temporary directory");
        let other = if seed.is_multiple_of(2) { "arrow" } else { "vortex" };
        let modes = [Mode { encoding: other, ..Mode::FOUR_HERE }, Mode::ONE_HERE];
        let mut setups = Vec::new();
        for mode in modes {
            setups.push(Setup::new(mode).await);
        }
        for table in &database.tables {
            for (number, file) in table.write(files.path()).iter().enumerate() {
                for setup in &setups {
                    let mut spec = table.spec(file, setup.mode.encoding, setup.mode.drives);
                    if number > 0 {
                        spec.mode = LoadMode::Append;
                        (spec.partitioning, spec.copies) = (None, None);
                    }
                    load(&setup.engine, spec).await.map_err(|fault| format!("loading {}: {fault}", table.name))?;
                }
            }
        }
        let duckdb = opinion.is_some();
        if let Some(opinion) = opinion {
            opinion.load(database, files.path())?;
        }
        let mut voices = vec![voice(&setups[0], "push-down off", Mode::PUSHDOWN_OFF.settings).await];
        voices.push(voice(&setups[1], "one drive", &[]).await);
        for (name, settings) in VARIANTS {
            voices.push(voice(&setups[0], name, settings).await);
        }
        Ok(Arena { setups, voices, duckdb, _files: files })
    }

    /// Asks all, or only the first and the one that is named.
    pub(crate) async fn judge(&self, query: &Query, opinion: Option<&mut Opinion>, only: Option<&str>) -> Verdict {
        let ours = query.sql.replace("DIV", "/");
        let (first, others) = self.voices.split_first().expect("there are voices");
        let expected = collect(&first.session, &ours).await;
        for other in others.iter().filter(|other| only.is_none_or(|only| only == other.name)) {
            let got = collect(&other.session, &ours).await;
            let told = match (&got, &expected) {
                (Ok(got), Ok(expected)) => difference(query, got, expected),
                (Err(_), Err(_)) => None,
                (Err(fault), Ok(_)) => Some(format!("refuses: {fault}")),
                (Ok(_), Err(fault)) => Some(format!("answers; {} refuses: {fault}", first.name)),
            };
            if let Some(told) = told {
                let refused = got.is_err() || expected.is_err();
                let told = format!("{} against {}: {told}", other.name, first.name);
                return Verdict::Differ(Difference { voice: other.name.to_owned(), told, refused });
            }
        }
        let expected = match expected {
            Ok(expected) => expected,
            Err(fault) => return refusal(first.name, fault),
        };
        match opinion.filter(|_| self.duckdb && query.duckdb && only.is_none_or(|only| only == DUCKDB)) {
            None => Verdict::Agreed { silent: Some("it has no opinion".to_owned()) },
            Some(opinion) => third(query, &expected, opinion),
        }
    }

    /// Ends the drives.
    pub(crate) async fn shutdown(self) {
        drop(self.voices);
        for setup in self.setups {
            setup.shutdown().await;
        }
    }
}

const DUCKDB: &str = "DuckDB";

fn third(query: &Query, expected: &Table, opinion: &mut Opinion) -> Verdict {
    match opinion.ask(&query.sql.replace("DIV", "//")) {
        // What it cannot do, it has no opinion on.
        Err(error) => Verdict::Agreed { silent: Some(error) },
        Ok(theirs) => match difference(query, expected, &theirs) {
            None => Verdict::Agreed { silent: None },
            Some(told) => {
                let told = format!("push-down off against {DUCKDB}: {told}");
                Verdict::Differ(Difference { voice: DUCKDB.to_owned(), told, refused: false })
            }
        },
    }
}

fn difference(query: &Query, got: &Table, expected: &Table) -> Option<String> {
    if query.ordered { row_difference(got, expected) } else { bag_difference(got, expected) }
}

/// All refuse. That is no answer to a bug of ours.
fn refusal(name: &str, fault: Fault) -> Verdict {
    match fault.blame {
        Blame::Bug => {
            let told = format!("{name} has a bug: {fault}");
            Verdict::Differ(Difference { voice: name.to_owned(), told, refused: true })
        }
        _ => Verdict::Refused(fault.to_string()),
    }
}

async fn voice(setup: &Setup, name: &'static str, settings: &[&str]) -> Voice {
    let session = setup.engine.host.session();
    for statement in settings {
        collect(&session, statement).await.unwrap_or_else(|fault| panic!("{statement}: {fault}"));
    }
    Voice { name, session }
}
