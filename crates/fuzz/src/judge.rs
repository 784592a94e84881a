//! Judges cases.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Outcome, Target, Watch, memory};

/// Memory beyond its bound that a case may take before its allocations fail: enough for the peak to be seen and judged.
const OVER_BOUND_MAX: usize = 1 << 30;

/// Why a case fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A panic that nobody caught, or one in code of ours, caught or not. The place, and what it says.
    Panic(String, String),
    /// The peak of memory, and the bound.
    Memory(usize, usize),
    /// What the target says.
    Wrong(String),
    /// A seed that the target must accept.
    RefusedSeed,
}

impl Failure {
    /// Whether both are the same mistake, as far as can be told.
    pub fn is_like(&self, other: &Failure) -> bool {
        match (self, other) {
            (Failure::Panic(a, _), Failure::Panic(b, _)) => a == b,
            (Failure::Wrong(a), Failure::Wrong(b)) => a.chars().take(40).eq(b.chars().take(40)),
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Panic(place, what) => write!(f, "panic at {place}: {what}"),
            Failure::Memory(peak, bound) => write!(f, "{peak} bytes of memory at the peak, bound {bound}"),
            Failure::Wrong(what) => write!(f, "wrong: {what}"),
            Failure::RefusedSeed => write!(f, "a valid seed is refused"),
        }
    }
}

/// A case that was judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// What the target made of it; none after a panic.
    pub outcome: Option<Outcome>,
    /// Why it fails, if it does.
    pub failure: Option<Failure>,
    /// Its peak of memory, bytes.
    pub peak: usize,
}

#[derive(Default)]
struct Panics {
    /// Of this case.
    places: Vec<(String, String)>,
}

/// Judges cases, one at a time. All panics of the process are counted, on whichever thread they are, also those that code under
/// test catches.
pub struct Judge {
    watch: Watch,
    panics: Arc<Mutex<Panics>>,
    caught: BTreeMap<String, u64>,
}

impl Judge {
    /// Takes the process's panic hook. What is tested may set one of its own, once: let it do so before.
    pub fn new(watch: Watch) -> Judge {
        let panics = Arc::<Mutex<Panics>>::default();
        let seen = Arc::clone(&panics);
        panic::set_hook(Box::new(move |panic| {
            let place = panic.location().map_or("an unknown place".to_owned(), |it| format!("{}:{}", it.file(), it.line()));
            let what = panic.payload_as_str().unwrap_or("no message").to_owned();
            seen.lock().unwrap_or_else(PoisonError::into_inner).places.push((place, what));
        }));
        Judge { watch, panics, caught: BTreeMap::new() }
    }

    /// Panics of libraries that code of ours has caught so far, by place.
    pub fn caught(&self) -> &BTreeMap<String, u64> {
        &self.caught
    }

    /// Runs one case.
    pub fn judge(&mut self, target: &Target, input: &[u8]) -> Judged {
        self.panics().places.clear();
        let bound = target.bound.of(input.len());
        let before = memory::start(bound.saturating_add(OVER_BOUND_MAX));
        let outcome = self.watch.over(input, || catch_unwind(AssertUnwindSafe(|| (target.run)(input))).ok());
        let peak = memory::peak_since(before);
        let places = std::mem::take(&mut self.panics().places);
        let blamed = match &outcome {
            None => places.last(),
            Some(_) => places.iter().find(|(place, _)| is_ours(place)),
        };
        let failure = match (&outcome, blamed) {
            (_, Some((place, what))) => Some(Failure::Panic(place.clone(), what.clone())),
            (None, None) => Some(Failure::Panic("an unknown place".to_owned(), "a panic that no hook has seen".to_owned())),
            (Some(Outcome::Wrong(what)), None) => Some(Failure::Wrong(what.clone())),
            (Some(_), None) if peak > bound => Some(Failure::Memory(peak, bound)),
            (Some(_), None) => None,
        };
        if outcome.is_some() {
            places.into_iter().for_each(|(place, _)| *self.caught.entry(place).or_default() += 1);
        }
        Judged { outcome, failure, peak }
    }

    fn panics(&self) -> std::sync::MutexGuard<'_, Panics> {
        self.panics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Cargo compiles the workspace's own crates by relative paths, and all others by absolute ones.
fn is_ours(place: &str) -> bool {
    place.starts_with("crates/")
}
