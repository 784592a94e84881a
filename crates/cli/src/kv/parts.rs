//! Files of a drive that are longer than a value: `KEY/0`, `KEY/1` and so on. The first part is the last that is written, and the
//! first that is deleted, so that nobody sees half a file. The parts of one write have one version, so that nobody takes those of two
//! writes for a file.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use bytes::Bytes;
use pithead_drive::{are_together, part_name, part_number, stamped};
use pithead_kinetic::client::Client;
use pithead_kinetic::proto::{Body, KeyValue, Range};
use pithead_kinetic::{Code, RequestKind};
use pithead_model::{Blame, Fault};

use super::{about, done, show, value_bytes_max};
use crate::error::CliError;
use crate::store_keys::key_bytes;

/// A part where the drive does not say how long a value may be.
const PART_BYTES: u64 = 1 << 20;
/// What Kinetic drives list at once.
const LISTED_MAX: i32 = 200;
/// How a write is made durable: when the next flush is, or with all before it.
const BACK: i32 = 2;
const FLUSH: i32 = 3;

/// Puts a file. Part 0 has to be in memory, and one other.
pub(super) async fn put(client: &mut Client, key: &str, file: &Path, version: &[u8], json: bool) -> Result<(), CliError> {
    let failed = |error| CliError::file(file, error);
    let mut input = File::open(file).map_err(failed)?;
    let part_bytes = value_bytes_max(client.greeting()).unwrap_or(PART_BYTES);
    let version = Bytes::from(stamped(version, rand::random()));
    let mut next = || {
        let mut part = Vec::new();
        (&mut input).take(part_bytes).read_to_end(&mut part).map_err(failed).map(|_| Bytes::from(part))
    };
    let written = |number, synchronization| {
        Ok::<_, CliError>(KeyValue {
            force: Some(true),
            new_version: Some(version.clone()),
            synchronization: Some(synchronization),
            ..part_of(key, number)?
        })
    };
    let first = next()?;
    let before = listed(client, key).await?;
    delete(client, key, &before, 0..1).await?;
    let mut count = 1;
    loop {
        let part = next()?;
        if part.is_empty() {
            break;
        }
        done(client.call(RequestKind::Put, about(written(count, BACK)?), part).await)?;
        count += 1;
    }
    delete(client, key, &before, count..usize::MAX).await?;
    done(client.call(RequestKind::Put, about(written(0, FLUSH)?), first).await)?;
    // Another one may have put parts of its own in between, or deleted some.
    let mut there = listed(client, key).await?;
    there.sort_unstable();
    if !there.iter().copied().eq(0..count) {
        return Err(put_at_once(key));
    }
    for number in there {
        let reply = done(client.call(RequestKind::GetVersion, about(part_of(key, number)?), Bytes::new()).await)?;
        if reply.body.key_value.and_then(|entry| entry.db_version).as_ref() != Some(&version) {
            return Err(put_at_once(key));
        }
    }
    show::done(json)
}

fn put_at_once(key: &str) -> CliError {
    let fault =
        Fault::new(Blame::Conflict, format!("another client wrote or deleted parts of the file {key} at the same time"));
    fault.hint("put it again, by one client at a time").into()
}

/// Prints all parts, one after the other.
pub(super) async fn get(client: &mut Client, key: &str) -> Result<(), CliError> {
    let mut numbers = listed(client, key).await?;
    numbers.sort_unstable();
    if numbers.first() != Some(&0) {
        return Err(CliError::user(format!("there is no key {key}/0, with which the file {key} would begin")));
    }
    let mut stdout = std::io::stdout();
    let mut first = None;
    for (wanted, number) in (0..).zip(numbers) {
        if number != wanted {
            return Err(CliError::user(format!("the file {key} lacks the key {key}/{wanted}, and has later ones")));
        }
        let reply = done(client.call(RequestKind::Get, about(part_of(key, number)?), Bytes::new()).await)?;
        let version = reply.body.key_value.and_then(|entry| entry.db_version).unwrap_or_default();
        if !are_together(first.get_or_insert_with(|| version.clone()), &version) {
            let fault = Fault::new(Blame::Conflict, format!("the file {key} was written while it was read"));
            return Err(fault.hint("leave what was read away, and get it again").into());
        }
        stdout.write_all(&reply.value)?;
    }
    Ok(stdout.flush()?)
}

/// Deletes all parts.
pub(super) async fn delete_all(client: &mut Client, key: &str, json: bool) -> Result<(), CliError> {
    let there = listed(client, key).await?;
    if there.is_empty() {
        return Err(CliError::user(format!("there is no key {key}/0, nor another part of a file {key}")));
    }
    delete(client, key, &there, 0..1).await?;
    delete(client, key, &there, 1..usize::MAX).await?;
    done(client.call(RequestKind::FlushAllData, Body::default(), Bytes::new()).await)?;
    show::done(json)
}

/// Deletes those parts that are there and in a range.
async fn delete(client: &mut Client, key: &str, there: &[usize], which: std::ops::Range<usize>) -> Result<(), CliError> {
    for number in there.iter().filter(|number| which.contains(number)) {
        let asked = KeyValue { force: Some(true), synchronization: Some(BACK), ..part_of(key, *number)? };
        let answer = client.call(RequestKind::Delete, about(asked), Bytes::new()).await;
        // Somebody else may have deleted it meanwhile.
        if !matches!(&answer, Ok(reply) if reply.code == Code::NotFound) {
            done(answer)?;
        }
    }
    Ok(())
}

/// The numbers of the parts that are there, in the order of their keys.
async fn listed(client: &mut Client, key: &str) -> Result<Vec<usize>, CliError> {
    let prefix = [&key_bytes(key)?[..], b"/"].concat();
    let bound = |byte: u8| Bytes::from([&prefix[..], &[byte]].concat());
    let (mut start, mut inclusive) = (bound(b'0'), true);
    let mut found = Vec::new();
    loop {
        let asked = Range {
            start_key: Some(start),
            end_key: Some(bound(b'9' + 1)),
            start_key_inclusive: Some(inclusive),
            end_key_inclusive: Some(false),
            max_returned: Some(LISTED_MAX),
            reverse: Some(false),
            keys: Vec::new(),
        };
        let body = Body { range: Some(asked), ..Body::default() };
        let keys = done(client.call(RequestKind::GetKeyRange, body, Bytes::new()).await)?.body.range.unwrap_or_default().keys;
        found.extend(keys.iter().filter_map(|key| part_number(key.strip_prefix(&prefix[..])?)));
        match keys.last() {
            // Whoever lists fewer than were asked for may still have more.
            Some(last) => (start, inclusive) = (last.clone(), false),
            None => return Ok(found),
        }
    }
}

fn part_of(key: &str, number: usize) -> Result<KeyValue, CliError> {
    Ok(KeyValue { key: Some(key_bytes(&part_name(key, number))?.into()), ..KeyValue::default() })
}
