//! Taking up runs that are set aside: they are copied to where the dataset lies, and one change of the manifest names them.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use pithead_door::{Discard, Loads};
use pithead_model::{Blame, Dataset, DatasetId, DatasetName, DriveId, Fault, Loaded, Manifest, Run, SliceKey, boxed};

use super::{Lacking, lacking, may_have};
use crate::Fleet;
use crate::attended::attended;
use crate::change::already_there;
use crate::commit::{Committed, Edit, NotCommitted};
use crate::discard::discard_at;
use crate::drives::{ConnectedDrive, Drives};
use crate::moving::{MoveProgress, TellMove};
use crate::placement::place;
use crate::relay::relay_as;

/// A dataset that was set aside, and where its rows are to go.
#[derive(Clone, Debug)]
pub struct TakeUp {
    /// A dataset as its former home had it.
    pub name: DatasetName,
    /// The dataset that gets the rows, in the same domain: one that is laid out alike, or a new one.
    pub into: DatasetName,
    /// The former home, where several have set this dataset aside.
    pub drive: Option<DriveId>,
    /// The version that is set aside, where there are several.
    pub version: Option<u64>,
    /// Whether to go on without runs that no drive gives.
    pub partial: bool,
}

/// What taking up a dataset has changed.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct TakeUpOutcome {
    /// Rows that the dataset has more now.
    pub rows: u64,
    /// Bytes that were copied.
    pub bytes: u64,
    /// Whether the dataset is a new one.
    pub created: bool,
    /// Rows of runs that no drive gave.
    pub rows_lost: u64,
}

/// A run on its way: its name at the former home, and what the manifest is to say of it.
struct CopiedRun {
    partition: u32,
    loaded: Loaded,
}

impl Fleet {
    /// Copies the runs that a domain does not have to where the dataset lies, and names them in one change: all of it, or nothing.
    #[boxed]
    pub async fn take_up(&self, spec: &TakeUp, tell: TellMove) -> Result<TakeUpOutcome, Fault> {
        if spec.into.domain != spec.name.domain {
            let what = format!("{} and {} are not in one domain", spec.name, spec.into);
            return Err(Fault::invalid(what).hint("take it up within its domain, and copy it from there with SQL"));
        }
        let _writing = self.writing().await;
        let drives = self.refreshed().await;
        let (drive, aside) = self.find_aside(spec, &drives).await?;
        let dataset = aside.datasets.get(&spec.name.dataset).ok_or_else(|| nothing_of(&spec.name))?;
        let now = self.manifest(&aside.domain, &drives).await?;
        let wanted = lacking(dataset, now.datasets.get(&spec.name.dataset));
        let target = target(spec, &aside, dataset, &now, now.lost_home(drive.id()))?;
        let wanted = not_named(wanted, &target.dataset);
        if wanted.is_empty() {
            return Err(Fault::invalid(format!("{} has all rows of it already", spec.into)).hint(drop_hint(&drive, &aside)));
        }
        let (begun, taken) = (Mutex::default(), TakeUpOutcome::default());
        let mut work = Work { spec, from: dataset.id, target, drives: &drives, tell, taken, begun: &begun };
        work.taken.created = work.target.is_new;
        let given = attended(self, || begun.lock().clone(), work.copy_all(&drive, &wanted)).await?;
        let target = work.target;
        let edit = Naming { name: &spec.into, target: &target, given: &given };
        match self.commit(&edit).await {
            Ok(Committed { .. }) => Ok(work.taken),
            Err(NotCommitted { fault, certain }) => {
                if certain {
                    self.discard_given(spec, &target, &given, &drives).await;
                }
                Err(fault.at(format_args!("taking up {}", spec.name)))
            }
        }
    }

    /// The one manifest that is meant.
    async fn find_aside(&self, spec: &TakeUp, drives: &Drives) -> Result<(ConnectedDrive, Manifest), Fault> {
        let mut found = self.read_asides(drives, Some(&spec.name.domain)).await?;
        found.retain(|(drive, aside)| {
            aside.datasets.contains_key(&spec.name.dataset)
                && spec.drive.is_none_or(|wanted| wanted == drive.id())
                && spec.version.is_none_or(|wanted| wanted == aside.version)
        });
        if found.len() > 1 {
            let places: Vec<String> =
                found.iter().map(|(drive, aside)| format!("version {} on drive {}", aside.version, drive.id())).collect();
            let what = format!("{} is set aside several times: {}", spec.name, places.join(", "));
            return Err(Fault::invalid(what).hint("say which one: --drive ID --version N"));
        }
        found.pop().ok_or_else(|| nothing_of(&spec.name))
    }

    /// Deletes what was copied, where the manifest as it is now does not name it: another host may have taken it up, too.
    async fn discard_given(&self, spec: &TakeUp, target: &Target, given: &[CopiedRun], drives: &Drives) {
        let Ok(now) = self.manifest(&spec.into.domain, drives).await else { return };
        let present = now.datasets.get(&spec.into.dataset).filter(|present| present.id == target.dataset.id);
        for given in given {
            let load = given.loaded.run.load;
            let partition = present.and_then(|present| present.partitions.get(given.partition as usize));
            if partition.is_some_and(|partition| partition.runs.iter().any(|run| run.load == load)) {
                continue;
            }
            let wanted = Discard {
                name: spec.into.clone(),
                dataset: target.dataset.id,
                loads: Loads::Only(vec![load]),
                partition: Some(given.partition),
                seen: Some(now.version),
            };
            discard_at(drives, target.copies(given.partition).iter().copied(), &wanted).await;
        }
    }
}

/// The dataset that gets the rows: as it was read, or a new one without rows.
struct Target {
    dataset: Dataset,
    is_new: bool,
}

impl Target {
    fn copies(&self, partition: u32) -> &[DriveId] {
        self.dataset.partitions.get(partition as usize).map_or(&[], |partition| &partition.copies)
    }
}

fn target(spec: &TakeUp, aside: &Manifest, dataset: &Dataset, now: &Manifest, known: Option<u64>) -> Result<Target, Fault> {
    let into = &spec.into;
    let Some(present) = now.datasets.get(&into.dataset) else {
        let copies = dataset.copies.clamp(1, now.drives.len().max(1));
        let partitions = place(&now.drives, dataset.partitions.len(), copies)?;
        let id = DatasetId(rand::random());
        return Ok(Target { dataset: Dataset { id, copies, merged: 0, partitions, ..dataset.clone() }, is_new: true });
    };
    let elsewhere = format!("take it up under a new name: --into {}.NAME", into.domain);
    if !is_alike(present, dataset) {
        let what = format!("{into} has other columns than {} had at its former home, or is laid out in another way", spec.name);
        return Err(Fault::invalid(what).hint(elsewhere));
    }
    let is_unsure = present.merged > aside.version || (present.id == dataset.id && may_have(present, dataset, aside, known));
    if is_unsure {
        let what = format!("runs of {into} were merged since its drives parted, so it may have some of these rows already");
        return Err(Fault::invalid(what).hint(format!("{elsewhere}, and compare both with SQL")));
    }
    Ok(Target { dataset: present.clone(), is_new: false })
}

/// Whether the runs of one can be runs of the other.
fn is_alike(present: &Dataset, dataset: &Dataset) -> bool {
    present.schema == dataset.schema
        && present.partitioning == dataset.partitioning
        && present.partitions.len() == dataset.partitions.len()
        && present.sort == dataset.sort
        && present.encoding == dataset.encoding
}

fn not_named(wanted: Vec<Lacking>, target: &Dataset) -> Vec<Lacking> {
    let names = |lacking: &Lacking| {
        let partition = target.partitions.get(lacking.partition as usize);
        partition.is_some_and(|partition| partition.runs.iter().any(|run| run.load == lacking.run.load))
    };
    wanted.into_iter().filter(|lacking| !names(lacking)).collect()
}

fn nothing_of(name: &DatasetName) -> Fault {
    Fault::invalid(format!("no drive that is reached has set aside a dataset {name}"))
        .hint("`pithead drive aside ls` shows what there is")
}

fn drop_hint(drive: &ConnectedDrive, aside: &Manifest) -> String {
    format!("drop it where it is set aside: pithead drive aside drop {} {} {}", drive.id(), aside.domain, aside.version)
}

/// The copying.
struct Work<'a> {
    spec: &'a TakeUp,
    /// The incarnation at the former home.
    from: DatasetId,
    target: Target,
    drives: &'a Drives,
    tell: TellMove,
    taken: TakeUpOutcome,
    /// Runs that were copied or are being so, and where to.
    begun: &'a Mutex<Vec<(DriveId, SliceKey)>>,
}

impl Work<'_> {
    /// Copies runs to where the dataset lies, each from the first drive that gives it.
    async fn copy_all(&mut self, drive: &ConnectedDrive, wanted: &[Lacking]) -> Result<Vec<CopiedRun>, Fault> {
        let total: u64 = wanted.iter().map(|lacking| lacking.run.bytes).sum();
        let mut given = Vec::new();
        for lacking in wanted {
            (self.tell)(MoveProgress {
                bytes_done: self.taken.bytes,
                bytes_total: total.max(self.taken.bytes),
                what: format!("partition {} of {}", lacking.partition, self.spec.name),
            });
            match self.copy(drive, lacking).await {
                Ok(columns) => {
                    self.taken.rows += lacking.run.rows;
                    given.push(CopiedRun { partition: lacking.partition, loaded: Loaded { run: lacking.run, columns } });
                }
                Err(fault) if self.spec.partial && is_gone(&fault) => {
                    tracing::warn!("not taken up: {}", fault.message);
                    self.taken.rows_lost += lacking.run.rows;
                }
                Err(fault) if is_gone(&fault) => return Err(fault.hint("--partial takes up the others without it")),
                Err(fault) => return Err(fault),
            }
        }
        match given.is_empty() {
            true => {
                Err(Fault::new(Blame::Corrupt, format!("no run of {} is left on the drives that are reached", self.spec.name)))
            }
            false => Ok(given),
        }
    }

    /// Copies one run. Returns the summaries of its columns.
    async fn copy(&mut self, drive: &ConnectedDrive, lacking: &Lacking) -> Result<Vec<pithead_model::ColumnSummary>, Fault> {
        let key = self.key(&self.spec.name, self.from, lacking.run, lacking.partition);
        let to_key = self.key(&self.spec.into, self.target.dataset.id, lacking.run, lacking.partition);
        let others = lacking.copies.iter().filter(|id| **id != drive.id()).filter_map(|id| self.drives.find(*id));
        let sources: Vec<&ConnectedDrive> = std::iter::once(drive).chain(others).collect();
        let mut first = None;
        for from in sources {
            match self.copy_from(from, &key, &to_key, lacking.partition).await {
                Ok(columns) => return Ok(columns),
                Err(fault) if is_gone(&fault) => _ = first.get_or_insert(fault),
                Err(fault) => return Err(fault),
            }
        }
        Err(first.unwrap_or_else(|| self.drives.not_connected(&lacking.copies)))
    }

    async fn copy_from(
        &mut self,
        from: &ConnectedDrive,
        key: &SliceKey,
        to_key: &SliceKey,
        partition: u32,
    ) -> Result<Vec<pithead_model::ColumnSummary>, Fault> {
        let directory = from.door.directory(key.clone()).await.map_err(|fault| fault.at_drive(from.label()))?;
        for id in self.target.copies(partition).to_vec() {
            let to = self.drives.get(id)?;
            if key != to_key || to.id() != from.id() {
                self.begun.lock().push((id, to_key.clone()));
                self.taken.bytes += relay_as(key, to_key, from, to).await?;
            }
        }
        Ok(directory.columns)
    }

    fn key(&self, name: &DatasetName, dataset: DatasetId, run: Run, partition: u32) -> SliceKey {
        SliceKey { name: name.clone(), dataset, load: run.load, partition, number: None }
    }
}

/// Whether a run is not there any more, or is damaged.
fn is_gone(fault: &Fault) -> bool {
    matches!(fault.blame, Blame::Conflict | Blame::Corrupt)
}

/// Names runs that were taken up.
struct Naming<'a> {
    name: &'a DatasetName,
    target: &'a Target,
    given: &'a [CopiedRun],
}

impl Naming<'_> {
    fn append(&self, dataset: &mut Dataset) -> Result<(), Fault> {
        for given in self.given {
            let conflict = |what: String| Err(Fault::new(Blame::Conflict, what).hint("try again"));
            let Some(partition) = dataset.partitions.get_mut(given.partition as usize) else {
                return conflict(format!("{} is laid out in another way meanwhile", self.name));
            };
            if partition.runs.iter().any(|run| run.load == given.loaded.run.load) {
                return conflict(format!("another host has taken up rows into {} first", self.name));
            }
            if partition.copies.iter().any(|drive| !self.target.copies(given.partition).contains(drive)) {
                return conflict(format!("partition {} of {} was moved meanwhile", given.partition, self.name));
            }
            partition.append(given.loaded.clone());
        }
        Ok(())
    }
}

impl Edit for Naming<'_> {
    type Output = ();

    fn domain(&self) -> &str {
        &self.name.domain
    }

    fn subject(&self) -> String {
        self.name.to_string()
    }

    fn apply(&self, manifest: &mut Manifest) -> Result<(), Fault> {
        let read = &self.target.dataset;
        if !self.target.is_new {
            let present = manifest.datasets.get_mut(&self.name.dataset);
            return match present.filter(|present| present.id == read.id && present.merged == read.merged) {
                Some(present) => self.append(present),
                None => Err(Fault::new(Blame::Conflict, format!("{} was changed meanwhile", self.name)).hint("try again")),
            };
        }
        if manifest.datasets.contains_key(&self.name.dataset) {
            return Err(
                already_there(self.name).hint("another host made it first: `pithead drive aside ls` shows what is left")
            );
        }
        if let Some(stray) =
            read.partitions.iter().flat_map(|partition| &partition.copies).find(|id| !manifest.drives.contains(id))
        {
            let what = format!("domain {} is on other drives meanwhile, without {stray}", self.name.domain);
            return Err(Fault::new(Blame::Conflict, what).hint("try again"));
        }
        let mut dataset = read.clone();
        self.append(&mut dataset)?;
        manifest.datasets.insert(self.name.dataset.clone(), dataset);
        Ok(())
    }

    fn runs(&self) -> Vec<(DriveId, SliceKey)> {
        let mut runs: BTreeMap<(DriveId, SliceKey), ()> = BTreeMap::new();
        for given in self.given {
            let (name, dataset, load) = (self.name.clone(), self.target.dataset.id, given.loaded.run.load);
            let run = SliceKey { name, dataset, load, partition: given.partition, number: None };
            runs.extend(self.target.copies(given.partition).iter().map(|id| ((*id, run.clone()), ())));
        }
        runs.into_keys().collect()
    }

    fn is_in(&self, manifest: &Manifest) -> bool {
        let present = manifest.datasets.get(&self.name.dataset).filter(|present| present.id == self.target.dataset.id);
        present.is_some_and(|present| {
            self.given.iter().all(|given| {
                let partition = present.partitions.get(given.partition as usize);
                partition.is_some_and(|partition| partition.runs.iter().any(|run| run.load == given.loaded.run.load))
            })
        })
    }

    fn may_be_hidden(&self, manifest: &Manifest, version: u64) -> bool {
        let present = manifest.datasets.get(&self.name.dataset).filter(|present| present.id == self.target.dataset.id);
        present.is_some_and(|present| present.merged > version)
    }

    fn may_be_undone(&self, manifest: &Manifest, version: u64) -> bool {
        let present = manifest.datasets.get(&self.name.dataset);
        manifest.version > version && present.is_none_or(|present| present.id != self.target.dataset.id)
    }
}
