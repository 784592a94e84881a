//! Which drives hold which partition.

use pithead_model::{COPIES_MAX, DriveId, Fault, PARTITIONS_MAX, Partition};

/// Empty partitions for a new dataset: partition `i` lies on the domain's drives `i`, `i + 1` and so on, one a copy. So
/// datasets of equally many partitions and copies lie on the same drives.
pub fn place(drives: &[DriveId], partitions: usize, copies: usize) -> Result<Vec<Partition>, Fault> {
    if !(1..=PARTITIONS_MAX).contains(&partitions) {
        return Err(Fault::invalid(format!("expected 1 to {PARTITIONS_MAX} partitions, got {partitions}")));
    }
    if !(1..=COPIES_MAX).contains(&copies) {
        return Err(Fault::invalid(format!("expected 1 to {COPIES_MAX} copies, got {copies}")));
    }
    if copies > drives.len() {
        let fault = Fault::invalid(format!("{copies} copies need as many drives; the domain has {}", drives.len()));
        return Err(fault.hint("ask for fewer copies, or add a drive with `pithead drive add`"));
    }
    let copies_of =
        |partition: usize| (0..copies).filter_map(move |copy| drives.get((partition + copy) % drives.len()).copied());
    Ok((0..partitions).map(|partition| Partition::empty(copies_of(partition).collect())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_lie_on_drives_that_follow_each_other() {
        let drives = [DriveId(9), DriveId(2), DriveId(5)];
        let placed = |partitions, copies| -> Vec<Vec<u64>> {
            let placed = place(&drives, partitions, copies).unwrap();
            placed.into_iter().map(|partition| partition.copies.into_iter().map(|drive| drive.0).collect()).collect()
        };
        assert_eq!(placed(3, 1), [[9], [2], [5]]);
        assert_eq!(placed(4, 2), [[9, 2], [2, 5], [5, 9], [9, 2]]);
        assert_eq!(placed(1, 3), [[9, 2, 5]]);
    }

    #[test]
    fn what_cannot_be_placed_is_refused() {
        let drives = [DriveId(1), DriveId(2)];
        for (partitions, copies) in [(0, 1), (2, 0), (2, 3), (2, 99), (5_000, 1)] {
            let fault = place(&drives, partitions, copies).unwrap_err();
            assert_eq!(fault.blame, pithead_model::Blame::User, "{partitions} {copies}");
        }
    }
}
