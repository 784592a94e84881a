//! What the index says about values that are deduplicated.

use std::collections::{HashMap, hash_map};

use redb::{ReadableDatabase as _, ReadableTable as _, TableError};
use xxhash_rust::xxh3::xxh3_64;

use super::apply::{Was, sweep_packs};
use super::failure::{Failure, corrupt};
use super::read::{Entries, decode};
use super::{ENTRIES, Index, StoredValue, USES};
use crate::recipe::{OWN, Recipe, Share, pack_key, pack_of};
use crate::record::{Body, Record, ValueLocation};
use crate::{Key, StoreError, Value};

/// A value in parts, as its recipe has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// The recipe's number.
    pub number: u64,
    /// Bytes of the value, and its checksum.
    pub bytes: u64,
    pub checksum: u64,
    pub parts: Vec<ValuePart>,
}

/// A part of a value that shares bytes with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValuePart {
    pub bytes: u64,
    pub at: PartAt,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PartAt {
    Inline(Value),
    Segment { file: u64, offset: u64 },
}

/// How a value is stored, and what it is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Raw {
    pub was: Was,
    pub bytes: u64,
    pub checksum: u64,
}

impl Index {
    /// How a key's value is stored.
    pub fn raw(&self, key: &[u8]) -> Result<Option<Raw>, StoreError> {
        self.look(key, |_, record, _| Ok(Raw { was: Was::of(&record), bytes: record.value_bytes(), checksum: record.checksum }))
    }

    /// At most `limit` packs after a number, and their bytes. A record that cannot be read hides its own pack only.
    pub fn packs(&self, after: Option<u64>, limit: usize) -> Result<Vec<(u64, u64)>, StoreError> {
        let start = after.map_or(Key::from_static(&OWN), |pack| pack_key(pack.saturating_add(1)));
        self.run(|database| {
            let entries = database.begin_read()?.open_table(ENTRIES)?;
            let mut packs = Vec::new();
            for row in entries.range(&start[..]..)? {
                if packs.len() == limit {
                    break;
                }
                let (key, record) = row?;
                let pack = pack_of(key.value()).filter(|pack| after.is_none_or(|after| *pack > after));
                if let (Some(pack), Ok(record)) = (pack, decode(key.value(), record.value())) {
                    packs.push((pack, record.value_bytes()));
                }
            }
            Ok(packs)
        })
    }

    /// At most `limit` keys whose recipe names a pack.
    pub fn users(&self, pack: u64, limit: usize) -> Result<Vec<Key>, StoreError> {
        self.run(|database| {
            let uses = match database.begin_read()?.open_table(USES) {
                Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                uses => uses?,
            };
            let mut keys = Vec::new();
            for row in uses.range((pack, &[][..])..)?.take(limit) {
                let (named, _) = row?;
                let (other, key) = named.value();
                if other != pack {
                    break;
                }
                keys.push(Key::copy_from_slice(key));
            }
            Ok(keys)
        })
    }

    /// All packs with the keys that name them.
    pub fn uses(&self) -> Result<Vec<(u64, Key)>, StoreError> {
        self.run(|database| {
            let uses = match database.begin_read()?.open_table(USES) {
                Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                uses => uses?,
            };
            let mut all = Vec::new();
            for row in uses.iter()? {
                let (named, _) = row?;
                let (pack, key) = named.value();
                all.push((pack, Key::copy_from_slice(key)));
            }
            Ok(all)
        })
    }

    /// Deletes all packs that no recipe names, durably.
    pub fn sweep_packs(&self) -> Result<(), StoreError> {
        self.change(sweep_packs)
    }
}

/// A pack as the index has it.
struct Pack {
    at: PartAt,
    bytes: u64,
    checksum: u64,
}

/// Where a value lies that has a recipe. One that is a whole pack is read as if it had none.
pub(super) fn find(key: &[u8], recipe: &Recipe, checksum: u64, entries: &Entries) -> Result<StoredValue, Failure> {
    let mut packs: HashMap<u64, Pack> = HashMap::new();
    let mut parts: Vec<ValuePart> = Vec::new();
    for share in recipe.shares() {
        let pack = match packs.entry(share.pack) {
            hash_map::Entry::Occupied(known) => known.into_mut(),
            hash_map::Entry::Vacant(new) => new.insert(pack_in(key, share.pack, entries)?),
        };
        if share.end() > pack.bytes {
            return Err(corrupt(key, &format!("pack {} ends before byte {}", share.pack, share.end())).into());
        }
        let is_all = pack.bytes == recipe.bytes && u64::from(share.bytes) == recipe.bytes;
        if is_all && pack.checksum == checksum {
            return Ok(match &pack.at {
                PartAt::Inline(value) => StoredValue::Inline(value.clone()),
                PartAt::Segment { file, offset } => {
                    StoredValue::Segment { place: ValueLocation { file: *file, offset: *offset, bytes: pack.bytes }, checksum }
                }
            });
        }
        parts.push(ValuePart { bytes: share.bytes.into(), at: pack.at.part(share) });
    }
    Ok(StoredValue::Parts(Parts { number: recipe.number, bytes: recipe.bytes, checksum, parts }))
}

/// A pack that the recipe of a key names.
fn pack_in(key: &[u8], pack: u64, entries: &Entries) -> Result<Pack, Failure> {
    let wrong = |what: &str| Failure::from(corrupt(key, &format!("pack {pack}, which has a part of it, {what}")));
    let row_key = pack_key(pack);
    let row = entries.get(&row_key[..])?.ok_or_else(|| wrong("is missing"))?;
    let record = Record::decode(&row_key, row.value()).map_err(|what| wrong(&format!("cannot be read: {what}")))?;
    let at = match record.body {
        Body::Inline(value) if xxh3_64(value) != record.checksum => return Err(wrong("has another checksum than it should")),
        Body::Inline(value) => PartAt::Inline(Value::copy_from_slice(value)),
        Body::Segment(place) => PartAt::Segment { file: place.file, offset: place.offset },
        Body::Recipe(_) => return Err(wrong("is none")),
    };
    Ok(Pack { at, bytes: record.value_bytes(), checksum: record.checksum })
}

impl PartAt {
    /// A part of a pack, which lies within it.
    fn part(&self, share: Share) -> PartAt {
        match self {
            PartAt::Inline(value) => PartAt::Inline(value.slice(share.offset as usize..share.end() as usize)),
            PartAt::Segment { file, offset } => {
                PartAt::Segment { file: *file, offset: offset.saturating_add(share.offset.into()) }
            }
        }
    }
}
