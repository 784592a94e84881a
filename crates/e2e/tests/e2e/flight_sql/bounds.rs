//! What is loaded, what is cancelled, who may do what, and clients that lie; and all of it by ADBC's driver from Python.

use std::collections::HashMap;
use std::process::Command;

use arrow_flight::sql::{CommandStatementIngest, TableDefinitionOptions, TableExistsOption, TableNotExistOption};
use arrow_flight::{Action, CancelFlightInfoRequest, FlightData, Ticket};
use futures::{StreamExt, stream};
use pithead_e2e::front::run;
use pithead_e2e::repository;
use rand::{Rng, SeedableRng};

use super::*;

fn ingestion(table: &str, if_not_exist: TableNotExistOption, if_exists: TableExistsOption) -> CommandStatementIngest {
    let options = TableDefinitionOptions { if_not_exist: if_not_exist.into(), if_exists: if_exists.into() };
    CommandStatementIngest { table_definition_options: Some(options), table: table.to_owned(), ..Default::default() }
}

#[test]
fn rows_are_ingested_together_or_not_at_all() {
    use {TableExistsOption as Exists, TableNotExistOption as Absent};
    let folder = five_rows();
    let front = serve(folder.path(), &["--data", "data", "--metrics", "127.0.0.1:0"]);
    block_on(async {
        let mut client = client(&front).await;
        let batches = || stream::iter((0..10).map(|n| Ok(ids((n * 1_000..(n + 1) * 1_000).collect()))));
        let mut ingest = async |command, count| {
            let sent = client.execute_ingest(command, batches().take(count)).await;
            (sent.map_err(|error| status(error).code()), rows(&mut client, "SELECT count(*) FROM main.i").await)
        };
        let ten = || vec!["10000".to_owned()];
        assert_eq!(ingest(ingestion("i", Absent::Create, Exists::Fail), 10).await, (Ok(10_000), ten()));
        assert_eq!(ingest(ingestion("i", Absent::Create, Exists::Fail), 10).await, (Err(Code::AlreadyExists), ten()));
        assert_eq!(ingest(ingestion("j", Absent::Fail, Exists::Append), 10).await, (Err(Code::NotFound), ten()));
        let more = ingest(ingestion("i", Absent::Create, Exists::Append), 1).await;
        assert_eq!(more, (Ok(1_000), vec!["11000".to_owned()]));
        assert_eq!(ingest(ingestion("i", Absent::Create, Exists::Replace), 10).await, (Ok(10_000), ten()));
        let temporary = CommandStatementIngest { temporary: true, ..ingestion("k", Absent::Create, Exists::Fail) };
        assert_eq!(ingest(temporary, 1).await, (Err(Code::Unimplemented), ten()));
        // Columns by name, of other types; and one that there is not.
        let command = ingestion("t", Absent::Fail, Exists::Append);
        let names: ArrayRef = Arc::new(StringArray::from(vec!["six"]));
        let batch =
            RecordBatch::try_from_iter([("name", names), ("id", Arc::new(arrow::array::Int8Array::from(vec![6])) as ArrayRef)]);
        assert_eq!(client.execute_ingest(command.clone(), stream::iter([Ok(batch.unwrap())])).await.unwrap(), 1);
        assert_eq!(rows(&mut client, "SELECT id, name, price FROM t WHERE id = 6").await, ["6|six|"]);
        let wrong = client.execute_ingest(command, stream::iter([Ok(ids(vec![1]))])).await.unwrap_err();
        assert!(status(wrong).message().contains("no column v"));
        // A client that goes in the midst leaves nothing, although all that it sent was whole.
        for wait_ms in [1, 50, 300] {
            let mut gone = client.clone();
            let endless = batches().chain(stream::pending());
            let sending = gone.execute_ingest(ingestion("i", Absent::Create, Exists::Append), endless);
            assert!(tokio::time::timeout(Duration::from_millis(wait_ms), sending).await.is_err());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(rows(&mut client, "SELECT count(*) FROM i").await, ["10000"]);
    });
    assert_eq!(metric(&front, "pithead_flight_sql_loaded_rows_total"), 21_001);
}

#[test]
fn answers_end_when_they_are_cancelled_or_nobody_takes_them() {
    let folder = five_rows();
    let mut front = serve(folder.path(), &["--data", "data", "--metrics", "127.0.0.1:0"]);
    block_on(async {
        let mut client = client(&front).await;
        // Which runs, and has no row yet.
        let info = client.execute(ENDLESS.to_owned(), None).await.unwrap();
        let (mut other, ticket) = (client.clone(), info.endpoint[0].ticket.clone().unwrap());
        let asked = tokio::spawn(async move { other.do_get(ticket).await?.try_next().await });
        tokio::time::sleep(Duration::from_millis(300)).await;
        let cancel =
            |info: &FlightInfo| Action::new("CancelFlightInfo", CancelFlightInfoRequest::new(info.clone()).encode_to_vec());
        let mut answer = client.do_action(tonic::Request::new(cancel(&info))).await.unwrap();
        assert_eq!(&answer.message().await.unwrap().unwrap().body[..], &[8, 1][..], "it is cancelled");
        assert_eq!(status(asked.await.unwrap().unwrap_err()).code(), Code::Cancelled);
        // Which waits.
        let info = client.execute(ENDLESS.to_owned(), None).await.unwrap();
        for expected in [1, 3] {
            let mut answer = client.do_action(tonic::Request::new(cancel(&info))).await.unwrap();
            assert_eq!(answer.message().await.unwrap().unwrap().body[1], expected);
        }
        assert_eq!(status(fetched(&mut client, info).await.unwrap_err()).code(), Code::NotFound);
        // A client that reads nothing costs no memory, and goes.
        let info = client.execute(MANY.to_owned(), None).await.unwrap();
        let mut lazy = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
        assert!(lazy.try_next().await.unwrap().unwrap().num_rows() > 0);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let before = front.resident();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(front.resident() < before + (64 << 20), "{} after {before}", front.resident());
        assert_eq!(metric(&front, "pithead_flight_sql_running"), 1);
        assert_eq!(status(client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.err().unwrap()).code(), Code::NotFound);
        drop(lazy);
        until("the answer ends with its client", || metric(&front, "pithead_flight_sql_running") == 0);
        // Tickets that nobody fetches are bounded.
        let mut last = None;
        for _ in 0..1_100 {
            if let Err(error) = client.execute("SELECT 1".to_owned(), None).await {
                last = Some(status(error).code());
                break;
            }
        }
        assert_eq!(last, Some(Code::ResourceExhausted));
        let done = client.execute("CREATE TABLE made AS SELECT 1 AS a".to_owned(), None).await.unwrap();
        assert_eq!(
            (done.total_records, fetched(&mut client, done).await.unwrap().num_rows()),
            (1, 0),
            "what is done needs no place"
        );
    });
    assert!(front.terminate());
}

#[test]
fn a_server_that_stops_says_so() {
    let folder = five_rows();
    let mut front = serve(folder.path(), &["--data", "data"]);
    block_on(async {
        let mut client = client(&front).await;
        let info = client.execute(MANY.to_owned(), None).await.unwrap();
        let mut rows = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
        assert!(rows.try_next().await.unwrap().is_some());
        let stopping = std::thread::spawn(move || (Instant::now(), front.terminate()));
        let last = loop {
            match rows.try_next().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it is cut short"),
                Err(error) => break status(error),
            }
        };
        assert_eq!(last.code(), Code::Unavailable, "{last:?}");
        let (since, well) = stopping.join().unwrap();
        assert!(well && since.elapsed() < Duration::from_secs(10));
    });
}

#[test]
fn strangers_stay_outside_and_rights_hold() {
    let folder = five_rows();
    let path = folder.path();
    done(path, &["sql", "--data", "data", "-c", "CREATE TABLE hidden.h AS SELECT 1 AS a"]);
    done(path, &["token", "reader", "--read", "main"]);
    done(path, &["token", "writer", "--write", "main"]);
    let refused_at = run(path, &["serve", "--data", "data", "--listen", "127.0.0.1:0", "--flight", "0.0.0.0:0"]);
    assert_eq!(refused_at.status.code(), Some(3), "beyond loopback it serves known callers within TLS only");
    let front = serve(path, &["--data", "data", "--access", "access.toml"]);
    let token = |name: &str| std::fs::read_to_string(path.join(format!("{name}.token"))).unwrap().trim().to_owned();
    block_on(async {
        let start = Instant::now();
        let mut stranger = client(&front).await;
        assert_eq!(refused(&mut stranger, "SELECT 1").await, Code::Unauthenticated);
        stranger.set_token("pithead_0000000000000000000000000000000000000000".to_owned());
        assert_eq!(refused(&mut stranger, "SELECT 1").await, Code::Unauthenticated);
        stranger.clear_token();
        for (user, password) in [("reader", "wrong"), ("somebody", token("reader").as_str()), ("reader", "")] {
            assert!(stranger.handshake(user, password).await.is_err(), "{user}");
        }
        assert!(start.elapsed() > Duration::from_secs(2), "who guesses waits");
        let mut reader = client(&front).await;
        assert_eq!(&reader.handshake("reader", &token("reader")).await.unwrap()[..], token("reader").as_bytes());
        assert_eq!(rows(&mut reader, "SELECT count(*), current_user FROM t").await, ["5|reader"]);
        for sql in
            ["SELECT * FROM hidden.h", "INSERT INTO t VALUES (9, 'x', 1)", "DROP TABLE t", "CREATE TABLE hidden.n AS SELECT 1"]
        {
            assert_eq!(refused(&mut reader, sql).await, Code::PermissionDenied, "{sql}");
        }
        let command = ingestion("t", TableNotExistOption::Create, TableExistsOption::Append);
        let ingested = reader.execute_ingest(command, stream::iter([Ok(ids(vec![1]))])).await.unwrap_err();
        assert_eq!(status(ingested).code(), Code::PermissionDenied);
        let info = reader.get_tables(CommandGetTables::default()).await.unwrap();
        assert_eq!(texts(&fetched(&mut reader, info).await.unwrap()), ["pithead|main|t|TABLE"]);
        // Another identity's tickets and statements are not there.
        let mut writer = client(&front).await;
        writer.set_token(token("writer"));
        let info = reader.execute("SELECT 1".to_owned(), None).await.unwrap();
        let ticket = info.endpoint[0].ticket.clone().unwrap();
        assert_eq!(status(writer.do_get(ticket.clone()).await.err().unwrap()).code(), Code::NotFound);
        let mut prepared = reader.prepare("SELECT 2".to_owned(), None).await.unwrap();
        let handle = prepared.execute().await.unwrap().flight_descriptor.unwrap();
        let mut raw = FlightServiceClient::new(channel(&front).await);
        let mut stolen = tonic::Request::new(handle);
        stolen.metadata_mut().insert("authorization", format!("Bearer {}", token("writer")).parse().unwrap());
        assert_eq!(raw.get_flight_info(stolen).await.unwrap_err().code(), Code::NotFound);
        assert_eq!(texts(&fetched(&mut reader, info).await.unwrap()), ["1"]);
        assert_eq!(writer.execute_update("INSERT INTO t VALUES (9, 'x', 1)".to_owned(), None).await.unwrap(), 1);
    });
}

#[test]
fn what_is_no_command_harms_only_who_sends_it() {
    let folder = five_rows();
    let front = serve(folder.path(), &["--data", "data"]);
    let mut random = rand::rngs::StdRng::seed_from_u64(7);
    block_on(async {
        let mut raw = FlightServiceClient::new(channel(&front).await);
        let good = CommandStatementQuery { query: "SELECT id FROM t".into(), transaction_id: None }.as_any().encode_to_vec();
        for round in 0..300 {
            let mut bytes: Vec<u8> = match round % 3 {
                0 => (0..random.random_range(0..200)).map(|_| random.random()).collect(),
                _ => good.clone(),
            };
            if round % 3 == 1 {
                let place = random.random_range(0..bytes.len());
                bytes[place] = random.random();
            }
            bytes.truncate(random.random_range(0..=bytes.len()));
            let allowed = |code: Code| !matches!(code, Code::Internal | Code::Unknown | Code::Unavailable);
            let outcomes = [
                raw.get_flight_info(FlightDescriptor::new_cmd(bytes.clone())).await.err(),
                raw.get_schema(FlightDescriptor::new_cmd(bytes.clone())).await.err(),
                raw.do_get(Ticket::new(bytes.clone())).await.err(),
                raw.do_action(Action::new("CreatePreparedStatement", bytes.clone())).await.err(),
                raw.do_action(Action::new("CancelFlightInfo", bytes.clone())).await.err(),
                raw.do_put(stream::iter([FlightData {
                    flight_descriptor: Some(FlightDescriptor::new_cmd(bytes.clone())),
                    ..Default::default()
                }]))
                .await
                .err(),
            ];
            for status in outcomes.into_iter().flatten() {
                assert!(allowed(status.code()), "{bytes:?}: {status:?}");
            }
        }
        // Rows that lie.
        let command = ingestion("hostile", TableNotExistOption::Create, TableExistsOption::Append);
        let descriptor = FlightDescriptor::new_cmd(command.as_any().encode_to_vec());
        let encoded: Vec<FlightData> = arrow_flight::encode::FlightDataEncoderBuilder::new()
            .with_flight_descriptor(Some(descriptor))
            .build(stream::iter([Ok(ids(vec![1, 2, 3]))]))
            .try_collect()
            .await
            .unwrap();
        for _ in 0..200 {
            let mut lying = encoded.clone();
            let which = random.random_range(0..lying.len());
            let message = &mut lying[which];
            let mut bytes = message.data_header.to_vec();
            let place = random.random_range(0..bytes.len());
            bytes[place] = bytes[place].wrapping_add(random.random_range(1..=255));
            message.data_header = bytes.into();
            if let Err(status) = raw.do_put(stream::iter(lying)).await {
                assert!(!matches!(status.code(), Code::Unavailable | Code::Unknown), "{status:?}");
            }
        }
        assert_eq!(raw.do_put(stream::iter([FlightData::default()])).await.unwrap_err().code(), Code::InvalidArgument);
        let refused = raw.do_put(stream::empty::<FlightData>()).await.unwrap_err();
        // A regression: who loads a table without batches, of which ADBC's driver sends nothing, was told of descriptors.
        assert!(refused.code() == Code::InvalidArgument && refused.message().contains("an empty batch"), "{refused:?}");
        let mut client = client(&front).await;
        assert_eq!(rows(&mut client, "SELECT count(*) FROM t").await, ["5"]);
    });
}

#[test]
fn adbc_from_python_finds_all_of_it() {
    let python = repository().join(".tools/bin/python");
    let has = |module: &str| {
        Command::new(&python).args(["-c", &format!("import {module}")]).output().is_ok_and(|out| out.status.success())
    };
    if !has("adbc_driver_flightsql.dbapi") {
        eprintln!("skipped: adbc-driver-flightsql is not in .tools; run tools/setup.sh");
        return;
    }
    let folder = five_rows();
    let path = folder.path();
    done(path, &["token", "adbc", "--administer", "*"]);
    let front = serve(path, &["--data", "data", "--access", "access.toml"]);
    let script = repository().join("crates/e2e/tests/e2e/flight_sql/client.py");
    let token = std::fs::read_to_string(path.join("adbc.token")).unwrap();
    let environment = HashMap::from([("FLIGHT", front.flight()), ("TOKEN", token.trim())]);
    let output = Command::new(&python).arg(script).current_dir(path).envs(environment).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("all of it"), "{said}");
}

/// A regression: a list of a million literals was planned for half a minute, and then there were "too many tickets".
#[test]
fn long_statements_are_refused_and_timed() {
    let folder = five_rows();
    let front = serve(folder.path(), &["--data", "data"]);
    let list = |count: usize| format!("SELECT count(*) FROM t WHERE id IN ({}7)", "1, ".repeat(count));
    block_on(async {
        let mut client = client(&front).await;
        for (sql, what) in [(list(1_000_000), "words"), (format!("SELECT {}1", "1+".repeat(500_000)), "operators")] {
            for refused in [
                status(client.execute(sql.clone(), None).await.unwrap_err()),
                status(client.execute_update(sql.clone(), None).await.unwrap_err()),
                status(client.prepare(sql.clone(), None).await.map(drop).unwrap_err()),
            ] {
                assert!(refused.code() == Code::ResourceExhausted && refused.message().contains(what), "{refused:?}");
            }
        }
        assert_eq!(rows(&mut client, &list(100_000)).await, ["1"]);
        client.execute_update("CREATE TABLE many (a BIGINT, b BIGINT)".to_owned(), None).await.unwrap();
        let insert = format!("INSERT INTO many VALUES {}(1, 2)", "(1, 2), ".repeat(99_999));
        let mut hasty = self::client(&front).await;
        hasty.set_header("pithead.statement_timeout", "50ms");
        for late in [
            status(hasty.execute_update(insert.clone(), None).await.unwrap_err()),
            status(hasty.prepare(insert.clone(), None).await.map(drop).unwrap_err()),
        ] {
            assert_eq!(late.code(), Code::DeadlineExceeded, "{late:?}");
        }
        assert_eq!(rows(&mut client, "SELECT count(*) FROM many").await, ["0"], "what came too late changes nothing");
    });
}
