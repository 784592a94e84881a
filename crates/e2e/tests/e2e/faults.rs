//! Drives that are down, die, hang, or are not drives: a clear error within a bound, never part of an answer.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::Schema;
use futures::StreamExt;
use pithead_door::{Door, Hello, OpenRequest, PlanBytes, SessionOptions};
use pithead_e2e::tpch::spec;
use pithead_e2e::{DriveProcess, Mode, Setup, block_on, collect, load};
use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_host::Answer;
use pithead_model::{Blame, Fault, Level, PROTOCOL_VERSION};
use pithead_wire::FlightDoor;
use tempfile::TempDir;

/// More than any limit that a host or drive has for a peer that is silent.
const LIMIT: Duration = Duration::from_secs(90);
/// All rows and columns travel, so the answer is on its way for long.
const LARGE: &str = "SELECT * FROM lineitem";
/// Every drive has to answer.
const SMALL: &str = "SELECT count(*), sum(l_quantity) FROM lineitem";

/// Four drives whose links are slow, so that a large answer is in mid-stream for seconds, with lineitem on them.
async fn slow_drives(directory: &TempDir) -> (Vec<DriveProcess>, Engine) {
    let processes = DriveProcess::start_many(directory.path(), 4, &["--link", "20mbit"]);
    let engine = attach(&processes).await.unwrap_or_else(|fault| panic!("connecting: {fault}"));
    load(&engine, spec("lineitem", "vortex")).await.unwrap_or_else(|fault| panic!("loading: {fault}"));
    (processes, engine)
}

async fn attach(processes: &[DriveProcess]) -> Result<Engine, Fault> {
    let addresses = processes.iter().map(|process| process.address().to_owned()).collect();
    within(connect(&Target::Drives(addresses), &EmbedOptions::default())).await
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, work).await.expect("an answer or an error within the limit")
}

async fn rest(mut answer: Answer) -> Result<usize, Fault> {
    let mut rows = 0;
    while let Some(batch) = answer.rows.next().await {
        rows += batch?.num_rows();
    }
    Ok(rows)
}

/// The error of an answer that must not end well. It is the drive's failure, and names the drive.
fn device_fault<T: std::fmt::Debug>(outcome: Result<T, Fault>, address: &str) -> Fault {
    let fault = outcome.expect_err("the drive is not there any more");
    assert_eq!(fault.blame, Blame::Device, "{fault}");
    assert!(fault.to_string().contains(address), "the drive {address} should be named: {fault}");
    fault
}

#[test]
fn a_drive_that_is_down_at_the_start_is_named() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let mut processes = DriveProcess::start_many(directory.path(), 2, &[]);
        processes[1].kill();
        // Not every statement needs it. One that may do says so.
        let engine = attach(&processes).await.unwrap_or_else(|fault| panic!("one drive is up: {fault}"));
        device_fault(load(&engine, spec("nation", "vortex")).await, processes[1].address());
        device_fault(
            within(collect(&engine.host.session(), SMALL)).await.map(|table| table.rows.len()),
            processes[1].address(),
        );
        processes[0].kill();
        device_fault(attach(&processes).await.map(|_| ()), processes[0].address());
    });
}

#[test]
fn a_drive_that_dies_in_mid_stream_ends_the_answer_with_an_error() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let (mut processes, engine) = slow_drives(&directory).await;
        let mut answer = engine.host.session().run(LARGE).await.unwrap();
        answer.rows.next().await.expect("the stream has begun").unwrap();
        processes[2].kill();
        device_fault(within(rest(answer)).await, processes[2].address());
        let next = within(collect(&engine.host.session(), SMALL)).await.map(|table| table.rows.len());
        device_fault(next, processes[2].address());
    });
}

#[test]
fn a_drive_that_stops_answering_in_mid_stream_ends_the_answer_with_an_error() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let (processes, engine) = slow_drives(&directory).await;
        let mut answer = engine.host.session().run(LARGE).await.unwrap();
        answer.rows.next().await.expect("the stream has begun").unwrap();
        processes[1].freeze();
        device_fault(within(rest(answer)).await, processes[1].address());
        processes[1].thaw();
        let table = within(collect(&engine.host.session(), SMALL)).await.unwrap_or_else(|fault| panic!("thawed: {fault}"));
        assert_eq!(table.rows.len(), 1);
    });
}

#[test]
fn a_drive_that_does_not_answer_at_all_is_an_error() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let processes = DriveProcess::start_many(directory.path(), 2, &[]);
        processes[0].freeze();
        let engine = attach(&processes).await.unwrap_or_else(|fault| panic!("one drive answers: {fault}"));
        device_fault(within(load(&engine, spec("nation", "vortex"))).await, processes[0].address());
        processes[1].freeze();
        device_fault(attach(&processes).await.map(|_| ()), processes[0].address());
    });
}

#[test]
fn dropping_an_answer_ends_the_work_at_the_drives() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let (_processes, engine) = slow_drives(&directory).await;
        let mut answer = engine.host.session().run(LARGE).await.unwrap();
        answer.rows.next().await.expect("the stream has begun").unwrap();
        assert!(sessions(&engine).await > 0);
        drop(answer);
        let ended = async {
            while sessions(&engine).await > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        within(ended).await;
    });
}

async fn sessions(engine: &Engine) -> u32 {
    engine
        .host
        .fleet()
        .status()
        .await
        .into_iter()
        .map(|(label, status)| status.unwrap_or_else(|fault| panic!("{label}: {fault}")).sessions)
        .sum()
}

#[test]
fn a_host_that_dies_leaves_no_session_behind() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let processes = DriveProcess::start_many(directory.path(), 1, &["--link", "20mbit", "--idle", "2"]);
        let engine = attach(&processes).await.unwrap_or_else(|fault| panic!("connecting: {fault}"));
        load(&engine, spec("lineitem", "vortex")).await.unwrap_or_else(|fault| panic!("loading: {fault}"));
        // Held and never pulled again, as by a host that hangs.
        let mut answer = engine.host.session().run(LARGE).await.unwrap();
        answer.rows.next().await.expect("the stream has begun").unwrap();
        let ended = async {
            while sessions(&engine).await > 0 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        within(ended).await;
        assert!(within(rest(answer)).await.is_err(), "the session was ended, so the answer is not whole");
    });
}

#[test]
fn another_protocol_is_refused_by_the_drive() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let process = DriveProcess::start(directory.path(), &[]);
        let door = FlightDoor::connect(process.address()).unwrap();
        let hello = Hello { protocol: PROTOCOL_VERSION + 1, release: "9.9.9".to_owned(), extensions: Vec::new() };
        let fault = within(door.hello(hello)).await.expect_err("the protocol is another");
        assert_eq!(fault.blame, Blame::Unsupported, "{fault}");
        for word in ["9.9.9", &PROTOCOL_VERSION.to_string(), &(PROTOCOL_VERSION + 1).to_string()] {
            assert!(fault.to_string().contains(word), "{word} should be named: {fault}");
        }
    });
}

#[test]
fn a_server_that_is_no_drive_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            answer_http(connection);
        }
    });
    block_on(async {
        let target = Target::Drives(vec![address.clone()]);
        let outcome = within(connect(&target, &EmbedOptions::default())).await.map(|_| ());
        device_fault(outcome, &address);
    });
}

fn answer_http(mut connection: TcpStream) {
    let mut asked = [0; 512];
    // Whatever was asked, and whether or not anyone reads it, this is the answer.
    let _ = connection.read(&mut asked);
    let _ = connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
}

#[test]
fn garbage_on_the_port_does_no_harm() {
    block_on(async {
        let setup = Setup::new(Mode { drives: 1, ..Mode::FOUR_PROCESSES }).await;
        load(&setup.engine, spec("nation", "vortex")).await.unwrap();
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..40 {
            let mut garbage = if seed & 1 == 0 { b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec() } else { Vec::new() };
            for _ in 0..200 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                garbage.extend((seed >> 16).to_le_bytes());
            }
            let mut connection = TcpStream::connect(setup.processes[0].address()).unwrap();
            // The drive may hang up before all of it is sent.
            let _ = connection.write_all(&garbage);
        }
        let table = collect(&setup.session().await, "SELECT count(*) FROM nation").await.unwrap();
        assert_eq!(table.rows, [["25"]]);
        setup.shutdown().await;
    });
}

#[test]
fn a_hostile_plan_is_refused() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let process = DriveProcess::start(directory.path(), &[]);
        let door = FlightDoor::connect(process.address()).unwrap();
        let plans: [&[u8]; 5] = [b"", b"\x00", &[0xff; 64], &[0x1a; 4096], b"\x12\xff\xff\xff\xff\x0f"];
        for plan in plans {
            let request = OpenRequest {
                plan: PlanBytes::Substrait(plan.to_vec().into()),
                manifest_version: 1,
                parts: Vec::new(),
                inputs: Vec::new(),
                done: Vec::new(),
                schema: Arc::new(Schema::empty()),
                whole_partition: false,
                options: session_options(),
            };
            let fault = within(door.open(request)).await.map(|_| ()).expect_err("it is no plan");
            assert!(!matches!(fault.blame, Blame::Device | Blame::Bug), "{plan:?}: {}: {fault}", fault.blame);
        }
        assert_eq!(door.status().await.unwrap().sessions, 0);
    });
}

fn session_options() -> SessionOptions {
    SessionOptions {
        adapt: Default::default(),
        threads: 1,
        memory: 1 << 20,
        batch_rows: 8192,
        level_max: Level::Whole,
        zone_maps: true,
        sample: None,
        time_zone: None,
        now_ns: 0,
        extensions: Vec::new(),
        host: 0,
    }
}

#[test]
fn many_statements_at_once_get_their_own_answers() {
    block_on(async {
        let setup = Arc::new(Setup::new(Mode::FOUR_PROCESSES).await);
        load(&setup.engine, spec("orders", "vortex")).await.unwrap();
        let ask = |number: usize| {
            let setup = Arc::clone(&setup);
            tokio::spawn(async move {
                let query = format!("SELECT count(*), min(o_orderkey % 32) FROM orders WHERE o_orderkey % 32 = {}", number % 8);
                (number % 8, collect(&setup.session().await, &query).await.unwrap_or_else(|fault| panic!("{fault}")).rows)
            })
        };
        let asked: Vec<_> = (0..64).map(ask).collect();
        for task in asked {
            let (remainder, rows) = within(task).await.unwrap();
            assert_eq!(rows[0][1], remainder.to_string());
        }
    });
}
