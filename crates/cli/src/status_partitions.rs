//! Partitions in `pithead status`: what each drive holds of them, and how much that is asked for.

use pithead_model::Bytes;

use crate::output::{Align, Grid};
use crate::status::{Answer, uptime};
use crate::terminal::grouped;

/// A row for each partition on each drive; none if there is no partition.
pub(crate) fn partitions_grid(answers: &[Answer]) -> Option<Grid> {
    use Align::{Left, Right};
    let mut held: Vec<_> = answers
        .iter()
        .filter_map(|(label, answer)| Some((label, answer.as_ref().ok()?)))
        .flat_map(|(label, status)| status.partitions.iter().map(move |partition| (label, status.stored_bytes, partition)))
        .collect();
    if held.is_empty() {
        return None;
    }
    held.sort_by(|(a, _, left), (b, _, right)| (&left.name, left.partition, a).cmp(&(&right.name, right.partition, b)));
    let mut grid = Grid::of(&[
        ("dataset", Left),
        ("partition", Right),
        ("drive", Left),
        ("slices", Right),
        ("stored", Right),
        ("of drive", Right),
        ("sessions", Right),
        ("read", Right),
        ("CPU", Right),
        ("idle", Right),
    ]);
    for (label, stored_bytes, partition) in held {
        grid.push(vec![
            partition.name.to_string(),
            partition.partition.to_string(),
            label.clone(),
            grouped(partition.slices),
            Bytes(partition.bytes).to_string(),
            share(partition.bytes, stored_bytes),
            grouped(partition.sessions),
            Bytes(partition.bytes_read).to_string(),
            crate::terminal::seconds(partition.cpu_ns as f64 / 1e9),
            partition.idle_s.map(uptime).unwrap_or_default(),
        ]);
    }
    Some(grid)
}

fn share(bytes: u64, of: u64) -> String {
    match of {
        0 => String::new(),
        of => format!("{:.0}%", 100.0 * bytes as f64 / of as f64),
    }
}

#[cfg(test)]
mod tests {
    use pithead_embed::{DriveStatus, PartitionUse};
    use pithead_model::{Blame, ByLevel, DatasetId, DriveId, Fault};

    use super::*;

    #[test]
    fn each_copy_of_a_partition_has_a_row() {
        let partition = |bytes| PartitionUse {
            name: "t".parse().unwrap(),
            dataset: DatasetId(1),
            partition: 3,
            slices: 2,
            bytes,
            sessions: 1_000,
            slices_read: 4,
            bytes_read: 7_000_000,
            cpu_ns: 1_500_000_000,
            idle_s: Some(90),
        };
        let status = |partitions| DriveStatus {
            drive: DriveId(1),
            release: "0".into(),
            uptime_s: 0,
            threads: 1,
            memory: 0,
            memory_reserved: 0,
            sessions: 0,
            slices: 0,
            stored_bytes: 4_000,
            free_bytes: 0,
            domains: vec![],
            partitions,
            link_bits_per_second: None,
            profile: None,
            cpu_share: 1.0,
            medium_bytes_per_second: None,
            work: ByLevel::default(),
            costs: vec![],
            away: vec![],
        };
        let down = Err(Fault::new(Blame::Device, "down"));
        let answers =
            [("b:1".to_owned(), Ok(status(vec![partition(1_000)]))), ("a:1".to_owned(), Ok(status(vec![partition(1_000)])))];
        let mut out = Vec::new();
        partitions_grid(&answers).unwrap().write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let row = " main.t  |         3 | a:1   |      2 | 1.0 kB |      25% |    1,000 | 7.0 MB | 1.5 s | 1 min";
        assert!(text.lines().nth(2).is_some_and(|line| line.starts_with(row)), "{text}");
        assert!(partitions_grid(&[("c:1".to_owned(), down)]).is_none());
    }
}
