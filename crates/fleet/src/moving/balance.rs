//! Which partitions go where. Pure.

use std::collections::BTreeMap;

use pithead_model::DriveId;

use super::Group;

/// Bytes that the groups put on each drive, 0 on drives without any.
pub(super) fn loads(groups: &[Group], drives: &[DriveId]) -> BTreeMap<DriveId, u64> {
    let mut loads: BTreeMap<DriveId, u64> = drives.iter().map(|drive| (*drive, 0)).collect();
    for group in groups {
        for drive in &group.copies {
            *loads.entry(*drive).or_insert(0) += group.bytes();
        }
    }
    loads
}

/// The drive with fewest bytes that holds no copy of the group yet.
pub(super) fn target(group: &Group, loads: &BTreeMap<DriveId, u64>, may: impl Fn(DriveId) -> bool) -> Option<DriveId> {
    let free = loads.iter().filter(|(drive, _)| !group.copies.contains(drive) && may(**drive));
    free.min_by_key(|(_, bytes)| **bytes).map(|(drive, _)| *drive)
}

/// What a new drive takes over, and from whom: as long as it makes the fullest drive less full, and the new one no fuller
/// than that one was. Largest first, and of equal ones rather those that the fullest drive is asked first for.
pub(super) fn for_newcomer(groups: &[Group], drives: &[DriveId], newcomer: DriveId) -> Vec<(usize, DriveId)> {
    let mut loads = loads(groups, drives);
    let mut copies: Vec<Vec<DriveId>> = groups.iter().map(|group| group.copies.clone()).collect();
    let mut moves = Vec::new();
    // Each group moves at most once.
    for _ in 0..groups.len() {
        let mine = loads.get(&newcomer).copied().unwrap_or(0);
        let mut others: Vec<(DriveId, u64)> =
            loads.iter().filter(|(drive, _)| **drive != newcomer).map(|(drive, bytes)| (*drive, *bytes)).collect();
        others.sort_by_key(|(drive, bytes)| (std::cmp::Reverse(*bytes), *drive));
        let step = others.into_iter().find_map(|(fullest, bytes)| {
            let gap = bytes.saturating_sub(mine);
            let fits = groups.iter().enumerate().filter(|(index, group)| {
                copies[*index].contains(&fullest)
                    && !copies[*index].contains(&newcomer)
                    && 0 < group.bytes()
                    && group.bytes() < gap
            });
            let best = fits.max_by_key(|(index, group)| {
                (group.bytes(), copies[*index].first() == Some(&fullest), std::cmp::Reverse(*index))
            });
            best.map(|(index, group)| (index, fullest, group.bytes()))
        });
        let Some((index, from, bytes)) = step else { break };
        copies[index].iter_mut().filter(|drive| **drive == from).for_each(|drive| *drive = newcomer);
        *loads.entry(from).or_insert(0) -= bytes;
        *loads.entry(newcomer).or_insert(0) += bytes;
        moves.push((index, from));
    }
    moves
}

/// Why a drive that was added takes nothing over.
pub(super) fn why_none(groups: &[Group], newcomer: DriveId) -> &'static str {
    if groups.iter().any(|group| group.copies.contains(&newcomer)) {
        "the drive has its share already"
    } else {
        "partitions move whole, and to move one would only change which drive has most"
    }
}

#[cfg(test)]
mod tests {
    use pithead_model::DatasetId;

    use super::*;
    use crate::moving::group::Member;

    fn group(partition: u32, copies: &[u64], bytes: u64) -> Group {
        let name = "t".parse().unwrap();
        let member = Member { name, dataset: DatasetId(1), partition, rows: bytes, bytes };
        Group { members: vec![member], copies: copies.iter().map(|id| DriveId(*id)).collect(), copies_wanted: copies.len() }
    }

    #[test]
    fn a_newcomer_takes_its_share() {
        let groups: Vec<Group> = (0..8).map(|number| group(number, &[1 + u64::from(number) % 2], 10)).collect();
        let drives = [DriveId(1), DriveId(2), DriveId(3)];
        let moves = for_newcomer(&groups, &drives, DriveId(3));
        // A third one would only change who is full.
        assert_eq!(moves, [(0, DriveId(1)), (1, DriveId(2))]);
    }

    #[test]
    fn nothing_moves_where_it_would_only_change_who_is_full() {
        let groups = [group(0, &[1], 10), group(1, &[2], 10)];
        assert!(for_newcomer(&groups, &[DriveId(1), DriveId(2), DriveId(3)], DriveId(3)).is_empty());
        assert!(for_newcomer(&[], &[DriveId(3)], DriveId(3)).is_empty());
        assert!(why_none(&groups, DriveId(3)).contains("only change which drive has most"));
        assert!(for_newcomer(&groups, &[DriveId(1), DriveId(2)], DriveId(2)).is_empty());
        assert!(why_none(&groups, DriveId(2)).contains("its share already"), "it was added before");
    }

    #[test]
    fn copies_never_meet_on_one_drive() {
        let groups: Vec<Group> = (0..12).map(|number| group(number, &[1, 2], 10)).collect();
        let moves = for_newcomer(&groups, &[DriveId(1), DriveId(2), DriveId(3)], DriveId(3));
        let mut moved: Vec<usize> = moves.iter().map(|(index, _)| *index).collect();
        moved.dedup();
        assert_eq!((moved.len(), moves.len()), (8, 8), "two thirds of one of two copies: {moves:?}");
        let free = target(&groups[0], &loads(&groups, &[DriveId(1), DriveId(2), DriveId(3)]), |_| true);
        assert_eq!(free, Some(DriveId(3)));
        assert_eq!(target(&groups[0], &loads(&groups, &[DriveId(1), DriveId(2)]), |_| true), None);
    }
}
