//! Statements that write over drives that take their time: when they can be cancelled, and when others come first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray, TimestampMicrosecondArray, UInt64Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::Int64Type;
use arrow::util::pretty::pretty_format_batches;
use futures::{StreamExt, TryStreamExt};
use pithead_door::{
    Batches, Claim, Discard, Door, DriveStatus, Event, Events, Hello, LoadRequest, ManifestReceipt, MergeRuns, OpenRequest,
    OpenSession, Opened, Pieces, Welcome,
};
use pithead_entry::Identity;
use pithead_fakes::FakeDoor;
use pithead_model::{
    Blame, Directory, Fault, FaultKind, HostState, Loaded, Manifest, SessionId, SessionProfile, SliceKey, boxed,
};

use crate::{Client, Commitment, Host, HostOptions, Parameters, Session};

/// Times that a drive's answers take as one host has them, milliseconds.
#[derive(Debug)]
struct SlowDoor {
    own: Arc<FakeDoor>,
    load_ms: AtomicU64,
    commit_ms: AtomicU64,
    discard_ms: AtomicU64,
    merge_ms: AtomicU64,
    /// Whether the rows of every second session come in the other order.
    turns: AtomicBool,
    sessions: AtomicU64,
}

impl SlowDoor {
    fn new(own: &Arc<FakeDoor>) -> Arc<SlowDoor> {
        let none = AtomicU64::default;
        Arc::new(SlowDoor {
            own: Arc::clone(own),
            load_ms: none(),
            commit_ms: none(),
            discard_ms: none(),
            merge_ms: none(),
            turns: AtomicBool::new(false),
            sessions: none(),
        })
    }
}

fn turned(event: Event) -> Event {
    let Event::Rows { round, batch, link_bytes } = event else { return event };
    let backwards: UInt64Array = (0..batch.num_rows() as u64).rev().collect();
    Event::Rows { round, batch: take_record_batch(&batch, &backwards).unwrap(), link_bytes }
}

async fn wait(takes: &AtomicU64) {
    tokio::time::sleep(Duration::from_millis(takes.load(Ordering::Relaxed))).await;
}

#[boxed]
impl Door for SlowDoor {
    fn label(&self) -> &str {
        self.own.label()
    }

    async fn hello(&self, hello: Hello) -> Result<Welcome, Fault> {
        self.own.hello(hello).await
    }

    async fn open(&self, request: OpenRequest) -> Result<Opened, Fault> {
        self.own.open(request).await
    }

    async fn get(&self, session: SessionId) -> Result<Events, Fault> {
        let events = self.own.get(session).await?;
        let is_second = self.sessions.fetch_add(1, Ordering::Relaxed) % 2 == 1;
        match self.turns.load(Ordering::Relaxed) && is_second {
            true => Ok(events.map_ok(turned).boxed()),
            false => Ok(events),
        }
    }

    async fn tell(&self, session: SessionId, state: HostState) -> Result<(), Fault> {
        self.own.tell(session, state).await
    }

    async fn poll(&self, session: SessionId) -> Result<SessionProfile, Fault> {
        self.own.poll(session).await
    }

    async fn close(&self, session: SessionId) -> Result<(), Fault> {
        self.own.close(session).await
    }

    async fn load(&self, request: LoadRequest, rows: Batches) -> Result<Loaded, Fault> {
        wait(&self.load_ms).await;
        self.own.load(request, rows).await
    }

    async fn merge_runs(&self, request: MergeRuns) -> Result<Loaded, Fault> {
        wait(&self.merge_ms).await;
        self.own.merge_runs(request).await
    }

    async fn discard(&self, discard: Discard) -> Result<u64, Fault> {
        wait(&self.discard_ms).await;
        self.own.discard(discard).await
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<SliceKey>, Fault> {
        self.own.claim(claim).await
    }

    async fn read_run(&self, run: SliceKey) -> Result<Pieces, Fault> {
        self.own.read_run(run).await
    }

    async fn write_run(&self, run: SliceKey, pieces: Pieces) -> Result<(), Fault> {
        self.own.write_run(run, pieces).await
    }

    async fn manifest(&self, domain: String) -> Result<Option<Manifest>, Fault> {
        self.own.manifest(domain).await
    }

    /// The change is made at once, and the answer takes its time.
    async fn commit(&self, expected: u64, manifest: Manifest) -> Result<(), Fault> {
        let committed = self.own.commit(expected, manifest).await;
        wait(&self.commit_ms).await;
        committed
    }

    async fn keep_manifest(&self, manifest: Manifest) -> Result<ManifestReceipt, Fault> {
        self.own.keep_manifest(manifest).await
    }

    async fn directory(&self, key: SliceKey) -> Result<Directory, Fault> {
        self.own.directory(key).await
    }

    async fn status(&self) -> Result<DriveStatus, Fault> {
        self.own.status().await
    }

    async fn sessions(&self) -> Result<Vec<OpenSession>, Fault> {
        self.own.sessions().await
    }

    async fn kill(&self, session: SessionId) -> Result<bool, Fault> {
        self.own.kill(session).await
    }
}

/// A drive that one host waits for, and another one does not.
struct Place {
    slow: Arc<SlowDoor>,
    one: Host,
    other: Host,
}

impl Place {
    async fn new() -> Place {
        let fake = FakeDoor::new(1);
        let slow = SlowDoor::new(&fake);
        let one = connect(Arc::clone(&slow) as Arc<dyn Door>).await;
        Place { slow, one, other: connect(fake as Arc<dyn Door>).await }
    }
}

async fn connect(door: Arc<dyn Door>) -> Host {
    Host::connect(vec![door], HostOptions { threads: 2, ..Default::default() }).await.unwrap()
}

async fn run(session: &Session, sql: &str) -> Result<Vec<RecordBatch>, Fault> {
    session.run(sql).await?.rows.try_collect().await
}

/// The rows of `t`, whose one column is `k`, sorted.
async fn keys(host: &Host) -> Vec<i64> {
    let batches = run(&host.session(), "SELECT k FROM t").await.unwrap();
    let keys = batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec());
    let mut keys: Vec<i64> = keys.collect();
    keys.sort_unstable();
    keys
}

/// A regression: the rows were there, and the client was told of a timeout.
#[tokio::test]
async fn a_statement_whose_change_was_sent_ends_with_its_outcome() {
    let place = Place::new().await;
    let session = place.one.session();
    for sql in ["CREATE TABLE t (k BIGINT)", "SET statement_timeout = '500ms'"] {
        run(&session, sql).await.unwrap();
    }
    place.slow.commit_ms.store(1_000, Ordering::Relaxed);
    assert_eq!(session.run("INSERT INTO t VALUES (1), (2)").await.unwrap().changed, Some(2));
    let returned = run(&session, "INSERT INTO t VALUES (3) RETURNING k").await.unwrap();
    assert_eq!(returned.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
    place.slow.commit_ms.store(0, Ordering::Relaxed);
    // What is not sent yet is cancelled, and is not sent later.
    place.slow.load_ms.store(1_200, Ordering::Relaxed);
    let fault = run(&session, "INSERT INTO t VALUES (4)").await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Timeout);
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    assert_eq!(keys(&place.other).await, [1, 2, 3]);
}

/// A regression: an answer waited for slices to be deleted, and for runs to be merged.
#[tokio::test]
async fn no_answer_waits_long_for_what_it_does_not_need() {
    let place = Place::new().await;
    let session = place.one.session();
    run(&session, "CREATE TABLE t (k BIGINT)").await.unwrap();
    place.slow.discard_ms.store(60_000, Ordering::Relaxed);
    place.slow.merge_ms.store(60_000, Ordering::Relaxed);
    run(&session, "SET statement_timeout = '2s'").await.unwrap();
    let started = Instant::now();
    run(&session, "CREATE OR REPLACE TABLE t AS SELECT 0::BIGINT AS k").await.unwrap();
    for key in 1..20 {
        run(&session, &format!("INSERT INTO t VALUES ({key})")).await.unwrap();
    }
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    assert_eq!(keys(&place.other).await, (0..20).collect::<Vec<_>>());
    place.one.settled(Duration::from_millis(100)).await;
    assert!(started.elapsed() < Duration::from_secs(25), "what has not ended is cut short");
}

#[tokio::test]
async fn who_cancels_is_told_whether_it_is_too_late() {
    let place = Place::new().await;
    let session = place.one.session();
    run(&session, "CREATE TABLE t (k BIGINT)").await.unwrap();
    let why = || Fault::new(Blame::Cancelled, "enough");
    for (load_ms, commit_ms, is_cancelled) in [(400, 0, true), (0, 400, false)] {
        place.slow.load_ms.store(load_ms, Ordering::Relaxed);
        place.slow.commit_ms.store(commit_ms, Ordering::Relaxed);
        let (commitment, parameters) = (Arc::<Commitment>::default(), Parameters::default());
        let running = session.run_until("INSERT INTO t VALUES (1)", &parameters, &commitment);
        let cancelling = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            commitment.cancel(why())
        };
        let (answer, cancelled) = tokio::join!(running, cancelling);
        assert_eq!((cancelled, answer.is_err(), commitment.is_sent()), (is_cancelled, is_cancelled, !is_cancelled));
        assert_eq!(keys(&place.other).await.len(), usize::from(!is_cancelled));
    }
}

/// A regression: what another host added while rows were read was lost with those that they replaced.
#[tokio::test]
async fn a_table_that_is_made_of_itself_loses_nothing() {
    let place = Place::new().await;
    let (one, other) = (place.one.session(), place.other.session());
    run(&one, "CREATE TABLE t AS SELECT 1::BIGINT AS k").await.unwrap();
    run(&one, "CREATE VIEW v AS SELECT k FROM t").await.unwrap();
    for (added, made) in [(2, "SELECT k FROM t"), (3, "SELECT k FROM v")] {
        place.slow.load_ms.store(300, Ordering::Relaxed);
        let sql = format!("CREATE OR REPLACE TABLE t AS {made}");
        let adding = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            run(&other, &format!("INSERT INTO t VALUES ({added})")).await
        };
        let (replaced, inserted) = tokio::join!(run(&one, &sql), adding);
        replaced.unwrap();
        inserted.unwrap();
        assert!(keys(&place.other).await.contains(&added), "{sql}");
    }
    assert_eq!(keys(&place.other).await, [1, 2, 3]);
    // One that is made of something else takes the place of whatever is there.
    let adding = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        run(&other, "INSERT INTO t VALUES (5)").await
    };
    let (replaced, inserted) = tokio::join!(run(&one, "CREATE OR REPLACE TABLE t AS SELECT 9::BIGINT AS k"), adding);
    replaced.unwrap();
    inserted.unwrap();
    assert_eq!(keys(&place.other).await, [9]);
}

/// A regression: of two that made or dropped the same, the later one was told that it was there already, or was not there.
#[tokio::test]
async fn if_exists_and_if_not_exists_say_nothing_of_races() {
    let place = Place::new().await;
    let (one, other) = (place.one.session(), place.other.session());
    place.slow.load_ms.store(200, Ordering::Relaxed);
    let later = async |sql: &str| {
        tokio::time::sleep(Duration::from_millis(50)).await;
        run(&other, sql).await
    };
    let create = "CREATE TABLE IF NOT EXISTS t AS SELECT 1::BIGINT AS k";
    let (slow, quick) = tokio::join!(run(&one, create), later(create));
    slow.unwrap();
    quick.unwrap();
    assert_eq!(keys(&place.one).await, [1]);
    // Without it, it is an error still.
    let (slow, quick) = tokio::join!(run(&one, "CREATE TABLE u (k BIGINT)"), later("CREATE TABLE u (k BIGINT)"));
    assert_eq!((slow.unwrap_err().kind, quick.is_ok()), (FaultKind::Exists, true));
}

#[tokio::test]
async fn tables_of_a_domain_are_dropped_together_or_not_at_all() {
    let place = Place::new().await;
    let (one, other) = (place.one.session(), place.other.session());
    for table in ["a", "b", "c"] {
        run(&one, &format!("CREATE TABLE {table} (k BIGINT)")).await.unwrap();
    }
    run(&one, "CREATE VIEW v AS SELECT k FROM a").await.unwrap();
    let version = || place.slow.own.manifests.lock()["main"].version;
    let before = version();
    for refused in ["DROP TABLE a, nothing", "DROP TABLE a, b, v", "DROP TABLE IF EXISTS a, v"] {
        run(&one, refused).await.unwrap_err();
        assert_eq!(version(), before, "{refused}");
    }
    run(&one, "DROP TABLE IF EXISTS a, b, nothing").await.unwrap();
    assert_eq!(version(), before + 1);
    let left: Vec<String> = place.slow.own.manifests.lock()["main"].datasets.keys().cloned().collect();
    assert_eq!(left, ["c"]);
    run(&one, "DROP TABLE IF EXISTS a, b").await.unwrap();
    assert_eq!(version(), before + 1, "there is nothing to change");
    // Two that have both seen it.
    place.slow.own.conflicts.store(1, Ordering::Relaxed);
    let both = tokio::join!(run(&one, "DROP TABLE IF EXISTS c"), run(&other, "DROP TABLE IF EXISTS c"));
    both.0.unwrap();
    both.1.unwrap();
}

/// A regression: a statement that was prepared told of the tables that there were then.
#[tokio::test]
async fn functions_of_the_catalogue_tell_of_what_is_there_now() {
    let place = Place::new().await;
    let caller = Arc::new(Identity::unlimited("ann"));
    let session = place.one.session_for(Client { caller, user: "ann".into(), process: 1, shown: Arc::new(|_: &str| None) });
    let statement = session.prepare("SELECT to_regclass('t') IS NOT NULL AS is_there", &Parameters::default()).await.unwrap();
    let is_there = async || {
        let mut rows = statement.run(&session).await.unwrap().rows;
        let batch = rows.next().await.unwrap().unwrap();
        batch.column(0).as_boolean().value(0)
    };
    assert!(!is_there().await);
    run(&session, "CREATE TABLE t (k BIGINT)").await.unwrap();
    assert!(is_there().await);
    run(&place.other.session(), "DROP TABLE t").await.unwrap();
    assert!(!is_there().await);
}

/// What a query gives, a line for each row and `|` between its columns.
async fn lines(session: &Session, sql: &str) -> Vec<String> {
    let batches = run(session, sql).await.unwrap();
    let shown = pretty_format_batches(&batches).unwrap().to_string();
    let rows = shown.lines().skip(3).filter(|line| !line.starts_with('+'));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>().join("|")).collect()
}

fn by_place(values: Vec<ArrayRef>) -> Parameters {
    let columns = values.into_iter().enumerate().map(|(place, value)| ((place + 1).to_string(), value));
    Parameters::by_place(&RecordBatch::try_from_iter_with_nullable(columns.map(|(name, value)| (name, value, true))).unwrap())
        .unwrap()
}

/// A regression: rows that are equal to a window were numbered anew by each query of a statement. Which of them were first
/// hung on the order in which they came, and rows were lost, doubled, or inserted again.
#[tokio::test]
async fn rows_that_are_first_are_chosen_once() {
    let place = Place::new().await;
    let session = place.one.session();
    let make =
        "CREATE OR REPLACE TABLE t AS SELECT v::DOUBLE AS k, v % 3 AS g, 0::BIGINT AS is_first FROM range(0, 30) AS r(v)";
    let first = "SELECT k FROM (SELECT k, row_number() OVER (PARTITION BY g ORDER BY g) AS n FROM t) WHERE n = 1";
    let of_pairs = "SELECT k, g FROM (SELECT k, g, row_number() OVER (PARTITION BY g ORDER BY g) AS n FROM t) WHERE n = 1";
    run(&session, "SET pithead.pushdown = off").await.unwrap();
    place.slow.turns.store(true, Ordering::Relaxed);
    for changes in [
        format!("UPDATE t SET is_first = 1 WHERE k IN ({first})"),
        format!("UPDATE t SET is_first = 1 WHERE (k, g) IN ({of_pairs})"),
        "UPDATE t SET is_first = 1 WHERE k IN (SELECT DISTINCT ON (g) k FROM t)".to_owned(),
        "UPDATE t SET is_first = 1 WHERE k IN (SELECT first_value(k) FROM t GROUP BY g)".to_owned(),
        format!(
            "MERGE INTO t USING ({first}) AS s ON t.k = s.k WHEN MATCHED THEN UPDATE SET is_first = 1 \
             WHEN NOT MATCHED THEN INSERT (k, g) VALUES (s.k, 9)"
        ),
    ] {
        run(&session, make).await.unwrap();
        assert_eq!(session.run(&changes).await.unwrap().changed, Some(3), "{changes}");
        let found = lines(&session, "SELECT g, count(*), count(DISTINCT k), sum(is_first) FROM t GROUP BY g ORDER BY g").await;
        assert_eq!(found, ["0|10|10|1", "1|10|10|1", "2|10|10|1"], "{changes}");
        let deleted = format!("DELETE FROM t WHERE k IN ({first}) RETURNING k");
        assert_eq!(lines(&session, &deleted).await.len(), 3);
        assert_eq!(lines(&session, "SELECT count(*), count(DISTINCT k) FROM t").await, ["27|27"]);
    }
    // One that hangs on the row is chosen for each row anew.
    let hanging = "UPDATE t SET is_first = 2 WHERE k = (SELECT s.k FROM t AS s WHERE s.g = t.g ORDER BY s.g LIMIT 1)";
    let fault = run(&session, hanging).await.unwrap_err();
    assert!(fault.blame == Blame::Unsupported && fault.hint.is_some(), "{fault}");
}

/// A regression: a value without a zone was read in the column's zone where it was a parameter, and in the session's where
/// it was not.
#[tokio::test]
async fn moments_of_parameters_are_read_in_the_sessions_zone() {
    let place = Place::new().await;
    let session = place.one.session();
    run(&session, "CREATE TABLE u (k BIGINT, z TIMESTAMPTZ)").await.unwrap();
    run(&session, "SET TIME ZONE 'Europe/Berlin'").await.unwrap();
    let noon: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![1_719_835_200_000_000]));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["2024-07-01 12:00:00"]));
    let there: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![1_719_828_000_000_000]).with_timezone("UTC"));
    run(&session, "INSERT INTO u VALUES (0, TIMESTAMP '2024-07-01 12:00:00')").await.unwrap();
    for (key, value) in [(1, &noon), (2, &text), (3, &there)] {
        let parameters = by_place(vec![Arc::clone(value)]);
        session.run_with(&format!("INSERT INTO u VALUES ({key}, ?), ({key}, NULL)"), &parameters).await.unwrap();
    }
    let by_name = RecordBatch::try_from_iter([("z", Arc::clone(&noon))]).unwrap();
    session.run_with("INSERT INTO u VALUES (4, $z)", &Parameters::by_name(&by_name).unwrap()).await.unwrap();
    let counted = "SELECT k, count(*) FROM u WHERE z = TIMESTAMPTZ '2024-07-01 10:00:00+00' GROUP BY k ORDER BY k";
    run(&session, "SET pithead.pushdown = off").await.unwrap();
    assert_eq!(lines(&session, counted).await, ["0|1", "1|1", "2|1", "3|1", "4|1"]);
    session.run_with("UPDATE u SET z = ?, k = 5", &by_place(vec![text])).await.unwrap();
    assert_eq!(lines(&session, counted).await, ["5|8"]);
}

/// A regression: a value with a zone became UTC's wall time, and UTC's day, where it was a parameter.
#[tokio::test]
async fn moments_of_parameters_are_shown_in_the_sessions_zone() {
    let place = Place::new().await;
    let session = place.one.session();
    run(&session, "CREATE TABLE u (t TIMESTAMP, d DATE)").await.unwrap();
    run(&session, "SET TIME ZONE 'Europe/Berlin'").await.unwrap();
    // 22:30 on June 30 in UTC.
    let moment: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![1_719_786_600_000_000]).with_timezone("UTC"));
    let values = || by_place(vec![Arc::clone(&moment), Arc::clone(&moment)]);
    session.run_with("INSERT INTO u VALUES (?, ?)", &values()).await.unwrap();
    run(&session, "INSERT INTO u VALUES (NULL, NULL)").await.unwrap();
    run(&session, "SET pithead.pushdown = off").await.unwrap();
    let counted = "SELECT count(*) FROM u WHERE t = TIMESTAMP '2024-07-01 00:30:00' AND d = DATE '2024-07-01'";
    assert_eq!(lines(&session, counted).await, ["1"]);
    session.run_with("UPDATE u SET t = ?, d = ?", &values()).await.unwrap();
    assert_eq!(lines(&session, counted).await, ["2"]);
}

/// A regression: the planner took names of parameters for their places, but not in queries.
#[tokio::test]
async fn values_by_name_are_inserted() {
    let place = Place::new().await;
    let session = place.one.session();
    run(&session, "CREATE TABLE t (k BIGINT, s VARCHAR)").await.unwrap();
    let (key, text): (ArrayRef, ArrayRef) = (Arc::new(UInt64Array::from(vec![7])), Arc::new(StringArray::from(vec!["x"])));
    let row = RecordBatch::try_from_iter([("k", key), ("s", text)]).unwrap();
    let inserted = session.run_with("INSERT INTO t VALUES ($k, $s), ($k + 1, $s)", &Parameters::by_name(&row).unwrap()).await;
    assert_eq!(inserted.unwrap().changed, Some(2));
    run(&session, "SET pithead.pushdown = off").await.unwrap();
    assert_eq!(lines(&session, "SELECT * FROM t ORDER BY k").await, ["7|x", "8|x"]);
}

/// A regression: SET looked for a column as it was written, and everything else in small letters.
#[tokio::test]
async fn update_sets_the_column_that_the_name_means() {
    let place = Place::new().await;
    let session = place.one.session();
    run(&session, "CREATE TABLE t AS SELECT 1 AS price, 2 AS \"Price\"").await.unwrap();
    run(&session, "SET pithead.pushdown = off").await.unwrap();
    run(&session, "UPDATE t SET PRICE = 5").await.unwrap();
    assert_eq!(lines(&session, "SELECT * FROM t").await, ["5|2"]);
    run(&session, "UPDATE t SET \"Price\" = 6, Price = DEFAULT").await.unwrap();
    assert_eq!(lines(&session, "SELECT * FROM t").await, ["|6"]);
    for twice in ["UPDATE t SET price = 1, PRICE = 2", "UPDATE t SET price = 1, t.price = 2"] {
        let fault = run(&session, twice).await.unwrap_err();
        assert!(fault.message.contains("twice"), "{twice}: {fault}");
    }
    run(&session, "UPDATE t SET \"PRICE\" = 1").await.unwrap_err();
}

/// A regression: a column of nothing but NULL could never hold a value.
#[tokio::test]
async fn a_column_that_is_made_of_null_takes_values() {
    let place = Place::new().await;
    let session = place.one.session();
    run(&session, "CREATE TABLE t AS SELECT 1 AS k, NULL AS n, [] AS l, [NULL] AS m, {'a': NULL} AS s").await.unwrap();
    run(&session, "INSERT INTO t VALUES (2, 'x', ['y'], ['z'], {'a': 'w'}), (3, 7, NULL, NULL, NULL)").await.unwrap();
    run(&session, "SET pithead.pushdown = off").await.unwrap();
    let found = lines(&session, "SELECT k, n, l, m, s.a FROM t ORDER BY k").await;
    assert_eq!(found, ["1||[]|[]|", "2|x|[y]|[z]|w", "3|7|||"]);
    run(&session, "UPDATE t SET n = k").await.unwrap();
    assert_eq!(lines(&session, "SELECT n FROM t ORDER BY k").await, ["1", "2", "3"]);
}

/// A regression: they were told of LIMIT and ORDER BY, or of a MERGE.
#[tokio::test]
async fn changes_by_other_tables_are_refused_for_what_they_are() {
    let place = Place::new().await;
    let session = place.one.session();
    for table in ["t", "s"] {
        run(&session, &format!("CREATE TABLE {table} (k BIGINT, v BIGINT)")).await.unwrap();
    }
    for (sql, said, hint) in [
        ("UPDATE t JOIN s ON t.k = s.k SET v = 1", "joined", "UPDATE t SET … FROM other"),
        ("UPDATE t JOIN s ON t.k = s.k SET v = 1 WHERE s.v = 2", "joined", "UPDATE t SET … FROM other"),
        ("UPDATE t AS a SET v = t.v FROM t WHERE a.k = t.k + 1", "calls t, too", "FROM t AS other"),
    ] {
        let fault = run(&session, sql).await.unwrap_err();
        assert!(fault.message.contains(said), "{sql}: {fault}");
        assert!(fault.hint.as_ref().is_some_and(|told| told.contains(hint)), "{sql}: {fault}");
    }
}
