//! Views: what drives get for a query over one, what is said where one cannot be read, and where they are listed.

use pithead_e2e::front::five_rows;
use pithead_e2e::tpch::spec;
use pithead_e2e::{FrontProcess, Mode, RawClient, Reply, Setup, block_on, collect, load, refusal};
use pithead_host::{Parameters, Session};
use pithead_model::Blame;

async fn text(session: &Session, statement: &str) -> String {
    let table = collect(session, statement).await.unwrap_or_else(|fault| panic!("{statement}: {fault}"));
    table.rows.iter().map(|row| row.join("\t")).collect::<Vec<_>>().join("\n")
}

async fn setup() -> (Setup, Session) {
    let setup = Setup::new(Mode { drives: 2, ..Mode::FOUR_HERE }).await;
    for name in ["nation", "region"] {
        load(&setup.engine, spec(name, "vortex")).await.unwrap();
    }
    let session = setup.session().await;
    (setup, session)
}

async fn run(session: &Session, statements: &[&str]) {
    for statement in statements {
        collect(session, statement).await.unwrap_or_else(|fault| panic!("{statement}: {fault}"));
    }
}

#[test]
fn drives_get_what_they_would_get_for_the_query_itself() {
    block_on(async {
        let (setup, session) = setup().await;
        let inner = "SELECT n_regionkey, count(*) AS nations FROM nation WHERE n_name > 'B' GROUP BY n_regionkey";
        let outer = "SELECT v.nations, r.r_name FROM v JOIN region AS r ON v.n_regionkey = r.r_regionkey WHERE r.r_name < 'E'";
        let create = format!("CREATE VIEW v AS {inner}");
        run(&session, &[create.as_str(), "CREATE VIEW w AS SELECT * FROM v"]).await;
        let plain = outer.replace("FROM v", &format!("FROM ({inner}) AS v"));
        let over_view = outer.replace("FROM v", "FROM (SELECT * FROM w) AS v");
        let wanted = text(&session, &format!("EXPLAIN {plain}")).await;
        assert_eq!(text(&session, &format!("EXPLAIN {outer}")).await, wanted);
        assert!(wanted.contains("drive"), "{wanted}");
        let rows = text(&session, &format!("{plain} ORDER BY r_name")).await;
        for query in [outer, &over_view] {
            assert_eq!(text(&session, &format!("{query} ORDER BY r_name")).await, rows);
        }
        // What stays at the drives stays there: a filter above the view goes down, and groups are made below.
        let told = text(&session, "EXPLAIN PUSHDOWN SELECT nations FROM w WHERE n_regionkey = 1").await;
        assert!(told.contains("drive"), "{told}");
        assert!(text(&session, "DESCRIBE w").await.contains("nations"));
        assert_eq!(text(&session, "SUMMARIZE w").await.lines().count(), 2);
        setup.shutdown().await;
    });
}

#[test]
fn a_statement_that_was_prepared_sees_the_view_as_it_is_by_now() {
    block_on(async {
        let (setup, session) = setup().await;
        run(&session, &["CREATE VIEW v AS SELECT 1 AS a", "CREATE VIEW w AS SELECT a FROM v"]).await;
        let other = setup.session().await;
        let prepared = session.prepare("SELECT a FROM w", &Parameters::default()).await.unwrap();
        let value = async || {
            let batches: Vec<_> = futures::StreamExt::collect(prepared.run(&session).await.unwrap().rows).await;
            let batch: arrow::array::RecordBatch = batches.into_iter().next().unwrap().unwrap();
            arrow::util::display::array_value_to_string(batch.column(0), 0).unwrap()
        };
        assert_eq!(value().await, "1");
        run(&other, &["CREATE OR REPLACE VIEW v AS SELECT 2 AS a"]).await;
        assert_eq!(value().await, "2");
        run(&other, &["DROP VIEW v", "CREATE TABLE v AS SELECT 3 AS a"]).await;
        assert_eq!(value().await, "3");
        run(&other, &["DROP TABLE v"]).await;
        let fault = prepared.run(&session).await.err().unwrap();
        assert!(fault.message.contains("view main.w") && fault.message.contains("main.v"), "{fault}");
        setup.shutdown().await;
    });
}

#[test]
fn what_cannot_be_done_with_views_says_what_can() {
    block_on(async {
        let (setup, session) = setup().await;
        let session = session.with_files();
        let views = ["CREATE VIEW a AS SELECT * FROM nation", "CREATE VIEW lab.b AS SELECT n_name FROM main.a"];
        run(&session, &views).await;
        run(&session, &["CREATE VIEW c AS SELECT n_name FROM lab.b"]).await;
        let cases = [
            ("CREATE OR REPLACE VIEW a AS SELECT * FROM c", "reads itself: main.a → main.c → lab.b → main.a"),
            ("CREATE OR REPLACE VIEW a AS SELECT * FROM a", "reads itself: main.a → main.a"),
            ("CREATE VIEW a AS SELECT 1 AS x", "CREATE OR REPLACE VIEW"),
            ("CREATE VIEW nation AS SELECT 1 AS x", "main.nation is a table"),
            ("CREATE TABLE a (x BIGINT)", "main.a is a view"),
            ("CREATE OR REPLACE TABLE a AS SELECT 1 AS x", "main.a is a view"),
            ("INSERT INTO a SELECT * FROM nation", "main.a is a view"),
            ("DELETE FROM lab.b WHERE n_name = 'x'", "lab.b is a view"),
            ("UPDATE a SET n_name = 'x'", "main.a is a view"),
            ("TRUNCATE a", "main.a is a view"),
            ("ALTER TABLE a ADD COLUMN x BIGINT", "main.a is a view"),
            ("COPY a FROM 'x.csv'", "main.a is a view"),
            ("DROP TABLE a", "DROP VIEW main.a"),
            ("DROP TABLE IF EXISTS a", "DROP VIEW main.a"),
            ("DROP VIEW nation", "DROP TABLE main.nation"),
            ("DROP VIEW lab.bb", "near: lab.b"),
            ("SELECT * FROM aa", "near: main.a"),
            ("CREATE VIEW d AS SELECT $1 AS x", "placeholder"),
            ("CREATE VIEW d AS SELECT n_name, n_name FROM nation", "view main.d"),
            ("CREATE VIEW d (x, y) AS SELECT n_name FROM nation", "names 2 columns, and its query has 1"),
            ("CREATE VIEW d AS SELECT n_nam FROM nation", "view main.d"),
        ];
        for (statement, says) in cases {
            let fault = refusal(&session, statement).await;
            assert!(fault.blame == Blame::User && fault.to_string().contains(says), "{statement}: {fault}");
        }
        // Deeper than is allowed, and more than is allowed.
        run(&session, &["CREATE VIEW v0 AS SELECT n_nationkey AS k FROM nation"]).await;
        let mut told = None;
        for depth in 1..20 {
            let create = format!("CREATE VIEW v{depth} AS SELECT x.k FROM v{} AS x", depth - 1);
            told = session.run(&create).await.err();
            if told.is_some() {
                break;
            }
        }
        let fault = told.unwrap();
        assert!(fault.blame == Blame::Limit && fault.message.contains("16 deep"), "{fault}");
        run(&session, &["CREATE VIEW j0 AS SELECT n_nationkey AS k FROM nation"]).await;
        let mut told = None;
        for depth in 1..15 {
            let from = depth - 1;
            let create = format!("CREATE VIEW j{depth} AS SELECT x.k FROM j{from} AS x JOIN j{from} AS y ON x.k = y.k");
            told = session.run(&create).await.err();
            if told.is_some() {
                break;
            }
        }
        assert_eq!(told.map(|fault| fault.blame), Some(Blame::Limit));
        setup.shutdown().await;
    });
}

#[test]
fn a_view_whose_table_is_gone_is_listed_and_says_so_when_it_is_read() {
    block_on(async {
        let (setup, session) = setup().await;
        run(&session, &["CREATE VIEW v AS SELECT r_name FROM region", "CREATE VIEW w AS SELECT r_name FROM v"]).await;
        run(&session, &["DROP TABLE region"]).await;
        for statement in [
            "SELECT r_name FROM w",
            "EXPLAIN SELECT * FROM w",
            "CREATE TABLE t AS SELECT * FROM w",
            "SELECT (SELECT max(r_name) FROM w)",
        ] {
            let fault = refusal(&session, statement).await;
            assert!(fault.message.contains("view main.w: view main.v") && fault.message.contains("main.region"), "{fault}");
        }
        let shown = text(&session, "SHOW TABLES").await;
        assert!(shown.contains("w\tVIEW") && shown.contains("nation\tBASE TABLE"), "{shown}");
        let listed = "SELECT table_name, definition FROM information_schema.views ORDER BY table_name";
        assert_eq!(text(&session, listed).await, "v\tSELECT r_name FROM region\nw\tSELECT r_name FROM v");
        let columns = "SELECT column_name FROM information_schema.columns WHERE table_name = 'w'";
        assert_eq!(text(&session, columns).await, "r_name");
        load(&setup.engine, spec("region", "arrow")).await.unwrap();
        assert_eq!(text(&session, "SELECT count(*) FROM w").await, "5");
        // Bare names of a view are of the domain that it was made in, whoever reads it.
        run(&session, &["CREATE VIEW lab.x AS SELECT count(*) AS regions FROM region"]).await;
        run(&session, &["SET datafusion.catalog.default_schema = lab"]).await;
        assert_eq!(text(&session, "SELECT regions FROM x").await, "5");
        setup.shutdown().await;
    });
}

#[test]
fn tables_of_one_name_in_two_domains_are_two() {
    block_on(async {
        let (setup, session) = setup().await;
        let made = [
            "CREATE TABLE main.t AS SELECT 1 AS x",
            "CREATE TABLE lab.t AS SELECT 100 AS x",
            "SET datafusion.catalog.default_schema = lab",
            "CREATE VIEW highest AS SELECT (SELECT max(x) FROM t) AS m",
            "CREATE VIEW later AS WITH t AS (SELECT x + 1 AS x FROM t) SELECT x FROM t WHERE x > (SELECT min(x) - 1 FROM t)",
            "CREATE VIEW joined AS SELECT t.x FROM t JOIN t AS u ON t.x = u.x",
            "SET datafusion.catalog.default_schema = main",
            "CREATE VIEW joined AS SELECT t.x FROM t JOIN t AS u ON t.x = u.x",
        ];
        run(&session, &made).await;
        for (query, rows) in [
            ("SELECT (SELECT max(x) FROM t) AS here, m AS there FROM lab.highest", "1\t100"),
            ("SELECT x FROM lab.later WHERE x NOT IN (SELECT x FROM t)", "101"),
            ("SELECT a.x, b.x FROM t AS a JOIN lab.later AS b ON a.x <> b.x", "1\t101"),
            ("SELECT x FROM joined UNION ALL SELECT x FROM lab.joined ORDER BY x", "1\n100"),
            ("SELECT x FROM t WHERE x IN (SELECT x FROM lab.t) OR x IN (SELECT x FROM t)", "1"),
        ] {
            assert_eq!(text(&session, query).await, rows, "{query}");
        }
        setup.shutdown().await;
    });
}

fn rows(replies: &[Reply]) -> Vec<Vec<String>> {
    let text = |value: Option<String>| value.unwrap_or_else(|| "NULL".to_owned());
    replies.iter().filter(|reply| reply.0 == 'D').map(|reply| reply.row().into_iter().map(text).collect()).collect()
}

#[test]
fn clients_of_postgresql_see_views() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    let replies = client.query("CREATE VIEW v (n) AS SELECT name FROM t WHERE id > 3; SELECT n FROM v ORDER BY n");
    assert_eq!(rows(&replies), [["five"], ["four"]]);
    let tags: Vec<_> = replies.iter().filter(|reply| reply.0 == 'C').map(|reply| reply.1.clone()).collect();
    assert_eq!(tags, [b"CREATE VIEW\0".to_vec(), b"SELECT 2\0".to_vec()]);
    let kinds = "SELECT relname, relkind FROM pg_catalog.pg_class WHERE relname IN ('t', 'v') ORDER BY relname";
    assert_eq!(rows(&client.query(kinds)), [["t", "r"], ["v", "v"]]);
    let query = "SELECT name FROM t WHERE id > 3";
    assert_eq!(rows(&client.query("SELECT viewname, definition FROM pg_views")), [["v", query]]);
    assert_eq!(rows(&client.query("SELECT table_name, view_definition FROM information_schema.views")), [["v", query]]);
    assert_eq!(rows(&client.query("SELECT pg_get_viewdef('v')")), [[query]]);
    let kinds = "SELECT table_name, table_type FROM information_schema.tables ORDER BY table_name";
    assert_eq!(rows(&client.query(kinds)), [["t", "BASE TABLE"], ["v", "VIEW"]]);
    assert!(client.query("DROP VIEW v").iter().any(|reply| reply.0 == 'C' && reply.1 == b"DROP VIEW\0"));
}
