//! What calls have in common: options of a session, rights that change between them, values that stay bound, and batches of any size.

use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::sql::{
    ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult, Any, CommandPreparedStatementQuery,
    CommandStatementIngest, DoPutUpdateResult, TableDefinitionOptions, TableExistsOption, TableNotExistOption,
};
use arrow_flight::{Action, FlightData, PutResult};
use bytes::Bytes;
use futures::{StreamExt, stream};

use super::*;

type Raw = FlightServiceClient<Channel>;

/// What an action gives, and the cookie that comes with it.
async fn act(raw: &mut Raw, kind: &str, body: Vec<u8>, cookie: &str) -> Result<(Vec<u8>, Option<String>), Status> {
    let mut request = tonic::Request::new(Action::new(kind, body));
    if !cookie.is_empty() {
        request.metadata_mut().insert("cookie", cookie.parse().unwrap());
    }
    let response = raw.do_action(request).await?;
    let set = response.metadata().get("set-cookie").map(|cookie| cookie.to_str().unwrap().to_owned());
    let result = response.into_inner().message().await?;
    Ok((result.map(|result| result.body.to_vec()).unwrap_or_default(), set))
}

/// SetSessionOptionsRequest of texts; none: the option is reset.
fn options(options: &[(&str, Option<&str>)]) -> Vec<u8> {
    let field = |tag: u8, bytes: &[u8]| [&[tag, u8::try_from(bytes.len()).unwrap()], bytes].concat();
    let value = |text: Option<&str>| text.map(|text| field(10, text.as_bytes())).unwrap_or_default();
    let entry = |(name, text): &(&str, Option<&str>)| [field(10, name.as_bytes()), field(18, &value(*text))].concat();
    options.iter().flat_map(|option| field(10, &entry(option))).collect()
}

#[test]
fn options_of_a_session_hold_for_the_calls_that_name_it() {
    let folder = five_rows();
    let front = serve(folder.path(), &["--data", "data"]);
    block_on(async {
        let mut raw = FlightServiceClient::new(channel(&front).await);
        let mut client = client(&front).await;
        client.execute_update("CREATE TABLE lab.l AS SELECT 42 AS a".to_owned(), None).await.unwrap();
        let wanted = options(&[("catalog", Some("pithead")), ("schema", Some("lab")), ("pithead.pushdown", Some("off"))]);
        let (errors, cookie) = act(&mut raw, "SetSessionOptions", wanted, "").await.unwrap();
        assert!(errors.is_empty(), "{errors:?}");
        let cookie = cookie.expect("a session begins");
        let mut within = client.clone();
        within.set_header("cookie", format!("other=1; {cookie}"));
        assert_eq!(rows(&mut within, "SELECT a FROM l").await, ["42"]);
        assert!(rows(&mut within, "SHOW pithead.pushdown").await.concat().contains("false"));
        assert_eq!(refused(&mut client, "SELECT a FROM l").await, Code::NotFound, "others have their own");
        // A call's own settings count for more.
        let mut headed = within.clone();
        headed.set_header("pithead.domain", "main");
        assert_eq!(rows(&mut headed, "SELECT count(*) FROM t").await, ["5"]);
        let (told, none) = act(&mut raw, "GetSessionOptions", vec![], &cookie).await.unwrap();
        let told = String::from_utf8_lossy(&told).into_owned();
        assert!(
            none.is_none()
                && ["catalog", "pithead", "schema", "lab", "pithead.pushdown"].iter().all(|part| told.contains(part))
        );
        // What there is not, and what cannot be: the others are set all the same.
        for (name, value, code) in [
            ("nothing", "1", 1),
            ("pithead.nothing", "1", 1),
            ("datafusion.catalog.default_schema", "lab", 1),
            ("catalog", "other", 2),
            ("pithead.statement_timeout", "soon", 2),
        ] {
            let both = options(&[(name, Some(value)), ("pithead.sample_ms", Some("77"))]);
            let (errors, none) = act(&mut raw, "SetSessionOptions", both, &cookie).await.unwrap();
            let expected = [&[10, name.len() as u8 + 6, 10, name.len() as u8], name.as_bytes(), &[18, 2, 8, code]].concat();
            assert_eq!((errors, none), (expected, None), "{name}");
        }
        assert!(rows(&mut within, "SHOW pithead.sample_ms").await.concat().contains("77"));
        let reset = options(&[("schema", None)]);
        assert_eq!(act(&mut raw, "SetSessionOptions", reset, &cookie).await.unwrap(), (vec![], None));
        assert_eq!(rows(&mut within, "SELECT count(*) FROM t").await, ["5"]);
        let (closed, gone) = act(&mut raw, "CloseSession", vec![], &cookie).await.unwrap();
        assert!(closed == [8, 1] && gone.unwrap().contains("Max-Age=0"));
        assert_eq!(refused(&mut within, "SELECT 1").await, Code::NotFound, "it has ended");
        for cookie in [cookie.as_str(), "arrow_flight_session_id=x"] {
            assert_eq!(act(&mut raw, "GetSessionOptions", vec![], cookie).await.unwrap_err().code(), Code::NotFound);
            let (_, fresh) = act(&mut raw, "SetSessionOptions", vec![], cookie).await.unwrap();
            assert!(fresh.is_some_and(|fresh| fresh != cookie));
        }
        let wrong = act(&mut raw, "SetSessionOptions", vec![10, 200], &cookie).await.unwrap_err();
        assert_eq!(wrong.code(), Code::InvalidArgument);
    });
}

/// Callers of one identity share a session of the host's: what one of them sets there would be every other's, too.
#[test]
fn a_refused_set_leaves_the_domain_of_others_alone() {
    let folder = five_rows();
    let front = serve(folder.path(), &["--data", "data"]);
    block_on(async {
        let (mut first, mut second) = (client(&front).await, client(&front).await);
        first.execute_update("CREATE TABLE lab.t AS SELECT 42 AS id".to_owned(), None).await.unwrap();
        for before in ["", "/* a */ ", "-- a\n"] {
            let sql = format!("{before}SET datafusion.catalog.default_schema = 'lab'");
            assert_eq!(refused(&mut first, &sql).await, Code::Unimplemented, "{sql}");
            let updated = first.execute_update(sql.clone(), None).await;
            assert_eq!(status(updated.unwrap_err()).code(), Code::Unimplemented, "{sql}");
            assert!(first.prepare(sql.clone(), None).await.is_err(), "{sql}");
        }
        assert_eq!(second.execute_update("DELETE FROM t".to_owned(), None).await.unwrap(), 5);
        assert_eq!(rows(&mut second, "SELECT (SELECT count(*) FROM main.t), (SELECT count(*) FROM lab.t)").await, ["0|1"]);
    });
}

#[test]
fn prepared_statements_have_the_rights_of_now() {
    let folder = five_rows();
    let path = folder.path();
    done(path, &["token", "writer", "--write", "main,other"]);
    let front = serve(path, &["--data", "data", "--access", "access.toml"]);
    let token = std::fs::read_to_string(path.join("writer.token")).unwrap().trim().to_owned();
    block_on(async {
        let mut client = client(&front).await;
        client.set_token(token);
        client.execute_update("CREATE TABLE w (a BIGINT)".to_owned(), None).await.unwrap();
        let mut counting = client.prepare("SELECT count(*) FROM t".to_owned(), None).await.unwrap();
        let mut update = client.prepare("INSERT INTO w VALUES (1)".to_owned(), None).await.unwrap();
        let info = counting.execute().await.unwrap();
        assert_eq!(texts(&fetched(&mut client, info).await.unwrap()), ["5"]);
        assert_eq!(update.execute_update().await.unwrap(), 1);
        let waiting = counting.execute().await.unwrap();
        let access = std::fs::read_to_string(path.join("access.toml")).unwrap();
        std::fs::write(path.join("access.toml"), access.replace("\"main\",\"other\"", "\"other\"")).unwrap();
        // Statements of other settings are run in another session, so that they do not bring the news to this one.
        let mut other = client.clone();
        other.set_header("pithead.pushdown", "off");
        let start = Instant::now();
        while query(&mut other, "SELECT count(*) FROM t").await.is_ok() {
            assert!(start.elapsed() < Duration::from_secs(20), "the file is read again");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(status(update.execute_update().await.unwrap_err()).code(), Code::PermissionDenied);
        assert_eq!(status(fetched(&mut client, waiting).await.unwrap_err()).code(), Code::PermissionDenied);
        let info = counting.execute().await.unwrap();
        assert_eq!(status(fetched(&mut client, info).await.unwrap_err()).code(), Code::PermissionDenied);
    });
}

/// One record batch as one message, however large it is.
async fn put(raw: &mut Raw, command: &impl ProstMessageExt, batch: RecordBatch) -> Result<PutResult, Status> {
    let messages: Vec<FlightData> = FlightDataEncoderBuilder::new()
        .with_max_flight_data_size(usize::MAX)
        .with_flight_descriptor(Some(FlightDescriptor::new_cmd(command.as_any().encode_to_vec())))
        .build(stream::iter([Ok(batch)]))
        .map(Result::unwrap)
        .collect()
        .await;
    let mut answer = raw.do_put(stream::iter(messages)).await?.into_inner();
    Ok(answer.message().await?.expect("a put has an answer"))
}

#[test]
fn values_that_stay_bound_are_counted() {
    let folder = five_rows();
    let front = serve(folder.path(), &["--data", "data"]);
    block_on(async {
        let mut raw = FlightServiceClient::new(channel(&front).await);
        let query = "SELECT id FROM t WHERE id = $1".to_owned();
        let request = ActionCreatePreparedStatementRequest { query, transaction_id: None }.as_any().encode_to_vec();
        let mut handles: Vec<Bytes> = Vec::new();
        for _ in 0..3 {
            let (body, _) = act(&mut raw, "CreatePreparedStatement", request.clone(), "").await.unwrap();
            let result: ActionCreatePreparedStatementResult = Any::decode(&body[..]).unwrap().unpack().unwrap().unwrap();
            handles.push(result.prepared_statement_handle);
        }
        let mut bind = async |number: usize, bytes: i64| {
            let command = CommandPreparedStatementQuery { prepared_statement_handle: handles[number].clone() };
            put(&mut raw, &command, ids((0..bytes / 8).collect())).await.map(drop).map_err(|status| status.code())
        };
        const LARGE: i64 = 60 << 20;
        assert_eq!(bind(0, LARGE).await, Ok(()));
        assert_eq!(bind(0, LARGE).await, Ok(()), "what was bound before makes place");
        assert_eq!(bind(1, LARGE).await, Ok(()));
        assert_eq!(bind(2, LARGE).await, Err(Code::ResourceExhausted));
        assert_eq!(bind(0, 8).await, Ok(()));
        assert_eq!(bind(2, LARGE).await, Ok(()));
    });
}

#[test]
fn batches_are_ingested_that_are_larger_than_any_command() {
    let folder = five_rows();
    let front = serve(folder.path(), &["--data", "data"]);
    let options = TableDefinitionOptions {
        if_not_exist: TableNotExistOption::Create.into(),
        if_exists: TableExistsOption::Append.into(),
    };
    let command =
        CommandStatementIngest { table_definition_options: Some(options), table: "big".to_owned(), ..Default::default() };
    block_on(async {
        let mut raw = FlightServiceClient::new(channel(&front).await);
        let mut client = client(&front).await;
        // 80 MB in one message, as ADBC's driver sends a table of one chunk.
        let answer = put(&mut raw, &command, ids((0..10_000_000).collect())).await.unwrap();
        assert_eq!(DoPutUpdateResult::decode(&answer.app_metadata[..]).unwrap().record_count, 10_000_000);
        assert_eq!(rows(&mut client, "SELECT count(*), sum(v) FROM big").await, ["10000000|49999995000000"]);
        let too_large = put(&mut raw, &command, ids((0..34_000_000).collect())).await.unwrap_err();
        assert!(too_large.code() == Code::ResourceExhausted && too_large.message().contains("max_chunksize"), "{too_large:?}");
        assert_eq!(rows(&mut client, "SELECT count(*) FROM big").await, ["10000000"]);
        // Commands have a smaller bound.
        let sql = format!("SELECT '{}'", "x".repeat(100_000_000));
        assert!(query(&mut client, &sql).await.is_err());
        assert_eq!(rows(&mut client, "SELECT count(*) FROM t").await, ["5"]);
    });
}
