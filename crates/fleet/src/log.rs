//! What versions of a domain have changed, one after another. Pure.

use std::collections::{BTreeMap, BTreeSet};

use pithead_door::{ToldDataset, ToldVersion};
use pithead_model::DatasetId;

/// One change of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The version.
    pub version: u64,
    /// When it was made, milliseconds since 1970 UTC; none: unknown.
    pub time_ms: Option<u64>,
    /// The dataset, view or function; none: the change is of the domain itself.
    pub name: Option<String>,
    /// What was done.
    pub change: LogChange,
    /// Rows that the dataset has then; none: it is no dataset, or is there no more.
    pub rows: Option<u64>,
    /// Rows that it has more than before, and fewer. Where rows were changed or replaced, this is what the numbers differ by.
    pub rows_added: u64,
    /// The same for fewer.
    pub rows_removed: u64,
}

/// What a version did to a dataset, or to the domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogChange {
    /// A dataset that was not there before.
    Created,
    /// A dataset that is there no more.
    Dropped,
    /// It has more rows in the same incarnation.
    Appended,
    /// It has rows that it had before, which a restore makes.
    Restored,
    /// Its rows are others: by UPDATE, DELETE, MERGE, or a load that replaced it.
    Rewritten,
    /// The same rows with other columns.
    Altered,
    /// The same rows in other runs.
    Merged,
    /// The same rows on other drives.
    Moved,
    /// The same rows, which another dataset had that is there no more.
    Renamed,
    /// A dataset that is there no more, as another one has its rows.
    RenamedAway,
    /// A view that was not there before.
    ViewCreated,
    /// A view with another query.
    ViewReplaced,
    /// A view that is there no more.
    ViewDropped,
    /// The functions of the domain are others.
    Functions,
    /// The drives of the domain are others.
    Drives,
    /// Other drives attach files as parts of it.
    Attached,
    /// Versions are kept for another time.
    History,
    /// Nothing that is told of here.
    Nothing,
    /// The oldest version that is kept: what it changed is not known any more.
    Oldest,
    /// Its manifest is damaged, so that it cannot be read.
    Damaged,
}

impl LogChange {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Dropped => "dropped",
            Self::Appended => "appended",
            Self::Restored => "restored",
            Self::Rewritten => "rewritten",
            Self::Altered => "altered",
            Self::Merged => "runs merged",
            Self::Moved => "moved",
            Self::Renamed => "renamed",
            Self::RenamedAway => "renamed away",
            Self::ViewCreated => "view created",
            Self::ViewReplaced => "view replaced",
            Self::ViewDropped => "view dropped",
            Self::Functions => "functions changed",
            Self::Drives => "drives changed",
            Self::Attached => "attached parts changed",
            Self::History => "history set",
            Self::Nothing => "nothing",
            Self::Oldest => "oldest kept",
            Self::Damaged => "damaged",
        }
    }
}

/// Datasets as they were in versions of before: by incarnation, and the hash of its runs.
type SeenRuns = BTreeSet<(DatasetId, u64)>;

/// What each of these versions has changed, the oldest first.
pub fn log(versions: &[ToldVersion]) -> Vec<LogEntry> {
    let mut entries = Vec::new();
    let mut before: Option<&ToldVersion> = None;
    let mut seen = SeenRuns::new();
    let empty = ToldVersion::default();
    for now in versions {
        if now.is_damaged {
            entries.push(entry(now, None, LogChange::Damaged));
            continue;
        }
        match before {
            Some(before) => entries.extend(changes(before, now, &seen)),
            None if now.made_from == 0 => {
                entries.extend(changes(&ToldVersion { drives: now.drives.clone(), ..empty.clone() }, now, &seen))
            }
            None => entries.push(entry(now, None, LogChange::Oldest)),
        }
        before = Some(now);
        seen.extend(now.datasets.values().map(|dataset| (dataset.id, dataset.runs_hash)));
    }
    entries
}

fn entry(now: &ToldVersion, name: Option<&str>, change: LogChange) -> LogEntry {
    LogEntry {
        version: now.version,
        time_ms: (now.time_ms > 0).then_some(now.time_ms),
        name: name.map(str::to_owned),
        change,
        rows: None,
        rows_added: 0,
        rows_removed: 0,
    }
}

fn changes(before: &ToldVersion, now: &ToldVersion, seen: &SeenRuns) -> Vec<LogEntry> {
    let names: BTreeSet<&String> = before.datasets.keys().chain(now.datasets.keys()).collect();
    let told = |name: &String| {
        let change = dataset_change(now, name, before.datasets.get(name), now.datasets.get(name), seen);
        change.map(|entry| renamed(before, now, entry))
    };
    let mut found: Vec<LogEntry> = names.into_iter().filter_map(told).collect();
    found.extend(view_changes(before, now));
    let attached: BTreeSet<&String> = before.attaching.keys().chain(now.attaching.keys()).collect();
    let attached = attached.into_iter().filter(|name| before.attaching.get(*name) != now.attaching.get(*name));
    found.extend(attached.map(|name| entry(now, Some(name), LogChange::Attached)));
    let of_domain = [
        (before.functions != now.functions, LogChange::Functions),
        (before.drives != now.drives, LogChange::Drives),
        (before.history_ms != now.history_ms, LogChange::History),
    ];
    found.extend(of_domain.into_iter().filter(|(is_so, _)| *is_so).map(|(_, change)| entry(now, None, change)));
    if found.is_empty() {
        found.push(entry(now, None, LogChange::Nothing));
    }
    found
}

fn dataset_change(
    version: &ToldVersion,
    name: &str,
    before: Option<&ToldDataset>,
    now: Option<&ToldDataset>,
    seen: &SeenRuns,
) -> Option<LogEntry> {
    let change = match (before, now) {
        (None, Some(_)) => LogChange::Created,
        (Some(_), None) => LogChange::Dropped,
        (Some(before), Some(now)) if is_restored(version, before, now, seen) => LogChange::Restored,
        (Some(before), Some(now)) if before.id != now.id => LogChange::Rewritten,
        // Runs took the place of others. Merging makes fewer of them, of the same rows.
        (Some(before), Some(now)) if now.merged == version.version && (before.rows != now.rows || before.runs <= now.runs) => {
            LogChange::Rewritten
        }
        (Some(before), Some(now)) if before.rows < now.rows => LogChange::Appended,
        (Some(before), Some(now)) if before.rows > now.rows => LogChange::Restored,
        (Some(before), Some(now)) if before.runs != now.runs => LogChange::Merged,
        (Some(before), Some(now)) if before.columns_hash != now.columns_hash => LogChange::Altered,
        (Some(before), Some(now)) if before.copies != now.copies => LogChange::Moved,
        _ => return None,
    };
    let rows = |dataset: Option<&ToldDataset>| dataset.map_or(0, |dataset| dataset.rows);
    Some(LogEntry {
        rows: now.map(|now| now.rows),
        rows_added: rows(now).saturating_sub(rows(before)),
        rows_removed: rows(before).saturating_sub(rows(now)),
        ..entry(version, Some(name), change)
    })
}

/// The entry as it is told where its dataset has the runs of another one that went, or that came.
fn renamed(before: &ToldVersion, now: &ToldVersion, entry: LogEntry) -> LogEntry {
    let name = entry.name.as_deref().unwrap_or_default();
    let (own, others, kept_by, change) = match entry.change {
        LogChange::Created => (now.datasets.get(name), &before.datasets, now, LogChange::Renamed),
        LogChange::Dropped => (before.datasets.get(name), &now.datasets, before, LogChange::RenamedAway),
        _ => return entry,
    };
    let is_twin = |own: &ToldDataset, (name, other): (&String, &ToldDataset)| {
        let rows = |dataset: &ToldDataset| (dataset.rows, dataset.runs_hash, dataset.columns_hash);
        own.runs_hash != 0 && rows(own) == rows(other) && !kept_by.datasets.contains_key(name)
    };
    match own.is_some_and(|own| others.iter().any(|other| is_twin(own, other))) {
        true => LogEntry { change, rows_added: 0, rows_removed: 0, ..entry },
        false => entry,
    }
}

/// Whether runs took the place of others that a version of before had already. Only a restore brings such runs back.
fn is_restored(version: &ToldVersion, before: &ToldDataset, now: &ToldDataset, seen: &SeenRuns) -> bool {
    let differs = now.merged == version.version && now.runs_hash != 0 && now.runs_hash != before.runs_hash;
    differs && seen.contains(&(now.id, now.runs_hash))
}

fn view_changes<'a>(before: &'a ToldVersion, now: &'a ToldVersion) -> impl Iterator<Item = LogEntry> + 'a {
    let names: BTreeMap<&String, (Option<&String>, Option<&String>)> =
        before.views.keys().chain(now.views.keys()).map(|name| (name, (before.views.get(name), now.views.get(name)))).collect();
    names.into_iter().filter_map(move |(name, queries)| {
        let change = match queries {
            (None, Some(_)) => LogChange::ViewCreated,
            (Some(_), None) => LogChange::ViewDropped,
            (before, now) if before != now => LogChange::ViewReplaced,
            _ => return None,
        };
        Some(entry(now, Some(name), change))
    })
}

#[cfg(test)]
mod tests {
    use pithead_model::DriveId;

    use super::*;

    fn version(version: u64, datasets: &[(&str, u64, u64, u64)]) -> ToldVersion {
        let dataset = |(name, id, rows, runs): &(&str, u64, u64, u64)| {
            let copies = vec![vec![DriveId(1)]];
            (
                (*name).to_owned(),
                ToldDataset { id: DatasetId(*id), rows: *rows, runs: *runs, merged: 0, runs_hash: 0, columns_hash: 0, copies },
            )
        };
        ToldVersion {
            version,
            time_ms: version * 1_000,
            made_from: version - 1,
            drives: vec![DriveId(1)],
            datasets: datasets.iter().map(dataset).collect(),
            ..ToldVersion::default()
        }
    }

    fn told(versions: &[ToldVersion]) -> Vec<(u64, Option<String>, &'static str, u64, u64)> {
        let told = |entry: LogEntry| (entry.version, entry.name, entry.change.text(), entry.rows_added, entry.rows_removed);
        log(versions).into_iter().map(told).collect()
    }

    #[test]
    fn each_version_says_what_it_changed() {
        let t = || Some("t".to_owned());
        let versions = [
            version(1, &[("t", 1, 10, 1)]),
            version(2, &[("t", 1, 15, 2)]),
            version(3, &[("t", 1, 15, 1)]),
            version(4, &[("t", 2, 12, 1)]),
            version(5, &[]),
            ToldVersion { drives: vec![DriveId(1), DriveId(2)], history_ms: Some(5), ..version(6, &[]) },
        ];
        assert_eq!(
            told(&versions),
            [
                (1, t(), "created", 10, 0),
                (2, t(), "appended", 5, 0),
                (3, t(), "runs merged", 0, 0),
                (4, t(), "rewritten", 0, 3),
                (5, t(), "dropped", 0, 12),
                (6, None, "drives changed", 0, 0),
                (6, None, "history set", 0, 0),
            ]
        );
    }

    #[test]
    fn rows_that_go_in_place_are_no_restored_version() {
        let changed = |number: u64, rows: u64, runs: u64| {
            let mut version = version(number, &[("t", 1, rows, runs)]);
            version.datasets.values_mut().for_each(|dataset| dataset.merged = number);
            version
        };
        let versions = [
            version(1, &[("t", 1, 10, 20)]),
            changed(2, 7, 20),
            changed(3, 7, 21),
            changed(4, 7, 2),
            version(5, &[("t", 1, 5, 2)]),
        ];
        let told: Vec<_> = told(&versions).into_iter().map(|(_, _, change, added, removed)| (change, added, removed)).collect();
        let of = [("created", 10, 0), ("rewritten", 0, 3), ("rewritten", 0, 0), ("runs merged", 0, 0), ("restored", 0, 2)];
        assert_eq!(told, of);
    }

    #[test]
    fn runs_that_come_back_are_a_restored_version() {
        let of = |number: u64, rows: u64, runs: u64, merged: u64, runs_hash: u64| {
            let mut version = version(number, &[("t", 1, rows, runs)]);
            version.datasets.values_mut().for_each(|dataset| (dataset.merged, dataset.runs_hash) = (merged, runs_hash));
            version
        };
        let versions = [of(1, 10, 2, 0, 7), of(2, 10, 3, 2, 8), of(3, 10, 2, 3, 7), of(4, 10, 1, 4, 9), of(5, 10, 3, 5, 8)];
        let told: Vec<_> = told(&versions).into_iter().map(|(_, _, change, ..)| change).collect();
        assert_eq!(told, ["created", "rewritten", "restored", "runs merged", "restored"]);
    }

    #[test]
    fn other_columns_of_the_same_rows_are_told() {
        let of = |number: u64, rows: u64, columns_hash: u64| {
            let mut version = version(number, &[("t", 1, rows, 1)]);
            version.datasets.values_mut().for_each(|dataset| dataset.columns_hash = columns_hash);
            version
        };
        let told: Vec<_> =
            told(&[of(1, 10, 7), of(2, 10, 8), of(3, 10, 8), of(4, 12, 8)]).into_iter().map(|told| told.2).collect();
        assert_eq!(told, ["created", "altered", "nothing", "appended"]);
    }

    #[test]
    fn another_name_for_the_same_runs_is_told() {
        let of = |number: u64, name: &str, id: u64, runs_hash: u64| {
            let mut version = version(number, &[(name, id, 10, 2)]);
            version.datasets.values_mut().for_each(|dataset| dataset.runs_hash = runs_hash);
            version
        };
        let versions = [of(1, "a", 1, 7), of(2, "b", 2, 7), of(3, "c", 3, 8), of(4, "d", 4, 8)];
        let told: Vec<_> = told(&versions).into_iter().map(|(version, name, change, ..)| (version, name, change)).collect();
        let entry = |version, name: &str, change| (version, Some(name.to_owned()), change);
        let expected = [
            entry(1, "a", "created"),
            entry(2, "a", "renamed away"),
            entry(2, "b", "renamed"),
            entry(3, "b", "dropped"),
            entry(3, "c", "created"),
            entry(4, "c", "renamed away"),
            entry(4, "d", "renamed"),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn what_is_not_known_is_said() {
        let view = |sql: &str| BTreeMap::from([("v".to_owned(), sql.to_owned())]);
        let versions = [
            version(7, &[("t", 1, 10, 1)]),
            ToldVersion::damaged(8),
            ToldVersion { views: view("SELECT 1"), ..version(9, &[("t", 1, 10, 1)]) },
            ToldVersion { views: view("SELECT 2"), ..version(10, &[("t", 1, 10, 1)]) },
            ToldVersion { views: view("SELECT 2"), ..version(11, &[("t", 1, 10, 1)]) },
        ];
        let v = || Some("v".to_owned());
        assert_eq!(
            told(&versions),
            [
                (7, None, "oldest kept", 0, 0),
                (8, None, "damaged", 0, 0),
                (9, v(), "view created", 0, 0),
                (10, v(), "view replaced", 0, 0),
                (11, None, "nothing", 0, 0),
            ]
        );
    }

    #[test]
    fn attached_parts_that_come_and_go_are_told() {
        let attaching = BTreeMap::from([("t".to_owned(), BTreeSet::from([DriveId(3)]))]);
        let t = || version(1, &[("t", 1, 10, 1)]);
        let versions = [t(), ToldVersion { version: 2, attaching, ..t() }, ToldVersion { version: 3, ..t() }];
        let attached = |number| (number, Some("t".to_owned()), "attached parts changed", 0, 0);
        assert_eq!(told(&versions)[1..], [attached(2), attached(3)]);
    }
}
