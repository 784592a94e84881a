//! Rows of a run that are marked at a drive.

use super::merging::{load_values, numbers, stored};
use super::rounds::query;
use super::*;
use pithead_door::{MarkRun, Marked};
use pithead_model::{ColumnSummary, Value};

use pithead_store::{Durability, Write};

use crate::storage::slice_key;

/// Marks the rows of a run that a condition holds for.
async fn mark(drive: &Drive, condition: &str, from: &Run, into: u64) -> Marked {
    drive.mark_run(request(condition, from, into).await).await.unwrap_or_else(|fault| panic!("{condition}: {fault}"))
}

async fn request(condition: &str, from: &Run, into: u64) -> MarkRun {
    let sql = format!("SELECT ({condition}) IS TRUE AS goes FROM main.t");
    let PlanBytes::Substrait(plan) = query(&sql, &[from]).await.plan else { panic!("no Substrait") };
    MarkRun { into: load_request(into), load: from.load, plan: plan.to_vec(), time_zone: None }
}

fn bytes(drive: &Drive, run: &Run, number: u32) -> bytes::Bytes {
    drive.storage.store.get(&slice_key(&run_key(run).slice(number))).unwrap().unwrap().0
}

fn bounds(columns: &[ColumnSummary]) -> (Option<Value>, Option<Value>, bool) {
    (columns[0].min.clone(), columns[0].max.clone(), columns[0].exact)
}

#[tokio::test]
async fn slices_are_copied_marked_written_anew_or_left_out() {
    for encoding in ["arrow", "vortex", "parquet", "nsm", "pax"] {
        let Rig { drive, directory: _directory } = rig();
        let load = LoadRequest { encoding: encoding.to_owned(), ..load_request(1) };
        let made = load_values(&drive, load, &(0..40).collect::<Vec<_>>()).await.run;
        // Of the first slice one row goes, of the second one all, of the third one most, of the last one none.
        let marked = mark(&drive, "a = 3 OR a BETWEEN 10 AND 27", &made, 2).await;
        let left = marked.left.unwrap();
        assert_eq!((marked.gone, left.run.rows, left.run.slices), (19, 21, 3));
        let expected: Vec<i64> = (0..40).filter(|a| *a != 3 && !(10..=27).contains(a)).collect();
        assert_eq!(numbers(&stored(&drive, &left.run).await), expected, "{encoding}");
        assert_eq!(bytes(&drive, &left.run, 2), bytes(&drive, &made, 3));
        let marks = |number: u32| bytes(&drive, &left.run, number).ends_with(b"DELMARKS");
        assert_eq!([marks(0), marks(1), marks(2)], [true, false, false]);
        assert_eq!(bounds(&left.columns), (Some(Value::Int(0)), Some(Value::Int(39)), true));
        let found = drive.directory(run_key(&left.run)).await.unwrap();
        assert_eq!((&found.columns, found.metadata["origin"].as_str()), (&left.columns, "test"));
        assert_eq!(bounds(&found.slices[1].columns), (Some(Value::Int(28)), Some(Value::Int(29)), true));
        // Marks add up, and the run that they come from is as it was.
        let again = mark(&drive, "a IN (0, 9, 39) OR b LIKE '%row 35'", &left.run, 3).await;
        let twice = again.left.unwrap();
        let expected: Vec<i64> = expected.into_iter().filter(|a| ![0, 9, 39, 35].contains(a)).collect();
        assert_eq!((again.gone, numbers(&stored(&drive, &twice.run).await)), (4, expected.clone()), "{encoding}");
        assert_eq!(bounds(&twice.columns), (Some(Value::Int(1)), Some(Value::Int(38)), true));
        let answer = run(&*drive, query("SELECT a FROM main.t WHERE a > 1", &[&twice.run]).await).await;
        assert_eq!(answer.values, expected[1..], "{encoding}");
        assert_eq!(numbers(&stored(&drive, &made).await).len(), 40);
        let merged = drive.merge_runs(pithead_door::MergeRuns { into: load_request(4), loads: vec![twice.run.load] }).await;
        assert_eq!(numbers(&stored(&drive, &merged.unwrap().run).await), expected);
    }
}

#[tokio::test]
async fn slices_that_lose_nothing_are_stored_once() {
    let Rig { drive, directory: _directory } = rig();
    let load = LoadRequest { encoding: "arrow".to_owned(), slice_rows: 20_000, ..load_request(1) };
    let made = load_values(&drive, load, &(0..100_000).collect::<Vec<_>>()).await.run;
    let stored_bytes = || drive.storage.store.usage().unwrap().stored_bytes();
    let before = stored_bytes();
    let left = mark(&drive, "a = 3", &made, 2).await.left.unwrap().run;
    let more = stored_bytes() - before;
    assert!((1..before / 3).contains(&more), "{more} of {before} bytes were written for one of five slices");
    let again = mark(&drive, "a = 99999", &left, 3).await.left.unwrap().run;
    assert_eq!(numbers(&stored(&drive, &again).await).len(), 99_998);
    // The run that they come from may go.
    drive.discard(discard(Loads::Only(vec![made.load, left.load]))).await.unwrap();
    assert_eq!(numbers(&stored(&drive, &again).await), (0..99_999).filter(|a| *a != 3).collect::<Vec<_>>());
}

#[tokio::test]
async fn slices_that_lose_rows_share_the_bytes_of_the_others() {
    let Rig { drive, directory: _directory } = rig();
    let load = LoadRequest { encoding: "arrow".to_owned(), slice_rows: 20_000, ..load_request(1) };
    let mut left = load_values(&drive, load, &(0..100_000).collect::<Vec<_>>()).await.run;
    let stored_bytes = || drive.storage.store.usage().unwrap().stored_bytes();
    let before = stored_bytes();
    for (into, gone) in (2..).zip([4, 5, 11]) {
        let old = left.load;
        left = mark(&drive, &format!("a % {gone} = 1"), &left, into).await.left.unwrap().run;
        drive.discard(discard(Loads::Only(vec![old]))).await.unwrap();
        // A bit for each row, and what the directories take.
        assert!(stored_bytes() - before < before / 20, "{} of {before} bytes more", stored_bytes() - before);
    }
    let expected: Vec<i64> = (0..100_000).filter(|a| a % 4 != 1 && a % 5 != 1 && a % 11 != 1).collect();
    assert_eq!(numbers(&stored(&drive, &left).await), expected);
    // Most are gone now, so that nothing is left of what was stored first.
    let last = mark(&drive, "a % 10 > 0", &left, 9).await.left.unwrap().run;
    drive.discard(discard(Loads::Only(vec![left.load]))).await.unwrap();
    assert!(stored_bytes() < before / 4, "{} of {before} bytes", stored_bytes());
    assert_eq!(numbers(&stored(&drive, &last).await), expected.into_iter().filter(|a| a % 10 == 0).collect::<Vec<_>>());
}

#[tokio::test]
async fn slices_whose_bounds_rule_the_condition_out_are_not_read() {
    let Rig { drive, directory: _directory } = rig();
    let load = LoadRequest { slice_rows: 10, ..load_request(1) };
    let made = load_values(&drive, load, &(0..40).collect::<Vec<_>>()).await.run;
    let damaged = slice_key(&run_key(&made).slice(2));
    drive.storage.store.write(vec![Write::put(damaged, "no slice")], Durability::Through).unwrap();
    let conditions = [("a < 12", 28), ("a = 35 OR a IN (1, 2)", 37), ("a > 31 AND b <> ''", 32), ("NOT a > 3", 36)];
    for (into, (condition, rows)) in (2..).zip(conditions) {
        assert_eq!(mark(&drive, condition, &made, into).await.left.unwrap().run.rows, rows, "{condition}");
    }
    for (into, condition) in (6..).zip(["a < 21", "a % 10 = 0", "b LIKE '%3'"]) {
        assert!(drive.mark_run(request(condition, &made, into).await).await.is_err(), "{condition} has to look at it");
    }
}

#[tokio::test]
async fn a_run_that_loses_nothing_is_not_written_and_one_that_loses_all_is_empty() {
    let Rig { drive, directory: _directory } = rig();
    let made = load_values(&drive, load_request(1), &[4, 5, 6]).await.run;
    let nothing = mark(&drive, "a > 6 OR b IS NULL", &made, 2).await;
    assert_eq!((nothing.gone, &nothing.nulls_gone[..], nothing.left), (0, &[0, 0][..], None));
    let mut going = Vec::new();
    for (into, condition) in (101..).zip(["a < 7", "a >= 4", "a = 5"]) {
        going.push(mark(&drive, condition, &made, into).await.going.unwrap());
    }
    assert!(going[0] == going[1] && going[0] != going[2] && Some(going[2]) != nothing.going, "{going:?}");
    let gone = Run { load: LoadId(2), ..made };
    assert_eq!(drive.directory(run_key(&gone)).await.unwrap_err().blame, Blame::Conflict);
    for (load, condition) in [(3, "a < 7"), (4, "true")] {
        let left = mark(&drive, condition, &made, load).await.left.unwrap();
        assert_eq!((left.run.rows, left.run.slices, left.columns.len()), (0, 0, 2));
        assert!(run(&*drive, scan(&[&left.run])).await.values.is_empty());
    }
}

#[tokio::test]
async fn what_marks_nothing_or_too_much_is_refused_and_leaves_nothing() {
    let Rig { drive, directory: _directory } = rig();
    let made = load_values(&drive, load_request(1), &[4, 5, 6]).await.run;
    let plan = async |sql: &str| match query(sql, &[&made]).await.plan {
        PlanBytes::Substrait(plan) => plan.to_vec(),
        PlanBytes::Scan { .. } => Vec::new(),
    };
    let right = request("a = 4", &made, 2).await;
    let wrong = [
        MarkRun { plan: plan("SELECT a FROM main.t").await, ..right.clone() },
        MarkRun { plan: plan("SELECT true FROM main.t WHERE a = 4").await, ..right.clone() },
        MarkRun { plan: plan("SELECT a = 4, true FROM main.t").await, ..right.clone() },
        MarkRun { plan: vec![255; 9], ..right.clone() },
        MarkRun { load: LoadId(9), ..right.clone() },
        MarkRun { into: LoadRequest { encoding: "stone".to_owned(), ..load_request(2) }, ..right.clone() },
    ];
    for request in wrong {
        assert!(drive.mark_run(request.clone()).await.is_err(), "{request:?}");
        assert!(drive.directory(run_key(&Run { load: LoadId(2), ..made })).await.is_err());
    }
    assert_eq!(drive.mark_run(right.clone()).await.unwrap().gone, 1);
    assert_eq!(drive.mark_run(right).await.unwrap_err().blame, Blame::Conflict, "a run is written once");
}
