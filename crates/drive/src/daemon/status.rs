//! What a drive says of itself: at first contact, and when it is asked how it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use pithead_door::{DriveStatus, Hello, PartitionUse, Welcome, check_hello};
use pithead_model::{DatasetName, Fault, PROTOCOL_VERSION};
use pithead_slice::encoding_names;
use pithead_store::{KeyRange, Store, StoreError, each_readable_entry};

use crate::daemon::Drive;
use crate::sessions::PartitionKey;
use crate::storage::{SLICE_PREFIX, StoredSlice, parse_slice_key};

const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// What is stored of one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stored {
    slices: u64,
    bytes: u64,
}

/// Partitions with what is stored of each.
type Partitions = BTreeMap<PartitionKey, Stored>;

impl Drive {
    pub(crate) fn welcome(&self, hello: &Hello) -> Result<Welcome, Fault> {
        let welcome = Welcome {
            protocol: PROTOCOL_VERSION,
            release: RELEASE.to_owned(),
            drive: self.storage.id,
            extensions: self.serving.functions.announced().to_vec(),
            encodings: encoding_names().into_iter().map(str::to_owned).collect(),
            threads: self.resources.workers.threads() as u32,
            link_bits_per_second: self.resources.device.link_bits_per_second(),
            cpu_share: self.resources.device.cpu_share(),
            profile: self.resources.device.profile().map(str::to_owned),
            merges: true,
            attaches: self.storage.attached.is_some(),
            beneath: vec![],
        };
        check_hello(hello, &welcome)?;
        Ok(welcome)
    }

    pub(crate) async fn read_status(&self) -> Result<DriveStatus, Fault> {
        let (store, manifests) = (Arc::clone(&self.storage.store), self.storage.manifests.clone());
        let look = move || Ok::<_, StoreError>((store.usage()?, stored(&*store)?, manifests.domains()?));
        let (usage, stored, domains) = self.resources.workers.blocking(look).await??;
        self.serving.uses.retain(|key| stored.contains_key(key));
        Ok(DriveStatus {
            drive: self.storage.id,
            release: RELEASE.to_owned(),
            uptime_s: self.resources.device.clock().now().since(self.started).as_secs(),
            threads: self.resources.workers.threads() as u32,
            memory: self.resources.budget.total(),
            memory_reserved: self.resources.budget.reserved(),
            sessions: self.sessions().count() as u32,
            slices: stored.values().map(|partition| partition.slices).sum(),
            stored_bytes: usage.value_bytes,
            free_bytes: usage.free_bytes,
            domains,
            partitions: stored.into_iter().map(|(key, stored)| self.partition_use(key, stored)).collect(),
            link_bits_per_second: self.resources.device.link_bits_per_second(),
            cpu_share: self.resources.device.cpu_share(),
            profile: self.resources.device.profile().map(str::to_owned),
            medium_bytes_per_second: self.resources.device.medium_bytes_per_second(),
            work: self.metrics.work(),
            costs: self.serving.costs.rates(),
            away: vec![],
        })
    }

    /// Refuses domains that the drive knows nothing of, and names those that there are: a service would look at them in vain.
    pub(crate) async fn check_domains(&self, named: &[String]) -> Result<(), Fault> {
        let (store, manifests, named) = (Arc::clone(&self.storage.store), self.storage.manifests.clone(), named.to_vec());
        let look = move || {
            let known: Vec<String> = manifests.domains()?.into_iter().map(|domain| domain.name).collect();
            for domain in named.iter().filter(|domain| !known.contains(domain)) {
                // Of a domain whose manifest is damaged there are slices.
                let prefix = format!("{SLICE_PREFIX}{domain}/");
                let slices = KeyRange { limit: 1, ..KeyRange::prefix(prefix.as_bytes()) };
                if store.range(&slices)?.is_empty() {
                    return Ok::<_, StoreError>(Some(unknown_domain(domain, &known)));
                }
            }
            Ok(None)
        };
        self.resources.workers.blocking(look).await??.map_or(Ok(()), Err)
    }

    fn partition_use(&self, key: PartitionKey, stored: Stored) -> PartitionUse {
        let used = self.serving.uses.of(&key);
        let now = self.resources.device.clock().now();
        PartitionUse {
            name: key.name,
            dataset: key.dataset,
            partition: key.partition,
            slices: stored.slices,
            bytes: stored.bytes,
            sessions: used.sessions,
            slices_read: used.slices_read,
            bytes_read: used.bytes_read,
            cpu_ns: used.cpu_ns,
            idle_s: used.opened.map(|opened| now.since(opened).as_secs()),
        }
    }
}

fn unknown_domain(domain: &str, known: &[String]) -> Fault {
    let there = match known {
        [] => "it has none yet".to_owned(),
        [only] => format!("there is {only}"),
        [others @ .., last] => format!("there are {} and {last}", others.join(", ")),
    };
    Fault::invalid(format!("this drive has no domain {domain}; {there}")).hint("`pithead ls` shows domains and their datasets")
}

/// What is stored of each partition, from keys alone. Keys that cannot be read are not counted: a drive must say of the rest
/// how it is, or one damaged page would keep every host away.
fn stored(store: &dyn Store) -> Result<Partitions, StoreError> {
    let mut partitions = Partitions::new();
    // Keys of a partition follow each other within a load: few look-ups are needed.
    let mut last: Option<(PartitionKey, Stored)> = None;
    let whole = each_readable_entry(store, SLICE_PREFIX, |entry| {
        let Some(slice) = parse_slice_key(&entry.key) else {
            tracing::warn!(key = %entry.key.escape_ascii(), "a key that is no slice's");
            return;
        };
        if !last.as_ref().is_some_and(|(key, _)| is_of(&slice, key)) {
            merge(&mut partitions, last.take());
        }
        let (_, sum) = last.get_or_insert_with(|| (partition_of(&slice), Stored::default()));
        if slice.is_slice {
            sum.slices += 1;
            sum.bytes += entry.bytes;
        }
    })?;
    if !whole {
        tracing::warn!("a page of the index is damaged: keys on it are not counted");
    }
    merge(&mut partitions, last);
    Ok(partitions)
}

fn merge(partitions: &mut Partitions, part: Option<(PartitionKey, Stored)>) {
    if let Some((key, stored)) = part {
        let sum = partitions.entry(key).or_default();
        sum.slices += stored.slices;
        sum.bytes += stored.bytes;
    }
}

fn is_of(slice: &StoredSlice<'_>, key: &PartitionKey) -> bool {
    (slice.partition, slice.dataset) == (key.partition, key.dataset)
        && (slice.domain, slice.dataset_name) == (key.name.domain.as_str(), key.name.dataset.as_str())
}

fn partition_of(slice: &StoredSlice<'_>) -> PartitionKey {
    let name = DatasetName { domain: slice.domain.to_owned(), dataset: slice.dataset_name.to_owned() };
    PartitionKey { name, dataset: slice.dataset, partition: slice.partition }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::slice_key;
    use pithead_model::{DatasetId, LoadId, SliceKey};
    use pithead_store::{Durability, MemoryStore, Write};

    fn run(dataset: &str, load: u64, partition: u32) -> SliceKey {
        let name = dataset.parse().unwrap();
        SliceKey { name, dataset: DatasetId(1), load: LoadId(load), partition, number: None }
    }

    #[test]
    fn partitions_are_summed_over_their_loads() {
        let store = MemoryStore::new();
        for run in [run("t", 1, 0), run("t", 1, 1), run("t", 2, 0), run("u", 3, 0)] {
            for (key, bytes) in [(run.clone(), 9), (run.slice(0), 10), (run.slice(1), 20)] {
                store.write(vec![Write::put(slice_key(&key), vec![0; bytes])], Durability::Through).unwrap();
            }
        }
        let foreign = Write::put("slice/what", "is this");
        let empty = Write::put(slice_key(&run("v", 4, 7)), "a run without slices");
        store.write(vec![foreign, empty], Durability::Through).unwrap();
        let found = stored(&store).unwrap();
        let found: Vec<_> =
            found.iter().map(|(key, it)| (key.name.dataset.as_str(), key.partition, it.slices, it.bytes)).collect();
        assert_eq!(found, [("t", 0, 4, 60), ("t", 1, 2, 30), ("u", 0, 2, 30), ("v", 7, 0, 0)]);
    }
}
