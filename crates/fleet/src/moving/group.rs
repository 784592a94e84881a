//! [`Group`]: partitions that lie on the same drives, and move together so that they can be joined there.

use std::collections::BTreeMap;

use pithead_model::{DatasetId, DatasetName, DriveId, LoadId, Manifest, Partition, SliceKey};

/// One dataset's partition in a group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Member {
    pub(crate) name: DatasetName,
    pub(crate) dataset: DatasetId,
    pub(crate) partition: u32,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

/// Partitions of the same number of datasets that are placed alike.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    pub(crate) members: Vec<Member>,
    /// Where they lie.
    pub(crate) copies: Vec<DriveId>,
    /// Drives that they are to be on.
    pub(crate) copies_wanted: usize,
}

impl Group {
    /// Stored bytes of one copy.
    pub(crate) fn bytes(&self) -> u64 {
        self.members.iter().map(|member| member.bytes).sum()
    }

    /// For people.
    pub(crate) fn label(&self) -> String {
        match self.members.as_slice() {
            [] => "nothing".to_owned(),
            [first] => format!("partition {} of {}", first.partition, first.name),
            [first, others @ ..] => {
                format!("partition {} of {} and {} more", first.partition, first.name, others.len())
            }
        }
    }
}

impl Member {
    /// The partition in a manifest; none: the incarnation is gone.
    pub(crate) fn find<'a>(&self, manifest: &'a Manifest) -> Option<&'a Partition> {
        let dataset = manifest.datasets.get(&self.name.dataset).filter(|dataset| dataset.id == self.dataset)?;
        dataset.partitions.get(self.partition as usize)
    }

    /// The same, to be changed.
    pub(crate) fn find_mut<'a>(&self, manifest: &'a mut Manifest) -> Option<&'a mut Partition> {
        let dataset = manifest.datasets.get_mut(&self.name.dataset).filter(|dataset| dataset.id == self.dataset)?;
        dataset.partitions.get_mut(self.partition as usize)
    }

    /// Whether a manifest wants one of its runs on a drive.
    pub(crate) fn is_to_be_on(&self, drive: DriveId, load: LoadId, manifest: &Manifest) -> bool {
        let partition = self.find(manifest);
        partition.is_some_and(|there| there.copies.contains(&drive) && there.runs.iter().any(|run| run.load == load))
    }

    /// How many copies its dataset is to have.
    pub(crate) fn copies_wanted(&self, manifest: &Manifest) -> usize {
        manifest.datasets.get(&self.name.dataset).map_or(0, |dataset| dataset.copies)
    }

    /// One of its runs.
    pub(crate) fn run(&self, load: LoadId) -> SliceKey {
        SliceKey { name: self.name.clone(), dataset: self.dataset, load, partition: self.partition, number: None }
    }
}

/// All partitions of a domain. Those of datasets whose whole placement is the same are grouped by number, and also by how
/// many copies they are to have.
pub(crate) fn groups(manifest: &Manifest) -> Vec<Group> {
    type Placement<'a> = (Vec<&'a Vec<DriveId>>, usize, u32);
    let mut found: BTreeMap<Placement, Group> = BTreeMap::new();
    for (name, dataset) in &manifest.datasets {
        let placement: Vec<&Vec<DriveId>> = dataset.partitions.iter().map(|partition| &partition.copies).collect();
        for (number, partition) in (0..).zip(&dataset.partitions) {
            let group = found.entry((placement.clone(), dataset.copies, number)).or_insert_with(|| Group {
                members: vec![],
                copies: partition.copies.clone(),
                copies_wanted: dataset.copies,
            });
            group.members.push(Member {
                name: manifest.name(name),
                dataset: dataset.id,
                partition: number,
                rows: partition.runs.iter().map(|run| run.rows).sum(),
                bytes: partition.runs.iter().map(|run| run.bytes).sum(),
            });
        }
    }
    found.into_values().collect()
}
