//! Files that drives attach where they lie: drives that are away, files that change, rows that are loaded beside them.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use pithead_e2e::{DriveProcess, block_on, collect, refusal};
use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_host::{Format, LoadSpec};
use pithead_model::Blame;

/// Writes a file whose rows are `rows` times this number, in row groups of a thousand, under another name first.
fn write(path: &Path, number: i64, rows: usize) {
    let column: ArrayRef = Arc::new(Int64Array::from(vec![number; rows]));
    let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(1_000)).build();
    let partial = path.with_extension("partial");
    let mut writer = ArrowWriter::try_new(File::create(&partial).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    std::fs::rename(partial, path).unwrap();
}

async fn host(drives: &[DriveProcess]) -> Engine {
    let addresses = drives.iter().map(|drive| drive.address().to_owned()).collect();
    connect(&Target::Drives(addresses), &EmbedOptions::default()).await.unwrap()
}

/// Drives that attach a folder each, with `t.parquet` in it.
fn drives(directory: &Path, numbers: &[i64]) -> Vec<DriveProcess> {
    let start = |(at, number): (usize, &i64)| {
        let folder = directory.join(format!("files-{at}"));
        std::fs::create_dir_all(&folder).unwrap();
        write(&folder.join("t.parquet"), *number, 3_000);
        DriveProcess::start(&directory.join(format!("drive-{at}")), &["--attach", folder.to_str().unwrap()])
    };
    numbers.iter().enumerate().map(start).collect()
}

async fn total(engine: &Engine) -> Vec<Vec<String>> {
    collect(&engine.host.session(), "SELECT count(*), sum(n) FROM t").await.unwrap().rows
}

#[test]
fn a_drive_that_is_away_makes_no_shorter_answer() {
    block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let mut drives = drives(directory.path(), &[1, 10]);
        let engine = host(&drives).await;
        assert_eq!(total(&engine).await, [["6000", "33000"]]);
        drives[1].kill();
        let fault = refusal(&engine.host.session(), "SELECT count(*), sum(n) FROM t").await;
        assert_eq!(fault.blame, Blame::Device, "{fault}");
        let late = host(&drives).await;
        let fault = refusal(&late.host.session(), "SELECT count(*), sum(n) FROM t").await;
        assert_eq!(fault.blame, Blame::Device, "who connects now does not know what the other one has: {fault}");
        drives[1].restart();
        for engine in [&engine, &late] {
            let answered = async {
                while collect(&engine.host.session(), "SELECT count(*) FROM t").await.is_err() {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(60), answered).await.expect("it is back");
            assert_eq!(total(engine).await, [["6000", "33000"]]);
        }
        engine.shutdown().await;
        late.shutdown().await;
    });
}

#[test]
fn an_answer_is_of_one_file_or_an_error() {
    block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let drives = drives(directory.path(), &[1]);
        let path = directory.path().join("files-0/t.parquet");
        let stop = Arc::new(AtomicBool::new(false));
        let writer = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                let mut written = 0;
                while !stop.load(Ordering::Relaxed) {
                    // Two at once, which the file system's clock does not tell apart; then time for an answer.
                    write(&path, written % 7, 3_000);
                    write(&path, (written + 1) % 7, 3_000);
                    written += 2;
                    std::thread::sleep(Duration::from_millis(60));
                }
                written
            }
        });
        let engine = host(&drives).await;
        let session = engine.host.session();
        for statement in ["SET pithead.summary_cache = off", "SET pithead.slice_cache = 0"] {
            collect(&session, statement).await.unwrap();
        }
        let (mut answered, mut refused) = (0, 0);
        for nth in 0..200 {
            let level = format!("SET pithead.level = {}", ["0", "2", "auto", "'random:3'"][nth % 4]);
            collect(&session, &level).await.unwrap();
            match collect(&session, "SELECT count(*), min(n), max(n), count(DISTINCT n) FROM t").await {
                Ok(table) => {
                    let row = &table.rows[0];
                    assert_eq!((row[0].as_str(), &row[1], row[3].as_str()), ("3000", &row[2], "1"), "a mix of two files");
                    answered += 1;
                }
                Err(fault) => {
                    assert!(matches!(fault.blame, Blame::Conflict | Blame::User | Blame::Device), "{fault}");
                    assert!(!fault.to_string().is_empty());
                    refused += 1;
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        let written = writer.join().unwrap();
        assert!(written > 10 && answered > 0, "{written} files, {answered} answers, {refused} errors");
        write(&directory.path().join("files-0/t.parquet"), 5, 10);
        assert_eq!(total(&engine).await, [["10", "50"]]);
        engine.shutdown().await;
    });
}

#[test]
fn loaded_and_attached_rows_are_one_dataset() {
    block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let drives = drives(directory.path(), &[1, 10]);
        let engine = host(&drives).await;
        let session = engine.host.session();
        let more = directory.path().join("more.parquet");
        write(&more, 100, 50);
        let files = vec![more.display().to_string()];
        let spec = LoadSpec { format: Some(Format::Parquet), ..LoadSpec::new("t".parse().unwrap(), files) };
        engine.host.load(spec, Arc::new(|_| ())).await.unwrap();
        assert_eq!(total(&engine).await, [["6050", "38000"]]);
        collect(&session, "INSERT INTO t VALUES (1000)").await.unwrap();
        assert_eq!(total(&engine).await, [["6051", "39000"]]);
        for statement in ["DELETE FROM t WHERE n = 100", "UPDATE t SET n = 0", "TRUNCATE TABLE t"] {
            let fault = refusal(&session, statement).await;
            assert!(fault.message.contains("attached in place"), "{fault}");
        }
        collect(&session, "DROP TABLE t").await.unwrap();
        assert_eq!(total(&engine).await, [["6000", "33000"]], "the files stay");
        let other = directory.path().join("other.parquet");
        collect(&session, "CREATE TABLE text AS SELECT 'x' AS n").await.unwrap();
        write(&other, 1, 5);
        std::fs::rename(&other, directory.path().join("files-0/text.parquet")).unwrap();
        let fault = refusal(&session, "SELECT * FROM text").await;
        assert!(fault.message.contains("columns"), "one name, other columns: {fault}");
        engine.shutdown().await;
    });
}
