//! Applies batches to the tables, in one transaction.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use redb::{ReadableTable, WriteTransaction};
use xxhash_rust::xxh3::xxh3_64;

use super::LOG;
use super::failure::Failure;
use super::ledger::{Ledger, Tables};
use crate::api::show_key;
use crate::journal::Row;
use crate::recipe::{Recipe, SHARES_MAX, Share, encode, pack_key};
use crate::record::{Body, Record, ValueLocation};
use crate::{Expected, Key, StoreError, Tag, Value, Version};

/// What applying a change again may cost, as bytes: so that many small changes wait no longer than a few large ones.
const CHANGE_BYTES: u64 = 512;

/// What a copy adds to the index beside its keys: records of the pack and of both recipes.
const COPY_BYTES: usize = 256;

/// Changes that are made all or none.
pub(crate) type Batch = Vec<Change>;

/// One change of a key, whose large value was written already.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub key: Key,
    pub expected: Expected,
    pub action: Action,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Put {
        version: Version,
        tag: Tag,
        value: NewValue,
    },
    Delete,
    /// Compaction copied the value. If the key no longer names `from`, nothing is done.
    Move {
        from: ValueLocation,
        to: ValueLocation,
    },
    /// The key's value becomes a pack, and the key gets a recipe of this one pack. Only if the value is as it was.
    Promote {
        was: Was,
        pack: u64,
        number: u64,
    },
    /// The key gets the value that `from` has, or a part of it, by a recipe where that is no small one. Where it is no pack, it becomes
    /// this one, and `from` gets a recipe of its own. The two numbers are those of the recipes.
    Copy {
        from: Key,
        pack: u64,
        own: u64,
        copy: u64,
        splice: Option<Box<Spliced>>,
    },
    /// The key gets a recipe (see `recipe`) of the same bytes. Only if its value is as it was, and all packs are there.
    Share {
        was: Was,
        recipe: Vec<u8>,
    },
}

/// A part of a value, between bytes that are new.
#[derive(Clone, Debug)]
pub(crate) struct Spliced {
    /// The checksum of the value that the part is of.
    pub was: u64,
    /// That of the value that it becomes a part of.
    pub checksum: u64,
    /// Bytes before the part.
    pub head: u32,
    pub kept: Range<u32>,
    /// Bytes behind it.
    pub tail: u32,
    /// The number of the pack that they become, and both in a row; none: there are none.
    pub around: Option<(u64, NewValue)>,
}

/// The value that a key must have for deduplication to change how it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Was {
    Inline(Value),
    /// A place has one value for ever.
    Segment(ValueLocation),
    /// Packs have one value for ever.
    Recipe(Vec<u8>),
}

#[derive(Clone, Debug)]
pub(crate) enum NewValue {
    Inline(Value),
    Segment { place: ValueLocation, checksum: u64 },
}

/// The effects of a commit.
#[derive(Debug, Default)]
pub(crate) struct Committed {
    /// The number of the commit; each commit has a larger one.
    pub number: u64,
    /// The outcome of each batch.
    pub outcomes: Vec<Result<(), StoreError>>,
    /// Places that a key names now and did not before.
    pub placed: Vec<ValueLocation>,
    /// Places that no key names any more.
    pub dead: Vec<ValueLocation>,
    /// Recipes that no key has any more.
    pub unshared: Vec<u64>,
    /// The bytes of keys and inline values, and something for each change and for the commit.
    pub bytes: u64,
    /// All changes, for the journal.
    pub rows: Vec<Row>,
    /// Whether it is durable in the index, and not by the log alone.
    pub indexed: bool,
}

impl Change {
    /// The approximate number of bytes that it adds to the index.
    pub fn index_bytes(&self) -> u64 {
        let value = match &self.action {
            Action::Put { value: NewValue::Inline(value), version, tag } => value.len() + version.len() + tag.bytes.len(),
            Action::Put { version, tag, .. } => self.key.len() + version.len() + tag.bytes.len(),
            Action::Delete => return 0,
            Action::Move { .. } => self.key.len(),
            Action::Promote { was, .. } => self.key.len() + if let Was::Inline(value) = was { value.len() } else { 0 },
            Action::Share { recipe, .. } => self.key.len() + recipe.len(),
            Action::Copy { from, splice, .. } => {
                let around = splice.as_ref().and_then(|splice| splice.around.as_ref());
                let around = if let Some((_, NewValue::Inline(value))) = around { value.len() } else { 0 };
                from.len() + self.key.len() + COPY_BYTES + around
            }
        };
        (self.key.len() + value) as u64
    }
}

impl NewValue {
    /// The checksum of the value, and how a record has it.
    fn stored(&self) -> (u64, Body<'_>) {
        match self {
            NewValue::Inline(value) => (xxh3_64(value), Body::Inline(value)),
            NewValue::Segment { place, checksum } => (*checksum, Body::Segment(*place)),
        }
    }
}

impl Spliced {
    /// What the new value is made of, where the other one is made of these shares.
    fn shares(&self, of: impl IntoIterator<Item = Share>) -> Vec<Share> {
        let around = |offset, bytes| self.around.as_ref().map(|(pack, _)| Share { pack: *pack, offset, bytes });
        let mut at = 0;
        let kept = of.into_iter().filter_map(|share| {
            let (start, end) = (self.kept.start.max(at), self.kept.end.min(at + share.bytes));
            let offset = share.offset + start.saturating_sub(at);
            at += share.bytes;
            (start < end).then(|| Share { pack: share.pack, offset, bytes: end - start })
        });
        let shares = around(0, self.head).into_iter().chain(kept.collect::<Vec<_>>()).chain(around(self.head, self.tail));
        shares.filter(|share| share.bytes > 0).collect()
    }
}

/// The state of a key before a change.
#[derive(Clone, Debug)]
pub(super) enum Before {
    Absent,
    There {
        version: Version,
        named: Named,
    },
    /// Its record cannot be read. Forced writes replace it.
    Damaged(String),
}

/// What a record names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Named {
    /// Bytes of the value.
    pub bytes: u64,
    pub place: Option<ValueLocation>,
    /// The number of its recipe, and the packs in it.
    pub recipe: Option<(u64, BTreeSet<u64>)>,
}

impl Named {
    pub fn of(record: &Record) -> Self {
        let recipe = record.recipe().map(|recipe| (recipe.number, recipe.packs()));
        Self { bytes: record.value_bytes(), place: record.place(), recipe }
    }
}

impl Was {
    /// How a record has its value.
    pub fn of(record: &Record) -> Self {
        match record.body {
            Body::Inline(value) => Was::Inline(Value::copy_from_slice(value)),
            Body::Segment(place) => Was::Segment(place),
            Body::Recipe(recipe) => {
                let mut bytes = Vec::with_capacity(recipe.encoded_bytes());
                recipe.encode_into(&mut bytes);
                Was::Recipe(bytes)
            }
        }
    }
}

/// Applies each batch whose conditions hold; each sees those before it.
pub(super) fn apply(transaction: &WriteTransaction, batches: &[Batch]) -> Result<Committed, Failure> {
    let mut tables = Tables::open(transaction)?;
    let mut ledger = Ledger::new(&tables)?;
    ledger.done.number = ledger.done.number.saturating_add(1);
    ledger.done.bytes = CHANGE_BYTES;
    for batch in batches {
        let outcome = match check(&tables.entries, batch)? {
            Ok(before) => {
                for (change, before) in batch.iter().zip(before) {
                    one(&mut ledger, &mut tables, change, before)?;
                }
                Ok(())
            }
            Err(conflict) => Err(conflict),
        };
        ledger.done.outcomes.push(outcome);
    }
    ledger.drop_unused(&mut tables)?;
    ledger.keep(&mut tables)?;
    Ok(ledger.done)
}

/// Applies changes that the log has and the index lacks, up to a commit. No log has more then.
pub(super) fn take(transaction: &WriteTransaction, rows: &[Row], commit: u64) -> Result<(), Failure> {
    let mut tables = Tables::open(transaction)?;
    let mut ledger = Ledger::new(&tables)?;
    ledger.done.number = ledger.done.number.max(commit);
    for (key, record) in rows {
        let before = read(&tables.entries, key)?;
        let encoded = match record {
            None => None,
            Some(record) => Some((record.clone(), Named::of(&super::decode(key, record)?))),
        };
        ledger.put(key, before, encoded, &mut tables)?;
    }
    ledger.drop_unused(&mut tables)?;
    tables.facts.insert(LOG, 0)?;
    ledger.keep(&mut tables)
}

/// Deletes all packs that no recipe names.
pub(super) fn sweep_packs(transaction: &WriteTransaction) -> Result<(), Failure> {
    let mut tables = Tables::open(transaction)?;
    let mut ledger = Ledger::new(&tables)?;
    ledger.touch_all(&tables)?;
    ledger.drop_unused(&mut tables)?;
    ledger.keep(&mut tables)
}

/// Applies one change, whose condition holds.
fn one(ledger: &mut Ledger, tables: &mut Tables, change: &Change, before: Before) -> Result<(), Failure> {
    let key = &change.key;
    ledger.done.bytes += key.len() as u64 + change.index_bytes() + CHANGE_BYTES;
    let encoded = match &change.action {
        Action::Delete => None,
        Action::Put { version, tag, value } => {
            let (checksum, body) = value.stored();
            let record = Record { version, tag_algorithm: tag.algorithm, tag: &tag.bytes, checksum, body };
            Some((record.encode(key), Named::of(&record)))
        }
        Action::Move { from, to } => return replace(ledger, tables, key, &Was::Segment(*from), Body::Segment(*to)),
        Action::Promote { was, pack, number } => return promote(ledger, tables, key, was, (*pack, *number)),
        Action::Copy { from, pack, own, copy, splice: None } => Some(copied(ledger, tables, key, from, (*pack, *own, *copy))?),
        Action::Copy { from, pack, own, copy, splice: Some(splice) } => {
            Some(spliced(ledger, tables, key, from, (*pack, *own, *copy), splice)?)
        }
        Action::Share { was, recipe } => {
            let Some(recipe) = Recipe::decode(recipe) else { return Ok(()) };
            if !are_there(&tables.entries, &recipe)? {
                return Ok(());
            }
            return replace(ledger, tables, key, was, Body::Recipe(recipe));
        }
    };
    ledger.put(key, before, encoded, tables)
}

/// A key's value is stored in another way, if it is still stored as it was.
fn replace(ledger: &mut Ledger, tables: &mut Tables, key: &Key, was: &Was, body: Body<'_>) -> Result<(), Failure> {
    let (before, encoded) = {
        let Some(row) = tables.entries.get(&key[..])? else { return Ok(()) };
        let Ok(record) = Record::decode(key, row.value()) else { return Ok(()) };
        if Was::of(&record) != *was {
            return Ok(());
        }
        let before = Before::There { version: Version::copy_from_slice(record.version), named: Named::of(&record) };
        let record = Record { body, ..record };
        (before, (record.encode(key), Named::of(&record)))
    };
    ledger.put(key, before, Some(encoded), tables)
}

/// The key gives its value to a pack, and gets a recipe. The key is changed first: until then the place is its own.
fn promote(ledger: &mut Ledger, tables: &mut Tables, key: &Key, was: &Was, to: (u64, u64)) -> Result<(), Failure> {
    let (pack, number) = to;
    let owned = match tables.entries.get(&key[..])? {
        None => return Ok(()),
        Some(row) => row.value().to_vec(),
    };
    let Ok(record) = Record::decode(key, &owned) else { return Ok(()) };
    let Ok(bytes) = u32::try_from(record.value_bytes()) else { return Ok(()) };
    let recipe = encode(number, &[Share { pack, offset: 0, bytes }]);
    let Some(recipe) = Recipe::decode(&recipe).filter(|_| Was::of(&record) == *was) else { return Ok(()) };
    replace(ledger, tables, key, was, Body::Recipe(recipe))?;
    let record = Record { version: &[], tag_algorithm: 0, tag: &[], ..record };
    let pack = pack_key(pack);
    ledger.put(&pack, Before::Absent, Some((record.encode(&pack), Named::of(&record))), tables)
}

/// The record with which a key has the value of another one, which is there: that was checked.
fn copied(
    ledger: &mut Ledger,
    tables: &mut Tables<'_>,
    key: &Key,
    from: &Key,
    (pack, own, copy): (u64, u64, u64),
) -> Result<(Vec<u8>, Named), Failure> {
    let owned = tables.entries.get(&from[..])?.ok_or_else(|| lost(from))?.value().to_vec();
    let record = Record::decode(from, &owned).map_err(|_| lost(from))?;
    if let Body::Inline(_) = record.body {
        let record = unnamed(record.checksum, record.body);
        return Ok((record.encode(key), Named::of(&record)));
    }
    let shares = shared(ledger, tables, from, &record, (pack, own))?;
    of_shares(key, copy, record.checksum, &shares).ok_or_else(|| lost(from))
}

/// The record with which a key has a part of the value of another one, which is there and as it was: that was checked.
fn spliced(
    ledger: &mut Ledger,
    tables: &mut Tables<'_>,
    key: &Key,
    from: &Key,
    (pack, own, copy): (u64, u64, u64),
    splice: &Spliced,
) -> Result<(Vec<u8>, Named), Failure> {
    let owned = tables.entries.get(&from[..])?.ok_or_else(|| lost(from))?.value().to_vec();
    let record = Record::decode(from, &owned).map_err(|_| lost(from))?;
    let shares = splice.shares(shared(ledger, tables, from, &record, (pack, own))?);
    if let Some((pack, value)) = &splice.around {
        let (checksum, body) = value.stored();
        let (pack, record) = (pack_key(*pack), unnamed(checksum, body));
        ledger.put(&pack, Before::Absent, Some((record.encode(&pack), Named::of(&record))), tables)?;
    }
    of_shares(key, copy, splice.checksum, &shares).ok_or_else(|| lost(from))
}

/// What a value is made of. Where it is in no pack, it becomes one.
fn shared(
    ledger: &mut Ledger,
    tables: &mut Tables<'_>,
    key: &Key,
    record: &Record<'_>,
    (pack, own): (u64, u64),
) -> Result<Vec<Share>, Failure> {
    if let Body::Recipe(recipe) = record.body {
        return Ok(recipe.shares().collect());
    }
    promote(ledger, tables, key, &Was::of(record), (pack, own))?;
    let bytes = u32::try_from(record.value_bytes()).unwrap_or(u32::MAX);
    Ok(vec![Share { pack, offset: 0, bytes }])
}

/// The record of a value that is made of these; none where that is no value.
fn of_shares(key: &Key, number: u64, checksum: u64, shares: &[Share]) -> Option<(Vec<u8>, Named)> {
    let recipe = encode(number, shares);
    let record = unnamed(checksum, Body::Recipe(Recipe::decode(&recipe)?));
    Some((record.encode(key), Named::of(&record)))
}

/// A record without a version and a tag.
fn unnamed(checksum: u64, body: Body<'_>) -> Record<'_> {
    Record { version: &[], tag_algorithm: 0, tag: &[], checksum, body }
}

fn lost(from: &Key) -> Failure {
    super::corrupt(from, "it was to be copied, and cannot be read").into()
}

/// Whether a key has a value to copy, and to splice as it was when it was read.
fn is_to_copy(
    entries: &impl ReadableTable<&'static [u8], &'static [u8]>,
    from: &Key,
    splice: Option<&Spliced>,
) -> Result<Result<(), StoreError>, Failure> {
    let conflict = || Ok(Err(StoreError::Conflict { key: show_key(from) }));
    let Some(row) = entries.get(&from[..])? else { return conflict() };
    let record = match Record::decode(from, row.value()) {
        Ok(record) => record,
        Err(what) => return Ok(Err(super::corrupt(from, &what))),
    };
    let Some(splice) = splice else { return Ok(Ok(())) };
    if record.checksum != splice.was || record.value_bytes() < u64::from(splice.kept.end) {
        return conflict();
    }
    if record.recipe().is_some_and(|recipe| splice.shares(recipe.shares()).len() > SHARES_MAX) {
        let what = format!("the value of {} is of too many parts to be put together with others", show_key(from));
        return Ok(Err(StoreError::TooLarge(what)));
    }
    Ok(Ok(()))
}

/// Whether all packs of a recipe are there, and have the bytes that it names.
fn are_there(entries: &impl ReadableTable<&'static [u8], &'static [u8]>, recipe: &Recipe) -> Result<bool, Failure> {
    let mut known: HashMap<u64, u64> = HashMap::new();
    for share in recipe.shares() {
        let bytes = match known.get(&share.pack) {
            Some(bytes) => *bytes,
            None => match read(entries, &pack_key(share.pack))? {
                Before::There { named, .. } => named.bytes,
                Before::Absent | Before::Damaged(_) => return Ok(false),
            },
        };
        known.insert(share.pack, bytes);
        if share.end() > bytes {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The state that each change of the batch finds when those before it are applied; or the first condition that does not
/// hold.
fn check(
    entries: &impl ReadableTable<&'static [u8], &'static [u8]>,
    batch: &[Change],
) -> Result<Result<Vec<Before>, StoreError>, Failure> {
    let mut seen: HashMap<&[u8], Before> = HashMap::new();
    let mut all = Vec::with_capacity(batch.len());
    for change in batch {
        let before = match seen.get(&change.key[..]) {
            Some(before) => before.clone(),
            None => read(entries, &change.key)?,
        };
        if let Action::Copy { from, splice, .. } = &change.action
            && let Err(refused) = is_to_copy(entries, from, splice.as_deref())?
        {
            return Ok(Err(refused));
        }
        if let Err(refused) = meets(change, &before) {
            return Ok(Err(refused));
        }
        seen.insert(&change.key, after(change, &before));
        all.push(before);
    }
    Ok(Ok(all))
}

pub(super) fn read(entries: &impl ReadableTable<&'static [u8], &'static [u8]>, key: &[u8]) -> Result<Before, Failure> {
    let Some(row) = entries.get(key)? else { return Ok(Before::Absent) };
    Ok(match Record::decode(key, row.value()) {
        Ok(record) => Before::There { version: Version::copy_from_slice(record.version), named: Named::of(&record) },
        Err(what) => Before::Damaged(what),
    })
}

fn meets(change: &Change, before: &Before) -> Result<(), StoreError> {
    let holds = match (&change.action, &change.expected, before) {
        (Action::Move { .. } | Action::Promote { .. } | Action::Share { .. } | Action::Copy { .. }, ..) => true,
        (_, Expected::Any, _) | (_, Expected::Absent, Before::Absent) => true,
        (_, Expected::Version(wanted), Before::There { version, .. }) => wanted == version,
        (_, Expected::Unversioned, Before::Absent) => true,
        (_, Expected::Unversioned, Before::There { version, .. }) => version.is_empty(),
        (_, _, Before::Damaged(what)) => return Err(super::corrupt(&change.key, what)),
        _ => false,
    };
    if holds { Ok(()) } else { Err(StoreError::Conflict { key: show_key(&change.key) }) }
}

fn after(change: &Change, before: &Before) -> Before {
    match &change.action {
        Action::Delete => Before::Absent,
        Action::Put { version, value, .. } => {
            let (bytes, place) = match value {
                NewValue::Inline(value) => (value.len() as u64, None),
                NewValue::Segment { place, .. } => (place.bytes, Some(*place)),
            };
            Before::There { version: version.clone(), named: Named { bytes, place, recipe: None } }
        }
        // These look at the tables themselves, and no batch has others beside them.
        Action::Move { .. } | Action::Promote { .. } | Action::Share { .. } => before.clone(),
        // Neither key is written again in the batch.
        Action::Copy { .. } => before.clone(),
    }
}
