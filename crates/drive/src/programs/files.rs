//! [`StoredFile`]: a file of a drive, as SSDlets read it.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use pithead_door::Reads;
use pithead_model::Fault;
use pithead_program::{File, ServiceError};
use pithead_sched::Class;
use pithead_store::{Entry, Key, KeyRange, Store, Version};
use tokio::sync::{Mutex, oneshot};

use super::faults::service_error;
use crate::resources::Resources;
use crate::storage::Storage;

/// Key-values that guests may read: those of Kinetic clients.
pub const FILE_PREFIX: &str = "kinetic/key/";
/// What is between a version and the number of its write, which has 16 digits.
const STAMP: char = '~';
const STAMP_BYTES: usize = 17;
/// Entries that are looked up at once.
const ENTRIES_AT_ONCE: usize = 4_096;
/// The most key-values between the first part of a file and its last.
const ENTRIES_MAX: usize = 1 << 20;

/// A file is the key-value of its name or, if there is none, those of `NAME/0`, `NAME/1` and so on, in this order. Of a sequence,
/// the value that is being read and the one behind it are in memory.
pub(super) struct StoredFile {
    name: String,
    values: Values,
    parts: Vec<Part>,
    in_memory: Mutex<InMemory>,
}

/// One value of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    /// Where it ends in the file.
    end: u64,
    /// What it had when the file was opened.
    version: Version,
}

/// The part that was read last, and the one that is being read ahead.
#[derive(Default)]
struct InMemory {
    last: Option<(usize, Bytes)>,
    ahead: Option<(usize, oneshot::Receiver<Result<Bytes, ServiceError>>)>,
}

/// The key-values of a drive.
#[derive(Clone, Debug)]
pub(super) struct Values {
    pub storage: Arc<Storage>,
    pub resources: Arc<Resources>,
}

impl Values {
    /// The value of a key and its entry.
    pub async fn get(&self, key: &[u8]) -> Result<Option<(Bytes, Entry)>, ServiceError> {
        let (store, key) = (Arc::clone(&self.storage.store), stored_key(key));
        let read = move || Ok::<_, Fault>(store.get(&key)?);
        let found = self.resources.workers.blocking(read).await.flatten().map_err(service_error)?;
        if let Some(wait) = found.as_ref().and_then(|(value, _)| self.resources.device.read(value.len() as u64)) {
            wait.await;
        }
        Ok(found)
    }
}

impl StoredFile {
    /// Opens the file of a name. None: there is none.
    pub async fn open(values: Values, reads: &dyn Reads, name: &str) -> Result<Option<Self>, ServiceError> {
        check_right(reads, name)?;
        let whole = values.get(name.as_bytes()).await?;
        let (parts, last) = match whole {
            Some((value, entry)) => (vec![Part { end: entry.bytes, version: entry.version }], Some((0, value))),
            None => {
                let (store, name) = (Arc::clone(&values.storage.store), name.to_owned());
                let parts = values.resources.workers.blocking(move || parts(&*store, &name)).await.map_err(service_error)??;
                (parts, None)
            }
        };
        if last.is_none() {
            (0..parts.len()).try_for_each(|number| check_right(reads, part_name(name, number)))?;
        }
        let in_memory = Mutex::new(InMemory { last, ahead: None });
        Ok((!parts.is_empty()).then(|| Self { name: name.to_owned(), values, parts, in_memory }))
    }

    /// The part that has the byte at an offset, which the file has.
    fn part_at(&self, offset: u64) -> usize {
        self.parts.partition_point(|part| part.end <= offset)
    }

    fn start(&self, number: usize) -> u64 {
        number.checked_sub(1).map_or(0, |before| self.parts[before].end)
    }

    /// Reads a part, as it was when the file was opened.
    fn fetch(&self, number: usize) -> impl Future<Output = Result<Bytes, ServiceError>> + Send + use<> {
        let (values, key) = (self.values.clone(), part_name(&self.name, number));
        let (bytes, version) = (self.parts[number].end - self.start(number), self.parts[number].version.clone());
        let name = self.name.clone();
        async move {
            match values.get(key.as_bytes()).await? {
                Some((value, entry)) if value.len() as u64 == bytes && entry.version == version => Ok(value),
                _ => Err(ServiceError::Failed(format!(
                    "the key-value {key:?} of the file {name:?} was written or deleted while the file was read"
                ))),
            }
        }
    }

    async fn part(&self, number: usize) -> Result<Bytes, ServiceError> {
        let mut in_memory = self.in_memory.lock().await;
        if let Some((_, value)) = in_memory.last.as_ref().filter(|(last, _)| *last == number) {
            return Ok(value.clone());
        }
        // Neither is needed any more, so that two parts are in memory at most.
        in_memory.last = None;
        let value = match in_memory.ahead.take_if(|(ahead, _)| *ahead == number) {
            Some((_, told)) => told.await.unwrap_or_else(|_| Err(ServiceError::Failed("the drive has stopped".to_owned()))),
            None => self.fetch(number).await,
        }?;
        in_memory.last = Some((number, value.clone()));
        Ok(value)
    }
}

impl File for StoredFile {
    fn size(&self) -> u64 {
        self.parts.last().map_or(0, |part| part.end)
    }

    fn read<'a>(&'a self, offset: u64, into: &'a mut [u8]) -> BoxFuture<'a, Result<usize, ServiceError>> {
        async move {
            let mut done = 0;
            while done < into.len() {
                let at = offset.saturating_add(done as u64);
                if at >= self.size() {
                    break;
                }
                let number = self.part_at(at);
                let value = self.part(number).await?;
                let rest = &value[(at - self.start(number)) as usize..];
                let length = rest.len().min(into.len() - done);
                into[done..done + length].copy_from_slice(&rest[..length]);
                done += length;
            }
            Ok(done)
        }
        .boxed()
    }

    /// Reads the next part that is not in memory, one at a time.
    fn ahead(&self, offset: u64, bytes: u64) {
        let Ok(mut in_memory) = self.in_memory.try_lock() else { return };
        let end = offset.saturating_add(bytes).min(self.size());
        let wanted = (self.part_at(offset)..self.parts.len())
            .take_while(|number| self.start(*number) < end)
            .find(|number| in_memory.last.as_ref().is_none_or(|(last, _)| last != number));
        let Some(number) = wanted.filter(|number| in_memory.ahead.as_ref().is_none_or(|(ahead, _)| ahead != number)) else {
            return;
        };
        let (tell, told) = oneshot::channel();
        let fetch = self.fetch(number);
        // Nobody may wait for it any more.
        self.values.resources.workers.spawn(Class::Foreground, async move { drop(tell.send(fetch.await)) });
        in_memory.ahead = Some((number, told));
    }

    fn held_bytes(&self) -> usize {
        let part = |number: usize| (self.parts[number].end - self.start(number)) as usize;
        let largest = (0..self.parts.len()).map(part).max().unwrap_or(0);
        largest * self.parts.len().min(2) + self.parts.len() * size_of::<Part>()
    }
}

fn stored_key(key: &[u8]) -> Vec<u8> {
    [FILE_PREFIX.as_bytes(), key].concat()
}

/// The key-value that is a part of a file.
pub fn part_name(name: &str, number: usize) -> String {
    format!("{name}/{number}")
}

/// The version of all parts of a file that are written at once: that which the writer gives, and what no other write has.
pub fn stamped(version: &[u8], write: u64) -> Vec<u8> {
    [version, format!("{STAMP}{write:016x}").as_bytes()].concat()
}

/// Whether two parts may be of one file: of those that are stamped, all are of one write.
pub fn are_together(one: &[u8], other: &[u8]) -> bool {
    one == other || !(is_stamped(one) || is_stamped(other))
}

fn is_stamped(version: &[u8]) -> bool {
    let stamp = version.split_last_chunk::<STAMP_BYTES>().map(|(_, stamp)| stamp);
    stamp.is_some_and(|[mark, write @ ..]| *mark == STAMP as u8 && write.iter().all(u8::is_ascii_hexdigit))
}

/// Whether the application's caller may read a key-value.
pub(super) fn check_right(reads: &dyn Reads, key: impl AsRef<[u8]>) -> Result<(), ServiceError> {
    if reads.key(key.as_ref()) {
        return Ok(());
    }
    let key = key.as_ref().escape_ascii();
    Err(ServiceError::Denied(format!("the application's caller may not read the key-value {key}")))
}

/// The parts of a file; none: there is no first one, which is written last. A file that lacks another one is not there to be read.
fn parts(store: &dyn Store, name: &str) -> Result<Vec<Part>, ServiceError> {
    let first = stored_key(part_name(name, 0).as_bytes());
    if store.entry(&first).map_err(|error| service_error(error.into()))?.is_none() {
        return Ok(Vec::new());
    }
    let mut entries = numbered(store, name)?;
    entries.sort_unstable_by_key(|(number, _)| *number);
    let mut end = 0;
    let first = entries.first().map(|(_, entry)| entry.version.clone());
    let parts = (0..).zip(entries).map(|(wanted, (number, entry))| match number == wanted {
        true if !first.as_ref().is_some_and(|first| are_together(first, &entry.version)) => {
            let other = part_name(name, number);
            Err(ServiceError::Failed(format!(
                "the file {name:?} is being written: {other:?} is of another write than its beginning"
            )))
        }
        true => {
            end += entry.bytes;
            Ok(Part { end, version: entry.version })
        }
        false => {
            let missing = part_name(name, wanted);
            Err(ServiceError::Failed(format!("the file {name:?} lacks the key-value {missing:?}, and has later ones")))
        }
    });
    parts.collect()
}

/// The entries of `NAME/NUMBER`, each with its number.
fn numbered(store: &dyn Store, name: &str) -> Result<Vec<(usize, Entry)>, ServiceError> {
    let prefix = stored_key(format!("{name}/").as_bytes());
    let bound = |byte: u8| Key::from([&prefix[..], &[byte]].concat());
    let (mut start, end) = (Bound::Included(bound(b'0')), Bound::Excluded(bound(b'9' + 1)));
    let (mut found, mut looked) = (Vec::new(), 0);
    loop {
        let range = KeyRange { start, end: end.clone(), reverse: false, limit: ENTRIES_AT_ONCE };
        let entries = store.range(&range).map_err(|error| service_error(error.into()))?;
        looked += entries.len();
        let last = entries.last().filter(|_| entries.len() == ENTRIES_AT_ONCE).map(|entry| entry.key.clone());
        found.extend(entries.into_iter().filter_map(|entry| Some((part_number(&entry.key[prefix.len()..])?, entry))));
        match last {
            None => return Ok(found),
            Some(_) if looked > ENTRIES_MAX => {
                return Err(ServiceError::Failed(format!(
                    "{name:?} is no file: more than {ENTRIES_MAX} key-values begin with {name:?}, a slash and a digit"
                )));
            }
            Some(last) => start = Bound::Excluded(last),
        }
    }
}

/// The number of a part, of what follows the file's name and a slash. Only one text writes it.
pub fn part_number(text: &[u8]) -> Option<usize> {
    let number: usize = std::str::from_utf8(text).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use pithead_store::{Durability, MemoryStore, Put, Write};

    use super::*;

    fn store(keys: &[(&str, &str)]) -> MemoryStore {
        let store = MemoryStore::new();
        let put = |(key, value): &(&str, &str)| Write::put(stored_key(key.as_bytes()), value.to_string());
        store.write(keys.iter().map(put).collect(), Durability::Through).unwrap();
        store
    }

    fn ends(store: &MemoryStore, name: &str) -> Result<Vec<u64>, String> {
        parts(store, name).map(|parts| parts.iter().map(|part| part.end).collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn parts_follow_their_numbers() {
        let names: Vec<String> = (0..12).map(|number| part_name("long", number)).collect();
        let mut keys: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "abc")).collect();
        keys.extend([("long/00", "x"), ("long/1a", "x"), ("long", "x"), ("long/", "x"), ("longer/0", "x"), ("long/:", "x")]);
        assert_eq!(ends(&store(&keys), "long"), Ok((1..=12).map(|count| 3 * count).collect()));
    }

    #[test]
    fn parts_are_numbered_in_one_way() {
        let read = ["0", "7", "10", "07", "+1", "", "1a", "99999999999999999999"].map(|text| part_number(text.as_bytes()));
        assert_eq!(read, [Some(0), Some(7), Some(10), None, None, None, None, None]);
    }

    #[test]
    fn a_file_without_a_part_is_none() {
        let store = store(&[("late/1", "b"), ("holed/0", "a"), ("holed/2", "c"), ("empty/0", "")]);
        assert_eq!((ends(&store, "late"), ends(&store, "none"), ends(&store, "empty")), (Ok(vec![]), Ok(vec![]), Ok(vec![0])));
        assert!(ends(&store, "holed").unwrap_err().contains("lacks the key-value \"holed/1\""));
    }

    /// More entries than are looked up at once.
    #[test]
    fn long_sequences_are_looked_up_to_their_end() {
        let names: Vec<String> = (0..10_000).map(|number| part_name("f", number)).collect();
        let keys: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "ab")).collect();
        assert_eq!(ends(&store(&keys), "f").unwrap().last(), Some(&20_000));
    }

    #[test]
    fn versions_are_those_of_the_opening() {
        let store = store(&[("f/0", "a")]);
        let put = Put { version: Version::from_static(b"7"), ..Put::forced(stored_key(b"f/1"), "b") };
        store.write(vec![Write::Put(put)], Durability::Through).unwrap();
        let versions: Vec<Version> = parts(&store, "f").unwrap().into_iter().map(|part| part.version).collect();
        assert_eq!(versions, [&b""[..], b"7"]);
    }
}
