//! What the index contains according to the journal.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::Row;
use super::file::{Account, FRAMES_AT, FileKind, Header, Scan, file_name, names, parts};
use super::frame::{Frame, FrameKind};
use crate::Key;
use crate::medium::{Medium, MediumFile};
use crate::record::lacks_value;

/// The content of a journal.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    /// The last change of each key.
    latest: BTreeMap<Key, Latest>,
    files: Vec<Arc<dyn MediumFile>>,
    /// The header of the newest file that has a good one.
    pub header: Option<Header>,
    /// The number of the last commit.
    pub commit: u64,
    /// The number of the last commit that is known to have been durable.
    pub marked: u64,
    /// The last file of each account, and the last commit that the account has.
    pub ends: Vec<(String, u64)>,
    /// The defects: the file, and what is wrong. A torn end, which a crash may leave, is not a defect.
    pub damage: Vec<(String, String)>,
    /// Whether commits or files may be missing.
    pub gaps: bool,
    /// The number of the last commit that is known to have been durable by the log.
    sealed: u64,
    /// Keys of which only older values are left, and the commit that changed each last: the newest value is known by its
    /// record alone, which lacks it.
    pub outdated: Vec<(Key, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Latest {
    /// The commit's number, and which of its rows.
    at: (u64, u32),
    /// Whether its record lacks the value.
    bare: bool,
    /// The place of its record: file, offset, bytes. None if the key is deleted.
    record: Option<(usize, u64, usize)>,
}

/// A frame of a log, to find out whether it is void.
#[derive(Clone, Copy, Debug)]
struct Step {
    number: u64,
    begins: bool,
}

impl Replayed {
    /// The keys that exist.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.latest.iter().filter(|(_, latest)| latest.record.is_some()).map(|(key, _)| key)
    }

    /// Whether nothing can be missing from it, if `commit` is the last commit of the index.
    pub fn is_whole(&self, commit: Option<u64>) -> bool {
        !self.gaps && self.outdated.is_empty() && commit.is_none_or(|commit| commit <= self.commit)
    }

    /// The record of a key that exists.
    pub fn record(&self, key: &Key) -> io::Result<Option<Vec<u8>>> {
        let Some((file, at, bytes)) = self.latest.get(key).and_then(|latest| latest.record) else { return Ok(None) };
        let mut record = vec![0; bytes];
        self.files[file].read(at, &mut record)?;
        Ok(Some(record))
    }

    /// The last change of each key after a commit, as far as it is known.
    pub fn after(&self, commit: u64) -> io::Result<Vec<Row>> {
        let mut rows = Vec::new();
        for (key, _) in self.latest.iter().filter(|(_, latest)| latest.at.0 > commit) {
            rows.push((key.clone(), self.record(key)?));
        }
        Ok(rows)
    }

    fn apply(&mut self, file: usize, at: u64, frame: &Frame<'_>, account: Account) {
        let record_at = at + super::frame::FRAME_HEADER as u64 + frame.key.len() as u64;
        let record = (frame.kind == FrameKind::Put).then_some((file, record_at, frame.record.len()));
        let bare = account == Account::Keys && record.is_some() && lacks_value(frame.record);
        let latest = Latest { at: (frame.number, frame.row), bare, record };
        match self.latest.get_mut(frame.key) {
            Some(before) if before.at > latest.at => {}
            Some(before) => *before = latest,
            None => drop(self.latest.insert(Key::copy_from_slice(frame.key), latest)),
        }
    }

    /// Adds what the account of keys knows better: changes that the account of records has lost.
    fn add_keys(&mut self, keys: Self) {
        let needs_none = !self.gaps && self.commit >= keys.commit;
        // Then nothing is missing that is not named below.
        self.gaps &= keys.gaps || keys.commit < self.commit;
        let first = self.files.len();
        self.files.extend(keys.files);
        self.header = self.header.or(keys.header);
        self.commit = self.commit.max(keys.commit);
        self.marked = self.marked.max(keys.marked);
        self.sealed = self.sealed.max(keys.sealed);
        self.damage.extend(keys.damage);
        self.ends.extend(keys.ends);
        if needs_none {
            // A gap in the keys may hide that a change is void.
            return;
        }
        for (key, latest) in keys.latest {
            if self.latest.get(&key).is_some_and(|known| known.at >= latest.at) {
                continue;
            }
            if latest.bare {
                // What was never flushed may not have been committed at all.
                if latest.at.0 > self.marked.max(self.sealed) {
                    self.gaps = true;
                } else {
                    self.latest.remove(&key);
                    self.outdated.push((key, latest.at.0));
                }
                continue;
            }
            let record = latest.record.map(|(file, at, bytes)| (first + file, at, bytes));
            self.latest.insert(key, Latest { record, ..latest });
        }
    }

    fn damaged(&mut self, name: &str, gaps: &[(u64, u64)]) {
        for (from, to) in gaps {
            self.damage.push((name.to_string(), format!("bytes {from} to {to} are not what was written")));
        }
    }
}

/// Reads the whole journal; none if it has no file.
pub(crate) fn replay(medium: &dyn Medium) -> io::Result<Option<Replayed>> {
    let files = names(medium)?;
    if files.is_empty() {
        return Ok(None);
    }
    let mut replayed = read_account(medium, &files, Account::Records)?;
    // Earlier releases wrote none.
    if files.iter().any(|(_, kind)| matches!(kind, FileKind::BaseKeys | FileKind::LogKeys)) {
        replayed.add_keys(read_account(medium, &files, Account::Keys)?);
    }
    Ok(Some(replayed))
}

/// Reads one account of the journal.
fn read_account(medium: &dyn Medium, files: &[(u64, FileKind)], account: Account) -> io::Result<Replayed> {
    let (base, logs) = parts(files, account);
    let mut replayed = Replayed::default();
    let base_whole = base == 0 || read_base(medium, (base, account), &mut replayed)?;
    let base_commit = if base > 0 && base_whole { replayed.commit } else { 0 };
    let contiguous = logs.iter().copied().eq(base + 1..=logs.last().copied().unwrap_or(base));
    replayed.gaps |= !contiguous || !base_whole;
    let (steps, keep) = survey(medium, (&logs, account), &mut replayed)?;
    let limits = limits(&steps);
    let mut at_step = 0;
    for log in &logs {
        let name = file_name(*log, account.log());
        let Some((file, mut scan)) = open(medium, &name, &mut replayed, false)? else { continue };
        while let Some((at, frame)) = scan.next()? {
            let void = frame.number >= limits[at_step] || frame.number <= base_commit || Some(frame.number) == keep;
            at_step += 1;
            if frame.kind != FrameKind::Mark && !void {
                if frame.kind != FrameKind::End {
                    replayed.apply(file, at, &frame, account);
                }
                replayed.commit = replayed.commit.max(frame.number);
            }
        }
    }
    let last = logs.last().map_or_else(|| file_name(base, account.base()), |log| file_name(*log, account.log()));
    replayed.ends.push((last, replayed.commit));
    Ok(replayed)
}

/// Whether all of the base is good.
fn read_base(medium: &dyn Medium, (number, account): (u64, Account), replayed: &mut Replayed) -> io::Result<bool> {
    let name = file_name(number, account.base());
    let Some((file, mut scan)) = open(medium, &name, replayed, true)? else { return Ok(false) };
    let mut ended = false;
    while let Some((at, frame)) = scan.next()? {
        replayed.commit = replayed.commit.max(frame.number);
        match frame.kind {
            FrameKind::Mark => ended = true,
            FrameKind::Put | FrameKind::Deleted => replayed.apply(file, at, &frame, account),
            FrameKind::End => {}
        }
    }
    let gaps = std::mem::take(&mut scan.gaps);
    replayed.damaged(&name, &gaps);
    if !ended && gaps.is_empty() {
        replayed.damage.push((name, "its end is missing".to_string()));
    }
    replayed.marked = replayed.commit;
    Ok(ended && gaps.is_empty())
}

/// Reads all frames of the logs: the numbers of their commits, and the last commit if it lacks rows that were never
/// flushed, so that none of it counts.
fn survey(
    medium: &dyn Medium,
    (logs, account): (&[u64], Account),
    replayed: &mut Replayed,
) -> io::Result<(Vec<Step>, Option<u64>)> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut before, mut row_before, mut missing, mut torn) = (replayed.commit, 0, 0, None);
    for log in logs {
        let name = file_name(*log, account.log());
        // A log that could not be begun has no frame. The next one has skipped a number.
        let is_begun = logs.contains(&(log + 1)) || medium.open(&name, false)?.len()? > FRAMES_AT;
        let Some((_, mut scan)) = open(medium, &name, replayed, is_begun)? else { continue };
        let (mut flushed, mut last, mut seal) = (0, replayed.marked, 0);
        while let Some((at, frame)) = scan.next()? {
            // A frame after a seal shows that the seal was flushed.
            replayed.sealed = replayed.sealed.max(seal);
            flushed = flushed.max(if frame.kind == FrameKind::Mark { at } else { frame.flushed });
            if frame.is_late_mark() {
                last = last.max(frame.number);
                steps.push(Step { number: u64::MAX, begins: false });
                continue;
            }
            let is_mark = frame.kind == FrameKind::Mark;
            let begins = frame.number != before || (!is_mark && frame.row <= row_before);
            if is_mark {
                last = last.max(frame.number);
                replayed.gaps |= frame.number > before;
                before = frame.number;
            } else {
                replayed.gaps |= begins && (missing > 0 || frame.number > before + 1 || frame.row > 0);
                // A row in the middle of a commit is lost.
                replayed.gaps |= !begins && frame.row > row_before + 1;
                let is_end = frame.kind == FrameKind::End;
                missing = if is_end { 0 } else { frame.rows.saturating_sub(frame.row + 1) };
                torn = (missing > 0).then_some(frame.number);
                (row_before, before) = (frame.row, frame.number);
                seal = if frame.is_seal() { frame.number } else { seal };
            }
            steps.push(Step { number: if is_mark { frame.number.saturating_add(1) } else { frame.number }, begins });
        }
        // The account of keys has a seal only after the records were flushed.
        if account == Account::Keys {
            replayed.sealed = replayed.sealed.max(seal);
        }
        replayed.marked = last;
        // The frames after the last flush may have been torn by a crash.
        let (real, crashed): (Vec<_>, Vec<_>) = scan.gaps.iter().copied().partition(|(from, _)| *from < flushed);
        replayed.gaps |= !crashed.is_empty();
        replayed.damaged(&name, &real);
    }
    Ok((steps, torn.filter(|number| *number > replayed.marked)))
}

/// For each frame, the least number of a commit that begins after it. A frame with that number or a larger one is void.
fn limits(steps: &[Step]) -> Vec<u64> {
    let mut limit = u64::MAX;
    let mut limits = vec![limit; steps.len()];
    for (at, step) in steps.iter().enumerate().rev() {
        limits[at] = limit;
        if step.begins {
            limit = limit.min(step.number);
        }
    }
    limits
}

fn open(medium: &dyn Medium, name: &str, replayed: &mut Replayed, first: bool) -> io::Result<Option<(usize, Scan)>> {
    let file = medium.open(name, false)?;
    let header = Header::read(&*file)?;
    if first {
        match &header {
            None => replayed.damage.push((name.to_string(), "its header is not what was written".to_string())),
            Some(header) if !header.is_whole(&*file)? => {
                replayed.damage.push((name.to_string(), "one copy of its header is not what was written".to_string()));
            }
            Some(_) => {}
        }
    }
    let Some(header) = header else {
        replayed.gaps = true;
        return Ok(None);
    };
    replayed.header = Some(header);
    replayed.files.push(file.clone());
    Ok(Some((replayed.files.len() - 1, Scan::new(file, header.salt)?)))
}
