//! What is fuzzed.

/// A decoder, and what is needed to fuzz it.
pub struct Target {
    /// Its name, that of its folder in the corpus.
    pub name: &'static str,
    /// Valid encodings, and hostile ones that were thought of.
    pub seeds: Vec<Seed>,
    /// What an input is made of.
    pub parts: Parts,
    /// Memory that a case may take.
    pub bound: Bound,
    /// Runs one case.
    pub run: Run,
}

/// What a target makes of an input.
pub type Run = Box<dyn Fn(&[u8]) -> Outcome>;

/// An input to start from.
pub struct Seed {
    /// What it is.
    pub name: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Whether the target must accept it: a target that refuses what is valid tests nothing.
    pub valid: bool,
}

impl Seed {
    /// An input that the target must accept.
    pub fn valid(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Seed {
        Seed { name: name.into(), bytes: bytes.into(), valid: true }
    }

    /// An input that was made to do harm.
    pub fn hostile(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Seed {
        Seed { name: name.into(), bytes: bytes.into(), valid: false }
    }
}

/// How an input falls into parts that are mutated one by one, and how they go together again, with the lengths and checksums
/// that have to hold for a decoder to look further.
pub struct Parts {
    /// The parts; none where the bytes are not an input's.
    pub split: fn(&[u8]) -> Option<Vec<Vec<u8>>>,
    /// The input that has these parts.
    pub join: fn(&[Vec<u8>]) -> Vec<u8>,
    /// Parts of one piece, a message say: pieces are dropped, doubled and exchanged whole.
    pub piece: usize,
}

impl Parts {
    /// One part, without a checksum.
    pub const WHOLE: Parts = Parts { split: |bytes| Some(vec![bytes.to_vec()]), join: |parts| parts.concat(), piece: 1 };
}

/// Memory that a case may take at its peak, beyond what was taken before it: `bytes + factor × bytes of the input`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Whatever the input.
    pub bytes: usize,
    /// For each byte of it.
    pub factor: usize,
}

impl Bound {
    /// For an input of so many bytes.
    pub fn of(self, input_bytes: usize) -> usize {
        self.bytes.saturating_add(self.factor.saturating_mul(input_bytes))
    }
}

/// What a target made of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is an encoding of something.
    Accepted,
    /// It is none, and the decoder said so.
    Refused,
    /// Something is wrong with the decoder: it blamed itself, or what it gave contradicts itself.
    Wrong(String),
}
