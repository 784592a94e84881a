//! The datasets that the drives below attach in place, as one drive would tell of them. An array holds no files: it only knows which
//! drive has which.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use futures::future::join_all;
use parking_lot::Mutex;
use pithead_door::{AttachedDataset, Attachments, Refusal, RefusedDataset, check_attachments, same_columns};
use pithead_fleet::ConnectedDrive;
use pithead_model::{DatasetName, Fault, LoadId, SliceKey, total};
use xxhash_rust::xxh3::xxh3_64;

use crate::summaries::summaries;

/// The last reports of the drives below.
#[derive(Debug, Default)]
pub(crate) struct AttachedBelow(Mutex<AttachmentReports>);

/// What the drives below told of their attached datasets.
#[derive(Debug, Default)]
struct AttachmentReports {
    /// By drive; none: it has not told yet.
    by_drive: BTreeMap<usize, Arc<Attachments>>,
    /// All of them, as one.
    joined: Arc<Attachments>,
    /// The drive of each run.
    places: HashMap<(DatasetName, LoadId), usize>,
}

impl AttachedBelow {
    /// The drive that attaches a run; none: no drive told of it.
    pub(crate) fn place(&self, run: &SliceKey) -> Option<usize> {
        let told = self.0.lock();
        // Most arrays attach nothing, and are asked for each run.
        (!told.places.is_empty()).then(|| told.places.get(&(run.name.clone(), run.load)).copied()).flatten()
    }

    /// What the drives attach now; none: it is as it was in the version that is known. One that does not tell is a fault, because
    /// without its files answers would be shorter.
    pub(crate) async fn ask(&self, drives: &[ConnectedDrive], known: Option<u64>) -> Result<Option<Arc<Attachments>>, Fault> {
        let asking = drives.iter().enumerate().filter(|(_, drive)| drive.welcome.attaches).map(|(index, drive)| async move {
            let before = self.0.lock().by_drive.get(&index).cloned();
            let news = drive.door.attached(before.as_ref().map(|before| before.version)).await;
            let told = news.map_err(|fault| fault.at_drive(drive.label()))?.or(before).unwrap_or_default();
            check_attachments(&told).map_err(|fault| fault.at_drive(drive.label()))?;
            Ok::<_, Fault>((index, told))
        });
        let by_drive: BTreeMap<usize, Arc<Attachments>> = join_all(asking).await.into_iter().collect::<Result<_, Fault>>()?;
        let mut told = self.0.lock();
        // Where two have asked at one time, the later one to be here counts: what is not as it tells is an error at the drive.
        if versions(&told.by_drive) != versions(&by_drive) {
            *told = joined(drives, by_drive);
        }
        Ok((known != Some(told.joined.version)).then(|| Arc::clone(&told.joined)))
    }
}

fn versions(by_drive: &BTreeMap<usize, Arc<Attachments>>) -> Vec<(usize, u64)> {
    by_drive.iter().map(|(index, told)| (*index, told.version)).collect()
}

fn joined(drives: &[ConnectedDrive], by_drive: BTreeMap<usize, Arc<Attachments>>) -> AttachmentReports {
    let label = |index: usize| drives.get(index).map_or("?", ConnectedDrive::label);
    let mut refused: BTreeMap<DatasetName, Refusal> = BTreeMap::new();
    let mut parts: BTreeMap<&DatasetName, Vec<(usize, &AttachedDataset)>> = BTreeMap::new();
    for (index, told) in &by_drive {
        for one in &told.refused {
            refused.entry(one.name.clone()).or_insert_with(|| one.refusal.clone().at(format_args!("on {}", label(*index))));
        }
        for dataset in &told.datasets {
            parts.entry(&dataset.name).or_default().push((*index, dataset));
        }
    }
    let (mut datasets, mut places) = (Vec::new(), HashMap::new());
    for (name, parts) in parts {
        match one(&parts, label) {
            Ok((dataset, runs)) if !refused.contains_key(name) => {
                datasets.push(dataset);
                places.extend(runs.into_iter().map(|(load, index)| ((name.clone(), load), index)));
            }
            Ok(_) => {}
            Err(why) => {
                refused.entry(name.clone()).or_insert(why.into());
            }
        }
    }
    let refused = refused.into_iter().map(|(name, refusal)| RefusedDataset { name, refusal }).collect();
    let version = match by_drive.values().all(|told| told.version == 0) {
        true => 0,
        false => version(&by_drive),
    };
    let hides = by_drive.values().any(|told| told.hides);
    AttachmentReports { joined: Arc::new(Attachments { version, datasets, refused, hides }), places, by_drive }
}

/// Another one whenever a drive's is another.
fn version(by_drive: &BTreeMap<usize, Arc<Attachments>>) -> u64 {
    let bytes: Vec<u8> =
        versions(by_drive).iter().flat_map(|(index, version)| [*index as u64, *version]).flat_map(u64::to_le_bytes).collect();
    xxh3_64(&bytes)
}

/// One dataset of several drives' parts, and the drive of each of its runs; or why they cannot be one.
fn one<'a>(
    parts: &[(usize, &AttachedDataset)],
    label: impl Fn(usize) -> &'a str,
) -> Result<(AttachedDataset, HashMap<LoadId, usize>), String> {
    let (first_index, first) = parts[0];
    let mut places = HashMap::new();
    for (index, part) in parts {
        if !same_columns(&first.schema, &part.schema) {
            return Err(format!("on {} it has other columns than on {}", label(*index), label(first_index)));
        }
        for run in &part.runs {
            if let Some(other) = places.insert(run.load, *index) {
                let (these, those) = (label(other), label(*index));
                return Err(format!("{these} and {those} attach the same file: let one of them attach it"));
            }
        }
    }
    let rows = |part: &AttachedDataset| total(part.runs.iter().map(|run| run.rows));
    let with_rows = parts.iter().filter(|(_, part)| !part.runs.is_empty());
    let encodings: BTreeSet<&str> = parts.iter().flat_map(|(_, part)| part.encoding.split(", ")).collect();
    let dataset = AttachedDataset {
        name: first.name.clone(),
        schema: Arc::clone(&first.schema),
        runs: parts.iter().flat_map(|(_, part)| part.runs.iter().cloned()).collect(),
        columns: summaries(with_rows.map(|(_, part)| (rows(part), part.columns.as_slice()))),
        encoding: encodings.into_iter().filter(|encoding| !encoding.is_empty()).collect::<Vec<_>>().join(", "),
    };
    Ok((dataset, places))
}
