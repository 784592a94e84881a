//! What a store must have, as plain maps.

use std::collections::{BTreeMap, BTreeSet};

use rand::Rng;
use rand::rngs::StdRng;

use crate::{Entry, Expected, Key, KeyRange, Put, Splice, Store, StoreError, Tag, Value, Version, Write};

/// The value of a key.
pub type Stored = (Value, Version, Tag);

/// The contents of a store.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Model(pub BTreeMap<Key, Stored>);

impl Model {
    /// The model after a batch, or `None` where it is in conflict.
    pub fn after(&self, batch: &[Write]) -> Option<Model> {
        let mut model = self.clone();
        for write in batch {
            let expected = match write {
                Write::Put(Put { expected, .. }) | Write::Delete { expected, .. } => expected,
                Write::Copy { .. } => &Expected::Any,
            };
            let found = model.0.get(write.key()).map(|stored| &stored.1);
            let holds = match expected {
                Expected::Any => true,
                Expected::Absent => found.is_none(),
                Expected::Version(version) => found == Some(version),
                Expected::Unversioned => found.is_none_or(Version::is_empty),
            };
            if !holds {
                return None;
            }
            match write {
                Write::Put(put) => model.0.insert(put.key.clone(), (put.value.clone(), put.version.clone(), put.tag.clone())),
                Write::Delete { key, .. } => model.0.remove(key),
                Write::Copy { from, to, splice } => {
                    let (value, ..) = model.0.get(from)?;
                    let value = splice.as_ref().map_or_else(|| Some(value.clone()), |splice| splice.apply(value))?;
                    model.0.insert(to.clone(), (value, Version::new(), Tag::default()))
                }
            };
        }
        Some(model)
    }

    /// Reads everything that a store has, by a range and by its keys.
    pub fn read(store: &dyn Store) -> Result<Model, StoreError> {
        let mut model = Model::default();
        for entry in store.range(&KeyRange::all())? {
            let Some((value, got)) = store.get(&entry.key)? else { panic!("a range shows {:?}, get does not", entry.key) };
            assert_eq!(got, entry);
            let Entry { key, version, tag, bytes } = entry;
            assert_eq!(bytes, value.len() as u64);
            assert!(model.0.insert(key, (value, version, tag)).is_none(), "a range shows a key twice");
        }
        Ok(model)
    }

    /// For people: the keys, with how many bytes each has and the number of its put.
    pub fn show(&self) -> String {
        let show = |(key, (value, version, _)): (&Key, &Stored)| {
            format!("{}: {} B, version {}", key[..key.len().min(8)].escape_ascii(), value.len(), version.escape_ascii())
        };
        self.0.iter().map(show).collect::<Vec<_>>().join("; ")
    }
}

/// One of a few keys, including the empty one and the longest.
pub fn random_key(rng: &mut StdRng) -> Key {
    match rng.random_range(0..16) {
        0 => Key::new(),
        1 => Key::from(vec![b'z'; crate::KEY_BYTES_MAX]),
        number => Key::from(format!("key-{number:02}")),
    }
}

/// A value that no other put writes: it contains `number`.
pub fn random_value(rng: &mut StdRng, number: u64) -> Value {
    let bytes = match rng.random_range(0..20) {
        0 => 0,
        1..12 => rng.random_range(1..400),
        12..15 => rng.random_range(400..9_000),
        15..17 => rng.random_range(60_000..65_536),
        17 => 65_536,
        _ => rng.random_range(65_537..180_000),
    };
    value_of(number, bytes)
}

/// A value with a number of bytes that is interesting in a segment.
pub fn random_large_value(rng: &mut StdRng, number: u64) -> Value {
    let bytes = rng.random_range(65_536..200_000);
    value_of(number, bytes)
}

fn value_of(number: u64, bytes: usize) -> Value {
    let words = (0..bytes.div_ceil(8) as u64)
        .flat_map(|word| ((number << 32) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    words.take(bytes).collect::<Vec<u8>>().into()
}

/// Gives the values of a batch parts that other values have, too.
pub fn share_parts(rng: &mut StdRng, batch: &mut [Write]) {
    for write in batch {
        let Write::Put(put) = write else { continue };
        if rng.random_bool(0.4) {
            continue;
        }
        let common = value_of(1 << 20, 150_000);
        put.value = match rng.random_range(0..4) {
            0 => common.slice(..rng.random_range(4_000..9_000)),
            1 => common.slice(..rng.random_range(0..2) * 40_000 + 70_000),
            _ => {
                let from = rng.random_range(0..60_000);
                let upto = rng.random_range(from + 5_000..common.len());
                let own = &put.value[..put.value.len().min(20_000)];
                [&own[..own.len() / 2], &common[from..upto], &own[own.len() / 2..]].concat().into()
            }
        };
    }
}

/// A few writes over random keys, most of which do not conflict with `model`.
pub fn random_batch(rng: &mut StdRng, model: &Model, next: &mut u64) -> Vec<Write> {
    if rng.random_bool(0.1) {
        return random_copies(rng, model, next);
    }
    let writes = if rng.random_bool(0.6) { 1 } else { rng.random_range(2..6) };
    (0..writes).map(|_| random_write(rng, model, next)).collect()
}

/// One key's value for one other key, or two, or a part of it.
fn random_copies(rng: &mut StdRng, model: &Model, next: &mut u64) -> Vec<Write> {
    let from = random_key(rng);
    let value = model.0.get(&from).map(|(value, ..)| value.clone());
    let to: BTreeSet<Key> = (0..rng.random_range(1..3)).map(|_| random_key(rng)).filter(|key| *key != from).collect();
    let splice = |rng: &mut StdRng, next: &mut u64| random_splice(rng, value.as_ref(), next);
    to.into_iter().map(|to| Write::Copy { from: from.clone(), to, splice: splice(rng, next) }).collect()
}

/// Most of a value as a rule, and rarely of another one than there is.
fn random_splice(rng: &mut StdRng, value: Option<&Value>, next: &mut u64) -> Option<Splice> {
    if rng.random_bool(0.4) {
        return None;
    }
    let other = || value_of(1 << 21, 1_000);
    let value = value.filter(|value| !value.is_empty() && !rng.random_bool(0.05)).cloned().unwrap_or_else(other);
    let bytes = value.len() as u64;
    let start = rng.random_range(0..bytes.min(100));
    let end = rng.random_range(start + 1..=bytes);
    let mut around = || {
        *next += 1;
        let all = random_value(rng, *next);
        all.slice(..all.len().min(70_000))
    };
    let (head, tail) = (around(), around());
    Splice::new(&value, head, start..end, tail)
}

fn random_write(rng: &mut StdRng, model: &Model, next: &mut u64) -> Write {
    let key = random_key(rng);
    let expected = match (rng.random_range(0..10), model.0.get(&key)) {
        (0, _) => Expected::Absent,
        (1, _) => Expected::Version(Version::from_static(b"no such")),
        (2..5, Some((_, version, _))) => Expected::Version(version.clone()),
        (2..4, None) => Expected::Absent,
        (4, None) => Expected::Unversioned,
        _ => Expected::Any,
    };
    if rng.random_bool(0.25) {
        return Write::Delete { key, expected };
    }
    *next += 1;
    let value = random_value(rng, *next);
    let tag = Tag { algorithm: rng.random_range(0..3), bytes: vec![7; rng.random_range(0..40)].into() };
    Write::Put(Put { key, value, version: Version::from(next.to_string()), tag, expected })
}
