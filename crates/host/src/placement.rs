//! Which drive holds which partition.

use pithead_model::{DriveId, Partition};

/// Empty partitions for a new dataset, one a drive: partition `i` lies on the domain's drive `i`. So datasets that are
/// partitioned in the same way are co-partitioned.
pub(crate) fn place(drives: &[DriveId]) -> Vec<Partition> {
    drives.iter().map(|drive| Partition { drive: *drive, runs: Vec::new() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_drive_gets_one_partition_in_order() {
        let drives = [DriveId(9), DriveId(2)];
        let placed: Vec<DriveId> = place(&drives).into_iter().map(|partition| partition.drive).collect();
        assert_eq!(placed, drives);
    }
}
