//! What an array says of itself: what its drives say, added up.

use std::collections::BTreeMap;

use futures::future::join_all;
use pithead_door::{DriveStatus, PartitionUse, Welcome};
use pithead_model::{ByLevel, Counts, DriveId, Fault, PROTOCOL_VERSION, total};

use crate::array::Inner;

const RELEASE: &str = env!("CARGO_PKG_VERSION");

impl Inner {
    /// Drives that do not answer are left out: the array has to say of the rest how it is, or one drive that is down would
    /// keep every host away from its manifests.
    pub(crate) async fn status(&self) -> Result<DriveStatus, Fault> {
        let asked = self.drives.iter().map(|drive| async move {
            drive.door.status().await.map_err(|fault| {
                tracing::warn!(drive = drive.label(), %fault, "a drive of the array does not say how it is");
                fault.at_drive(drive.label())
            })
        });
        let (below, away) = parted(join_all(asked).await);
        let domains = self.manifests(|manifests| Ok(manifests.domains()?)).await?;
        Ok(DriveStatus {
            drive: self.id(),
            release: RELEASE.to_owned(),
            uptime_s: self.started.elapsed().as_secs(),
            threads: self.options.threads as u32,
            memory: self.options.memory,
            memory_reserved: 0,
            sessions: self.sessions.count() as u32,
            slices: total(below.iter().map(|drive| drive.slices)),
            stored_bytes: total(below.iter().map(|drive| drive.stored_bytes)),
            free_bytes: total(below.iter().map(|drive| drive.free_bytes)),
            partitions: partitions(below.iter().flat_map(|drive| &drive.partitions)),
            domains,
            link_bits_per_second: None,
            profile: None,
            cpu_share: 1.0,
            medium_bytes_per_second: None,
            work: work(&below),
            costs: vec![],
            away,
        })
    }

    /// The array's identity is its own; its threads are those that a session may find at one of its drives, and its encodings
    /// those that all of them have.
    pub(crate) fn welcome(&self) -> Welcome {
        let below = self.drives.iter().map(|drive| drive.welcome.threads).max().unwrap_or(1);
        let mut encodings = self.drives.first().map(|drive| drive.welcome.encodings.clone()).unwrap_or_default();
        encodings.retain(|name| self.drives.iter().all(|drive| drive.welcome.encodings.contains(name)));
        Welcome {
            protocol: PROTOCOL_VERSION,
            release: RELEASE.to_owned(),
            drive: self.id(),
            extensions: self.announced(),
            encodings,
            threads: below.max(self.options.threads as u32),
            link_bits_per_second: None,
            profile: None,
            cpu_share: 1.0,
            merges: false,
            attaches: self.drives.iter().any(|drive| drive.welcome.attaches),
            beneath: beneath(self.drives.iter().map(|drive| &drive.welcome)),
        }
    }
}

/// How the drives are that say so, and why others do not, also those beneath arrays.
fn parted(answers: Vec<Result<DriveStatus, Fault>>) -> (Vec<DriveStatus>, Vec<Fault>) {
    let (mut below, mut away) = (Vec::new(), Vec::new());
    for answer in answers {
        match answer {
            Ok(status) => {
                away.extend(status.away.iter().cloned());
                below.push(status);
            }
            Err(fault) => away.push(fault),
        }
    }
    (below, away)
}

/// The drives, each followed by those beneath it.
fn beneath<'a>(drives: impl Iterator<Item = &'a Welcome>) -> Vec<DriveId> {
    drives.flat_map(|drive| std::iter::once(drive.drive).chain(drive.beneath.iter().copied())).collect()
}

/// What all of them did.
fn work(below: &[DriveStatus]) -> ByLevel<Counts> {
    let mut work = ByLevel::<Counts>::default();
    below.iter().for_each(|drive| work.add(&drive.work));
    work
}

/// Each partition once.
fn partitions<'a>(parts: impl IntoIterator<Item = &'a PartitionUse>) -> Vec<PartitionUse> {
    let mut sums: BTreeMap<_, PartitionUse> = BTreeMap::new();
    for part in parts {
        let key = (part.name.clone(), part.dataset, part.partition);
        sums.entry(key)
            .and_modify(|sum| {
                sum.slices += part.slices;
                sum.bytes += part.bytes;
                sum.sessions = sum.sessions.max(part.sessions);
                sum.slices_read += part.slices_read;
                sum.bytes_read += part.bytes_read;
                sum.cpu_ns += part.cpu_ns;
                sum.idle_s = [sum.idle_s, part.idle_s].into_iter().flatten().min();
            })
            .or_insert_with(|| part.clone());
    }
    sums.into_values().collect()
}

#[cfg(test)]
mod tests {
    use pithead_model::{Blame, DatasetId};

    use super::*;

    fn part(partition: u32, slices: u64, idle_s: Option<u64>) -> PartitionUse {
        PartitionUse {
            name: "t".parse().unwrap(),
            dataset: DatasetId(1),
            partition,
            slices,
            bytes: 10 * slices,
            sessions: 3,
            slices_read: 1,
            bytes_read: 5,
            cpu_ns: 7,
            idle_s,
        }
    }

    fn status(slices: u64, away: Vec<Fault>) -> DriveStatus {
        DriveStatus {
            drive: DriveId(1),
            release: String::new(),
            uptime_s: 0,
            threads: 1,
            memory: 0,
            memory_reserved: 0,
            sessions: 0,
            slices,
            stored_bytes: 0,
            free_bytes: 0,
            domains: vec![],
            partitions: vec![],
            link_bits_per_second: None,
            profile: None,
            cpu_share: 1.0,
            medium_bytes_per_second: None,
            work: ByLevel::default(),
            costs: vec![],
            away,
        }
    }

    #[test]
    fn drives_that_are_away_are_named_at_any_depth() {
        let fault = |text: &str| Fault::new(Blame::Device, text);
        let answers = vec![Ok(status(3, vec![])), Err(fault("drive b: down")), Ok(status(4, vec![fault("drive c: down")]))];
        let (below, away) = parted(answers);
        assert_eq!(total(below.iter().map(|drive| drive.slices)), 7);
        assert_eq!(away, [fault("drive b: down"), fault("drive c: down")]);
    }

    #[test]
    fn an_array_names_the_drives_beneath_its_arrays() {
        let welcome = |drive: u64, beneath: &[u64]| Welcome {
            protocol: PROTOCOL_VERSION,
            release: String::new(),
            drive: DriveId(drive),
            extensions: vec![],
            encodings: vec![],
            threads: 1,
            link_bits_per_second: None,
            profile: None,
            cpu_share: 1.0,
            merges: false,
            attaches: false,
            beneath: beneath.iter().copied().map(DriveId).collect(),
        };
        let drives = [welcome(1, &[]), welcome(2, &[3, 4])];
        assert_eq!(beneath(drives.iter()), [1, 2, 3, 4].map(DriveId));
    }

    #[test]
    fn a_partition_is_told_of_once() {
        let told = partitions(&[part(0, 2, None), part(1, 1, Some(9)), part(0, 3, Some(4))]);
        let told: Vec<_> = told.iter().map(|it| (it.partition, it.slices, it.bytes, it.sessions, it.idle_s)).collect();
        assert_eq!(told, [(0, 5, 50, 3, Some(4)), (1, 1, 10, 3, Some(9))]);
    }
}
