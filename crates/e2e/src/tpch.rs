//! TPC-H: data by tpchgen, answers by DuckDB over the same Parquet files.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use parquet::arrow::ArrowWriter;
use pithead_host::{LoadSpec, PartitionBy};
use serde::Deserialize;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator, RegionGenerator,
    SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RecordBatchIterator, RegionArrow,
    SupplierArrow,
};

use crate::compare::{Column, Table};
use crate::places::{repository, run_python, target};
use crate::{Setup, load};

/// Large enough that each query has rows and each large dataset many slices; small enough for every mode.
const SCALE: f64 = 0.1;
const SLICE_ROWS: usize = 16_384;

/// Dataset, and the column whose hash finds a row's partition.
const DATASETS: &[(&str, Option<&str>)] = &[
    ("region", None),
    ("nation", None),
    ("supplier", Some("s_suppkey")),
    ("customer", Some("c_custkey")),
    ("part", Some("p_partkey")),
    ("partsupp", Some("ps_partkey")),
    ("orders", Some("o_orderkey")),
    ("lineitem", Some("l_orderkey")),
];

/// The queries by name, `q01` to `q22`.
pub fn queries() -> Vec<(String, String)> {
    let mut queries: Vec<(String, String)> = std::fs::read_dir(query_directory())
        .expect("the queries are in crates/bench")
        .map(|entry| entry.expect("a directory entry").path())
        .map(|path| {
            let name = path.file_stem().unwrap_or_default().display().to_string();
            (name, std::fs::read_to_string(&path).expect("a query is text"))
        })
        .collect();
    queries.sort();
    assert_eq!(queries.len(), 22, "TPC-H has 22 queries");
    queries
}

/// DuckDB's answers by the query's name.
pub fn answers() -> &'static BTreeMap<String, Table> {
    static ANSWERS: OnceLock<BTreeMap<String, Table>> = OnceLock::new();
    ANSWERS.get_or_init(|| {
        let (tables, queries, out) = (table_directory(), query_directory(), target().join("test-data/tpch-answers.json"));
        make_tables(&tables);
        let words = ["answers", "--tables", "--queries", "--out"].map(Path::new);
        run_python("crates/e2e/suites/judge.py", &[words[0], words[1], &tables, words[2], &queries, words[3], &out]);
        let bytes = std::fs::read(&out).expect("the judge writes answers");
        let answers: BTreeMap<String, JudgedAnswer> = serde_json::from_slice(&bytes).expect("answers are JSON");
        answers.into_iter().map(|(name, answer)| (name, answer.into())).collect()
    })
}

/// Loads all eight datasets.
pub async fn load_tpch(setup: &Setup) {
    // Makes the tables too.
    answers();
    for (name, _) in DATASETS {
        let report = load(&setup.engine, spec(name, setup.mode.encoding)).await;
        report.unwrap_or_else(|fault| panic!("{}: loading {name}: {fault}", setup.mode.name));
    }
}

/// How one dataset is loaded.
pub fn spec(name: &str, encoding: &str) -> LoadSpec {
    answers();
    let key = DATASETS.iter().find(|(dataset, _)| *dataset == name).and_then(|(_, key)| *key);
    LoadSpec {
        partitioning: Some(key.map_or(PartitionBy::RoundRobin, |key| PartitionBy::Hash(vec![key.to_owned()]))),
        encoding: Some(encoding.to_owned()),
        slice_rows: Some(SLICE_ROWS),
        ..LoadSpec::new(name.parse().expect("a valid name"), vec![parquet(name).display().to_string()])
    }
}

/// The Parquet file of one dataset.
pub fn parquet(name: &str) -> PathBuf {
    table_directory().join(format!("{name}.parquet"))
}

fn table_directory() -> PathBuf {
    target().join(format!("test-data/tpch-{SCALE}"))
}

fn query_directory() -> PathBuf {
    repository().join("crates/bench/queries")
}

#[derive(Deserialize)]
struct JudgedAnswer {
    letters: String,
    rows: Vec<Vec<String>>,
}

impl From<JudgedAnswer> for Table {
    fn from(answer: JudgedAnswer) -> Table {
        Table { columns: answer.letters.chars().map(Column::lettered).collect(), rows: answer.rows }
    }
}

fn make_tables(directory: &Path) {
    std::fs::create_dir_all(directory).expect("a directory for TPC-H");
    for (name, _) in DATASETS {
        let file = directory.join(format!("{name}.parquet"));
        if !file.exists() {
            write_parquet(&file, generator(name).as_mut());
        }
    }
}

fn generator(name: &str) -> Box<dyn RecordBatchIterator> {
    match name {
        "region" => Box::new(RegionArrow::new(RegionGenerator::new(SCALE, 1, 1))),
        "nation" => Box::new(NationArrow::new(NationGenerator::new(SCALE, 1, 1))),
        "supplier" => Box::new(SupplierArrow::new(SupplierGenerator::new(SCALE, 1, 1))),
        "customer" => Box::new(CustomerArrow::new(CustomerGenerator::new(SCALE, 1, 1))),
        "part" => Box::new(PartArrow::new(PartGenerator::new(SCALE, 1, 1))),
        "partsupp" => Box::new(PartSuppArrow::new(PartSuppGenerator::new(SCALE, 1, 1))),
        "orders" => Box::new(OrderArrow::new(OrderGenerator::new(SCALE, 1, 1))),
        _ => Box::new(LineItemArrow::new(LineItemGenerator::new(SCALE, 1, 1))),
    }
}

/// Under another name first, so that a file that is there is whole.
fn write_parquet(file: &Path, batches: &mut dyn RecordBatchIterator) {
    let partial = file.with_extension("partial");
    let out = File::create(&partial).expect("a file for TPC-H");
    let mut writer = ArrowWriter::try_new(out, batches.schema().clone(), None).expect("a Parquet writer");
    for batch in batches {
        writer.write(&batch).expect("a batch is written");
    }
    writer.close().expect("a Parquet file is closed");
    std::fs::rename(&partial, file).expect("a file is renamed");
}
