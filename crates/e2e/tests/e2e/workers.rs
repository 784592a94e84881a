//! Queries whose super-plans are divided among worker processes: the rows of one host, whatever happens to a worker.

use std::time::Duration;

use futures::StreamExt;
use pithead_e2e::tpch::{answers, queries, spec};
use pithead_e2e::{DriveProcess, FrontProcess, block_on, collect, divide, front, row_difference, worker};
use pithead_embed::{ConnectOptions, EmbedOptions, Engine, Target, connect};
use pithead_host::Session;
use pithead_model::{Blame, Fault, FaultKind};
use pithead_workers::Workers;
use tempfile::TempDir;

const DATASETS: [&str; 8] = ["region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"];
/// Queries whose super-plan has a join or an aggregate at the least, without push-down.
const DIVIDED_MIN: usize = 18;
const JOIN: &str = "SELECT o_orderpriority, count(*), sum(l_quantity) FROM orders JOIN lineitem ON o_orderkey = l_orderkey \
                    GROUP BY o_orderpriority ORDER BY 1";
const MANY_ROWS: &str =
    "SELECT l_orderkey, l_linenumber, o_comment, l_comment FROM orders JOIN lineitem ON o_orderkey = l_orderkey";

/// Two drives with TPC-H, two workers, and a host that divides its queries among them.
struct Site {
    _folder: TempDir,
    drives: Vec<DriveProcess>,
    workers: Vec<FrontProcess>,
    engine: Engine,
}

impl Site {
    async fn new() -> Site {
        let folder = TempDir::new().unwrap();
        let drives = DriveProcess::start_many(folder.path(), 2, &[]);
        let addresses: Vec<String> = drives.iter().map(|drive| drive.address().to_owned()).collect();
        let engine = connect(&Target::Drives(addresses), &EmbedOptions::default()).await.unwrap();
        for name in DATASETS {
            pithead_e2e::load(&engine, spec(name, "vortex")).await.unwrap();
        }
        let workers: Vec<FrontProcess> = (0..2).map(|_| worker(folder.path(), &drives, &[])).collect();
        divide(&engine, &workers).await;
        Site { _folder: folder, drives, workers, engine }
    }

    /// A session whose joins and aggregates are left to the host.
    async fn session(&self) -> Session {
        let session = self.engine.host.session();
        collect(&session, "SET pithead.pushdown = false").await.unwrap();
        collect(&session, "SET pithead.join_filters = false").await.unwrap();
        session
    }
}

/// What EXPLAIN [ANALYZE] says.
async fn explained(session: &Session, query: &str, analyze: bool) -> String {
    let how = if analyze { "EXPLAIN ANALYZE" } else { "EXPLAIN" };
    let table = collect(session, &format!("{how} {query}")).await.unwrap();
    table.rows.into_iter().flatten().map(|line| line + "\n").collect()
}

#[test]
fn tpch_is_the_same_among_workers() {
    block_on(async {
        let site = Site::new().await;
        let (mut wrong, mut divided, mut told) = (vec![], 0, String::new());
        for session in [site.session().await, site.engine.host.session()] {
            for (name, query) in queries() {
                let plan = explained(&session, &query, false).await;
                divided += usize::from(plan.contains("among 2 workers"));
                told += &format!(
                    "{name}: {}\n",
                    plan.lines().find(|line| line.contains("workers") || line.contains("alone")).unwrap_or("")
                );
                let table = collect(&session, &query).await.unwrap_or_else(|fault| panic!("{name}: {fault}"));
                wrong.extend(row_difference(&table, &answers()[&name]).map(|what| format!("{name}: {what}")));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(divided >= DIVIDED_MIN, "{divided} were divided\n{told}");
        let session = site.session().await;
        let (far, alone) = (explained(&session, JOIN, true).await, site.engine.host.session());
        collect(&alone, "SET pithead.workers = false").await.unwrap();
        collect(&alone, "SET pithead.pushdown = false").await.unwrap();
        let near = explained(&alone, JOIN, true).await;
        assert!(far.contains("among 2 workers") && !far.contains("run again"), "{far}");
        assert!(!near.contains("workers"), "{near}");
        // What drives sent is known, although they sent it to the workers.
        let rows =
            |plan: &str| plan.lines().filter(|line| line.contains("600572 rows") || line.contains("150000 rows")).count();
        assert!(rows(&far) > 0 && rows(&far) == rows(&near), "{far}\n{near}");
    });
}

/// A constant of the side that may be missing is NULL in rows without a match. DataFusion claims otherwise, and a sort that believes
/// it at a worker would hand on whatever rows come first.
#[test]
fn rows_are_sorted_by_a_constant_of_the_side_that_may_be_missing() {
    const SEEN: &str = "SELECT seen, count(*) FROM (SELECT c_custkey, seen FROM (SELECT o_custkey, 1 AS seen FROM orders \
                        GROUP BY o_custkey) AS x FULL JOIN customer ON c_custkey = o_custkey ORDER BY seen NULLS FIRST LIMIT 1000) \
                        GROUP BY seen";
    block_on(async {
        let site = Site::new().await;
        let session = site.session().await;
        for what in ["hash_join_single_partition_threshold", "hash_join_single_partition_threshold_rows"] {
            collect(&session, &format!("SET datafusion.optimizer.{what} = 0")).await.unwrap();
        }
        let plan = explained(&session, SEEN, false).await;
        assert!(plan.contains("among 2 workers"), "{plan}");
        assert_eq!(collect(&session, SEEN).await.unwrap().rows, [["NULL", "1000"]]);
    });
}

/// How a query ends: its rows that come, and its fault.
async fn ended(session: &Session, query: &str) -> (u64, Fault) {
    let mut rows = match session.run(query).await {
        Ok(answer) => answer.rows,
        Err(fault) => return (0, fault),
    };
    let mut count = 0;
    while let Some(batch) = rows.next().await {
        match batch {
            Ok(batch) => count += batch.num_rows() as u64,
            Err(fault) => return (count, fault),
        }
    }
    panic!("{query} ended well, with {count} rows");
}

#[test]
fn a_query_that_fails_by_its_own_fault_is_told_as_at_one_host() {
    block_on(async {
        let site = Site::new().await;
        let (far, near) = (site.session().await, site.session().await);
        collect(&near, "SET pithead.workers = false").await.unwrap();
        let join = "FROM orders JOIN lineitem ON o_orderkey = l_orderkey";
        let late = format!("SELECT max(l_orderkey) {join}");
        let late = collect(&near, &late).await.unwrap().rows[0][0].clone();
        for (first, expression, words) in [
            // Before its first row: all of it has to be known before one is.
            (false, "sum(l_quantity / (l_linenumber - l_linenumber))".to_owned(), "ivide by zero"),
            (false, "max(CAST(CASE WHEN o_orderkey = 7 THEN o_comment ELSE '1' END AS INT))".to_owned(), "ast"),
            // Every row at fault gives the same words, whichever comes first.
            (false, "sum(9223372036854775807 + (l_linenumber - l_linenumber + 1))".to_owned(), "verflow"),
            // And after rows have come: one row of all is at fault.
            (true, format!("l_comment, o_comment, 1 / (l_orderkey - {late})"), "ivide by zero"),
            (true, format!("l_comment, o_comment, CAST(CASE WHEN l_orderkey = {late} THEN o_comment END AS INT)"), "ast"),
        ] {
            let query = format!("SELECT {expression} {join}");
            let plan = explained(&far, &query, false).await;
            assert!(plan.contains("among 2 workers"), "{query}: {plan}");
            let ((came, told), (_, alone)) = (ended(&far, &query).await, ended(&near, &query).await);
            assert_eq!(told, alone, "{query}");
            assert!(told.blame == Blame::User && told.message.contains(words), "{query}: {told:?}");
            assert_eq!(came > 0, first, "{query}: {came} rows came");
        }
        // The workers are as good as before.
        assert!(!explained(&far, JOIN, true).await.contains("run again"));
    });
}

#[test]
fn memory_that_a_worker_does_not_have_is_told_as_a_limit() {
    block_on(async {
        let mut site = Site::new().await;
        let drives = site.drives.iter().map(|drive| drive.address().to_owned()).collect();
        let engine = connect(&Target::Drives(drives), &EmbedOptions::default()).await.unwrap();
        site.workers = (0..2).map(|_| worker(site._folder.path(), &site.drives, &["--memory", "24MiB"])).collect();
        divide(&engine, &site.workers).await;
        let session = engine.host.session();
        collect(&session, "SET pithead.pushdown = false").await.unwrap();
        collect(&session, "SET pithead.join_filters = false").await.unwrap();
        let large =
            "SELECT count(*) FROM lineitem a JOIN lineitem b ON a.l_comment = b.l_comment AND a.l_orderkey = b.l_orderkey";
        let (came, fault) = ended(&session, large).await;
        assert_eq!((came, fault.blame, fault.kind), (0, Blame::Limit, FaultKind::Memory), "{fault:?}");
    });
}

#[test]
fn ranks_and_rows_of_lists_are_found_at_workers_and_other_windows_at_the_host() {
    block_on(async {
        let site = Site::new().await;
        let (far, near) = (site.session().await, site.session().await);
        collect(&near, "SET pithead.workers = false").await.unwrap();
        let ranked = "SELECT o_custkey, o_orderkey, rank() OVER w AS first, row_number() OVER w AS number, ntile(3) OVER w AS third, \
                      percent_rank() OVER (ORDER BY o_orderdate) AS share FROM orders \
                      WINDOW w AS (PARTITION BY o_custkey ORDER BY o_orderdate, o_orderkey)";
        let best = format!("SELECT * FROM ({ranked}) WHERE number <= 2 ORDER BY o_custkey, o_orderkey");
        for query in [best, format!("SELECT count(*), sum(number), sum(first * third), max(share) FROM ({ranked})")] {
            let plan = explained(&far, &query, true).await;
            assert!(plan.contains("among 2 workers") && !plan.contains("run again"), "{plan}");
            let (divided, alone) = (collect(&far, &query).await.unwrap(), collect(&near, &query).await.unwrap());
            assert_eq!(row_difference(&divided, &alone), None, "{query}");
        }
        for stays in [
            "lag(o_clerk) IGNORE NULLS OVER (ORDER BY o_orderkey)",
            "sum(o_totalprice) FILTER (WHERE o_custkey > 9) OVER (PARTITION BY o_custkey)",
        ] {
            let plan = explained(&far, &format!("SELECT {stays} FROM orders"), false).await;
            assert!(plan.contains("at this host alone") && plan.contains("does not travel whole"), "{plan}");
        }
        let listed = "SELECT k, unnest(l) AS o FROM (SELECT o_custkey AS k, array_agg(o_orderkey) AS l FROM orders GROUP BY 1) \
                      ORDER BY 1, 2";
        let plan = explained(&far, listed, true).await;
        assert!(plan.contains("among 2 workers") && !plan.contains("run again"), "{plan}");
        assert!(plan.contains("150000 rows"), "what drives sent is known: {plan}");
        // Lists beside long texts, whose rows would be gigabytes at once.
        let long = "SELECT count(*), sum(length(t)), max(n) FROM (SELECT string_agg(o_comment, ' ') AS t, \
                    unnest(array_agg(o_orderkey)) AS n FROM orders GROUP BY date_trunc('month', o_orderdate), o_orderpriority)";
        for query in [listed, long] {
            let (divided, alone) = (collect(&far, query).await.unwrap(), collect(&near, query).await.unwrap());
            assert_eq!(row_difference(&divided, &alone), None, "{query}");
        }
    });
}

#[test]
fn a_worker_that_is_killed_shortens_no_answer() {
    block_on(async {
        let mut site = Site::new().await;
        let session = site.session().await;
        let whole = collect(&session, JOIN).await.unwrap();
        let mut rows = session.run(MANY_ROWS).await.unwrap().rows;
        let first = rows.next().await.unwrap().unwrap().num_rows() as u64;
        drop(site.workers.pop());
        let (mut count, mut fault) = (first, None);
        while let Some(batch) = rows.next().await {
            match batch {
                Ok(batch) => count += batch.num_rows() as u64,
                Err(error) => fault = Some(error),
            }
        }
        match fault {
            Some(fault) => assert!(fault.to_string().contains("after rows were handed on"), "{fault}"),
            None => assert_eq!(count, 600_572),
        }
        // It is gone: what it would have done, the host does.
        let plan = explained(&session, JOIN, true).await;
        assert!(plan.contains("run again at this host alone"), "{plan}");
        assert_eq!(row_difference(&collect(&session, JOIN).await.unwrap(), &whole), None);
        // And again, with a worker that dies while it works.
        site.workers.push(worker(site._folder.path(), &site.drives, &[]));
        let drives = site.drives.iter().map(|drive| drive.address().to_owned()).collect();
        let engine = connect(&Target::Drives(drives), &EmbedOptions::default()).await.unwrap();
        divide(&engine, &site.workers).await;
        let session = engine.host.session();
        collect(&session, "SET pithead.pushdown = false").await.unwrap();
        let dying = site.workers.pop();
        let killing = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(60)).await;
            drop(dying);
        });
        assert_eq!(row_difference(&collect(&session, JOIN).await.unwrap(), &whole), None);
        killing.await.unwrap();
    });
}

#[test]
fn a_worker_asks_who_calls() {
    block_on(async {
        let folder = TempDir::new().unwrap();
        let drives = DriveProcess::start_many(folder.path(), 1, &[]);
        front::done(folder.path(), &["token", "ops", "--administer", "*"]);
        front::done(folder.path(), &["token", "one", "--read", "main"]);
        let guarded = worker(folder.path(), &drives, &["--access", "access.toml"]);
        let sql = |token: Option<&str>, workers: &str| {
            let mut arguments = vec!["sql", "--drives", drives[0].address(), "--workers", workers, "-c", "SELECT 1"];
            arguments.extend(token.iter().flat_map(|token| ["--token-file", token]));
            front::run(folder.path(), &arguments)
        };
        let said =
            |output: std::process::Output| (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned());
        assert!(said(sql(Some("ops.token"), guarded.address())).0);
        for (token, why) in [(None, "asks for a token"), (Some("one.token"), "may not read every domain")] {
            let (good, said) = said(sql(token, guarded.address()));
            assert!(!good && said.contains(why) && said.contains(guarded.address()), "{said}");
        }
        // One that is not there is waited for by nobody.
        assert!(said(sql(None, "127.0.0.1:9")).0);
        let (good, told) = said(sql(None, "no address"));
        assert!(!good && told.contains("HOST:PORT"), "{told}");
        let functions = pithead_host::HostOptions::default().functions;
        let fault = Workers::connect(&["10.1.1.1:7500".to_owned()], &ConnectOptions::default(), &functions).await.unwrap_err();
        assert!(fault.blame == Blame::User && fault.message.contains("TLS"), "{fault}");
    });
}
