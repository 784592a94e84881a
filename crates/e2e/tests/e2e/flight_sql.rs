//! `pithead serve --flight` before Flight SQL's clients: arrow-flight's own, from Rust, and ADBC's driver, from Python. Answers are those of
//! `pithead sql` over the same drives.

mod bounds;
mod kept;
mod sessions;
mod substrait;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::ipc::reader::StreamReader;
use arrow::util::display::array_value_to_string;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    CommandGetCrossReference, CommandGetDbSchemas, CommandGetExportedKeys, CommandGetPrimaryKeys, CommandGetTables,
    CommandGetXdbcTypeInfo, CommandStatementQuery, ProstMessageExt, SqlInfo,
};
use arrow_flight::{FlightDescriptor, FlightInfo, IpcMessage};
use futures::TryStreamExt;
use pithead_e2e::front::{ENDLESS, done, five_rows};
use pithead_e2e::{DriveProcess, FrontProcess};
use prost::Message;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

type Client = FlightSqlServiceClient<Channel>;

/// Rows that nobody takes all of.
const MANY: &str = "SELECT value, repeat('x', 1000) AS x FROM range(20000000)";
const TYPES: &str = "SELECT arrow_cast(id, 'Int16') AS small, arrow_cast(id, 'UInt64') AS unsigned, \
     arrow_cast(id * 0.1, 'Float32') AS real, id / 3.0 AS double, arrow_cast(id * 1.25, 'Decimal128(12, 2)') AS amount, name, \
     arrow_cast('bytes', 'BinaryView') AS raw, id > 1 AS flag, DATE '2024-02-29' AS day, TIMESTAMP '2024-02-29 01:02:03.5' AS moment, \
     make_array(id, NULL, 7) AS list, named_struct('a', id, 'b', name) AS pair, INTERVAL '1 month' AS span, NULL AS nothing, \
     arrow_cast(name, 'Dictionary(Int32, Utf8)') AS word FROM t ORDER BY id";

fn serve(folder: &Path, arguments: &[&str]) -> FrontProcess {
    FrontProcess::start(folder, &[&["--flight", "127.0.0.1:0"], arguments].concat())
}

async fn channel(front: &FrontProcess) -> Channel {
    Endpoint::from_shared(format!("http://{}", front.flight())).unwrap().connect().await.unwrap()
}

async fn client(front: &FrontProcess) -> Client {
    Client::new(channel(front).await)
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(work)
}

/// All rows of an answer, with the schema that was announced.
async fn fetched(client: &mut Client, info: FlightInfo) -> Result<RecordBatch, FlightError> {
    let schema = Arc::new(Schema::try_from(IpcMessage(info.schema.clone())).unwrap());
    let mut batches = Vec::new();
    for endpoint in info.endpoint {
        let mut rows = client.do_get(endpoint.ticket.unwrap()).await?;
        while let Some(batch) = rows.try_next().await? {
            assert_eq!(batch.schema(), schema);
            batches.push(batch);
        }
        assert_eq!(rows.schema(), Some(&schema), "the schema comes also where no rows do");
    }
    Ok(concat_batches(&schema, &batches).unwrap())
}

async fn query(client: &mut Client, sql: &str) -> Result<RecordBatch, FlightError> {
    let info = client.execute(sql.to_owned(), None).await?;
    fetched(client, info).await
}

fn texts(batch: &RecordBatch) -> Vec<String> {
    let row =
        |row| batch.columns().iter().map(|column| array_value_to_string(column, row).unwrap()).collect::<Vec<_>>().join("|");
    (0..batch.num_rows()).map(row).collect()
}

async fn rows(client: &mut Client, sql: &str) -> Vec<String> {
    texts(&query(client, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")))
}

fn status(error: FlightError) -> Status {
    match error {
        FlightError::Tonic(status) => *status,
        other => panic!("no status: {other}"),
    }
}

async fn refused(client: &mut Client, sql: &str) -> Code {
    status(query(client, sql).await.expect_err(sql)).code()
}

fn metric(front: &FrontProcess, name: &str) -> u64 {
    let mut stream = TcpStream::connect(front.metrics()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let line = text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap_or_else(|| panic!("no {name} in {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn answers_are_those_of_the_command_line() {
    let folder = five_rows();
    let drives = DriveProcess::start_many(folder.path(), 2, &[]);
    let addresses = drives.iter().map(DriveProcess::address).collect::<Vec<_>>().join(",");
    done(folder.path(), &["load", "t", "t.csv", "--drives", &addresses]);
    let front = serve(folder.path(), &["--drives", &addresses]);
    block_on(async {
        let mut client = client(&front).await;
        for sql in [
            "SELECT id, name FROM t WHERE id > 3 ORDER BY id",
            "SELECT sum(price) AS total, count(name) AS names FROM t",
            "SELECT name FROM t WHERE id > 100",
            "SELECT name, count(*) AS n FROM pithead.main.t GROUP BY name ORDER BY name",
            "SHOW TABLES",
            TYPES,
        ] {
            let ours = query(&mut client, sql).await.unwrap();
            let theirs = done(folder.path(), &["sql", "--drives", &addresses, "--format", "arrow", "-c", sql]);
            let theirs = StreamReader::try_new(&theirs[..], None).unwrap();
            let schema = theirs.schema();
            let theirs = concat_batches(&schema, &theirs.map(Result::unwrap).collect::<Vec<_>>()).unwrap();
            assert_eq!((ours.num_rows(), ours.num_columns()), (theirs.num_rows(), theirs.num_columns()), "{sql}");
            for (place, field) in ours.schema().fields().iter().enumerate() {
                let theirs = cast(theirs.column(place), field.data_type()).unwrap();
                assert_eq!((ours.column(place), field.name()), (&theirs, schema.field(place).name()), "{sql}");
                assert!(!format!("{field:?}").contains("View") && !format!("{field:?}").contains("Dictionary"), "{field:?}");
            }
        }
        assert!(rows(&mut client, "EXPLAIN SELECT sum(price) FROM t").await.concat().contains("drive"), "it is pushed down");
    });
}

#[test]
fn statements_that_write_are_counted_and_seen() {
    let folder = five_rows();
    let front = serve(folder.path(), &["--data", "data"]);
    block_on(async {
        let mut client = client(&front).await;
        let mut update = async |sql: &str| client.execute_update(sql.to_owned(), None).await;
        assert_eq!(update("CREATE TABLE made AS SELECT id, name FROM t").await.unwrap(), 5);
        assert_eq!(update("INSERT INTO made VALUES (7, 'seven'), (8, NULL)").await.unwrap(), 2);
        assert_eq!(update("DELETE FROM made WHERE id = 1").await.unwrap(), 1);
        assert_eq!(status(update("SELECT 1").await.unwrap_err()).code(), Code::InvalidArgument);
        assert_eq!(status(update("CREATE TABLE made AS SELECT 1 AS a").await.unwrap_err()).code(), Code::AlreadyExists);
        assert_eq!(rows(&mut client, "SELECT sum(id) FROM made").await, ["29"]);
        // As clients do that ask for the rows of every statement: it is done when they know how many there were.
        let info = client.execute("INSERT INTO made VALUES (9, 'nine')".to_owned(), None).await.unwrap();
        assert_eq!(info.total_records, 1);
        assert_eq!(rows(&mut client, "SELECT count(*) FROM made WHERE id = 9").await, ["1"]);
        assert_eq!(fetched(&mut client, info).await.unwrap().num_columns(), 0);
        assert_eq!(rows(&mut client, "SELECT count(*) FROM made WHERE id = 9").await, ["1"]);
        assert_eq!(client.execute_update("DROP TABLE made".to_owned(), None).await.unwrap(), 0);
        for (sql, code) in [
            ("SELEC 1", Code::InvalidArgument),
            ("SELECT nothing FROM t", Code::InvalidArgument),
            ("SELECT * FROM made", Code::NotFound),
            ("SELECT 1 / (id - id) FROM t", Code::InvalidArgument),
            ("SELECT 1; SELECT 2", Code::InvalidArgument),
            ("COPY t TO 'x.csv'", Code::PermissionDenied),
            ("COPY t FROM 'http://127.0.0.1:9/x.csv'", Code::PermissionDenied),
            ("SET pithead.pushdown = off", Code::Unimplemented),
            ("BEGIN", Code::Unimplemented),
        ] {
            assert_eq!(refused(&mut client, sql).await, code, "{sql}");
        }
        assert_eq!(status(client.begin_transaction().await.unwrap_err()).code(), Code::Unimplemented);
        let closing = tonic::Request::new(arrow_flight::Action::new("CloseSession", ""));
        let mut closed = client.do_action(closing).await.unwrap();
        assert_eq!(&closed.message().await.unwrap().unwrap().body[..], &[8, 1][..], "as drivers do at their end");
        let told = status(query(&mut client, "SELECT nam FROM t").await.unwrap_err());
        assert!(told.message().contains("nam") && told.details().is_empty(), "{told:?}");
    });
}

#[test]
fn texts_are_written_as_uuids_where_columns_are() {
    const ID: &str = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1";
    let folder = five_rows();
    let front = serve(folder.path(), &["--data", "data"]);
    block_on(async {
        let mut client = client(&front).await;
        let create = "CREATE TABLE u (id UUID, n INT)".to_owned();
        client.execute_update(create, None).await.unwrap();
        let insert = format!("INSERT INTO u VALUES ('{ID}1', 1), (NULL, 2)");
        assert_eq!(client.execute_update(insert, None).await.unwrap(), 2);
        assert_eq!(client.execute_update(format!("UPDATE u SET id = '{ID}2' WHERE n = 2"), None).await.unwrap(), 1);
        let mut several = client.prepare("INSERT INTO u VALUES (?, ?)".to_owned(), None).await.unwrap();
        for rows in [vec![3], vec![4, 5]] {
            let ids: ArrayRef = Arc::new(StringArray::from(rows.iter().map(|n| format!("{ID}{n}")).collect::<Vec<_>>()));
            let numbers: ArrayRef = Arc::new(Int64Array::from(rows));
            several.set_parameters(RecordBatch::try_from_iter([("a", ids), ("b", numbers)]).unwrap()).unwrap();
            several.execute_update().await.unwrap();
        }
        let found = rows(&mut client, "SELECT CAST(id AS VARCHAR) FROM u ORDER BY n").await;
        assert_eq!(found, (1..=5).map(|n| format!("{ID}{n}")).collect::<Vec<_>>());
        let wrong = client.execute_update("INSERT INTO u VALUES ('seven', 7)".to_owned(), None).await.unwrap_err();
        assert!(status(wrong).message().contains("expected 32 hexadecimal digits"));
    });
}

#[test]
fn settings_are_headers_of_the_calls() {
    let folder = five_rows();
    let front = serve(folder.path(), &["--data", "data"]);
    block_on(async {
        let mut client = client(&front).await;
        client.execute_update("CREATE TABLE lab.l AS SELECT 42 AS a".to_owned(), None).await.unwrap();
        let mut other = client.clone();
        other.set_header("pithead.domain", "lab");
        other.set_header("pithead.pushdown", "off");
        assert_eq!(rows(&mut other, "SELECT a FROM l").await, ["42"]);
        assert_eq!(rows(&mut other, "SHOW pithead.pushdown").await.len(), 1);
        assert_eq!(refused(&mut client, "SELECT a FROM l").await, Code::NotFound);
        let mut timed = client.clone();
        timed.set_header("pithead.statement_timeout", "200ms");
        assert_eq!(refused(&mut timed, ENDLESS).await, Code::DeadlineExceeded);
        let mut wrong = client.clone();
        wrong.set_header("pithead.nothing", "1");
        assert_eq!(refused(&mut wrong, "SELECT 1").await, Code::InvalidArgument);
    });
}

fn ids(ids: Vec<i64>) -> RecordBatch {
    RecordBatch::try_from_iter([("v", Arc::new(Int64Array::from(ids)) as ArrayRef)]).unwrap()
}

#[test]
fn prepared_statements_take_values() {
    let folder = five_rows();
    let front = serve(folder.path(), &["--data", "data"]);
    block_on(async {
        let mut client = client(&front).await;
        let mut prepared = client.prepare("SELECT id, name FROM t WHERE id >= $1 ORDER BY id".to_owned(), None).await.unwrap();
        assert_eq!(prepared.parameter_schema().unwrap().field(0).data_type(), &DataType::Int64);
        let names: Vec<_> = prepared.dataset_schema().unwrap().fields().iter().map(|field| field.name().clone()).collect();
        assert_eq!(names, ["id", "name"]);
        assert_eq!(status(prepared.execute().await.unwrap_err()).code(), Code::InvalidArgument, "nothing is bound");
        for (values, expected) in
            [(vec![4], vec!["4|four", "5|five"]), (vec![5], vec!["5|five"]), (vec![5, 9, 5], vec!["5|five"; 2])]
        {
            prepared.set_parameters(ids(values)).unwrap();
            let info = prepared.execute().await.unwrap();
            assert_eq!(texts(&fetched(&mut client, info).await.unwrap()), expected);
        }
        let two = RecordBatch::try_from_iter([
            ("a", Arc::new(Int64Array::from(vec![1])) as ArrayRef),
            ("b", Arc::new(Int64Array::from(vec![1]))),
        ]);
        prepared.set_parameters(two.unwrap()).unwrap();
        assert_eq!(status(prepared.execute().await.unwrap_err()).code(), Code::InvalidArgument);
        prepared.clone().close().await.unwrap();
        prepared.set_parameters(ids(vec![1])).unwrap();
        assert_eq!(status(prepared.execute().await.unwrap_err()).code(), Code::NotFound, "it is closed");

        // Many rows of an INSERT are one load.
        client.execute_update("CREATE TABLE w (a INT, b VARCHAR)".to_owned(), None).await.unwrap();
        let mut insert = client.prepare("INSERT INTO w (a, b) VALUES (?, upper(?))".to_owned(), None).await.unwrap();
        assert_eq!(insert.dataset_schema().unwrap().fields().len(), 0);
        let names: ArrayRef = Arc::new(StringArray::from((0..1_000).map(|n| format!("n{n}")).collect::<Vec<_>>()));
        let numbers: ArrayRef = Arc::new(Int64Array::from((0..1_000).collect::<Vec<_>>()));
        insert.set_parameters(RecordBatch::try_from_iter([("a", numbers), ("b", names)]).unwrap()).unwrap();
        assert_eq!(insert.execute_update().await.unwrap(), 1_000);
        assert_eq!(rows(&mut client, "SELECT count(*), sum(a), max(b) FROM w").await, ["1000|499500|N999"]);
        let mut delete = client.prepare("DELETE FROM w WHERE a = ?".to_owned(), None).await.unwrap();
        delete.set_parameters(ids(vec![1, 2, 5_000])).unwrap();
        assert_eq!(delete.execute_update().await.unwrap(), 2);
        let mut plain = client.prepare("INSERT INTO w VALUES (-1, 'x')".to_owned(), None).await.unwrap();
        assert_eq!(plain.execute_update().await.unwrap(), 1);
        let mut whole = client.prepare("SELECT count(*) FROM w".to_owned(), None).await.unwrap();
        for expected in ["999", "1000"] {
            let info = whole.execute().await.unwrap();
            assert_eq!(texts(&fetched(&mut client, info).await.unwrap()), [expected], "it sees the newest rows");
            if expected == "999" {
                plain.execute_update().await.unwrap();
            }
        }
    });
}

#[test]
fn what_there_is_has_the_schemas_of_the_specification() {
    let folder = five_rows();
    let front = serve(folder.path(), &["--data", "data"]);
    block_on(async {
        let mut client = client(&front).await;
        for sql in ["CREATE TABLE lab.trips AS SELECT 1 AS a", "CREATE TABLE lab.t_1 (a INT NOT NULL, b VARCHAR)"] {
            client.execute_update(sql.to_owned(), None).await.unwrap();
        }
        let info = client.get_catalogs().await.unwrap();
        assert_eq!(texts(&fetched(&mut client, info).await.unwrap()), ["pithead"]);
        let schemas = CommandGetDbSchemas { catalog: None, db_schema_filter_pattern: Some("m%".into()) };
        let info = client.get_db_schemas(schemas).await.unwrap();
        assert_eq!(texts(&fetched(&mut client, info).await.unwrap()), ["pithead|main"]);
        for (domain, table, expected) in [
            (None, None, vec!["pithead|lab|t_1|TABLE", "pithead|lab|trips|TABLE", "pithead|main|t|TABLE"]),
            (Some("la_"), None, vec!["pithead|lab|t_1|TABLE", "pithead|lab|trips|TABLE"]),
            (None, Some("t\\_%"), vec!["pithead|lab|t_1|TABLE"]),
            (Some("main"), Some("tr%"), vec![]),
        ] {
            let tables = CommandGetTables {
                db_schema_filter_pattern: domain.map(str::to_owned),
                table_name_filter_pattern: table.map(str::to_owned),
                ..CommandGetTables::default()
            };
            let info = client.get_tables(tables).await.unwrap();
            assert_eq!(texts(&fetched(&mut client, info).await.unwrap()), expected);
        }
        let tables = CommandGetTables {
            table_name_filter_pattern: Some("t\\_1".into()),
            table_types: vec!["TABLE".into()],
            include_schema: true,
            ..CommandGetTables::default()
        };
        let info = client.get_tables(tables).await.unwrap();
        let batch = fetched(&mut client, info).await.unwrap();
        let bytes = batch.column_by_name("table_schema").unwrap().as_any().downcast_ref::<arrow::array::BinaryArray>().unwrap();
        let schema = Schema::try_from(IpcMessage(bytes.value(0).to_vec().into())).unwrap();
        let expected = [Field::new("a", DataType::Int32, false), Field::new("b", DataType::Utf8, true)];
        assert_eq!(schema.fields().iter().map(|field| field.as_ref().clone()).collect::<Vec<_>>(), expected);
        let views = CommandGetTables { table_types: vec!["VIEW".into()], ..CommandGetTables::default() };
        let info = client.get_tables(views).await.unwrap();
        assert_eq!(fetched(&mut client, info).await.unwrap().num_rows(), 0);
        let info = client.get_table_types().await.unwrap();
        assert_eq!(texts(&fetched(&mut client, info).await.unwrap()), ["TABLE", "VIEW"]);
        let info = client.get_sql_info(vec![SqlInfo::FlightSqlServerName]).await.unwrap();
        assert!(texts(&fetched(&mut client, info).await.unwrap())[0].contains("Pithead"));
        let info = client.get_xdbc_type_info(CommandGetXdbcTypeInfo { data_type: None }).await.unwrap();
        assert!(fetched(&mut client, info).await.unwrap().num_rows() > 10);
        let table = || "t".to_owned();
        let none = [
            (client.get_primary_keys(CommandGetPrimaryKeys { table: table(), ..Default::default() }).await.unwrap(), 6),
            (client.get_exported_keys(CommandGetExportedKeys { table: table(), ..Default::default() }).await.unwrap(), 13),
            (
                client.get_cross_reference(CommandGetCrossReference { pk_table: table(), ..Default::default() }).await.unwrap(),
                13,
            ),
        ];
        for (info, columns) in none {
            let batch = fetched(&mut client, info).await.unwrap();
            assert_eq!((batch.num_rows(), batch.num_columns()), (0, columns));
        }
        let mut raw = FlightServiceClient::new(channel(&front).await);
        let command = CommandStatementQuery { query: "SELECT id FROM t WHERE id = $1".into(), transaction_id: None };
        let schema = raw.get_schema(FlightDescriptor::new_cmd(command.as_any().encode_to_vec())).await.unwrap().into_inner();
        assert_eq!(Schema::try_from(&schema).unwrap().field(0).data_type(), &DataType::Int64);
    });
}
