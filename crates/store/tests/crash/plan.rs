//! The steps of each writer. Every step follows from the seed, the writer's number and the step's number.

use std::collections::BTreeMap;

use pithead_store::{Key, Value, Version};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// The number of writers of one process.
pub const WRITERS: usize = 4;
/// The number of keys of one writer.
const KEYS: u32 = 16;
/// The key of the counter that all writers increase.
pub const COUNTER: &str = "counter";

/// A writer's step.
#[derive(Clone, Debug)]
pub enum Step {
    /// Writes together, durable at once or later. `cas`: only if the keys have the versions that the writer left there.
    Batch {
        changes: Vec<Change>,
        through: bool,
        cas: bool,
    },
    /// The same, with large values that were staged.
    Adopt {
        changes: Vec<Change>,
    },
    /// A batch whose last write is in conflict, so that it changes nothing.
    Refused {
        changes: Vec<Change>,
    },
    /// Increases the counter that all writers share.
    Count,
    Flush,
}

/// One write of a step: a value of this many bytes, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    pub key: u32,
    pub bytes: Option<usize>,
}

/// The contents of a writer's keys: the step that put each, the value's bytes, and whether it was adopted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model(pub BTreeMap<u32, Put>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put {
    pub step: u64,
    pub bytes: usize,
    pub adopted: bool,
}

/// The state of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    pub seed: u64,
    pub writer: usize,
    pub step: u64,
}

impl At {
    pub fn step(self) -> Step {
        let rng = &mut self.rng();
        match rng.random_range(0..100) {
            0..35 => Step::Batch { changes: changes(rng, 1), through: true, cas: rng.random_bool(0.3) },
            35..50 => Step::Batch { changes: changes(rng, 5), through: true, cas: rng.random_bool(0.3) },
            50..68 => Step::Batch { changes: changes(rng, 3), through: false, cas: rng.random_bool(0.3) },
            68..76 => Step::Adopt { changes: large_changes(rng) },
            76..82 => Step::Refused { changes: changes(rng, 4) },
            82..92 => Step::Count,
            _ => Step::Flush,
        }
    }

    /// The version of the values that the step puts.
    pub fn version(self) -> Version {
        Version::from(format!("{}/{}", self.writer, self.step))
    }

    /// The value that the step puts under a key. No other step's value is the same, except for the shortest ones.
    pub fn value(self, key: u32, bytes: usize) -> Value {
        let start = (((self.step << 8) ^ self.writer as u64) << 24) ^ (u64::from(key) << 20);
        let words =
            (0..bytes.div_ceil(8) as u64).flat_map(|word| (start ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        words.take(bytes).collect::<Vec<u8>>().into()
    }

    fn rng(self) -> StdRng {
        StdRng::seed_from_u64(self.seed ^ ((self.writer as u64) << 56) ^ self.step.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

impl Step {
    /// Whether an acknowledgement means that this step and all earlier ones of its writer are durable.
    pub fn is_durable(&self) -> bool {
        !matches!(self, Step::Batch { through: false, .. } | Step::Refused { .. })
    }
}

impl Model {
    pub fn apply(&mut self, at: At) {
        let (changes, adopted) = match at.step() {
            Step::Batch { changes, .. } => (changes, false),
            Step::Adopt { changes } => (changes, true),
            Step::Refused { .. } | Step::Count | Step::Flush => return,
        };
        for Change { key, bytes } in changes {
            match bytes {
                Some(bytes) => self.0.insert(key, Put { step: at.step, bytes, adopted }),
                None => self.0.remove(&key),
            };
        }
    }
}

/// The prefix of all keys of a writer.
pub fn prefix(writer: usize) -> String {
    format!("writer-{writer}/")
}

pub fn key(writer: usize, key: u32) -> Key {
    Key::from(format!("{}{key:04}", prefix(writer)))
}

/// Changes of different keys.
fn changes(rng: &mut StdRng, most: u32) -> Vec<Change> {
    let first = rng.random_range(0..KEYS);
    let count = rng.random_range(1..=most);
    let change = |offset| {
        let bytes = match rng.random_range(0..20) {
            0..4 => None,
            4 => Some(0),
            5..14 => Some(rng.random_range(1..2_000)),
            14..16 => Some(rng.random_range(2_000..65_536)),
            _ => Some(rng.random_range(65_536..300_000)),
        };
        Change { key: (first + offset) % KEYS, bytes }
    };
    (0..count).map(change).collect()
}

fn large_changes(rng: &mut StdRng) -> Vec<Change> {
    let first = rng.random_range(0..KEYS);
    let count = rng.random_range(1..4);
    (0..count).map(|offset| Change { key: (first + offset) % KEYS, bytes: Some(rng.random_range(65_536..500_000)) }).collect()
}
