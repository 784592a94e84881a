//! DELETE and UPDATE by deletion marks: the rows that are left are the same in every mode and at every level, old versions have
//! the others, merges take marked runs, and a statement under kills is whole or has not happened.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pithead_e2e::{DriveProcess, Mode, Setup, block_on, collect};
use pithead_host::Session;
use pithead_model::{Blame, DatasetId};
use tempfile::TempDir;

use crate::kills::{attach, kill_at_random};

/// Times that a drive is killed; `PITHEAD_KILLS` makes it more.
const KILLS: u64 = 12;
/// Rows of each tag.
const ROWS: u64 = 300;
/// Longer than anything waits for a drive.
const LIMIT: Duration = Duration::from_secs(120);

async fn rows(session: &Session, sql: &str) -> Vec<Vec<String>> {
    collect(session, sql).await.unwrap_or_else(|fault| panic!("{sql}: {fault}")).rows
}

async fn changed(session: &Session, sql: &str) -> u64 {
    let answer = session.run(sql).await.unwrap_or_else(|fault| panic!("{sql}: {fault}"));
    answer.changed.unwrap_or_else(|| panic!("{sql} changed nothing"))
}

async fn incarnation(setup: &Setup) -> DatasetId {
    let snapshot = setup.engine.host.fleet().snapshot().await.unwrap();
    snapshot.dataset(&"t".parse().unwrap()).expect("the table").1.id
}

/// What the table is to have: `v` by `id`.
type Model = BTreeMap<i64, Option<i64>>;

fn model() -> Model {
    (0..20_000).map(|id| (id, (id % 7 != 0).then_some(id % 500))).collect()
}

/// Looks at the table in several ways: all rows, aggregates, a filter that bounds judge, one that they do not, a lookup.
async fn check(session: &Session, model: &Model, what: &str) {
    let all = rows(session, "SELECT id, v, s FROM t ORDER BY id").await;
    let shown = |v: &Option<i64>| v.map_or_else(|| "NULL".to_owned(), |v| v.to_string());
    let expected: Vec<Vec<String>> =
        model.iter().map(|(id, v)| vec![id.to_string(), shown(v), format!("row {id} of many")]).collect();
    assert_eq!(all.len(), expected.len(), "{what}");
    assert!(all == expected, "{what}: {:?}", all.iter().zip(&expected).find(|(found, expected)| found != expected));
    let known: Vec<i64> = model.values().copied().flatten().collect();
    let (least, most) = (known.iter().min().unwrap().to_string(), known.iter().max().unwrap().to_string());
    let sum: i64 = known.iter().sum();
    let expected = [model.len().to_string(), known.len().to_string(), sum.to_string(), least, most];
    assert_eq!(rows(session, "SELECT count(*), count(v), sum(v), min(v), max(v) FROM t").await, [expected.to_vec()], "{what}");
    let count = |holds: &dyn Fn(i64, Option<i64>) -> bool| {
        vec![vec![model.iter().filter(|(id, v)| holds(**id, **v)).count().to_string()]]
    };
    for (condition, holds) in [
        ("id BETWEEN 5000 AND 5999", &(|id: i64, _| (5_000..6_000).contains(&id)) as &dyn Fn(i64, Option<i64>) -> bool),
        ("v IS NULL", &|_, v| v.is_none()),
        ("s LIKE '%99 of%' AND v > 100", &|id, v| id % 100 == 99 && v.is_some_and(|v| v > 100)),
        ("id = 12345", &|id, _| id == 12_345),
        ("id % 3 = 1", &|id, _| id % 3 == 1),
    ] {
        assert_eq!(
            rows(session, &format!("SELECT count(*) FROM t WHERE {condition}")).await,
            count(holds),
            "{what}: {condition}"
        );
    }
}

async fn made(session: &Session, encoding: &str, copies: usize) {
    let layout = format!("PARTITION BY hash(id) WITH (copies = {copies}, slice_rows = 1500, encoding = '{encoding}')");
    changed(session, &format!("CREATE TABLE t (id BIGINT, v BIGINT, s VARCHAR) {layout}")).await;
    let all = "SELECT value, CASE WHEN value % 7 <> 0 THEN value % 500 END, 'row ' || value || ' of many' FROM range(20000)";
    assert_eq!(changed(session, &format!("INSERT INTO t {all} ORDER BY value")).await, 20_000);
}

/// Whether a row goes, by its two columns.
type Goes<'a> = &'a dyn Fn(i64, Option<i64>) -> bool;

#[test]
fn rows_that_are_left_are_the_same_everywhere() {
    let modes = [Mode::ONE_HERE, Mode::FOUR_PROCESSES, Mode::FILTERED, Mode::STORED, Mode::HINTED, Mode::HINTED_ARROW];
    block_on(async {
        for mode in modes {
            let setup = Setup::new(mode).await;
            let session = setup.session().await;
            made(&session, mode.encoding, mode.drives.min(2)).await;
            session.run("ALTER DOMAIN main SET HISTORY '1h'").await.unwrap_or_else(|fault| panic!("{fault}"));
            let before = incarnation(&setup).await;
            let mut model = model();
            check(&session, &model, mode.name).await;
            let deletes: [(&str, Goes<'_>); 6] = [
                ("id % 100 = 7", &|id, _| id % 100 == 7),
                ("v IS NULL AND id < 3000", &|id, v| v.is_none() && id < 3_000),
                ("id >= 18000", &|id, _| id >= 18_000),
                ("v = 1000000", &|_, _| false),
                ("s LIKE '%5 of many' AND id > 9000", &|id, _| id % 10 == 5 && id > 9_000),
                ("id % 2 = 0 OR v > 400", &|id, v| id % 2 == 0 || v.is_some_and(|v| v > 400)),
            ];
            for (condition, goes) in deletes {
                let count = model.len();
                model.retain(|id, v| !goes(*id, *v));
                let deleted = changed(&session, &format!("DELETE FROM t WHERE {condition}")).await;
                assert_eq!(deleted, (count - model.len()) as u64, "{}: {condition}", mode.name);
                check(&session, &model, &format!("{}: {condition}", mode.name)).await;
            }
            let updated = changed(&session, "UPDATE t SET v = coalesce(v, 0) + 1000 WHERE id % 11 = 3").await;
            let of = model.iter_mut().filter(|(id, _)| *id % 11 == 3).map(|(_, v)| *v = Some(v.unwrap_or(0) + 1_000)).count();
            assert_eq!(updated, of as u64, "{}", mode.name);
            check(&session, &model, &format!("{}: updated", mode.name)).await;
            by_other_tables(&session, &mut model, mode.name).await;
            assert_eq!(incarnation(&setup).await, before, "{}: the table was not written anew", mode.name);
            assert_eq!(rows(&session, "SELECT count(*) FROM t AS OF VERSION 3").await, [["20000"]], "{}", mode.name);
            setup.shutdown().await;
        }
    });
}

/// Statements that rows of another table tell what to do: keys that are not there, NULL, wider types, and twice the same key.
async fn by_other_tables(session: &Session, model: &mut Model, mode: &str) {
    let create =
        "CREATE TABLE others AS SELECT CASE WHEN value % 50 <> 0 THEN value * 3 END AS id, value AS x FROM range(2000)";
    changed(session, create).await;
    changed(session, "INSERT INTO others VALUES (9000000000000, 5), (NULL, 6)").await;
    let other = |id: &i64| (id % 3 == 0 && (0..6_000).contains(id) && id % 150 != 0).then_some(id / 3);
    let merge = "MERGE INTO t USING (SELECT * FROM others WHERE x < 1000) AS o ON o.id = t.id AND t.id >= 0 \
                 WHEN MATCHED AND t.v IS NULL THEN DELETE \
                 WHEN MATCHED AND o.x % 2 = 0 THEN UPDATE SET v = o.x \
                 WHEN NOT MATCHED AND o.id < 3000 THEN INSERT VALUES (o.id, -o.x, 'row ' || o.id || ' of many')";
    let (mut expected, mut added) = (0, Vec::new());
    for id in (0..3_000).filter(|id| other(id).is_some()) {
        let x = other(&id).unwrap();
        match model.get(&id).copied() {
            Some(None) => drop(model.remove(&id)),
            Some(Some(_)) if x % 2 == 0 => drop(model.insert(id, Some(x))),
            Some(Some(_)) => continue,
            None => added.push((id, Some(-x))),
        }
        expected += 1;
    }
    model.extend(added);
    assert_eq!(changed(session, merge).await, expected, "{mode}");
    check(session, model, &format!("{mode}: merged")).await;
    let only_new = "MERGE INTO t USING (SELECT id FROM t WHERE id < 300) AS o ON o.id = t.id WHEN NOT MATCHED THEN INSERT VALUES (1, 1, '')";
    assert_eq!(changed(session, only_new).await, 0, "{mode}");
    let count = model.len();
    model.retain(|id, _| !other(id).is_some_and(|x| (1_000..1_400).contains(&x)));
    changed(session, "INSERT INTO others SELECT id, x FROM others WHERE x = 1001").await;
    let deleted = changed(session, "DELETE FROM t USING others AS o WHERE t.id = o.id AND x BETWEEN 1000 AND 1399").await;
    assert_eq!(deleted, (count - model.len()) as u64, "{mode}");
    check(session, model, &format!("{mode}: deleted by another table")).await;
    let count = model.len();
    model.retain(|id, _| other(id).is_none_or(|x| x <= 1_700));
    let within = "DELETE FROM t WHERE id IN (SELECT id FROM others WHERE x > 1700) AND id < (SELECT max(id) FROM others)";
    assert_eq!(changed(session, within).await, (count - model.len()) as u64, "{mode}");
    assert_eq!(
        changed(session, "DELETE FROM t WHERE id NOT IN (SELECT id FROM others)").await,
        0,
        "{mode}: one of them is NULL"
    );
    let updated = "UPDATE t SET v = (SELECT max(x) FROM others) WHERE id IN (SELECT id FROM others WHERE x < 20)";
    let most = Some(1_999);
    let of = model.iter_mut().filter(|(id, _)| other(id).is_some_and(|x| x < 20)).map(|(_, v)| *v = most).count();
    assert_eq!(changed(session, updated).await, of as u64, "{mode}");
    let from = "UPDATE t SET v = t.v + o.x FROM others AS o WHERE o.id = t.id AND o.x BETWEEN 30 AND 60";
    let of = model.iter_mut().filter_map(|(id, v)| Some((v, other(id).filter(|x| (30..=60).contains(x))?)));
    let of = of.map(|(v, x)| *v = v.map(|v| v + x)).count();
    assert_eq!(changed(session, from).await, of as u64, "{mode}");
    check(session, model, &format!("{mode}: updated by another table")).await;
}

#[test]
fn marked_runs_are_merged_and_key_columns_change() {
    block_on(async {
        let setup = Setup::new(Mode::FOUR_PROCESSES).await;
        let session = setup.session().await;
        changed(&session, "CREATE TABLE t (id BIGINT, v BIGINT) PARTITION BY hash(id) ORDER BY id WITH (copies = 2)").await;
        let before = incarnation(&setup).await;
        for turn in 0..24 {
            changed(&session, &format!("INSERT INTO t SELECT value + {turn} * 100, {turn} FROM range(100)")).await;
            assert_eq!(changed(&session, &format!("DELETE FROM t WHERE v = {turn} AND id % 10 = 4")).await, 10);
        }
        assert_eq!(rows(&session, "SELECT count(*), sum(v), min(id), max(id) FROM t").await, [["2160", "24840", "0", "2399"]]);
        assert_eq!(changed(&session, "UPDATE t SET id = id + 100000 WHERE v < 3").await, 270);
        assert_eq!(rows(&session, "SELECT count(*) FROM t WHERE id >= 100000").await, [["270"]]);
        assert_eq!(rows(&session, "SELECT id FROM t WHERE id = 100007").await, [["100007"]]);
        assert_eq!(rows(&session, "SELECT id FROM t ORDER BY id LIMIT 2").await, [["300"], ["301"]]);
        assert_eq!(changed(&session, "DELETE FROM t WHERE id >= 0").await, 2_160);
        assert_eq!(rows(&session, "SELECT count(*), min(id) FROM t").await, [["0", "NULL"]]);
        changed(&session, "INSERT INTO t VALUES (1, 2)").await;
        assert_eq!(rows(&session, "SELECT * FROM t").await, [["1", "2"]]);
        assert_eq!(incarnation(&setup).await, before);
        setup.shutdown().await;
    });
}

#[test]
fn statements_under_kills_are_whole_or_have_not_happened() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (kills, seed) = (number("PITHEAD_KILLS").unwrap_or(KILLS), number("PITHEAD_SEED").unwrap_or(20_261_125));
    println!("PITHEAD_KILLS={kills} PITHEAD_SEED={seed}");
    block_on(async {
        let directory = TempDir::new().unwrap();
        let processes = DriveProcess::start_many(directory.path(), 3, &[]);
        let engine = attach(&processes).await;
        let session = engine.host.session();
        changed(&session, "CREATE TABLE t (tag BIGINT, x BIGINT, n BIGINT) PARTITION BY hash(x) WITH (copies = 2)").await;
        let all = format!("INSERT INTO t SELECT value / {ROWS}, value % {ROWS}, 0 FROM range({})", 400 * ROWS);
        assert_eq!(changed(&session, &all).await, 400 * ROWS);
        let done = Arc::new(AtomicU64::new(0));
        let killer = {
            let done = Arc::clone(&done);
            std::thread::spawn(move || kill_at_random(processes, seed, kills, &done))
        };
        let (mut deleted, mut updated) = (BTreeSet::new(), BTreeSet::new());
        for tag in 0..400 {
            if done.load(Ordering::Acquire) >= kills {
                break;
            }
            let (sql, acknowledged) = match tag % 2 {
                0 => (format!("DELETE FROM t WHERE tag = {tag}"), &mut deleted),
                _ => (format!("UPDATE t SET n = n + 1 WHERE tag = {tag}"), &mut updated),
            };
            match tokio::time::timeout(LIMIT, session.run(&sql)).await.expect("a statement ends") {
                Ok(_) => drop(acknowledged.insert(tag)),
                Err(fault) => {
                    let excused = matches!(fault.blame, Blame::Device | Blame::Limit | Blame::Conflict | Blame::Cancelled);
                    assert!(excused, "{sql}: {}: {fault}; seed {seed}", fault.blame);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
        let processes = killer.join().expect("the killer does not panic");
        let engine = attach(&processes).await;
        let found =
            rows(&engine.host.session(), "SELECT tag, count(*), count(DISTINCT x), min(n), max(n) FROM t GROUP BY tag").await;
        let mut there = BTreeMap::new();
        for row in found {
            let (count, tag) = (ROWS.to_string(), row[0].parse::<u64>().unwrap());
            assert!(row[1] == count && row[2] == count && row[3] == row[4], "half of a statement: {row:?}; seed {seed}");
            there.insert(tag, row[3].clone());
        }
        println!("{} deletes and {} updates acknowledged, {kills} kills", deleted.len(), updated.len());
        assert!(deleted.iter().all(|tag| !there.contains_key(tag)), "a deleted row is back; seed {seed}");
        assert!(updated.iter().all(|tag| there.get(tag).is_some_and(|n| n == "1")), "an update is lost; seed {seed}");
        assert!(there.iter().all(|(tag, n)| n == "0" || tag % 2 == 1), "seed {seed}");
        assert!(deleted.len() + updated.len() > 2, "no statement got through; seed {seed}");
    });
}
