//! Files that drives attach where they lie: drives that are away, files that change, rows that are loaded beside them.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use pithead_e2e::front::{done, run};
use pithead_e2e::{DriveProcess, block_on, collect, refusal};
use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_fleet::RepairSpec;
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

/// Two drives with two copies of 50 loaded rows of `t`, and one that attaches 3,000 more, which nobody has asked yet.
async fn loaded_and_attached(directory: &Path) -> Vec<DriveProcess> {
    let mut all = DriveProcess::start_many(directory, 2, &[]);
    let file = directory.join("loaded.parquet");
    write(&file, 100, 50);
    let engine = host(&all).await;
    let files = vec![file.display().to_string()];
    let spec = LoadSpec { format: Some(Format::Parquet), copies: Some(2), ..LoadSpec::new("t".parse().unwrap(), files) };
    engine.host.load(spec, Arc::new(|_| ())).await.unwrap();
    engine.shutdown().await;
    let folder = directory.join("files");
    std::fs::create_dir(&folder).unwrap();
    write(&folder.join("t.parquet"), 10, 3_000);
    all.push(DriveProcess::start(&directory.join("attaching"), &["--attach", folder.to_str().unwrap()]));
    all
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
fn who_never_reached_a_drive_knows_that_it_attaches_a_part() {
    block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let mut drives = loaded_and_attached(directory.path()).await;
        let engine = host(&drives).await;
        assert_eq!(total(&engine).await, [["3050", "35000"]]);
        engine.shutdown().await;
        drives[2].kill();
        for known in [&drives[..], &drives[..2]] {
            let late = host(known).await;
            let session = late.host.session();
            for statement in ["SELECT count(*) FROM t", "DELETE FROM t WHERE n = 0", "SELECT count(*) FROM t AS OF VERSION 1"] {
                let fault = refusal(&session, statement).await;
                assert!(fault.message.contains("attached in place"), "{statement}: {fault}");
            }
            late.shutdown().await;
        }
        drives[2].restart();
        drives[1].kill();
        let engine = host(&drives).await;
        assert_eq!(total(&engine).await, [["3050", "35000"]], "the other copy is all that is away");
        engine.shutdown().await;
        drives[1].restart();
        drives[2].restart_as(&[]);
        let engine = host(&drives).await;
        assert_eq!(total(&engine).await, [["50", "5000"]], "nothing is attached any more");
        engine.shutdown().await;
        drives[2].kill();
        let late = host(&drives).await;
        assert_eq!(total(&late).await, [["50", "5000"]], "and that is known, too");
        collect(&late.host.session(), "DELETE FROM t WHERE n = 0").await.unwrap();
        late.shutdown().await;
    });
}

#[test]
fn what_a_lost_drive_attached_is_given_up_by_word_only() {
    block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let mut drives = loaded_and_attached(directory.path()).await;
        let engine = host(&drives).await;
        assert_eq!(total(&engine).await, [["3050", "35000"]]);
        let attaching = engine.host.fleet().drives().into_iter().find(|drive| drive.welcome.attaches).unwrap().id();
        let fault = engine.host.fleet().remove(attaching).await.unwrap_err();
        assert!(fault.message.contains("attaches files"), "{fault}");
        drives[2].kill();
        for (drop_lost, is_known) in [(false, "cannot be read without"), (true, "is without the files")] {
            let spec = RepairSpec { lost: Some(attaching), drop_lost };
            let report = engine.host.fleet().repair(&spec, Arc::new(|_| ())).await.unwrap();
            assert!(report.notes.iter().any(|note| note.contains(is_known)), "{report:?}");
            let late = host(&drives).await;
            for asked in [&late, &engine] {
                match collect(&asked.host.session(), "SELECT count(*), sum(n) FROM t").await {
                    Ok(table) => assert!(drop_lost && table.rows == [["50", "5000"]], "{:?}", table.rows),
                    Err(fault) => assert!(!drop_lost && fault.blame == Blame::Device, "{fault}"),
                }
            }
            late.shutdown().await;
        }
        engine.shutdown().await;
    });
}

/// A host that may only read cannot write into the manifest that there are files, so it does not answer with them either.
#[test]
fn who_may_not_write_waits_for_who_may() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path();
    for (name, right) in [("reader", "--read"), ("writer", "--write")] {
        done(folder, &["token", name, right, "main"]);
    }
    let access = folder.join("access.toml").display().to_string();
    let files = folder.join("files");
    std::fs::create_dir(&files).unwrap();
    write(&folder.join("loaded.parquet"), 1, 2);
    let mut drive = DriveProcess::start(&folder.join("drive"), &["--access", &access]);
    let address = drive.address().to_owned();
    let ask = |who: &str| {
        let token = format!("{who}.token");
        let asked =
            ["sql", "--drives", &address, "--token-file", &token, "-c", "SELECT count(*) AS n FROM t", "--format", "csv"];
        let output = run(folder, &asked);
        (
            output.status.code(),
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)),
        )
    };
    done(folder, &["load", "t", "loaded.parquet", "--drives", &address, "--token-file", "writer.token"]);
    write(&files.join("t.parquet"), 7, 30);
    drive.restart_as(&["--access", &access, "--attach", files.to_str().unwrap()]);
    let (code, said) = ask("reader");
    assert!(code == Some(5) && said.contains("any statement of somebody who may write to domain main"), "{code:?}: {said}");
    for who in ["writer", "reader"] {
        let (code, said) = ask(who);
        assert!(code == Some(0) && said.contains("32"), "{who}: {code:?}: {said}");
    }
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
