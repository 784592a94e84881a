//! [`ScrubService`]: every stored value is read within a period, and damaged ones are named.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use pithead_sched::{Progress, Service, Stepped};
use pithead_store::{DamagedKey, Durability, Key, Scrub, Store, StoreError, Write, show_key};
use serde::{Deserialize, Serialize};

use crate::storage::FILTER_PREFIX;

/// Bytes of a step.
const STEP_BYTES: u64 = 64 << 10;
/// The longest pause: pace and period are looked at again then.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long to wait where nothing is stored.
const EMPTY: Duration = Duration::from_secs(1);
/// How long to wait after a part of the index could not be read.
const FAILED: Duration = Duration::from_secs(60);
/// How often the store is asked how much there is.
const LOOK: Duration = Duration::from_secs(30);
/// Damaged values that outlast the process by name.
const KEPT_MAX: usize = 100;

/// A damaged value that is known by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DamagedValue {
    key: Key,
    /// What told it from those after it ([`Store::stamp`]), or 0 where its record could not be read either. None: an earlier
    /// release has found it.
    stamp: Option<u64>,
}

impl DamagedValue {
    /// Whether it is gone, by what the key has now: nothing, or another value, or a record that can be read again.
    fn is_gone(&self, now: &Result<Option<u64>, StoreError>) -> bool {
        match now {
            Ok(Some(now)) => self.stamp.is_some_and(|stamp| stamp != *now),
            Ok(None) => true,
            Err(_) => false,
        }
    }
}

/// The known damaged values: those that this round has found, and those of the last round that this one has not come to yet.
#[derive(Clone, Debug, Default)]
pub(super) struct DamagedValues {
    /// Of this round, before the drive was opened.
    earlier: Vec<DamagedValue>,
    round: Vec<DamagedValue>,
    /// How many of this round were taken into `round`, also those that are gone since.
    taken: usize,
    /// Those of this round whose names are not kept.
    unnamed: u64,
    before: Vec<DamagedValue>,
}

impl DamagedValues {
    /// The values that were known when a round had come to `after`.
    fn kept(damaged: Vec<DamagedValue>, after: Option<&Key>) -> DamagedValues {
        let (earlier, before) = damaged.into_iter().partition(|damaged| after.is_some_and(|after| damaged.key <= *after));
        DamagedValues { earlier, before, ..DamagedValues::default() }
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.unnamed + self.named().count() as u64
    }

    /// The first of them.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.named().map(|damaged| &damaged.key)
    }

    fn named(&self) -> impl Iterator<Item = &DamagedValue> {
        self.earlier.iter().chain(&self.round).chain(&self.before)
    }

    fn forget_these(&mut self, gone: &[DamagedValue]) {
        for list in [&mut self.earlier, &mut self.round, &mut self.before] {
            list.retain(|damaged| !gone.contains(damaged));
        }
    }

    pub(super) fn forget(&mut self) {
        *self = DamagedValues::default();
    }

    /// The round has come to `after`, and has found so many, these among them.
    fn reached(&mut self, after: Option<&Key>, (count, named): (u64, &[DamagedKey])) {
        if let Some(after) = after {
            self.before.retain(|damaged| damaged.key > *after);
        }
        let new = named.get(self.taken..).unwrap_or_default().iter();
        self.round.extend(new.map(|new| DamagedValue { key: new.key.clone(), stamp: Some(new.stamp) }));
        (self.taken, self.unnamed) = (named.len(), count.saturating_sub(named.len() as u64));
    }

    /// The round is over: what it has found is what is known.
    fn end_round(&mut self) {
        let mut known = std::mem::take(&mut self.earlier);
        known.append(&mut self.round);
        *self = DamagedValues { before: known, ..DamagedValues::default() };
    }
}

/// Forgets damaged values that were deleted, replaced or written anew since they were found. Blocks for a look at the index for
/// each.
pub(super) fn forget_gone(store: &dyn Store, found: &Mutex<DamagedValues>) {
    let known: Vec<DamagedValue> = found.lock().named().cloned().collect();
    let gone: Vec<DamagedValue> = known.into_iter().filter(|damaged| damaged.is_gone(&store.stamp(&damaged.key))).collect();
    if gone.is_empty() {
        return;
    }
    gone.iter().for_each(|gone| tracing::info!(key = show_key(&gone.key), "a damaged value was deleted or written anew"));
    found.lock().forget_these(&gone);
}

/// Where a round is, as it is kept.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Position {
    /// When the round began, or the last one did, in seconds of Unix time.
    began_s: f64,
    /// The last key that was checked, in hexadecimal digits; none: the round is over, or has not come to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<String>,
    /// Bytes that were checked before; of a round that is over, all that it checked.
    #[serde(default)]
    done_bytes: u64,
    /// Damaged values that are known of, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    damaged: Vec<String>,
    /// What tells each of them from the values after it, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    stamps: Vec<Option<u64>>,
}

impl Position {
    fn damaged_values(&self) -> Vec<DamagedValue> {
        let stamps = self.stamps.iter().copied().chain(std::iter::repeat(None));
        let named = self.damaged.iter().zip(stamps);
        named.filter_map(|(key, stamp)| Some(DamagedValue { key: from_hex(key)?, stamp })).collect()
    }
}

/// Rounds over all values, each within a period: so far into the period, so far through the bytes.
pub(super) struct ScrubService {
    store: Arc<dyn Store>,
    scrub: Scrub,
    /// None: it goes on only while it hurries.
    period: Option<Duration>,
    /// When this round began, or the last one did; 0: none has.
    began_s: f64,
    is_in_round: bool,
    /// Bytes that the last round checked, which is over.
    last_bytes: u64,
    total_bytes: u64,
    looked: Option<Instant>,
    found: Arc<Mutex<DamagedValues>>,
    hurries: Arc<AtomicBool>,
}

impl ScrubService {
    /// Goes on at a position. While `hurries` is set, the round goes on without a pause, or the next one begins.
    pub(super) fn new(
        store: Arc<dyn Store>,
        period: Option<Duration>,
        position: &[u8],
        found: Arc<Mutex<DamagedValues>>,
        hurries: Arc<AtomicBool>,
    ) -> ScrubService {
        let mut scrub = Scrub::new(Arc::clone(&store));
        let position = read_position(position);
        let after = position.after.as_deref().and_then(from_hex);
        let is_in_round = after.is_some();
        *found.lock() = DamagedValues::kept(position.damaged_values(), after.as_ref());
        if let Some(after) = after {
            scrub.go_on_after(after, position.done_bytes);
        }
        let total_bytes = store.usage().map_or(0, |used| used.value_bytes);
        ScrubService {
            store,
            scrub,
            period,
            began_s: position.began_s,
            is_in_round,
            last_bytes: if is_in_round { 0 } else { position.done_bytes },
            total_bytes,
            looked: None,
            found,
            hurries,
        }
    }

    /// How long the next step has to wait, so that a round takes its period.
    fn pause(&mut self, now_s: f64) -> Option<Duration> {
        // A clock that was set back.
        self.began_s = self.began_s.min(now_s);
        if self.hurries.load(Ordering::Relaxed) {
            return None;
        }
        let Some(period) = self.period else { return Some(PAUSE_MAX) };
        let (elapsed, period) = (now_s - self.began_s, period.as_secs_f64());
        let due = match self.is_in_round {
            // The bytes that are done would be done by then.
            true => self.scrub.done_bytes() as f64 / self.total_bytes.max(1) as f64 * period,
            false if self.began_s == 0.0 => 0.0,
            false => period,
        };
        let left = due.min(period) - elapsed;
        (left > 0.0).then(|| Duration::try_from_secs_f64(left).unwrap_or(PAUSE_MAX).min(PAUSE_MAX))
    }

    fn look(&mut self) {
        if self.looked.is_none_or(|looked| looked.elapsed() > LOOK) {
            self.total_bytes = self.store.usage().map_or(self.total_bytes, |used| used.value_bytes);
            self.looked = Some(Instant::now());
        }
    }

    /// `holes`: parts of the index that this round could not list.
    fn end_round(&mut self, done_bytes: u64, holes: u64) {
        (self.is_in_round, self.last_bytes) = (false, done_bytes);
        // Until the next one it is of as much as it read, whatever was deleted meanwhile.
        (self.total_bytes, self.looked) = (done_bytes, None);
        self.hurries.store(false, Ordering::Relaxed);
        let mut found = self.found.lock();
        found.end_round();
        self.drop_filters(&found);
        match (found.count(), holes) {
            (0, 0) => tracing::info!(bytes = self.total_bytes, "all stored values were read, and none is damaged"),
            (damaged, 0) => {
                tracing::error!(damaged, "all stored values were read; `pithead repair` mends those that have a copy");
            }
            (damaged, holes) => {
                let what = "parts of the index could not be listed, and the values there were not read";
                tracing::error!(damaged, holes, "{what}; `pithead check` tells which they are");
            }
        }
    }
}

impl ScrubService {
    /// Damaged filters need no copy: without them more is read, and they are made again. The next round knows them no more.
    fn drop_filters(&self, found: &DamagedValues) {
        let damaged = found.keys().filter(|key| key.starts_with(FILTER_PREFIX.as_bytes())).cloned();
        let writes: Vec<Write> = damaged.map(Write::delete).collect();
        if !writes.is_empty()
            && let Err(error) = self.store.write(writes, Durability::Back)
        {
            tracing::warn!(%error, "damaged filters of columns were not deleted");
        }
    }
}

impl Service for ScrubService {
    fn step(&mut self) -> Stepped {
        let now_s = unix_seconds();
        if let Some(pause) = self.pause(now_s) {
            return Stepped::Idle { pause };
        }
        self.look();
        if self.total_bytes == 0 {
            self.looked = None;
            return Stepped::Idle { pause: EMPTY };
        }
        if !self.is_in_round {
            (self.is_in_round, self.began_s) = (true, now_s);
        }
        let (done_bytes, holes) = (self.scrub.done_bytes(), self.scrub.holes());
        match self.scrub.step(STEP_BYTES) {
            Ok(Some(bytes)) => {
                self.found.lock().reached(self.scrub.after(), self.scrub.damaged());
                Stepped::Did { bytes }
            }
            Ok(None) => {
                self.end_round(done_bytes, holes);
                Stepped::Did { bytes: 0 }
            }
            Err(error) => Stepped::Failed { why: error.to_string(), pause: FAILED },
        }
    }

    fn blocks(&self) -> bool {
        true
    }

    fn only_reads(&self) -> bool {
        true
    }

    fn progress(&self) -> Progress {
        // Between rounds it says what the last one did.
        let done_bytes = if self.is_in_round { self.scrub.done_bytes() } else { self.last_bytes };
        Progress { done_bytes, total_bytes: self.total_bytes.max(done_bytes), found: self.found.lock().count() }
    }

    fn position(&self) -> Vec<u8> {
        if self.began_s == 0.0 {
            return Vec::new();
        }
        let after = self.scrub.after().filter(|_| self.is_in_round).map(|key| to_hex(key));
        let done_bytes = match (self.is_in_round, &after) {
            (false, _) => self.last_bytes,
            (true, Some(_)) => self.scrub.done_bytes(),
            (true, None) => 0,
        };
        let found = self.found.lock();
        let (damaged, stamps) = found.named().take(KEPT_MAX).map(|damaged| (to_hex(&damaged.key), damaged.stamp)).unzip();
        serde_json::to_vec(&Position { began_s: self.began_s, after, done_bytes, damaged, stamps }).unwrap_or_default()
    }

    fn restart(&mut self) {
        self.scrub = Scrub::new(Arc::clone(&self.store));
        (self.is_in_round, self.began_s, self.last_bytes) = (false, 0.0, 0);
        self.found.lock().forget();
    }
}

fn read_position(position: &[u8]) -> Position {
    if position.is_empty() {
        return Position::default();
    }
    let read = serde_json::from_slice::<Position>(position).ok().filter(|position| position.began_s.is_finite());
    read.unwrap_or_else(|| {
        tracing::warn!("damaged note of how far the scrub is: it begins anew");
        Position::default()
    })
}

fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

pub(super) fn to_hex(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn from_hex(text: &str) -> Option<Key> {
    let digits = text.as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(digit(*high)? * 16 + digit(*low)?).ok(),
        _ => None,
    };
    digits.chunks(2).map(byte).collect::<Option<Vec<u8>>>().map(Key::from)
}

#[cfg(test)]
mod tests {
    use pithead_store::MemoryStore;

    use super::*;

    const VALUE: usize = 100_000;

    fn filled() -> Arc<dyn Store> {
        let store = MemoryStore::new();
        let writes = (0..10_u8).map(|number| Write::put(vec![number], vec![number; VALUE])).collect();
        store.write(writes, Durability::Through).unwrap();
        Arc::new(store)
    }

    fn service(
        store: &Arc<dyn Store>,
        period: Duration,
        position: &[u8],
    ) -> (ScrubService, Arc<Mutex<DamagedValues>>, Arc<AtomicBool>) {
        let (found, hurries) = (Arc::default(), Arc::default());
        let service = ScrubService::new(Arc::clone(store), Some(period), position, Arc::clone(&found), Arc::clone(&hurries));
        (service, found, hurries)
    }

    /// Bytes until it is not due.
    fn run(service: &mut ScrubService) -> u64 {
        let mut done = 0;
        while let Stepped::Did { bytes } = service.step() {
            done += bytes;
        }
        done
    }

    #[test]
    fn a_round_keeps_to_its_period_and_hurries_when_it_is_told_to() {
        let store = filled();
        let (mut service, _, hurries) = service(&store, Duration::from_secs(1_000_000), &[]);
        let done = run(&mut service);
        assert!(done > 0 && done < 3 * VALUE as u64, "{done}");
        assert!(matches!(service.step(), Stepped::Idle { pause } if pause == PAUSE_MAX));
        assert_eq!(service.progress(), Progress { done_bytes: done, total_bytes: 10 * VALUE as u64, found: 0 });
        hurries.store(true, Ordering::Relaxed);
        assert_eq!(done + run(&mut service), 10 * VALUE as u64);
        assert!(!hurries.load(Ordering::Relaxed), "for one round");
        assert!(matches!(service.step(), Stepped::Idle { .. }), "the next round begins when the period is over");
        let over = Progress { done_bytes: 10 * VALUE as u64, total_bytes: 10 * VALUE as u64, found: 0 };
        assert_eq!(service.progress(), over, "it says what it has done");
        let (again, ..) = self::service(&store, Duration::from_secs(1_000_000), &service.position());
        assert_eq!(again.progress(), over, "also after a restart");
        service.restart();
        assert_eq!(service.progress().done_bytes, 0);
    }

    #[test]
    fn rounds_follow_each_other_when_their_period_is_over() {
        let (mut service, ..) = service(&filled(), Duration::from_millis(1), &[]);
        let mut done = 0;
        while done < 25 * VALUE as u64 {
            if let Stepped::Did { bytes } = service.step() {
                done += bytes;
            }
        }
    }

    #[test]
    fn a_position_is_gone_on_from() {
        let store = filled();
        let (mut first, ..) = service(&store, Duration::from_secs(1_000_000), &[]);
        assert_eq!(first.position(), b"", "nowhere");
        first.hurries.store(true, Ordering::Relaxed);
        // One lists the keys, the others read a value each.
        (0..6).for_each(|_| drop(first.step()));
        let (mut second, _, hurries) = service(&store, Duration::from_secs(1_000_000), &first.position());
        let before = second.progress().done_bytes;
        assert!(before > 0 && before <= first.progress().done_bytes, "{before}");
        hurries.store(true, Ordering::Relaxed);
        assert!(run(&mut second) <= 10 * VALUE as u64 - before + VALUE as u64);
        second.restart();
        assert_eq!(second.position(), b"");
        for bad in [&b"{"[..], b"{}", b"\xff", b"{\"began_s\":1e999}", b"{\"began_s\":1,\"after\":\"0\"}"] {
            let (mut service, _, hurries) = service(&store, Duration::from_secs(9), bad);
            hurries.store(true, Ordering::Relaxed);
            assert_eq!(run(&mut service), 10 * VALUE as u64, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn damaged_values_are_known_until_a_round_finds_them_whole() {
        let key = |key: &'static str| Key::from_static(key.as_bytes());
        let damaged = |name: &'static str| DamagedValue { key: key(name), stamp: Some(1) };
        let mut found = DamagedValues::kept(vec![damaged("a"), damaged("c"), damaged("e")], Some(&key("b")));
        let named = |found: &DamagedValues| found.keys().map(|key| key.escape_ascii().to_string()).collect::<Vec<_>>().join("");
        assert_eq!((found.count(), named(&found)), (3, "ace".into()));
        let d = [DamagedKey { key: key("d"), stamp: 1 }];
        found.reached(Some(&key("d")), (1, &d));
        assert_eq!((found.count(), named(&found)), (3, "ade".into()));
        found.reached(Some(&key("f")), (1, &d));
        found.end_round();
        assert_eq!((found.count(), named(&found)), (2, "ad".into()));
        found.reached(Some(&key("b")), (0, &[]));
        assert_eq!((found.count(), named(&found)), (1, "d".into()));
    }

    #[test]
    fn damaged_values_are_forgotten_once_they_are_gone() {
        let store = MemoryStore::new();
        let put = |key: &'static str, value: &'static str| {
            store.write(vec![Write::put(key, value)], Durability::Through).unwrap();
            store.stamp(key.as_bytes()).unwrap()
        };
        let stamps = ["deleted", "replaced", "stays", "unknown"].map(|key| (key, put(key, "value")));
        let known = |(key, stamp): (&'static str, Option<u64>)| DamagedValue { key: key.into(), stamp };
        let (unknown, unreadable) = (("unknown", None), ("unreadable", Some(0)));
        put("unreadable", "can be read again");
        let before = [stamps[0], stamps[2], unknown, unreadable].map(known);
        let found = Mutex::new(DamagedValues::kept(before.into(), None));
        let of_round = |(key, stamp): (&'static str, Option<u64>)| DamagedKey { key: key.into(), stamp: stamp.unwrap() };
        let round = [stamps[1], ("another", Some(7))].map(of_round);
        found.lock().reached(None, (3, &round[..1]));
        assert_eq!(found.lock().count(), 7, "two of them without a name");
        store.write(vec![Write::delete("deleted")], Durability::Through).unwrap();
        put("replaced", "another value");
        forget_gone(&store, &found);
        assert_eq!(found.lock().keys().collect::<Vec<_>>(), ["stays", "unknown"]);
        assert_eq!(found.lock().count(), 4);
        // The next one that the round finds brings back none of those that are gone.
        found.lock().reached(None, (4, &round));
        assert_eq!(found.lock().keys().collect::<Vec<_>>(), ["another", "stays", "unknown"]);
    }

    #[test]
    fn what_tells_a_damaged_value_is_kept_with_its_place() {
        let value = |stamp| DamagedValue { key: Key::from_static(b"k"), stamp };
        for stamp in [None, Some(0), Some(u64::MAX)] {
            let store = filled();
            let (service, found, _) = service(&store, Duration::from_secs(9), b"{\"began_s\":1}");
            *found.lock() = DamagedValues::kept(vec![value(stamp)], None);
            let (_, again, _) = self::service(&store, Duration::from_secs(9), &service.position());
            assert_eq!(again.lock().named().cloned().collect::<Vec<_>>(), [value(stamp)]);
        }
        let earlier = read_position(b"{\"began_s\":1,\"damaged\":[\"6b\"]}").damaged_values();
        assert_eq!(earlier, [value(None)], "as earlier releases wrote it");
    }

    #[test]
    fn when_a_round_began_is_kept_to_the_last_digit() {
        for began_s in [1_796_022_955.366_322_5, 0.1 + 0.2, f64::MAX] {
            let position = Position { began_s, ..Position::default() };
            assert_eq!(read_position(&serde_json::to_vec(&position).unwrap()).began_s, began_s);
        }
    }

    #[test]
    fn keys_are_written_as_digits() {
        for key in [&b""[..], b"a", b"\x00\xff/"] {
            assert_eq!(from_hex(&to_hex(key)).unwrap(), key);
        }
        assert!(["0", "zz", "+1"].iter().all(|text| from_hex(text).is_none()));
    }
}
