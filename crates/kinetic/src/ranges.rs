//! GETKEYRANGE: the keys between two others.

use std::ops::Bound;

use bytes::Bytes;
use pithead_store::Key;

use crate::code::{Code, Failure};
use crate::execute::{Answer, Call};
use crate::identity::Permission;
use crate::limits::{Limits, check_bytes};
use crate::proto::{Body, Range};
use crate::service::Service;

impl Service {
    pub(crate) fn get_key_range(&self, call: &Call) -> Result<Answer, Failure> {
        let range = range_of(call)?;
        let limits = &self.options.limits;
        let limit = limit_of(range.max_returned.unwrap_or(0), limits)?;
        let (start, end) = bounds_of(range, limits)?;
        call.check(Permission::Range, None)?;
        let entries = self.space(&call.identity, call.link.tls).range(&start, &end, range.reverse == Some(true), limit)?;
        let allowed = |key: &Key| call.identity.may(Permission::Range, Some(key), call.link.tls);
        let keys: Vec<Bytes> = entries.into_iter().map(|entry| entry.key).take_while(allowed).collect();
        Ok(match keys.is_empty() {
            true => Answer::success(),
            false => Answer::with(Body { range: Some(Range { keys, ..Range::default() }), ..Body::default() }),
        })
    }
}

pub(crate) fn range_of(call: &Call) -> Result<&Range, Failure> {
    call.body.range.as_ref().ok_or_else(|| Failure::invalid(format!("{} has a range", call.kind.name())))
}

fn limit_of(most: i32, limits: &Limits) -> Result<usize, Failure> {
    match usize::try_from(most) {
        // INVALID_REQUEST would be the better code, but clients know this one.
        Err(_) | Ok(0) => Err(Failure::new(Code::InternalError, "maxReturned is at least 1")),
        Ok(limit) if limit > limits.range_keys => {
            Err(Failure::invalid(format!("maxReturned is {limit}; at most {} keys are listed", limits.range_keys)))
        }
        Ok(limit) => Ok(limit),
    }
}

/// The bounds of a range. What is missing is empty, and not inclusive.
pub(crate) fn bounds_of(range: &Range, limits: &Limits) -> Result<(Bound<Key>, Bound<Key>), Failure> {
    let bound = |key: &Option<Bytes>, inclusive: Option<bool>| {
        let key = key.clone().unwrap_or_default();
        check_bytes("key", key.len(), limits.key_bytes)?;
        Ok::<_, Failure>(if inclusive == Some(true) { Bound::Included(key) } else { Bound::Excluded(key) })
    };
    Ok((bound(&range.start_key, range.start_key_inclusive)?, bound(&range.end_key, range.end_key_inclusive)?))
}
