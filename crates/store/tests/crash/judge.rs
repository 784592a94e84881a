//! Compares a store with the logs of its writers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use pithead_store::{DiskStore, Entry, Store, Value, Version};

use crate::plan::{At, COUNTER, Model, Put, WRITERS, key, prefix};
use crate::writer::{counted, log_path, options, store_dir};

pub struct Judge {
    dir: PathBuf,
    writers: Vec<WriterKeys>,
    /// The numbers whose steps were acknowledged, each to one writer.
    counted: BTreeSet<u64>,
    rounds: u64,
    acknowledged: u64,
    /// Steps that were started and not acknowledged, but were found in the store.
    found_unacknowledged: u64,
    /// Steps that were acknowledged as not yet durable, and that are gone.
    lost_back: u64,
}

/// The state of a writer's keys after the last kill.
struct WriterKeys {
    at: At,
    model: Model,
    log_bytes: usize,
}

/// What a writer has logged since the last kill.
#[derive(Debug)]
struct Log {
    /// The step after the last that was started.
    end: u64,
    /// The step after the last that is durable for certain.
    durable: u64,
    acknowledged: u64,
    counted: Vec<u64>,
}

/// The entries of a writer as the store has them.
type ReadEntries = Vec<(Value, Entry)>;

impl Judge {
    pub fn new(dir: &Path, seed: u64) -> Self {
        let known = |writer| WriterKeys { at: At { seed, writer, step: 1 }, model: Model::default(), log_bytes: 0 };
        Self {
            dir: dir.to_path_buf(),
            writers: (0..WRITERS).map(known).collect(),
            counted: BTreeSet::new(),
            rounds: 0,
            acknowledged: 0,
            found_unacknowledged: 0,
            lost_back: 0,
        }
    }

    /// Each writer's first step of the next round.
    pub fn next_steps(&self) -> Vec<u64> {
        self.writers.iter().map(|known| known.at.step).collect()
    }

    /// Opens the store after a kill and compares it with the logs.
    pub fn round(&mut self) -> Result<(), String> {
        self.rounds += 1;
        let store =
            DiskStore::open(&store_dir(&self.dir), options()).map_err(|error| format!("it cannot be opened: {error}"))?;
        for writer in 0..WRITERS {
            self.writer(&store, writer).map_err(|what| format!("writer {writer}: {what}"))?;
        }
        self.counter(&store)
    }

    pub fn summary(&self) -> String {
        let Self { rounds, acknowledged, found_unacknowledged, lost_back, .. } = self;
        format!(
            "{rounds} kills, {acknowledged} steps acknowledged, {} counted; {found_unacknowledged} steps that were not \
             acknowledged are there, {lost_back} that were written back are not",
            self.counted.len()
        )
    }

    /// A test in which nothing was written would prove nothing.
    pub fn assert_worked(&self) {
        assert!(self.acknowledged > self.rounds, "hardly anything was written: {}", self.summary());
    }

    fn writer(&mut self, store: &DiskStore, writer: usize) -> Result<(), String> {
        let known = &mut self.writers[writer];
        let log = known.read_log(&log_path(&self.dir, writer))?;
        let found = read(store, writer)?;
        let mut model = known.model.clone();
        let step = |step| At { step, ..known.at };
        (known.at.step..log.durable).for_each(|number| model.apply(step(number)));
        // Any number of the steps that were started may be in the store as well; the judge takes the largest number
        // that fits.
        let mut fits = equals(&found, &model, known.at).then(|| (log.durable, model.clone()));
        for number in log.durable..log.end {
            model.apply(step(number));
            if equals(&found, &model, known.at) {
                fits = Some((number + 1, model.clone()));
            }
        }
        let Some((end, model)) = fits else {
            return Err(describe(&found, &model, known.at, &log));
        };
        let acknowledged_end = known.at.step + log.acknowledged;
        self.acknowledged += log.acknowledged;
        self.found_unacknowledged += end.saturating_sub(acknowledged_end);
        self.lost_back += acknowledged_end.saturating_sub(end);
        known.model = model;
        known.at.step = log.end;
        for count in log.counted {
            if !self.counted.insert(count) {
                return Err(format!("{count} was counted twice"));
            }
        }
        Ok(())
    }

    fn counter(&self, store: &DiskStore) -> Result<(), String> {
        let found = store.get(COUNTER.as_bytes()).map_err(|error| error.to_string())?;
        let count = found.map_or(0, |(value, _)| counted(&value));
        match self.counted.last() {
            Some(last) if count < *last => Err(format!("the counter is at {count}, and {last} was acknowledged")),
            _ => Ok(()),
        }
    }
}

impl WriterKeys {
    fn read_log(&mut self, path: &Path) -> Result<Log, String> {
        let bytes = match std::fs::read(path) {
            // The writer may have been killed before it began.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            bytes => bytes.map_err(|error| error.to_string())?,
        };
        let new = &bytes[self.log_bytes..];
        self.log_bytes = bytes.len();
        let mut log = Log { end: self.at.step, durable: self.at.step, acknowledged: 0, counted: Vec::new() };
        for line in String::from_utf8_lossy(new).lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = words.get(1).and_then(|word| word.parse::<u64>().ok()).ok_or_else(|| format!("log: {line:?}"))?;
            if words[0] == "s" {
                log.end = number + 1;
                continue;
            }
            log.acknowledged += 1;
            log.counted.extend(words.get(2).and_then(|count| count.parse::<u64>().ok()));
            let at = At { step: number, ..self.at };
            // A counting step that never got its turn has written nothing.
            let gave_up = matches!(at.step(), crate::plan::Step::Count) && words.len() == 2;
            if at.step().is_durable() && !gave_up {
                log.durable = number + 1;
            }
        }
        Ok(log)
    }
}

fn read(store: &DiskStore, writer: usize) -> Result<ReadEntries, String> {
    let entries = store.list(prefix(writer).as_bytes()).map_err(|error| error.to_string())?;
    let read = |entry: Entry| match store.get(&entry.key) {
        Ok(Some((value, again))) if again == entry => Ok((value, entry)),
        Ok(other) => Err(format!("{entry:?} became {:?}", other.map(|found| found.1))),
        Err(error) => Err(error.to_string()),
    };
    entries.into_iter().map(read).collect()
}

fn equals(found: &ReadEntries, model: &Model, at: At) -> bool {
    let same = |((value, entry), (number, put)): (&(Value, Entry), (&u32, &Put))| {
        let at = At { step: put.step, ..at };
        let version = if put.adopted { Version::new() } else { at.version() };
        let tag_fits = entry.tag.bytes == version && (put.adopted || entry.tag.algorithm == *number as i32);
        let fits = entry.key == key(at.writer, *number) && entry.version == version && tag_fits;
        fits && value.len() == put.bytes && *value == at.value(*number, put.bytes)
    };
    found.len() == model.0.len() && found.iter().zip(&model.0).all(same)
}

/// The difference between the store and the last state that it could have.
fn describe(found: &ReadEntries, model: &Model, at: At, log: &Log) -> String {
    let found = found.iter().map(|(value, entry)| {
        format!("{} {} B version {}", entry.key.escape_ascii(), value.len(), entry.version.escape_ascii())
    });
    let expected = model.0.iter().map(|(number, put)| format!("{} {put:?}", key(at.writer, *number).escape_ascii()));
    let (found, expected): (Vec<String>, Vec<String>) = (found.collect(), expected.collect());
    let steps: Vec<String> =
        (at.step..log.end).rev().take(12).map(|step| format!("{step}: {:?}", At { step, ..at }.step())).collect();
    format!(
        "the store holds what no number of steps leads to\n{log:?}\nfound\n  {}\nafter all steps\n  {}\nlast steps, newest first\n  {}",
        found.join("\n  "),
        expected.join("\n  "),
        steps.join("\n  ")
    )
}
