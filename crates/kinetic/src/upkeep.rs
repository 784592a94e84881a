//! MEDIASCAN and MEDIAOPTIMIZE: they check values and give back dead room.

use std::ops::Bound;

use bytes::Bytes;
use pithead_store::{Key, StoreError};

use crate::code::{Code, Failure};
use crate::execute::{Answer, Call};
use crate::identity::Permission;
use crate::proto::{Body, Range};
use crate::ranges::{bounds_of, range_of};
use crate::service::Service;
use crate::space::Space;

/// Keys that are listed at one time.
const PAGE: usize = 256;

impl Service {
    /// Reads every value of a range and compares its checksum. The answer names the keys whose values are damaged. If the time is
    /// over first, it says how far it came: the next request can begin there.
    pub(crate) fn media_scan(&self, call: &Call) -> Result<Answer, Failure> {
        let range = range_of(call)?;
        let (start, end) = bounds_of(range, &self.options.limits)?;
        let most = self.options.limits.range_keys;
        let limit = range.max_returned.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0).unwrap_or(most);
        if limit > most {
            return Err(Failure::invalid(format!("maxReturned is {limit}; at most {most} keys are listed")));
        }
        call.check(Permission::Range, None)?;
        let Some(_one) = self.upkeep.try_lock() else { return Err(busy()) };
        let scan = Scan { space: self.space(&call.identity), call, limit };
        let (damaged, last) = scan.run(start, &end)?;
        let overdue = last.is_some() && damaged.len() < limit;
        let end_key = last.or_else(|| range.end_key.clone());
        let found = Range { end_key, keys: damaged, ..Range::default() };
        let mut answer = Answer::with(Body { range: Some(found), ..Body::default() });
        if overdue {
            (answer.code, answer.what) = (Code::Expired, "the time was over before the end of the range".to_owned());
        }
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

struct Scan<'a> {
    space: Space<'a>,
    call: &'a Call,
    limit: usize,
}

impl Scan<'_> {
    /// Keys with damaged values, and the last key that was read, where there was no time or no room for the rest.
    fn run(&self, mut start: Bound<Key>, end: &Bound<Key>) -> Result<(Vec<Bytes>, Option<Key>), StoreError> {
        let mut damaged = Vec::new();
        loop {
            let page = self.space.range(&start, end, false, PAGE)?;
            for entry in &page {
                match self.space.check(&entry.key) {
                    Err(StoreError::Corrupt { .. }) => damaged.push(entry.key.clone()),
                    checked => checked?,
                }
                if self.call.is_overdue() || damaged.len() == self.limit {
                    return Ok((damaged, Some(entry.key.clone())));
                }
            }
            match page.last() {
                Some(last) if page.len() == PAGE => start = Bound::Excluded(last.key.clone()),
                _ => return Ok((damaged, None)),
            }
        }
    }
}
