//! One case: a store, what it must have, and the faults that strike it.

use std::collections::BTreeSet;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::model::{Model, random_batch, random_key, random_large_value, share_parts};
use crate::medium::{Call, LyingMedium, Medium, Trouble};
use crate::{
    CheckOptions, Chunking, Dedup, DedupOptions, DiskStore, Durability, FindingKind, Key, KeyRange, Splice, Staged, Store,
    StoreError, StoreOptions, Tag, Value, Version, Write, check_on,
};

const ROOM: u64 = 1 << 30;

/// The kinds of faults of a case.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The power fails.
    pub crashes: bool,
    /// Calls fail with EIO and ENOSPC.
    pub errors: bool,
    /// There is hardly any room.
    pub full: bool,
    /// Values have parts in common, and are deduplicated in between.
    pub dedup: bool,
}

pub struct Run {
    rng: StdRng,
    faults: Faults,
    medium: Arc<LyingMedium>,
    store: Option<DiskStore>,
    /// The states to which a crash may lead, oldest first: the durable one, and one for each write after it. The last
    /// is the visible one.
    states: Vec<Model>,
    staged: Vec<(Staged, Value)>,
    dedup: Option<Dedup>,
    /// The number of the last put.
    next: u64,
    /// What happened so far, for the report of a failure.
    story: Vec<String>,
}

pub fn options() -> StoreOptions {
    StoreOptions {
        cache_bytes: 1 << 20,
        index_cache_bytes: 1 << 20,
        segment_bytes: 1 << 20,
        reserve_bytes: 4 << 20,
        background: false,
        compacts: false,
    }
}

impl Run {
    pub fn new(seed: u64, faults: Faults) -> Self {
        // Each kind of case then takes ways of its own.
        let kind = u64::from(faults.crashes) | (u64::from(faults.errors) << 1) | (u64::from(faults.full) << 2);
        let kind = kind | (u64::from(faults.dedup) << 40);
        let mut rng = StdRng::seed_from_u64((seed << 3) | kind);
        let capacity = if faults.full { rng.random_range(12..20) << 20 } else { ROOM };
        let medium = LyingMedium::new(rng.random(), capacity);
        let mut run = Self {
            rng,
            faults,
            medium,
            store: None,
            states: vec![Model::default()],
            staged: Vec::new(),
            dedup: None,
            next: 0,
            story: Vec::new(),
        };
        run.open();
        run
    }

    pub fn steps(mut self, steps: usize) {
        for _ in 0..steps {
            if self.faults.errors && self.rng.random_bool(0.15) {
                self.trouble();
            }
            if self.faults.dedup && self.rng.random_bool(0.3) {
                self.deduplicate();
            }
            match self.rng.random_range(0..100) {
                0..50 => self.write(),
                50..58 => self.stage(),
                58..68 => self.adopt(),
                68..70 => self.unstage(),
                70..78 => self.flush(),
                78..81 => self.compact(),
                81..84 => self.compact_a_little(),
                84..90 => self.look(),
                90..92 => self.write_base(),
                92..97 if self.faults.crashes => self.crash(),
                _ => self.reopen(),
            }
        }
        self.medium.set_trouble(Vec::new());
        self.reopen();
        if self.faults.dedup {
            self.deduplicate_all();
        }
        self.flush();
        self.compact();
        self.look();
        self.close();
        self.check(false);
    }

    fn store(&self) -> &DiskStore {
        self.store.as_ref().expect("it is open between steps")
    }

    fn visible(&self) -> &Model {
        self.states.last().expect("there is always one")
    }

    fn tell(&mut self, what: impl Into<String>) {
        self.story.push(what.into());
    }

    fn fail(&self, what: &str) -> ! {
        panic!("{what}\n  {}\n  files: {:?}", self.story.join("\n  "), self.medium.list("segments"));
    }

    fn trouble(&mut self) {
        let rng = &mut self.rng;
        let (after, partial) = (rng.random_range(0..14), rng.random());
        let trouble = match rng.random_range(0..6) {
            0 => Trouble::io(&[Call::Read], after),
            1 => Trouble::io(&[Call::Write], after),
            2 => Trouble::io(&[Call::Flush], after % 5),
            3 => Trouble::io(&[Call::Names, Call::Reserve], after % 5),
            4 => Trouble { times: 4, ..Trouble::io(&[Call::Read, Call::Write, Call::Flush, Call::Names], after) },
            _ => Trouble::no_space(after, rng.random_range(1..6), partial),
        };
        self.tell(format!("trouble: {trouble:?}"));
        self.medium.set_trouble(vec![trouble]);
    }

    fn write(&mut self) {
        let visible = self.visible().clone();
        let mut batch = random_batch(&mut self.rng, &visible, &mut self.next);
        if self.faults.dedup {
            share_parts(&mut self.rng, &mut batch);
        }
        let durability = if self.rng.random() { Durability::Through } else { Durability::Back };
        let shown: Vec<String> = batch.iter().map(show_write).collect();
        self.tell(format!("write {durability:?} {}", shown.join(", ")));
        let result = self.store().write(batch.clone(), durability);
        self.settle(result, visible.after(&batch), durability);
    }

    fn stage(&mut self) {
        if self.staged.len() >= 3 {
            return;
        }
        self.next += 1;
        let value = random_large_value(&mut self.rng, self.next);
        self.tell(format!("stage number {}, {} B", self.next, value.len()));
        match self.store().stage(value.clone()) {
            Ok(staged) => self.staged.push((staged, value)),
            Err(error) => {
                let unchanged = self.visible().clone();
                self.settle(Err(error), Some(unchanged), Durability::Back);
            }
        }
    }

    fn adopt(&mut self) {
        let visible = self.visible().clone();
        let (staged, values): (Vec<Staged>, Vec<Value>) = self.staged.drain(..).unzip();
        let keys: Vec<Key> = staged.iter().map(|_| random_key(&mut self.rng)).collect();
        let mut after = visible;
        for (key, value) in keys.iter().zip(&values) {
            after.0.insert(key.clone(), (value.clone(), Version::new(), Tag::default()));
        }
        let mut batch = match self.rng.random() {
            true => random_batch(&mut self.rng, &after, &mut self.next),
            false => Vec::new(),
        };
        // A key that gets a staged value is not copied beside that.
        let once: BTreeSet<&Key> = keys.iter().collect();
        batch.retain(|write| match write {
            Write::Copy { from, to, .. } => once.len() == keys.len() && !once.contains(from) && !once.contains(to),
            _ => true,
        });
        let shown: Vec<String> = keys.iter().map(|key| show_key(key)).chain(batch.iter().map(show_write)).collect();
        self.tell(format!("adopt {}", shown.join(", ")));
        let result = self.store().adopt(keys.into_iter().zip(staged).collect(), batch.clone());
        self.settle(result, after.after(&batch), Durability::Through);
    }

    fn unstage(&mut self) {
        if let Some((staged, _)) = self.staged.pop() {
            self.tell("unstage");
            self.store().unstage(staged);
        }
    }

    fn flush(&mut self) {
        self.tell("flush");
        let visible = self.visible().clone();
        let result = self.store().flush();
        self.settle(result, Some(visible), Durability::Through);
    }

    /// A new base of the journal makes everything durable that was written back.
    fn write_base(&mut self) {
        let core = self.store.as_ref().expect("it is open between steps").core();
        let Some(journal) = core.index.journal().filter(|journal| journal.place().is_some()) else { return };
        let result = core.write_base(journal);
        self.tell("a new base");
        let visible = self.visible().clone();
        self.settle(result, Some(visible), Durability::Through);
    }

    fn compact(&mut self) {
        self.tell("compact");
        let visible = self.visible().clone();
        // Nothing that is visible may change. The durable part may only grow.
        match self.store().compact_now() {
            Ok(_) => self.look(),
            Err(error) => self.settle(Err(error), Some(visible), Durability::Back),
        }
    }

    /// Steps of a job that may be left in the middle, for later ones to end it.
    fn compact_a_little(&mut self) {
        let steps = self.rng.random_range(1..40);
        self.tell(format!("compact, {steps} steps"));
        let visible = self.visible().clone();
        let stepped = (0..steps).try_for_each(|_| self.store().compact_step(64 << 10).map(drop));
        match stepped {
            Ok(()) => self.look(),
            Err(error) => self.settle(Err(error), Some(visible), Durability::Back),
        }
    }

    /// Steps of a round that may be left in the middle, for later ones to go on.
    fn deduplicate(&mut self) {
        let (steps, step_bytes) = (self.rng.random_range(1..300), 1 << self.rng.random_range(12..17));
        let mut dedup = self.dedup.take().unwrap_or_else(|| random_dedup(&mut self.rng));
        self.tell(format!("deduplicate by {}, {steps} steps", dedup.options().chunking));
        let visible = self.visible().clone();
        let mut stepped = Ok(());
        for _ in 0..steps {
            stepped = self.store().dedup_step(&mut dedup, step_bytes).map(drop);
            if stepped.is_err() {
                break;
            }
        }
        self.dedup = Some(dedup);
        match stepped {
            Ok(()) => self.look(),
            Err(error) => self.settle(Err(error), Some(visible), Durability::Back),
        }
    }

    /// A whole round, of a store without trouble.
    fn deduplicate_all(&mut self) {
        let mut dedup = random_dedup(&mut self.rng);
        self.tell(format!("deduplicate all by {}", dedup.options().chunking));
        while self.store().dedup_step(&mut dedup, 64 << 10).unwrap_or_else(|error| self.fail(&error.to_string())).is_some() {}
        self.look();
    }

    /// Records the effect of a call: `after` is the state to which it should lead, `None` if it is in conflict.
    fn settle(&mut self, result: Result<(), StoreError>, after: Option<Model>, durability: Durability) {
        match (result, after) {
            (Ok(()), Some(after)) if durability == Durability::Through => self.states = vec![after],
            (Ok(()), Some(after)) => self.states.push(after),
            (Err(StoreError::Conflict { .. }), None) => self.tell("  conflict"),
            (Err(StoreError::NoSpace { .. }), _) if self.faults.full || self.faults.errors => {
                self.tell("  no space");
                // A conflict must not be applied even in part.
                self.look();
            }
            (Err(error @ (StoreError::Io { .. } | StoreError::Index { .. })), after) if self.faults.errors => {
                self.tell(format!("  {error}"));
                self.resolve(after);
            }
            (Ok(()), None) => self.fail("a batch in conflict was written"),
            (Err(error), after) => self.fail(&format!("{error} (expected a conflict: {})", after.is_none())),
        }
    }

    /// Checks the store after an error: it shows the state before or after the call, or can be opened again and then
    /// shows a state to which a crash may lead.
    fn resolve(&mut self, after: Option<Model>) {
        self.medium.set_trouble(Vec::new());
        let found = match Model::read(self.store()) {
            Ok(found) => found,
            Err(error) => {
                self.tell(format!("  cannot be read: {error}; opened again"));
                self.close();
                self.open_store();
                self.read()
            }
        };
        self.states.extend(after);
        self.is_now(&found);
    }

    /// Goes on from the last state that equals `found`.
    fn is_now(&mut self, found: &Model) {
        match self.states.iter().rposition(|state| state == found) {
            Some(at) => {
                self.tell(format!("  goes on from {at} of {} states", self.states.len()));
                self.states.truncate(at + 1);
            }
            None => {
                let states: Vec<String> = self.states.iter().map(Model::show).collect();
                self.fail(&format!("a state from nowhere:\n  {}\nexpected one of\n  {}", found.show(), states.join("\n  ")));
            }
        }
    }

    fn read(&self) -> Model {
        Model::read(self.store()).unwrap_or_else(|error| self.fail(&format!("cannot be read: {error}")))
    }

    fn read_in_trouble(&mut self) -> Model {
        match Model::read(self.store()) {
            // The faults may not be over yet. A lack of room, by itself, is no reason for reads to fail.
            Err(StoreError::Io { .. } | StoreError::Index { .. } | StoreError::NoSpace { .. }) if self.faults.errors => {
                self.medium.set_trouble(Vec::new());
                self.read()
            }
            found => found.unwrap_or_else(|error| self.fail(&format!("cannot be read: {error}"))),
        }
    }

    /// Compares all visible data.
    fn look(&mut self) {
        self.tell("look");
        let found = self.read_in_trouble();
        if found != *self.visible() {
            self.fail(&format!("visible is\n  {}\nexpected\n  {}", found.show(), self.visible().show()));
        }
        self.neighbours(&found);
        let usage = match self.store().usage() {
            Err(_) if self.faults.errors => return,
            usage => usage.unwrap_or_else(|error| self.fail(&format!("no usage: {error}"))),
        };
        let bytes: u64 = found.0.values().map(|stored| stored.0.len() as u64).sum();
        if (usage.keys, usage.value_bytes) != (found.0.len() as u64, bytes) {
            self.fail(&format!("{usage:?} of {} keys with {bytes} bytes", found.0.len()));
        }
    }

    fn neighbours(&mut self, found: &Model) {
        let key = random_key(&mut self.rng);
        let above = KeyRange { start: std::ops::Bound::Excluded(key.clone()), limit: 2, ..KeyRange::all() };
        let Ok(entries) = self.store().range(&above) else { return };
        let keys: Vec<&Key> = entries.iter().map(|entry| &entry.key).collect();
        let expected: Vec<&Key> = found.0.keys().filter(|other| **other > key).take(2).collect();
        if keys != expected {
            self.fail(&format!("above {} lie {keys:?}, expected {expected:?}", show_key(&key)));
        }
    }

    fn crash(&mut self) {
        self.tell("crash");
        self.medium.set_trouble(Vec::new());
        self.medium = self.medium.crash();
        self.close();
        if self.rng.random_bool(0.3) {
            self.tell("check");
            self.check(true);
        }
        self.open();
    }

    /// Crashes and errors leave files that nothing names; the next open removes them. A journal that could not be written is behind until
    /// it is made anew.
    fn check(&self, with_leftovers: bool) {
        let medium = Arc::clone(&self.medium) as Arc<dyn Medium>;
        let report = check_on(medium, &CheckOptions::default(), &mut |_| {});
        let mut report = report.unwrap_or_else(|error| self.fail(&format!("cannot be checked: {error}")));
        report.findings.retain(|finding| match finding.kind {
            FindingKind::Leftover => !with_leftovers,
            FindingKind::Journal => {
                !((self.faults.errors || self.faults.full) && finding.what.starts_with("it ends with commit "))
            }
            _ => true,
        });
        if !report.findings.is_empty() {
            self.fail(&format!("a check finds {:?}", report.findings));
        }
    }

    fn reopen(&mut self) {
        self.tell("reopen");
        self.close();
        self.open();
    }

    fn close(&mut self) {
        self.dedup = None;
        self.staged.clear();
        self.store = None;
    }

    /// Opens the store and goes on from the state that it shows.
    fn open(&mut self) {
        self.open_store();
        let found = self.read_in_trouble();
        self.is_now(&found);
    }

    fn open_store(&mut self) {
        let open = |run: &Self| DiskStore::open_on(Arc::clone(&run.medium) as Arc<dyn Medium>, options());
        let opened = match open(self) {
            Err(error) if self.faults.errors => {
                self.tell(format!("  opening: {error}"));
                self.medium.set_trouble(Vec::new());
                open(self)
            }
            opened => opened,
        };
        self.store = Some(opened.unwrap_or_else(|error| self.fail(&format!("cannot be opened: {error}"))));
    }
}

fn random_dedup(rng: &mut StdRng) -> Dedup {
    let chunking = [Chunking::ContentDefined, Chunking::Kib, Chunking::HalfKib][rng.random_range(0..3)];
    let scopes: &[&'static [u8]] = if rng.random_bool(0.7) { &[b""] } else { &[b"key-0", b"key-1"] };
    let memory_bytes = if rng.random_bool(0.8) { 8 << 20 } else { 4_000 };
    Dedup::new(DedupOptions { chunking, scopes: scopes.iter().map(|scope| Key::from_static(scope)).collect(), memory_bytes })
}

fn show_write(write: &Write) -> String {
    match write {
        Write::Put(put) => {
            format!(
                "put {} {} B number {} if {:?}",
                show_key(&put.key),
                put.value.len(),
                put.version.escape_ascii(),
                put.expected
            )
        }
        Write::Delete { key, expected } => format!("delete {} if {expected:?}", show_key(key)),
        Write::Copy { from, to, splice: None } => format!("copy {} to {}", show_key(from), show_key(to)),
        Write::Copy { from, to, splice: Some(Splice { head, kept, tail, .. }) } => {
            let (from, to) = (show_key(from), show_key(to));
            format!("copy {kept:?} of {from} to {to}, {} B before and {} B behind", head.len(), tail.len())
        }
    }
}

fn show_key(key: &[u8]) -> String {
    key[..key.len().min(8)].escape_ascii().to_string()
}
