//! What the log has and the index lacks, after an unclean end.
//!
//! A commit that is durable by the log ends with a seal: its rows, and those of the commits before it, are to be applied.
//! Rows after the last seal are dropped; nobody was told that they are durable. What a crash may have torn lies after
//! the last flush that the file knows of, and is dropped too. Anything else that is not as it was written is damage, and
//! so is a seal that the account of keys has and the records have not: it is written there only after the flush.

use std::io;

use super::file::{Account, Header, Scan, file_name};
use super::frame::{Frame, FrameKind};
use super::{LogPlace, Row};
use crate::Key;
use crate::api::show_key;
use crate::medium::Medium;

/// Keys that an error names.
const NAMED_MAX: usize = 5;

/// What the log has after a commit of the index.
#[derive(Debug, Default)]
pub(crate) struct Unindexed {
    /// The changes in order.
    pub rows: Vec<Row>,
    /// The last commit that they make.
    pub upto: u64,
    /// The last commit that the log marks as durable in the index.
    pub marked: u64,
    /// What is wrong, if more was durable than the rows say.
    pub damage: Option<String>,
}

/// One account of the log, read from some place on.
#[derive(Debug, Default)]
struct Walk {
    rows: Vec<Row>,
    /// Commits in order, and which of the rows is the first of each.
    commits: Vec<(u64, usize)>,
    /// The index's commit.
    indexed: u64,
    /// The row of the last frame, and whether its commit lacks rows after it.
    last_row: u32,
    is_short: bool,
    /// The first place at which something is missing.
    broken_at: Option<u64>,
    /// The last seal before that place, and how many rows are before it.
    sealed: (u64, usize),
    /// The last seal of all, and the last one that has a frame after it.
    last_seal: u64,
    followed_seal: u64,
    /// Up to where the file was flushed.
    flushed: u64,
    marked: u64,
}

/// Reads what the log has from `place` on, after `commit` of the index.
pub(crate) fn unindexed(medium: &dyn Medium, place: LogPlace, commit: u64) -> io::Result<Unindexed> {
    let read = |account: Account, at: u64| walk(medium, &file_name(place.number, account.log()), at, commit);
    let name = file_name(place.number, Account::Records.log());
    let keys = read(Account::Keys, place.keys_at)?.unwrap_or_else(|_| Walk::new(commit));
    let records = match read(Account::Records, place.records_at)? {
        Ok(records) => records,
        Err(what) => {
            let what =
                format!("{name} {what}; it may have commits after {commit}, which the index lacks{}", named(&keys, commit));
            return Ok(Unindexed { upto: commit, damage: Some(what), ..Unindexed::default() });
        }
    };
    let (upto, kept) = records.sealed;
    let known = records.followed_seal.max(keys.last_seal);
    let torn_before = records.broken_at.filter(|at| *at < records.flushed);
    let damage = if known > upto {
        let what = format!("{name} is damaged in commits {} to {known}, which the index lacks", upto + 1);
        Some(format!("{what}{}", named(&keys, upto)))
    } else {
        torn_before.map(|at| format!("{name} is damaged at byte {at}, in commits after {upto}, which the index lacks"))
    };
    let Walk { mut rows, marked, .. } = records;
    rows.truncate(kept);
    Ok(Unindexed { rows, upto, marked: marked.max(keys.marked), damage })
}

/// The keys that the account of keys knows to have changed after a commit.
fn named(keys: &Walk, after: u64) -> String {
    let from = keys.commits.iter().find(|(number, _)| *number > after).map_or(keys.rows.len(), |(_, first)| *first);
    let mut names: Vec<&Key> = keys.rows[from..].iter().map(|(key, _)| key).collect();
    names.sort();
    names.dedup();
    let shown: Vec<String> = names.iter().take(NAMED_MAX).map(|key| show_key(key)).collect();
    match names.len() {
        0 => String::new(),
        all if all > NAMED_MAX => format!(": {} and {} other keys", shown.join(", "), all - NAMED_MAX),
        _ => format!(": {}", shown.join(", ")),
    }
}

/// The file from `at` on; or why it cannot be read.
fn walk(medium: &dyn Medium, name: &str, at: u64, commit: u64) -> io::Result<Result<Walk, &'static str>> {
    let file = match medium.open(name, false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Err("is missing")),
        opened => opened?,
    };
    let Some(header) = Header::read(&*file)? else { return Ok(Err("has no header that is what was written")) };
    let mut scan = Scan::from(file, header.salt, at)?;
    let mut walk = Walk::new(commit);
    let mut end = at;
    while let Some((at, frame)) = scan.next()? {
        if at > end {
            walk.broken_at = walk.broken_at.or(Some(end));
        }
        end = at + frame.bytes;
        walk.add(at, &frame);
    }
    Ok(Ok(walk))
}

impl Walk {
    fn new(commit: u64) -> Self {
        Self { indexed: commit, sealed: (commit, 0), last_seal: commit, followed_seal: commit, ..Self::default() }
    }

    fn add(&mut self, at: u64, frame: &Frame<'_>) {
        self.followed_seal = self.last_seal;
        self.flushed = self.flushed.max(if frame.kind == FrameKind::Mark { at } else { frame.flushed });
        if frame.kind == FrameKind::Mark {
            self.marked = self.marked.max(frame.number);
            return;
        }
        if frame.number <= self.indexed {
            return;
        }
        self.follow(at, frame);
        match frame.kind {
            FrameKind::Put => self.rows.push((Key::copy_from_slice(frame.key), Some(frame.record.to_vec()))),
            FrameKind::Deleted => self.rows.push((Key::copy_from_slice(frame.key), None)),
            FrameKind::End | FrameKind::Mark => {}
        }
        if frame.is_seal() {
            self.last_seal = frame.number;
            if self.broken_at.is_none() {
                self.sealed = (frame.number, self.rows.len());
            }
        }
    }

    /// Finds out whether a frame follows the one before it, or begins a commit, perhaps once more.
    fn follow(&mut self, at: u64, frame: &Frame<'_>) {
        let begins = frame.row <= self.last_row || self.commits.last().is_none_or(|(number, _)| *number != frame.number);
        let follows = if begins {
            // Commits that were given up are void.
            while let Some((number, first)) = self.commits.pop_if(|(number, _)| *number >= frame.number) {
                self.rows.truncate(first);
                self.sealed = if self.sealed.0 >= number { (number - 1, first) } else { self.sealed };
                self.is_short = false;
            }
            let last = self.commits.last().map_or(self.indexed, |(number, _)| *number);
            self.commits.push((frame.number, self.rows.len()));
            frame.number == last + 1 && frame.row == 0 && !self.is_short
        } else {
            frame.row == self.last_row + 1
        };
        if !follows && self.broken_at.is_none() {
            self.broken_at = Some(at);
        }
        self.last_row = frame.row;
        self.is_short = frame.kind != FrameKind::End && frame.row + 1 < frame.rows;
    }
}
