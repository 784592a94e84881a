//! The cells: what is asked, of which drive, over which link, beside whom.

use pithead_model::{Level, LevelRule};
use serde::Serialize;

use super::table::KEYS;

/// Shares of the rows that pass the condition.
const SELECTED: [f64; 3] = [0.01, 0.3, 1.0];
/// Shares of a core's speed that the drive's CPU is paced to.
const CPUS: [&str; 3] = ["1", "1/4", "1/15"];
/// Rates that the drive's sends are paced to.
const LINKS: [&str; 2] = ["100mbit", "1gbit"];

/// How a query is run: at one level, or as the drive decides.
pub(super) const WAYS: [LevelRule; 5] = [
    LevelRule::Only(Level::Whole),
    LevelRule::Only(Level::Filtered),
    LevelRule::Only(Level::Hints),
    LevelRule::Only(Level::Bytes),
    LevelRule::Auto,
];

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Query {
    /// Rows of three columns.
    Scan,
    /// Eight functions over 50 groups.
    Aggregate,
    /// With a small table that is shipped, and an aggregate over 20 groups.
    Join,
}

/// One cell.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Cell {
    pub(super) query: Query,
    /// Share of the rows that pass.
    pub(super) selected: f64,
    /// Share of a core's speed that the drive has.
    pub(super) drive_cpu: &'static str,
    /// Rate of the link from the drive.
    pub(super) link: &'static str,
    /// Whether somebody else keeps the drive busy.
    pub(super) busy: bool,
}

impl Cell {
    /// For people.
    pub(super) fn name(&self) -> String {
        let query = self.query.name();
        let busy = if self.busy { ", drive busy" } else { "" };
        format!("{query} {}, CPU {}, {}{busy}", self.selected, self.drive_cpu, self.link)
    }

    /// The statement.
    pub(super) fn sql(&self) -> String {
        let below = (self.selected * KEYS as f64) as i64;
        self.query.sql(below)
    }
}

impl Query {
    pub(super) fn name(self) -> &'static str {
        match self {
            Query::Scan => "scan",
            Query::Aggregate => "aggregate",
            Query::Join => "join",
        }
    }

    fn sql(self, below: i64) -> String {
        match self {
            Query::Scan => format!("SELECT k, v, f FROM numbers WHERE k < {below}"),
            Query::Aggregate => format!(
                "SELECT g, count(*), sum(v), min(v), max(v), avg(f), stddev(f), sum((v * 7 + k) % 97) \
                 FROM numbers WHERE k < {below} GROUP BY g"
            ),
            Query::Join => format!(
                "SELECT kind, count(*), sum(v), max(f) FROM numbers JOIN kinds ON j = id \
                 WHERE k < {below} GROUP BY kind"
            ),
        }
    }
}

/// 36 cells: every combination of selectivity, CPU, link and load. The query takes turns along each of them, so that each is met with
/// each selectivity, CPU and link equally often.
pub(super) fn cells() -> Vec<Cell> {
    let queries = [Query::Scan, Query::Aggregate, Query::Join];
    let mut cells = Vec::new();
    for (a, selected) in SELECTED.into_iter().enumerate() {
        for (b, drive_cpu) in CPUS.into_iter().enumerate() {
            for (c, link) in LINKS.into_iter().enumerate() {
                for busy in [false, true] {
                    let query = queries[(a + b + c + usize::from(busy)) % queries.len()];
                    cells.push(Cell { query, selected, drive_cpu, link, busy });
                }
            }
        }
    }
    cells
}

/// A level as `SET pithead.level` takes it.
pub(super) fn setting(way: LevelRule) -> String {
    match way {
        LevelRule::Auto => "auto".to_owned(),
        LevelRule::Only(level) => (level as u8).to_string(),
        LevelRule::Random(seed) => format!("random:{seed}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_query_is_met_with_everything_equally_often() {
        let cells = cells();
        assert_eq!(cells.len(), 36);
        for query in [Query::Scan, Query::Aggregate, Query::Join] {
            let of = |fits: &dyn Fn(&Cell) -> bool| cells.iter().filter(|cell| cell.query == query && fits(cell)).count();
            assert!(SELECTED.iter().all(|selected| of(&|cell| cell.selected == *selected) == 4));
            assert!(CPUS.iter().all(|cpu| of(&|cell| cell.drive_cpu == *cpu) == 4));
            assert!(LINKS.iter().all(|link| of(&|cell| cell.link == *link) == 6));
            assert_eq!(of(&|cell| cell.busy), 6);
        }
    }

    #[test]
    fn levels_are_named_as_the_setting_takes_them() {
        assert_eq!(WAYS.map(setting), ["3", "2", "1", "0", "auto"]);
    }
}
