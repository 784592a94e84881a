//! What was asked, and what came of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Two that do not say the same.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    /// Which of them: a shrunk script must have a difference with the same one.
    pub(crate) voice: String,
    pub(crate) told: String,
    /// What two differences of one kind have in common.
    pub(crate) gist: String,
    /// The statement.
    pub(crate) sql: String,
}

impl Difference {
    /// It is no refusal.
    pub(crate) fn both_answer(&self) -> bool {
        self.gist == OTHER_ROWS
    }

    /// Whether another one may be the same.
    pub(crate) fn is_like(&self, other: &Difference) -> bool {
        self.voice == other.voice && self.gist == other.gist
    }
}

/// The gist where both answer.
pub(crate) const OTHER_ROWS: &str = "other rows";

/// What was asked, and what came of it.
#[derive(Debug, Default)]
pub struct Report {
    /// Databases.
    pub databases: usize,
    /// Statements, each in several ways.
    pub statements: usize,
    /// Statements that were answered.
    pub answered: usize,
    /// Answers of DuckDB that were compared with.
    pub duckdb: usize,
    /// Loads between statements.
    pub loads: usize,
    /// Pairs of answers that were compared, by layout of a table that is named, and by who answered.
    pub pairs: BTreeMap<&'static str, BTreeMap<String, usize>>,
    /// Statements by what they are to the query before them.
    pub relations: BTreeMap<&'static str, usize>,
    /// Why DuckDB said nothing.
    pub silent: BTreeMap<String, usize>,
    /// What statements were refused with, in every way; and one of them.
    pub refused: BTreeMap<String, (usize, String)>,
    /// Differences, by who differs and how.
    pub differences: BTreeMap<(String, String), usize>,
    /// What differed, ready to be kept as a regression.
    pub failures: Vec<String>,
}

impl Report {
    /// An answer was compared with the first one.
    pub(crate) fn compared(&mut self, layouts: &BTreeSet<&'static str>, voice: &str) {
        for layout in layouts.iter().copied().chain(["all"]) {
            *self.pairs.entry(layout).or_default().entry(voice.to_owned()).or_default() += 1;
        }
    }

    /// All refused a statement.
    pub(crate) fn refuse(&mut self, told: &str, sql: &str) {
        self.refused.entry(gist(told)).or_insert_with(|| (0, sql.to_owned())).0 += 1;
    }

    /// DuckDB said nothing to a statement.
    pub(crate) fn hear_nothing(&mut self, told: &str) {
        *self.silent.entry(gist(told)).or_default() += 1;
    }

    /// Two differed.
    pub(crate) fn differ(&mut self, difference: &Difference) {
        *self.differences.entry((difference.voice.clone(), difference.gist.clone())).or_default() += 1;
    }

    /// Takes over another one.
    pub(crate) fn add(&mut self, other: Report) {
        self.databases += other.databases;
        self.statements += other.statements;
        self.answered += other.answered;
        self.duckdb += other.duckdb;
        self.loads += other.loads;
        for (layout, voices) in other.pairs {
            add_counts(self.pairs.entry(layout).or_default(), voices);
        }
        add_counts(&mut self.relations, other.relations);
        add_counts(&mut self.silent, other.silent);
        add_counts(&mut self.differences, other.differences);
        for (told, (count, sql)) in other.refused {
            self.refused.entry(told).or_insert_with(|| (0, sql)).0 += count;
        }
        self.failures.extend(other.failures);
    }

    /// Statements that were refused.
    pub fn refusals(&self) -> usize {
        self.refused.values().map(|(count, _)| count).sum()
    }
}

fn add_counts<K: Ord>(all: &mut BTreeMap<K, usize>, more: BTreeMap<K, usize>) {
    for (key, count) in more {
        *all.entry(key).or_default() += count;
    }
}

/// A message without what differs from one statement to the next.
pub(crate) fn gist(told: &str) -> String {
    let mut gist = String::new();
    for letter in told.lines().next().unwrap_or_default().chars() {
        let shown = if letter.is_ascii_digit() { '#' } else { letter };
        if !(shown == '#' && gist.ends_with('#')) {
            gist.push(shown);
        }
    }
    gist.chars().take(110).collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} databases, {} statements, {} answered, {} of them by DuckDB, too; {} refused; {} loads; {} differences",
            self.databases,
            self.statements,
            self.answered,
            self.duckdb,
            self.refusals(),
            self.loads,
            self.differences.values().sum::<usize>()
        )?;
        writeln!(f, "\nstatements: {:?}", self.relations)?;
        writeln!(f, "\npairs of answers compared, by layout and by who answered")?;
        for (layout, voices) in &self.pairs {
            writeln!(f, "  {layout} ({})", voices.values().sum::<usize>())?;
            let told: Vec<String> = voices.iter().map(|(voice, count)| format!("{voice} {count}")).collect();
            writeln!(f, "    {}", told.join(", "))?;
        }
        writeln!(f, "\nDuckDB says nothing")?;
        for (why, count) in &self.silent {
            writeln!(f, "  {count} × {why}")?;
        }
        writeln!(f, "\nrefused in every way")?;
        for (why, (count, sql)) in &self.refused {
            writeln!(f, "  {count} × {why}\n    {sql}")?;
        }
        writeln!(f, "\ndifferences")?;
        for ((voice, how), count) in &self.differences {
            writeln!(f, "  {count} × {voice}: {how}")?;
        }
        Ok(())
    }
}
