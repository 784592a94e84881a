//! TPC-H in each mode: the same answers among the modes, and DuckDB's.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use pithead_e2e::tpch::{answers, load_tpch, queries};
use pithead_e2e::{Mode, Setup, Table, bag_difference, block_on, collect, link_bytes, row_difference};

fn run(mode: Mode) {
    let mine = ask_all(mode);
    let mut told = Vec::new();
    for (name, table) in &mine {
        let duckdb = row_difference(table, &answers()[name]).map(|what| format!("{name} against DuckDB: {what}"));
        let others =
            bag_difference(table, &baseline()[name]).map(|what| format!("{name} against {}: {what}", Mode::ONE_HERE.name));
        told.extend(duckdb.into_iter().chain(others));
    }
    assert!(told.is_empty(), "{}: {} differences\n{}", mode.name, told.len(), told.join("\n"));
}

fn ask_all(mode: Mode) -> BTreeMap<String, Table> {
    block_on(async {
        let setup = Setup::new(mode).await;
        load_tpch(&setup).await;
        let session = setup.session().await;
        let mut tables = BTreeMap::new();
        for (name, query) in queries() {
            let table = collect(&session, &query).await.unwrap_or_else(|fault| panic!("{}: {name}: {fault}", mode.name));
            tables.insert(name, table);
        }
        setup.shutdown().await;
        tables
    })
}

/// What the simplest mode answers.
fn baseline() -> &'static BTreeMap<String, Table> {
    static BASELINE: OnceLock<BTreeMap<String, Table>> = OnceLock::new();
    BASELINE.get_or_init(|| ask_all(Mode::ONE_HERE))
}

#[test]
fn one_drive_here() {
    run(Mode::ONE_HERE);
}

#[test]
fn four_drives_here() {
    run(Mode::FOUR_HERE);
}

#[test]
fn four_drive_processes() {
    run(Mode::FOUR_PROCESSES);
}

#[test]
fn push_down_off() {
    run(Mode::PUSHDOWN_OFF);
}

#[test]
fn drive_processes_push_down_off() {
    run(Mode::PROCESSES_PUSHDOWN_OFF);
}

#[test]
fn filters_only() {
    run(Mode::FILTERS_ONLY);
}

#[test]
fn encoding_arrow() {
    run(Mode::ARROW);
}

#[test]
fn slices_filtered() {
    run(Mode::FILTERED);
}

#[test]
fn slices_as_stored() {
    run(Mode::STORED);
}

#[test]
fn pages_that_may_match() {
    run(Mode::HINTED);
}

#[test]
fn levels_by_chance() {
    run(Mode::MIXED);
}

#[test]
fn weak_drives() {
    run(Mode::WEAK);
}

/// Far less than the aim, which the benchmark measures at a larger scale: here a regression shows, not a figure.
const FEWER_BYTES_MIN: f64 = 5.0;

#[test]
fn push_down_keeps_most_bytes_at_the_drives() {
    block_on(async {
        let setup = Setup::new(Mode::FOUR_PROCESSES).await;
        load_tpch(&setup).await;
        let (on, off) = (setup.session().await, setup.session().await);
        collect(&off, "SET pithead.pushdown = off").await.unwrap();
        let (mut total_on, mut total_off, mut told) = (0, 0, String::new());
        for (name, query) in queries() {
            let (with, without) = (link_bytes(&on, &query).await.unwrap(), link_bytes(&off, &query).await.unwrap());
            told += &format!("\n{name}: {with} bytes with push-down, {without} without");
            total_on += with;
            total_off += without;
        }
        let ratio = total_off as f64 / total_on as f64;
        assert!(ratio >= FEWER_BYTES_MIN, "{ratio:.1} times fewer bytes{told}");
        setup.shutdown().await;
    });
}
