//! MEDIASCAN and MEDIAOPTIMIZE: they check values and give back dead room.

use std::ops::Bound;

use bytes::Bytes;
use pithead_store::{Entry, Key, StoreError};

use crate::code::{Code, Failure};
use crate::execute::{Answer, Call};
use crate::identity::Permission;
use crate::limits::Limits;
use crate::proto::{Body, Range};
use crate::ranges::{bounds_of, range_of};
use crate::service::Service;
use crate::space::Space;
use crate::tags::computed;

/// Keys that are listed at one time.
const PAGE: usize = 256;

impl Service {
    /// Reads every value of a range, and compares its checksum and, where that can be computed here, its tag. The answer names
    /// the keys whose values are damaged or have another tag. It says how far it came where that is not the end of the range:
    /// the time was over, it names as many keys as it may, or the identity may not see the next key.
    pub(crate) fn media_scan(&self, call: &Call) -> Result<Answer, Failure> {
        let range = range_of(call)?;
        let (start, end) = scan_bounds(range, &self.options.limits)?;
        let most = self.options.limits.range_keys;
        let limit = range.max_returned.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0).unwrap_or(most);
        if limit > most {
            return Err(Failure::invalid(format!("maxReturned is {limit}; at most {most} keys are listed")));
        }
        call.check(Permission::Range, None)?;
        let Some(_one) = self.upkeep.try_lock() else { return Err(busy()) };
        let scan = Scan { space: self.space(&call.identity, call.link.tls), call, limit };
        let Scanned { damaged, last, stop } = scan.run(start, &end)?;
        let end_key = match stop {
            Stop::End => range.end_key.clone(),
            Stop::Room | Stop::Time | Stop::Rights | Stop::Abandoned => last.or_else(|| range.start_key.clone()),
        };
        let found = Range { end_key, keys: damaged, ..Range::default() };
        let mut answer = Answer::with(Body { range: Some(found), ..Body::default() });
        let (code, what) = match stop {
            Stop::End | Stop::Room | Stop::Rights => return Ok(answer),
            Stop::Time => (Code::Expired, "the time was over before the end of the range"),
            Stop::Abandoned => (Code::ConnectionTerminated, "the check was ended with its connection"),
        };
        (answer.code, answer.what) = (code, what.to_owned());
        Ok(answer)
    }

    /// Compacts the store. Room is not given back by ranges, so the whole store is done.
    pub(crate) fn media_optimize(&self, call: &Call) -> Result<Answer, Failure> {
        let range = range_of(call)?;
        bounds_of(range, &self.options.limits)?;
        call.check(Permission::Range, None)?;
        let Some(_one) = self.upkeep.try_lock() else { return Err(busy()) };
        let done = self.store.compact()?;
        self.tell(format_args!("compacted: {} bytes moved, {} given back", done.moved_bytes, done.punched_bytes));
        let found = Range { end_key: range.end_key.clone(), ..Range::default() };
        Ok(Answer::with(Body { range: Some(found), ..Body::default() }))
    }
}

fn busy() -> Failure {
    Failure::new(Code::ServiceBusy, "another check or compaction is running")
}

/// The bounds of a scan. Without an upper end it goes to the last key.
fn scan_bounds(range: &Range, limits: &Limits) -> Result<(Bound<Key>, Bound<Key>), Failure> {
    let (start, end) = bounds_of(range, limits)?;
    let open = range.end_key.as_ref().is_none_or(|key| key.is_empty());
    Ok((start, if open { Bound::Unbounded } else { end }))
}

/// What a scan found.
struct Scanned {
    damaged: Vec<Bytes>,
    /// The last key that was read.
    last: Option<Key>,
    stop: Stop,
}

/// Why a scan went no further.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// The range was at its end.
    End,
    /// As many keys are named as may be.
    Room,
    /// The time was over.
    Time,
    /// The identity may not see the next key.
    Rights,
    /// Nobody waits for the answer any more.
    Abandoned,
}

struct Scan<'a> {
    space: Space<'a>,
    call: &'a Call,
    limit: usize,
}

impl Scan<'_> {
    fn run(&self, mut start: Bound<Key>, end: &Bound<Key>) -> Result<Scanned, StoreError> {
        let (mut damaged, mut last) = (Vec::new(), None);
        loop {
            let page = self.space.range(&start, end, false, PAGE)?;
            for entry in &page {
                if !self.call.identity.may(Permission::Range, Some(&entry.key), self.call.link.tls) {
                    return Ok(Scanned { damaged, last, stop: Stop::Rights });
                }
                if self.is_damaged(entry)? {
                    damaged.push(entry.key.clone());
                }
                last = Some(entry.key.clone());
                if damaged.len() == self.limit {
                    return Ok(Scanned { damaged, last, stop: Stop::Room });
                }
                if self.call.is_abandoned() {
                    return Ok(Scanned { damaged, last, stop: Stop::Abandoned });
                }
                if self.call.is_overdue() {
                    return Ok(Scanned { damaged, last, stop: Stop::Time });
                }
            }
            match page.last() {
                Some(last) if page.len() == PAGE => start = Bound::Excluded(last.key.clone()),
                _ => return Ok(Scanned { damaged, last, stop: Stop::End }),
            }
        }
    }

    /// Whether a value is not as it was written, or not the one that its tag was computed of.
    fn is_damaged(&self, entry: &Entry) -> Result<bool, StoreError> {
        let checked = self.space.check(&entry.key).and_then(|()| match computed(&entry.tag) {
            Some(_) => self.space.get(&entry.key),
            None => Ok(None),
        });
        match checked {
            Err(StoreError::Corrupt { .. }) => Ok(true),
            // The value may be another one than was listed, and so may its tag.
            Ok(Some((value, read))) => Ok(computed(&read.tag).is_some_and(|compute| compute(&value) != read.tag.bytes)),
            checked => checked.map(|_| false),
        }
    }
}
