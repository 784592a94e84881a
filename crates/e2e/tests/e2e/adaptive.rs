//! Work that comes back: each slice counts once, whoever finishes it; what is held or kept is not asked for again, and is never stale.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use pithead_e2e::tpch::{load_tpch, spec};
use pithead_e2e::{Mode, Setup, Table, block_on, collect, load, refusal, table};
use pithead_host::{LoadMode, LoadSpec, ProfileSnapshot, QueryProfile, Session};
use pithead_model::Level;

const SUMS: &str =
    "SELECT l_returnflag, l_linestatus, count(*), sum(l_quantity), avg(l_discount) FROM lineitem GROUP BY 1, 2 ORDER BY 1, 2";
const ROLLED_UP: &str = "SELECT l_linestatus, count(*), sum(l_quantity) FROM lineitem GROUP BY 1 ORDER BY 1";
const TWO_DRIVES: Mode = Mode { name: "two drive processes", drives: 2, ..Mode::FOUR_PROCESSES };

async fn ask(session: &Session, statement: &str) -> (Table, Arc<QueryProfile>) {
    let mut answer = session.run(statement).await.unwrap_or_else(|fault| panic!("{statement}: {fault}"));
    let mut batches = Vec::new();
    while let Some(batch) = answer.rows.next().await {
        batches.push(batch.unwrap_or_else(|fault| panic!("{statement}: {fault}")));
    }
    (table(&answer.schema, &batches), answer.profile)
}

async fn cost(session: &Session, statement: &str) -> (Table, ProfileSnapshot) {
    let (table, profile) = ask(session, statement).await;
    (table, profile.snapshot())
}

async fn set(session: &Session, settings: &[&str]) {
    for setting in settings {
        collect(session, &format!("SET pithead.{setting}")).await.unwrap_or_else(|fault| panic!("{setting}: {fault}"));
    }
}

/// A setup with lineitem on it.
async fn with_lineitem(mode: Mode) -> Setup {
    let setup = Setup::new(mode).await;
    load(&setup.engine, spec("lineitem", "vortex")).await.unwrap_or_else(|fault| panic!("loading: {fault}"));
    setup
}

/// Sub-plan, partition, slice.
type Slice = (usize, usize, u32);

/// How often each slice was answered for, and the levels that slices were taken to.
fn counted(profile: &QueryProfile) -> (BTreeMap<Slice, u32>, BTreeMap<Level, u32>) {
    let (mut slices, mut levels) = (BTreeMap::new(), BTreeMap::new());
    for (number, sub_plan) in profile.sub_plans().iter().enumerate() {
        for (partition, session) in sub_plan.sessions().iter().enumerate() {
            for annotation in &session.annotations {
                for slice in annotation.slices.iter().flat_map(|span| span.first..span.first + span.count) {
                    *slices.entry((number, partition, slice)).or_insert(0) += 1;
                    *levels.entry(annotation.level).or_insert(0) += 1;
                }
            }
        }
    }
    (slices, levels)
}

#[test]
fn each_slice_counts_once_at_whatever_level() {
    block_on(async {
        let setup = with_lineitem(Mode { arguments: &["--link", "400mbit"], ..TWO_DRIVES }).await;
        let session = setup.session().await;
        set(&session, &["summary_cache = off", "slice_cache = 0", "level = 3"]).await;
        let (expected, profile) = ask(&session, SUMS).await;
        let slices: Vec<_> = counted(&profile).0.into_keys().collect();
        assert!(slices.len() > 8, "{} slices are too few to say much", slices.len());
        let mut seen: BTreeMap<Level, u32> = BTreeMap::new();
        for seed in 0..12 {
            set(&session, &[&format!("level = 'random:{seed}'")]).await;
            let (rows, profile) = ask(&session, SUMS).await;
            assert_eq!(rows.rows, expected.rows, "seed {seed}");
            let (counts, levels) = counted(&profile);
            assert!(counts.values().all(|count| *count == 1), "seed {seed}: {counts:?}");
            assert_eq!(counts.into_keys().collect::<Vec<_>>(), slices, "seed {seed}");
            for (level, count) in levels {
                *seen.entry(level).or_insert(0) += count;
            }
        }
        let all = [Level::Bytes, Level::Hints, Level::Filtered, Level::Whole];
        assert_eq!(seen.keys().copied().collect::<Vec<_>>(), all, "{seen:?}");
        setup.shutdown().await;
    });
}

#[test]
fn a_weak_drive_hands_work_back_and_says_so() {
    block_on(async {
        let setup = with_lineitem(Mode { drives: 2, ..Mode::WEAK }).await;
        let session = setup.session().await;
        let (_, profile) = ask(&session, SUMS).await;
        let (_, levels) = counted(&profile);
        assert!(levels.keys().any(|level| *level < Level::Whole), "{levels:?}");
        let explained = collect(&session, &format!("EXPLAIN ANALYZE {SUMS}")).await.unwrap();
        let text: String = explained.rows.iter().map(|row| row[0].clone() + "\n").collect();
        assert!(text.contains("pushed back") || text.contains("finished by the host"), "{text}");
        assert!(text.contains("finished at the host in") && text.contains("was expected to take the drive"), "{text}");
        let told = collect(&session, &format!("EXPLAIN PUSHDOWN {SUMS}")).await.unwrap();
        assert_eq!(told.columns.len(), 7);
        assert!(told.rows.iter().any(|row| row[1].contains("host")), "{:?}", told.rows);
        setup.shutdown().await;
    });
}

#[test]
fn pages_that_may_match_travel_alone_and_are_told_of() {
    block_on(async {
        let setup = with_lineitem(TWO_DRIVES).await;
        let session = setup.session().await;
        let statements = [
            SUMS,
            "SELECT l_orderkey, l_comment FROM lineitem WHERE l_comment LIKE '%furiously%' AND l_quantity * 2 > 90",
            "SELECT count(*) FROM lineitem WHERE l_shipmode = 'MAIM'",
            "SELECT l_partkey, max(l_shipdate) FROM lineitem WHERE l_orderkey < 200 GROUP BY l_partkey",
        ];
        for statement in statements {
            let mut answers = Vec::new();
            for level in [3, 0, 1] {
                set(&session, &["summary_cache = off", "slice_cache = 0", &format!("level = {level}")]).await;
                let (table, profile) = ask(&session, statement).await;
                let mut rows = table.rows;
                rows.sort();
                answers.push((rows, profile.snapshot().link_bytes, counted(&profile).1));
            }
            let [whole, stored, hinted] = &answers[..] else { panic!("three levels") };
            assert!(whole.0 == stored.0 && stored.0 == hinted.0, "{statement}");
            // Comments are about half of a row's bytes.
            assert!(hinted.1 * 3 < stored.1 * 2, "{statement}: {} bytes as pages, {} as stored", hinted.1, stored.1);
            // Tasks answer for slices that their bounds rule out.
            assert!(hinted.2.keys().all(|level| matches!(level, Level::Hints | Level::Whole)), "{statement}: {:?}", hinted.2);
            assert!(hinted.2.contains_key(&Level::Hints), "{statement}: {:?}", hinted.2);
        }
        let explained = collect(&session, &format!("EXPLAIN ANALYZE {SUMS}")).await.unwrap();
        let text: String = explained.rows.iter().map(|row| row[0].clone() + "\n").collect();
        assert!(text.contains("as pages that may match, ") && text.contains("finished at the host in"), "{text}");
        // Pages are not a slice that the host could use for other queries.
        assert!(!text.contains("the host holds"), "{text}");
        // Slices that it has as a whole are only named.
        set(&session, &["slice_cache = 1000000000", "level = 0"]).await;
        ask(&session, SUMS).await;
        set(&session, &["level = 1"]).await;
        let (_, named) = cost(&session, SUMS).await;
        assert!(named.link_bytes < 100_000, "{} bytes", named.link_bytes);
        setup.shutdown().await;
    });
}

#[test]
fn slices_that_the_host_holds_do_not_travel_again() {
    block_on(async {
        let setup = with_lineitem(TWO_DRIVES).await;
        let session = setup.session().await;
        set(&session, &["summary_cache = off", "level = 0"]).await;
        let (first, before) = cost(&session, SUMS).await;
        let (second, after) = cost(&session, SUMS).await;
        assert_eq!(first.rows, second.rows);
        assert!(after.link_bytes * 20 < before.link_bytes, "{} and then {} bytes", before.link_bytes, after.link_bytes);
        // Other columns of the same slices, too.
        let (_, other) = cost(&session, "SELECT count(DISTINCT l_shipmode) FROM lineitem").await;
        assert!(other.link_bytes * 20 < before.link_bytes, "{} and then {} bytes", before.link_bytes, other.link_bytes);
        setup.shutdown().await;
    });
}

#[test]
fn kept_partial_results_answer_until_something_changes() {
    block_on(async {
        let setup = with_lineitem(TWO_DRIVES).await;
        let session = setup.session().await;
        let (first, before) = cost(&session, SUMS).await;
        assert!(before.slices_read > 8);
        // A repeat, and what groups by less, read nothing.
        let (again, repeat) = cost(&session, SUMS).await;
        assert_eq!((again.rows, repeat.slices_read, repeat.rounds), (first.rows.clone(), 0, 0));
        let (rolled_up, cheap) = cost(&session, ROLLED_UP).await;
        assert_eq!((cheap.slices_read, cheap.rounds), (0, 0));
        set(&session, &["summary_cache = off"]).await;
        let (fresh, dear) = cost(&session, ROLLED_UP).await;
        assert!(dear.slices_read > 8);
        assert_eq!(rolled_up.rows, fresh.rows);
        set(&session, &["summary_cache = on"]).await;
        // Another host has kept nothing, but the drives have.
        let elsewhere = setup.connect_again().await;
        let (told, kept) = cost(&elsewhere.host.session(), SUMS).await;
        assert_eq!((told.rows, kept.slices_read), (first.rows.clone(), 0));
        elsewhere.shutdown().await;
        // After an append only what is new is read; the answer doubles.
        let append = LoadSpec { mode: LoadMode::Append, partitioning: None, copies: None, ..spec("lineitem", "vortex") };
        load(&setup.engine, append).await.unwrap_or_else(|fault| panic!("appending: {fault}"));
        let (doubled, half) = cost(&session, SUMS).await;
        assert_eq!(half.slices_read, before.slices_read);
        let count = |table: &Table| -> Vec<i64> { table.rows.iter().map(|row| row[2].parse().unwrap()).collect() };
        assert_eq!(count(&doubled), count(&first).iter().map(|count| count * 2).collect::<Vec<_>>());
        // In its place: everything is read.
        let replace = LoadSpec { mode: LoadMode::Replace, ..spec("lineitem", "vortex") };
        load(&setup.engine, replace).await.unwrap_or_else(|fault| panic!("replacing: {fault}"));
        let (replaced, all) = cost(&session, SUMS).await;
        assert_eq!((replaced.rows, all.slices_read), (first.rows, before.slices_read));
        setup.shutdown().await;
    });
}

#[test]
fn a_level_that_there_is_not_is_refused() {
    block_on(async {
        let setup = Setup::new(Mode::ONE_HERE).await;
        let session = setup.session().await;
        for level in ["5", "4", "most", "'random:'"] {
            let fault = refusal(&session, &format!("SET pithead.level = {level}")).await;
            assert!(fault.to_string().contains("expected auto, 3, 2, 1, 0 or random:SEED"), "{fault}");
        }
        let fault = refusal(&session, "EXPLAIN PUSHDOWN SET pithead.level = 3").await;
        assert!(fault.to_string().contains("expected one after it"), "{fault}");
        setup.shutdown().await;
    });
}

#[test]
fn queries_side_by_side_over_weak_drives_all_end_alike() {
    block_on(async {
        let setup = Setup::new(Mode { drives: 2, arguments: &["--cpu", "1/4", "--threads", "1"], ..Mode::WEAK }).await;
        load_tpch(&setup).await;
        let session = setup.session().await;
        let (expected, _) = ask(&session, SUMS).await;
        let asked = (0..16).map(|_| async {
            let session = setup.session().await;
            ask(&session, SUMS).await.0.rows
        });
        for rows in futures::future::join_all(asked).await {
            assert_eq!(rows, expected.rows);
        }
        setup.shutdown().await;
    });
}

#[test]
fn a_limit_counts_rows_of_the_answer_alone() {
    block_on(async {
        let setup = Setup::new(TWO_DRIVES).await;
        let session = setup.session().await;
        for sql in [
            "CREATE TABLE t PARTITION BY hash(k) WITH (slice_rows = 100) AS \
             SELECT unnest(range(4000)) % 40 AS k, unnest(range(4000)) AS id",
            "CREATE TABLE s AS SELECT id FROM t WHERE id >= 3980",
        ] {
            collect(&session, sql).await.unwrap_or_else(|fault| panic!("{sql}: {fault}"));
        }
        for level in ["2", "1", "0", "'random:7'", "3", "auto"] {
            set(&session, &[&format!("level = {level}")]).await;
            let groups = collect(&session, "SELECT k, count(*) FROM t GROUP BY k LIMIT 5").await.unwrap();
            assert!(groups.rows.len() == 5 && groups.rows.iter().all(|row| row[1] == "100"), "level {level}: {groups:?}");
            let joined = collect(&session, "SELECT t.id FROM t JOIN s ON t.id = s.id LIMIT 10").await.unwrap();
            assert_eq!(joined.rows.len(), 10, "level {level}: {joined:?}");
            let plain = collect(&session, "SELECT id FROM t WHERE id % 7 = 3 LIMIT 300").await.unwrap();
            assert_eq!(plain.rows.len(), 300, "level {level}");
        }
        setup.shutdown().await;
    });
}
