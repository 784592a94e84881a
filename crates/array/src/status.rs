//! What an array says of itself: what its drives say, added up.

use std::collections::BTreeMap;

use futures::future::join_all;
use pithead_door::{DriveStatus, PartitionUse, Welcome};
use pithead_model::{ByLevel, Counts, Fault, PROTOCOL_VERSION, total};

use crate::array::Inner;

const RELEASE: &str = env!("CARGO_PKG_VERSION");

impl Inner {
    /// Drives that do not answer are left out: the array has to say of the rest how it is, or one drive that is down would
    /// keep every host away from its manifests.
    pub(crate) async fn status(&self) -> Result<DriveStatus, Fault> {
        let asked = self.drives.iter().map(|drive| async move {
            let status = drive.door.status().await;
            status
                .inspect_err(
                    |fault| tracing::warn!(drive = drive.label(), %fault, "a drive of the array does not say how it is"),
                )
                .ok()
        });
        let below: Vec<DriveStatus> = join_all(asked).await.into_iter().flatten().collect();
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
            cpu_share: 1.0,
            medium_bytes_per_second: None,
            work: work(&below),
            costs: vec![],
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
            cpu_share: 1.0,
            merges: false,
            attaches: self.drives.iter().any(|drive| drive.welcome.attaches),
        }
    }
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
    use pithead_model::DatasetId;

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

    #[test]
    fn a_partition_is_told_of_once() {
        let told = partitions(&[part(0, 2, None), part(1, 1, Some(9)), part(0, 3, Some(4))]);
        let told: Vec<_> = told.iter().map(|it| (it.partition, it.slices, it.bytes, it.sessions, it.idle_s)).collect();
        assert_eq!(told, [(0, 5, 50, 3, Some(4)), (1, 1, 10, 3, Some(9))]);
    }
}
