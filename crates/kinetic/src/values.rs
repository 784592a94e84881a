//! Requests for one key: GET, GETVERSION, GETNEXT, GETPREVIOUS, PUT, DELETE.

use std::ops::Bound;

use bytes::Bytes;
use pithead_store::{Durability, Entry, Expected, Put, StoreError, Tag, Write};

use crate::code::Failure;
use crate::execute::{Answer, Call};
use crate::identity::Permission;
use crate::keys;
use crate::limits::{Limits, check_bytes};
use crate::proto::{Body, KeyValue};
use crate::service::Service;

const WRITE_THROUGH: i32 = 1;
const WRITE_BACK: i32 = 2;
const FLUSH: i32 = 3;

impl Service {
    pub(crate) fn get(&self, call: &Call) -> Result<Answer, Failure> {
        let asked = call.key_value()?;
        let key = key_of(asked, &self.options.limits)?;
        call.check(Permission::Read, Some(&key))?;
        let space = self.space(&call.identity, call.link.tls);
        if asked.metadata_only == Some(true) {
            let entry = space.entry(&key)?.ok_or_else(Failure::not_found)?;
            return Ok(Answer::with(described(&entry)));
        }
        let (value, entry) = space.get(&key)?.ok_or_else(Failure::not_found)?;
        Ok(Answer { value, ..Answer::with(described(&entry)) })
    }

    /// What a GET is answered whose value is in memory. None: it has to wait for its turn and for the medium, or to be refused.
    pub(crate) fn get_resident(&self, call: &Call) -> Option<Answer> {
        let asked = call.key_value().ok()?;
        let key = key_of(asked, &self.options.limits).ok()?;
        if call.is_overdue() || asked.metadata_only == Some(true) || call.check(Permission::Read, Some(&key)).is_err() {
            return None;
        }
        let (value, entry) = self.space(&call.identity, call.link.tls).get_resident(&key).ok()??;
        Some(Answer { value, ..Answer::with(described(&entry)) })
    }

    pub(crate) fn get_version(&self, call: &Call) -> Result<Answer, Failure> {
        let key = key_of(call.key_value()?, &self.options.limits)?;
        call.check(Permission::Read, Some(&key))?;
        let entry = self.space(&call.identity, call.link.tls).entry(&key)?.ok_or_else(Failure::not_found)?;
        let version = KeyValue { db_version: Some(entry.version), ..KeyValue::default() };
        Ok(Answer::with(Body { key_value: Some(version), ..Body::default() }))
    }

    /// The next or the previous key. The permission that counts is that for the key which is found.
    pub(crate) fn get_near(&self, call: &Call, before: bool) -> Result<Answer, Failure> {
        let asked = call.key_value()?;
        let mut from = key_of(asked, &self.options.limits)?;
        let space = self.space(&call.identity, call.link.tls);
        loop {
            let bound = Bound::Excluded(from);
            let (start, end) = if before { (Bound::Unbounded, bound) } else { (bound, Bound::Unbounded) };
            let entry = space.range(&start, &end, before, 1)?.pop().ok_or_else(Failure::not_found)?;
            call.check(Permission::Read, Some(&entry.key))?;
            if asked.metadata_only == Some(true) {
                return Ok(Answer::with(described(&entry)));
            }
            match space.get(&entry.key)? {
                Some((value, entry)) => return Ok(Answer { value, ..Answer::with(described(&entry)) }),
                // It went between the two looks, and says nothing of the keys behind it.
                None => from = entry.key,
            }
        }
    }

    pub(crate) fn put(&self, call: &Call) -> Result<Answer, Failure> {
        let (write, durability) = put_of(call, &self.options.limits)?;
        self.while_known(&call.identity, || Ok(self.store.write(vec![write], durability)?))?;
        self.flush_if_asked(call)?;
        Ok(Answer::success())
    }

    pub(crate) fn delete(&self, call: &Call) -> Result<Answer, Failure> {
        let (write, durability) = delete_of(call, &self.options.limits)?;
        let key = write.key().clone();
        self.while_known(&call.identity, || match self.store.write(vec![write], durability) {
            // A conflict is also what the store says of a key that does not exist.
            Err(StoreError::Conflict { .. }) if self.store.entry(&key)?.is_none() => Err(Failure::not_found()),
            written => Ok(written?),
        })?;
        self.flush_if_asked(call)?;
        Ok(Answer::success())
    }

    /// Whoever writes with FLUSH is told of writes before it that were lost.
    fn flush_if_asked(&self, call: &Call) -> Result<(), Failure> {
        match call.key_value()?.synchronization {
            Some(FLUSH) => Ok(self.store.flush()?),
            _ => Ok(()),
        }
    }
}

/// The write of a PUT, whose sender may make it.
pub(crate) fn put_of(call: &Call, limits: &Limits) -> Result<(Write, Durability), Failure> {
    let asked = call.key_value()?;
    let key = asked.key.clone().unwrap_or_default();
    let tag = asked.tag.clone().unwrap_or_default();
    let version = asked.new_version.clone().unwrap_or_default();
    let durability = durability_of(asked)?;
    check_bytes("version", version.len(), limits.version_bytes)?;
    check_bytes("tag", tag.len(), limits.tag_bytes)?;
    call.caller(limits).check_put(&key, call.value.len())?;
    let expected = expected_of(asked, limits, Expected::Unversioned)?;
    let tag = Tag { algorithm: asked.algorithm.unwrap_or(0), bytes: own(&tag) };
    let put = Put { key: keys::stored(&key), value: call.value.clone(), version: own(&version), tag, expected };
    Ok((Write::Put(put), durability))
}

/// The write of a DELETE, whose sender may make it.
pub(crate) fn delete_of(call: &Call, limits: &Limits) -> Result<(Write, Durability), Failure> {
    let asked = call.key_value()?;
    let key = key_of(asked, limits)?;
    let durability = durability_of(asked)?;
    call.caller(limits).check_writable(Permission::Delete, &key)?;
    let expected = expected_of(asked, limits, Expected::Version(Bytes::new()))?;
    Ok((Write::Delete { key: keys::stored(&key), expected }, durability))
}

/// A copy that does not keep the whole message alive.
fn own(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

/// A missing key is the empty one: many clients leave out what is empty.
fn key_of(asked: &KeyValue, limits: &Limits) -> Result<Bytes, Failure> {
    let key = asked.key.clone().unwrap_or_default();
    check_bytes("key", key.len(), limits.key_bytes)?;
    Ok(key)
}

fn durability_of(asked: &KeyValue) -> Result<Durability, Failure> {
    match asked.synchronization {
        Some(WRITE_THROUGH) => Ok(Durability::Through),
        // What is written back is made durable by the flush that FLUSH means.
        Some(WRITE_BACK | FLUSH) => Ok(Durability::Back),
        _ => Err(Failure::invalid("the synchronization is WRITETHROUGH (1), WRITEBACK (2) or FLUSH (3)")),
    }
}

/// `unversioned`: what is expected where the client names no version.
fn expected_of(asked: &KeyValue, limits: &Limits, unversioned: Expected) -> Result<Expected, Failure> {
    let version = asked.db_version.clone().unwrap_or_default();
    check_bytes("version", version.len(), limits.version_bytes)?;
    Ok(match (asked.force == Some(true), version.is_empty()) {
        (true, _) => Expected::Any,
        (false, true) => unversioned,
        (false, false) => Expected::Version(version),
    })
}

/// What is said of a value that is sent.
fn described(entry: &Entry) -> Body {
    let algorithm = Some(entry.tag.algorithm).filter(|algorithm| *algorithm != 0);
    let key_value = KeyValue {
        key: Some(entry.key.clone()),
        db_version: Some(entry.version.clone()),
        tag: Some(entry.tag.bytes.clone()),
        algorithm,
        ..KeyValue::default()
    };
    Body { key_value: Some(key_value), ..Body::default() }
}
