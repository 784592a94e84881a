//! Who is asked: arrangements of drives, and sessions on them.

use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use pithead_host::Session;
use pithead_model::{Blame, Fault};

use crate::compare::Table;
use crate::{Mode, Setup, collect};

/// Where a session runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunSite {
    /// Four drives in this process.
    Four,
    /// One drive in this process, in another encoding.
    One,
    /// Two arrays in front of two drives each, all processes.
    Arrays,
}

/// One of those that answer.
pub(crate) struct Voice {
    pub(crate) name: &'static str,
    pub(crate) place: RunSite,
    settings: &'static [&'static str],
}

/// The first one is what the others are compared with.
pub(crate) static VOICES: [Voice; 16] = [
    Voice { name: "push-down off", place: RunSite::Four, settings: Mode::PUSHDOWN_OFF.settings },
    Voice { name: "four drives", place: RunSite::Four, settings: &[] },
    Voice { name: "one drive", place: RunSite::One, settings: &[] },
    Voice { name: "arrays", place: RunSite::Arrays, settings: &[] },
    Voice { name: "levels by chance, caches", place: RunSite::Four, settings: &["SET pithead.level = 'random:7'"] },
    Voice { name: "filters only", place: RunSite::Four, settings: Mode::FILTERS_ONLY.settings },
    Voice {
        name: "levels by chance",
        place: RunSite::Four,
        settings: &["SET pithead.level = 'random:11'", UNHELPED, "SET pithead.slice_cache = 0"],
    },
    Voice { name: "slices as stored", place: RunSite::Four, settings: Mode::STORED.settings },
    Voice { name: "pages that may match", place: RunSite::Four, settings: Mode::HINTED.settings },
    Voice { name: "slices filtered", place: RunSite::Four, settings: Mode::FILTERED.settings },
    Voice {
        name: "joins as written",
        place: RunSite::Four,
        settings: &[
            "SET pithead.join_order = off",
            "SET pithead.join_filters = off",
            "SET pithead.share_parts = off",
            UNHELPED,
        ],
    },
    Voice { name: "all sampled", place: RunSite::Four, settings: &["SET pithead.sample = always", UNHELPED] },
    Voice { name: "all grouped first", place: RunSite::Four, settings: &["SET pithead.before_joins = always", UNHELPED] },
    Voice { name: "samples that lie", place: RunSite::Four, settings: Mode::LYING_SAMPLES.settings },
    Voice { name: "plans changed by chance", place: RunSite::Four, settings: Mode::REPLANNED.settings },
    Voice {
        name: "nothing shipped",
        place: RunSite::Four,
        settings: &[
            "SET pithead.ship_bytes_max = 0",
            "SET pithead.join_filters = off",
            "SET pithead.before_joins = always",
            UNHELPED,
        ],
    },
];

/// So that a voice speaks for itself, and not from what another's partial results left.
const UNHELPED: &str = "SET pithead.summary_cache = off";

/// Who is asked for a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who<'a> {
    /// The first two, and one of the others, by the query's number.
    Turn(usize),
    /// The first one and this one.
    Only(&'a str),
}

impl Who<'_> {
    /// Whether the voice is asked that stands at a place among `count`.
    pub(crate) fn asks(self, voice: &Voice, place: usize, count: usize) -> bool {
        match self {
            Who::Only(name) => voice.name == name,
            Who::Turn(_) if place < 2 => true,
            Who::Turn(number) => number % (count - 2) == place - 2,
        }
    }

    /// Whether one that is not in the list is asked.
    pub(crate) fn asks_named(self, name: &str) -> bool {
        match self {
            Who::Turn(_) => true,
            Who::Only(only) => only == name,
        }
    }
}

impl Voice {
    /// A session of it.
    pub(crate) async fn session(&self, setup: &Setup) -> Session {
        let session = setup.engine.host.session();
        for statement in self.settings {
            collect(&session, statement).await.unwrap_or_else(|fault| panic!("{statement}: {fault}"));
        }
        session
    }
}

impl RunSite {
    /// The drives, empty. Encodings change places from one seed to the next.
    pub(crate) async fn setup(self, seed: u64) -> Setup {
        let encodings = if seed.is_multiple_of(2) { ["arrow", "vortex"] } else { ["vortex", "arrow"] };
        let mode = match self {
            RunSite::Four => Mode { encoding: encodings[0], ..Mode::FOUR_HERE },
            RunSite::One => Mode { encoding: encodings[1], ..Mode::ONE_HERE },
            RunSite::Arrays => Mode { encoding: encodings[0], ..Mode::ARRAYS },
        };
        Setup::new(mode).await
    }
}

/// Asks a session. A panic is a fault of ours, as a hang is.
pub(crate) async fn ask(session: &Session, sql: &str) -> Result<Table, Fault> {
    let answer = AssertUnwindSafe(collect(session, sql)).catch_unwind().await;
    let answer = answer.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let told = text.or_else(|| panic.downcast_ref::<&str>().map(|told| (*told).to_owned()));
        Err(Fault::new(Blame::Bug, format!("a panic: {}", told.unwrap_or_default())))
    });
    answer.map(one_zero)
}

/// The answer with one zero: which of the two a group or an extreme shows is not said anywhere, as they are equal.
pub(crate) fn one_zero(mut table: Table) -> Table {
    for (place, _) in table.columns.iter().enumerate().filter(|(_, column)| column.letter == 'R') {
        for row in &mut table.rows {
            if row[place] == "-0.0" {
                row[place].remove(0);
            }
        }
    }
    table
}
