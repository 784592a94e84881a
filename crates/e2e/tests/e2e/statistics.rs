//! Filters of columns: a drive makes them where queries look in vain for one value, and then reads less. Never does a row go missing.

use std::fmt::Write as _;
use std::fs::write;
use std::path::Path;

use futures::StreamExt;
use pithead_e2e::{DriveProcess, Table, block_on, collect, table};
use pithead_embed::Engine;
use pithead_host::Session;
use tempfile::TempDir;

use super::services::{attach, done, service, until};

/// Rows of the table, and of its slices.
const ROWS: u64 = 20_000;
const SLICES: u64 = 10;

fn filters(address: &str) -> u64 {
    let statistics = service(address, "statistics");
    assert_ne!(statistics["activity"], "failed", "{statistics}");
    statistics["found"].as_u64().unwrap()
}

/// Every slice has ids from all over.
fn id(row: u64) -> String {
    format!("{:016x}", row.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn rows(path: &Path) {
    let mut text = "id,k\n".to_owned();
    (0..ROWS).for_each(|row| writeln!(text, "{},{row}", id(row)).unwrap());
    write(path, text).unwrap();
}

/// The rows that have one of these ids, and how many slices were read for them.
async fn look_up(session: &Session, column: &str, ids: &[String]) -> (Table, u64) {
    let ids: Vec<String> = ids.iter().map(|id| format!("'{id}'")).collect();
    let sql = format!("SELECT k FROM t WHERE {column} IN ({}) ORDER BY k", ids.join(", "));
    let mut answer = session.run(&sql).await.unwrap_or_else(|fault| panic!("{sql}: {fault}"));
    let mut batches = Vec::new();
    while let Some(batch) = answer.rows.next().await {
        batches.push(batch.unwrap_or_else(|fault| panic!("{sql}: {fault}")));
    }
    (table(&answer.schema, &batches), answer.profile.snapshot().slices_read)
}

/// All of it, at the drive.
async fn at_the_drive(engine: &Engine) -> Session {
    let session = engine.host.session();
    collect(&session, "SET pithead.level = 3").await.unwrap();
    session
}

/// Looks up ids that are there, and some that are not. How many slices were read for the latter.
async fn all_is_found(session: &Session, column: &str) -> u64 {
    for row in (0..ROWS).step_by(1_999) {
        let (found, read) = look_up(session, column, &[id(row), "absent".to_owned()]).await;
        assert_eq!(found.rows, [[row.to_string()]]);
        assert!(read > 0);
    }
    let (found, _) = look_up(session, column, &[id(3), id(ROWS - 1), id(9_999)]).await;
    assert_eq!(found.rows, [["3"], ["9999"], ["19999"]]);
    let mut read = 0;
    for absent in 0..5 {
        let (found, slices) = look_up(session, column, &[id(ROWS + 7 + absent)]).await;
        assert!(found.rows.is_empty(), "{:?}", found.rows);
        read += slices;
    }
    read
}

#[test]
fn a_drive_learns_which_slices_have_no_such_value() {
    let directory = TempDir::new().unwrap();
    let (data, file) = (directory.path().join("d"), directory.path().join("t.csv"));
    rows(&file);
    let mut process = DriveProcess::start(&data, &[]);
    let address = process.address().to_owned();
    let slice_rows = (ROWS / SLICES).to_string();
    done(&["load", "t", &file.display().to_string(), "--drives", &address, "--partitions", "1", "--slice-rows", &slice_rows]);
    assert_eq!(filters(&address), 0);
    block_on(async {
        let session = at_the_drive(&attach(&process).await).await;
        assert!(all_is_found(&session, "id").await >= 4 * SLICES, "nothing is known of the values yet");
    });
    until("each slice has a filter", || filters(&address) >= SLICES);
    block_on(async {
        let engine = attach(&process).await;
        let session = at_the_drive(&engine).await;
        assert!(all_is_found(&session, "id").await <= 5, "about one in a hundred is read in vain");
        // The same column by another name, and fewer rows.
        collect(&session, "ALTER TABLE t RENAME COLUMN id TO name").await.unwrap();
        assert!(all_is_found(&session, "name").await <= 5);
        collect(&session, "SET pithead.zone_maps = off").await.unwrap();
        assert_eq!(look_up(&session, "name", &[id(ROWS + 99)]).await.1, SLICES, "as it is told");
        collect(&session, &format!("DELETE FROM t WHERE name = '{}'", id(5))).await.unwrap();
        collect(&session, "SET pithead.zone_maps = on").await.unwrap();
        assert!(look_up(&session, "name", &[id(5)]).await.0.rows.is_empty());
        assert!(all_is_found(&session, "name").await <= 5, "what is left has the filters of what was");
        for level in ["0", "1", "2"] {
            collect(&session, &format!("SET pithead.level = {level}")).await.unwrap();
            let (found, _) = look_up(&session, "name", &[id(6), id(ROWS + 5)]).await;
            assert_eq!(found.rows, [["6"]], "at level {level}");
        }
    });
    process.terminate();
    process.restart();
    let outlasted = filters(process.address());
    assert!(outlasted >= SLICES, "they outlast the drive: {outlasted}");
    // What is lost in a crash is made again.
    process.kill();
    process.restart();
    let address = process.address().to_owned();
    block_on(async {
        let session = at_the_drive(&attach(&process).await).await;
        all_is_found(&session, "name").await;
    });
    until("there are filters", || filters(&address) > 0);
    block_on(async {
        let session = at_the_drive(&attach(&process).await).await;
        all_is_found(&session, "name").await;
        collect(&session, "DROP TABLE t").await.unwrap();
    });
    done(&["log", "main", "--forget", "--drives", &address]);
    until("filters go with their slices", || filters(&address) == 0);
    process.terminate();
    process.restart();
    assert_eq!(filters(process.address()), 0, "for good");
}
