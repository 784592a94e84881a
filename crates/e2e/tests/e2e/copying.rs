//! COPY between files and datasets, by the real program; and its refusal where the files are not the user's.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use pithead_e2e::{Mode, Setup, block_on, refusal};
use pithead_model::Blame;

fn command(folder: &Path, statements: &[&str]) -> Command {
    let mut command = Command::new(pithead_e2e::pithead());
    command.current_dir(folder).args(["sql", "--data", "data", "--create", "--quiet", "--format", "csv"]);
    statements.iter().for_each(|statement| {
        command.args(["-c", statement]);
    });
    command
}

fn run(folder: &Path, statements: &[&str]) -> Output {
    command(folder, statements).output().unwrap()
}

/// What the statements print.
fn said(folder: &Path, statements: &[&str]) -> String {
    let output = run(folder, statements);
    assert!(output.status.success(), "{statements:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The error, which names all these words; and the exit code.
fn refused(folder: &Path, statement: &str, code: i32, words: &[&str]) {
    let output = run(folder, &[statement]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{statement}: {error}");
    words.iter().for_each(|word| assert!(error.contains(word), "{statement}: {word:?} in {error}"));
}

const CREATE: &str = "CREATE TABLE t AS SELECT i AS id, CASE WHEN i % 7 > 0 THEN 'text, \"' || i END AS s, \
                      CAST(i AS DOUBLE) / 3 AS f, CAST(i AS DECIMAL(20, 3)) AS d, DATE '2024-02-29' + CAST(i % 9 AS INT) AS at, \
                      CASE i % 3 WHEN 0 THEN true WHEN 1 THEN false END AS b FROM (SELECT value AS i FROM range(20000)) AS n";

#[test]
fn rows_go_to_files_and_come_back_the_same() {
    let folder = tempfile::tempdir().unwrap();
    said(folder.path(), &[CREATE, "CREATE TABLE back AS SELECT * FROM t WHERE false"]);
    for (file, options) in [
        ("rows.parquet", ""),
        ("rows.pq", "(COMPRESSION snappy)"),
        ("rows.arrow", ""),
        ("rows.csv", "(NULL '\\N', HEADER)"),
        ("rows.tsv.gz", "(HEADER false)"),
        ("rows.csv.zst", "(DELIMITER ';')"),
        ("rows.json", ""),
        ("rows.data", "(FORMAT parquet)"),
    ] {
        let reading = options.replace("(COMPRESSION snappy)", "");
        said(
            folder.path(),
            &[
                &format!("COPY (SELECT * FROM t) TO '{file}' {options}"),
                "TRUNCATE back",
                &format!("COPY back FROM '{file}' {reading}"),
            ],
        );
        let missing = "SELECT count(*) FROM (SELECT * FROM t EXCEPT SELECT * FROM back)";
        let all = said(folder.path(), &["SELECT count(*) AS n FROM back", missing]);
        assert_eq!(
            all.split_whitespace().filter(|word| word.parse::<u64>().is_ok()).collect::<Vec<_>>(),
            ["20000", "0"],
            "{file}"
        );
    }
    // Parts of a table, several files at once, and a parameter-free query within.
    said(folder.path(), &["COPY t (id, s) TO 'two.csv'", "COPY (FROM t WHERE id < 3) TO 'few.json'"]);
    let two = std::fs::read_to_string(folder.path().join("two.csv")).unwrap();
    assert_eq!((two.lines().count(), two.lines().next()), (20_001, Some("id,s")));
    assert_eq!(std::fs::read_to_string(folder.path().join("few.json")).unwrap().lines().count(), 3);
    said(
        folder.path(),
        &["COPY (FROM t WHERE id < 5) TO 'part-1.parquet'", "COPY (FROM t WHERE id >= 19990) TO 'part-2.parquet'"],
    );
    let count = said(folder.path(), &["TRUNCATE back", "COPY back FROM 'part-*.parquet'", "SELECT count(*) FROM back"]);
    assert_eq!(count.lines().last(), Some("15"));
    // An answer without rows is a file with columns; an old file is replaced as a whole.
    said(folder.path(), &["COPY (SELECT * FROM t WHERE id < 0) TO 'two.csv'"]);
    assert_eq!(std::fs::read_to_string(folder.path().join("two.csv")).unwrap(), "id,s,f,d,at,b\n");
}

/// A regression: bytes were not read from CSV, and seconds were whole numbers in Parquet to all but readers of Arrow's notes.
#[test]
fn seconds_dates_and_bytes_come_back_with_their_types() {
    let folder = tempfile::tempdir().unwrap();
    let create = "CREATE TABLE s AS SELECT value AS k, arrow_cast('2024-01-01 10:00:00', 'Timestamp(Second, None)') AS ts, \
                  arrow_cast('10:00:00', 'Time32(Second)') AS t, arrow_cast('2024-01-01', 'Date64') AS d, \
                  [arrow_cast('2024-01-01', 'Timestamp(Second, None)')] AS l, \
                  CASE value WHEN 0 THEN X'00ff' WHEN 1 THEN X'' END AS b FROM range(3)";
    said(folder.path(), &[create]);
    for (file, columns) in [("s.parquet", "*"), ("s.json", "*"), ("s.csv", "* EXCLUDE (l)")] {
        let there = format!("CREATE TABLE there AS SELECT {columns} FROM s");
        let back = "CREATE TABLE back AS FROM there WHERE false";
        let (to, from) = (format!("COPY there TO '{file}'"), format!("COPY back FROM '{file}'"));
        said(folder.path(), &[&there, back, &to, &from]);
        let rows = |table: &str| said(folder.path(), &[&format!("SELECT * FROM {table} ORDER BY k")]);
        assert_eq!(rows("back"), rows("there"), "{file}");
        assert_eq!(rows("back").lines().count(), 4, "{file}");
        said(folder.path(), &["DROP TABLE there", "DROP TABLE back"]);
    }
    // Others find types that they know: a drive that attaches the file reads it as they do.
    let attached = Command::new(pithead_e2e::pithead())
        .current_dir(folder.path())
        .args(["sql", "--attach", "s.parquet", "--quiet", "--format", "csv", "-c", "DESCRIBE s"])
        .output()
        .unwrap();
    let described = String::from_utf8(attached.stdout).unwrap();
    for column in ["ts,Timestamp(ms),", "t,Time32(ms),", "d,Date32,"] {
        assert!(described.contains(column), "{column} in {described}");
    }
}

#[test]
fn what_csv_cannot_give_its_table_is_named() {
    let folder = tempfile::tempdir().unwrap();
    said(folder.path(), &["CREATE TABLE t AS SELECT 1 AS k, [1, 2] AS l", "COPY t TO 'l.csv'"]);
    refused(folder.path(), "COPY t FROM 'l.csv'", 3, &["l.csv", "column l is List", "not read from CSV", "JSON lines"]);
    said(folder.path(), &["CREATE TABLE n (k INT)"]);
    std::fs::write(folder.path().join("n.csv"), "k\n1\n-\n").unwrap();
    refused(folder.path(), "COPY n FROM 'n.csv'", 3, &["line 3", "column k", "the types are those of the dataset", "NULL '…'"]);
    said(folder.path(), &["COPY n FROM 'n.csv' (NULL '-')"]);
}

#[test]
fn what_cannot_be_copied_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    said(folder.path(), &[CREATE]);
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("bad.csv"), "id,s,f,d,at,b\n1,a,0.5,1.000,2024-01-01,true\ntwo,b,0.5,1.000,2024-01-01,true\n").unwrap();
    std::fs::write(path("old.csv"), "kept\n").unwrap();
    refused(folder.path(), "COPY t FROM 'bad.csv'", 3, &["bad.csv"]);
    refused(folder.path(), "COPY t FROM 'none.csv'", 3, &["none.csv"]);
    refused(folder.path(), "COPY nowhere FROM 'bad.csv'", 3, &["no dataset main.nowhere", "CREATE TABLE"]);
    refused(folder.path(), "COPY t (s, id) FROM 'bad.csv'", 3, &["another order"]);
    refused(folder.path(), "COPY nowhere TO 'x.csv'", 3, &["nowhere"]);
    refused(folder.path(), "COPY t TO 'no/such/folder/x.csv'", 3, &["no/such/folder/x.csv"]);
    refused(folder.path(), "COPY (DELETE FROM t) TO 'x.csv'", 3, &["expected a query"]);
    refused(folder.path(), "COPY (SELECT id / (id - 19999) FROM t) TO 'old.csv'", 3, &["zero"]);
    assert_eq!(std::fs::read_to_string(path("old.csv")).unwrap(), "kept\n");
    assert_eq!(said(folder.path(), &["SELECT count(*) FROM t"]).lines().last(), Some("20000"));
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "data and two files: {left:?}");
}

#[test]
fn an_interrupted_copy_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    said(folder.path(), &[CREATE]);
    let endless = "COPY (SELECT a.s || b.s AS s FROM t AS a, t AS b) TO 'endless.csv'";
    let mut child = command(folder.path(), &[endless]).stderr(Stdio::null()).spawn().unwrap();
    let partial = folder.path().join("endless.csv.partial");
    let begun = Instant::now();
    while std::fs::metadata(&partial).map_or(0, |there| there.len()) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "no rows come");
        std::thread::sleep(Duration::from_millis(20));
    }
    let signalled = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(signalled.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!partial.exists() && !folder.path().join("endless.csv").exists());
}

#[test]
fn a_host_for_others_keeps_its_files_to_itself() {
    block_on(async {
        let setup = Setup::new(Mode::ONE_HERE).await;
        let session = setup.session().await;
        session.run("CREATE TABLE t AS SELECT 1 AS a").await.unwrap();
        for statement in ["COPY t TO '/tmp/pithead-never.csv'", "COPY t FROM '/etc/passwd' (FORMAT csv)"] {
            let fault = refusal(&session, statement).await;
            assert_eq!(fault.blame, Blame::Access, "{statement}: {fault}");
        }
        assert!(!Path::new("/tmp/pithead-never.csv").exists());
        setup.shutdown().await;
    });
}
