//! [`due`]: which runs are merged. Pure.
//!
//! The runs at the end of a partition are merged once there are many of them, and only if that makes a run that is much larger than
//! each: so a row is written again a few times at most until it is in a run that is not small (6 times with slices of the default
//! size), and of each size only a few runs are left (about 50 in all). Runs keep their order, so what is merged follows each other.

use pithead_model::Run;

/// Runs that are merged at least.
const RUNS_MIN: usize = 16;
/// How many times the rows of the largest of its parts a merged run has at least.
const GROWTH: u64 = 8;
/// Small runs at the end that are merged whatever becomes of it: where loads of many sizes alternate.
const RUNS_MAX: usize = 128;
/// Stored bytes from which on a run is not small, however few its rows are.
const SMALL_BYTES_MAX: u64 = 4 << 20;
/// Stored bytes that are merged at one time.
const MERGED_BYTES_MAX: u64 = 64 << 20;

/// The runs at the end of a partition that are to become one, as many as there can be; none: they stay as they are.
pub(super) fn due(runs: &[Run], slice_rows: usize) -> Option<&[Run]> {
    let is_small = |run: &&Run| run.slices <= 1 && run.rows < slice_rows as u64 && run.bytes < SMALL_BYTES_MAX;
    let (mut rows, mut bytes, mut largest, mut start) = (0_u64, 0_u64, 0, None);
    for (count, run) in (1..).zip(runs.iter().rev().take_while(is_small)) {
        (rows, bytes) = (rows.saturating_add(run.rows), bytes.saturating_add(run.bytes));
        largest = run.rows.max(largest);
        if bytes > MERGED_BYTES_MAX || count > pithead_door::MERGED_MAX {
            break;
        }
        if count >= RUNS_MAX || (count >= RUNS_MIN && rows >= GROWTH.saturating_mul(largest)) {
            start = Some(runs.len() - count);
        }
    }
    runs.get(start?..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pithead_model::LoadId;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    const SLICE_ROWS: usize = 262_144;

    fn run(rows: u64) -> Run {
        Run { load: LoadId(rows), slices: rows.div_ceil(SLICE_ROWS as u64) as u32, rows, bytes: 1_000 + rows * 10 }
    }

    fn runs(rows: &[u64]) -> Vec<Run> {
        rows.iter().copied().map(run).collect()
    }

    fn due_rows(rows: &[u64]) -> Option<Vec<u64>> {
        due(&runs(rows), SLICE_ROWS).map(|due| due.iter().map(|run| run.rows).collect())
    }

    /// Loads one after the other, merging as appends do: what is left, and rows written again.
    fn trickle(loads: impl Iterator<Item = u64>) -> (Vec<Run>, u64, usize) {
        let (mut runs, mut rewritten, mut most) = (Vec::new(), 0, 0);
        for rows in loads {
            runs.push(run(rows));
            if let Some(due) = due(&runs, SLICE_ROWS) {
                let merged = due.iter().map(|run| run.rows).sum();
                rewritten += merged;
                let first = runs.len() - due.len();
                runs.splice(first.., [run(merged)]);
            }
            most = most.max(runs.len());
        }
        (runs, rewritten, most)
    }

    #[test]
    fn many_runs_of_one_size_become_one() {
        assert_eq!(due_rows(&[1; 15]), None);
        assert_eq!(due_rows(&[1; 16]), Some(vec![1; 16]));
        assert_eq!(due_rows(&[]), None);
        assert_eq!(due_rows(&[0; 16]), Some(vec![0; 16]), "runs without rows");
    }

    #[test]
    fn a_run_is_not_written_again_for_the_sake_of_a_few_rows() {
        let mut rows = vec![5_000];
        rows.extend([1; 15]);
        assert_eq!(due_rows(&rows), None);
        rows.push(1);
        assert_eq!(due_rows(&rows), Some(vec![1; 16]));
        assert_eq!(due_rows(&[16; 7].into_iter().chain([1; 16]).collect::<Vec<_>>()).map(|due| due.len()), Some(23));
    }

    #[test]
    fn what_is_not_small_stays() {
        let full = SLICE_ROWS as u64;
        assert_eq!(due_rows(&[full; 40]), None);
        let mut rows = vec![1; 20];
        rows.push(full);
        rows.extend([2; 16]);
        assert_eq!(due_rows(&rows), Some(vec![2; 16]));
        let large = |bytes| [Run { bytes, ..run(1) }; 16];
        assert!(due(&large(SMALL_BYTES_MAX), SLICE_ROWS).is_none());
        assert_eq!(due(&large(SMALL_BYTES_MAX - 1), SLICE_ROWS).map(<[Run]>::len), Some(16));
        assert!(due(&[Run { slices: 2, ..run(1) }; 16], SLICE_ROWS).is_none(), "slices that bytes have ended");
        assert!(due(&runs(&[5; 16]), 5).is_none());
    }

    #[test]
    fn single_rows_leave_few_runs_and_are_written_a_few_times() {
        let count = 300_000;
        let (runs, rewritten, most) = trickle((0..count).map(|_| 1));
        assert_eq!(runs.iter().map(|run| run.rows).sum::<u64>(), count);
        assert!(most <= 60 && rewritten <= 6 * count, "{most} runs, {rewritten} rows");
    }

    #[test]
    fn runs_are_bounded_whatever_comes() {
        let mut random = StdRng::seed_from_u64(16);
        let sizes = [1, 1, 1, 2, 7, 16, 100, 1_000, 50_000];
        for round in 0..20 {
            let loads: Vec<u64> = (0..5_000).map(|_| sizes[random.random_range(0..sizes.len() - round % 5)]).collect();
            let (runs, rewritten, _) = trickle(loads.iter().copied());
            let (small, rows) = (runs.iter().filter(|run| run.slices <= 1).count(), loads.iter().sum::<u64>());
            assert_eq!(runs.iter().map(|run| run.rows).sum::<u64>(), rows);
            assert!(small <= 2 * RUNS_MAX && rewritten <= 4 * rows, "round {round}: {small} runs, {rewritten} of {rows} rows");
        }
        // Each run larger than all before it together, with small ones between.
        let (runs, ..) = trickle((0..400).map(|number| if number % 16 == 15 { 1 << (number / 25) } else { 1 }));
        assert!(runs.len() <= RUNS_MAX, "{}", runs.len());
    }
}
