//! TPC-H's tables: made by tpchgen as Parquet files, and how each is laid out on drives.

use std::fs::File;
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use pithead_host::{LoadMode, LoadSpec, PartitionBy};
use pithead_model::{Blame, Fault, SortKey};
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator, RegionGenerator,
    SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RecordBatchIterator, RegionArrow,
    SupplierArrow,
};

/// Rows of a Parquet row group.
const ROW_GROUP_ROWS: usize = 131_072;

/// One table.
#[derive(Clone, Copy, Debug)]
pub struct TpchTable {
    /// Its name.
    pub name: &'static str,
    /// The column whose hash finds a row's drive; none: round-robin. Orders and lineitem lie together, as do part and
    /// partsupp.
    pub key: Option<&'static str>,
    /// The column that rows are sorted by within a partition.
    pub sort: Option<&'static str>,
}

/// The eight tables, small ones first.
pub const TABLES: &[TpchTable] = &[
    TpchTable { name: "region", key: None, sort: None },
    TpchTable { name: "nation", key: None, sort: None },
    TpchTable { name: "supplier", key: Some("s_suppkey"), sort: None },
    TpchTable { name: "customer", key: Some("c_custkey"), sort: None },
    TpchTable { name: "part", key: Some("p_partkey"), sort: None },
    TpchTable { name: "partsupp", key: Some("ps_partkey"), sort: None },
    TpchTable { name: "orders", key: Some("o_orderkey"), sort: Some("o_orderdate") },
    TpchTable { name: "lineitem", key: Some("l_orderkey"), sort: Some("l_shipdate") },
];

impl TpchTable {
    /// Its Parquet file in a directory that [`generate`] made.
    pub fn parquet(&self, directory: &Path) -> PathBuf {
        directory.join(format!("{}.parquet", self.name))
    }

    /// How it is loaded from there.
    pub fn load_spec(&self, directory: &Path) -> Result<LoadSpec, Fault> {
        let key = |key: &str| PartitionBy::Hash(vec![key.to_owned()]);
        let sort = self.sort.map(|column| SortKey { column: column.to_owned(), descending: false });
        Ok(LoadSpec {
            mode: LoadMode::Replace,
            partitioning: Some(self.key.map_or(PartitionBy::RoundRobin, key)),
            sort: sort.into_iter().collect(),
            ..LoadSpec::new(self.name.parse()?, vec![self.parquet(directory).display().to_string()])
        })
    }

    fn batches(&self, scale: f64) -> Box<dyn RecordBatchIterator> {
        match self.name {
            "region" => Box::new(RegionArrow::new(RegionGenerator::new(scale, 1, 1))),
            "nation" => Box::new(NationArrow::new(NationGenerator::new(scale, 1, 1))),
            "supplier" => Box::new(SupplierArrow::new(SupplierGenerator::new(scale, 1, 1))),
            "customer" => Box::new(CustomerArrow::new(CustomerGenerator::new(scale, 1, 1))),
            "part" => Box::new(PartArrow::new(PartGenerator::new(scale, 1, 1))),
            "partsupp" => Box::new(PartSuppArrow::new(PartSuppGenerator::new(scale, 1, 1))),
            "orders" => Box::new(OrderArrow::new(OrderGenerator::new(scale, 1, 1))),
            _ => Box::new(LineItemArrow::new(LineItemGenerator::new(scale, 1, 1))),
        }
    }
}

/// Makes the tables' Parquet files (zstd) where they are not there yet. `scale` is in gigabytes of text, above 0.
pub fn generate(directory: &Path, scale: f64) -> Result<(), Fault> {
    std::fs::create_dir_all(directory).map_err(|error| io(directory, &error))?;
    // The largest first, on threads of their own: it takes about as long as all others together.
    std::thread::scope(|scope| {
        let write = |table: &'static TpchTable| scope.spawn(move || write(table, directory, scale));
        let running: Vec<_> = TABLES.iter().rev().map(write).collect();
        running
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|_| Err(Fault::new(Blame::Bug, "tpchgen gave up"))))
    })
}

fn write(table: &TpchTable, directory: &Path, scale: f64) -> Result<(), Fault> {
    let file = table.parquet(directory);
    if file.exists() {
        return Ok(());
    }
    // Under another name first, so that a file that is there is whole.
    let partial = file.with_extension("partial");
    let mut batches = table.batches(scale);
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .build();
    let out = File::create(&partial).map_err(|error| io(&partial, &error))?;
    let failed = |error: parquet::errors::ParquetError| Fault::new(Blame::Device, format!("{}: {error}", partial.display()));
    let mut writer = ArrowWriter::try_new(out, batches.schema().clone(), Some(properties)).map_err(failed)?;
    for batch in batches.by_ref() {
        let batch: RecordBatch = batch;
        writer.write(&batch).map_err(failed)?;
    }
    writer.close().map_err(failed)?;
    std::fs::rename(&partial, &file).map_err(|error| io(&file, &error))
}

pub(crate) fn io(path: &Path, error: &std::io::Error) -> Fault {
    Fault::new(Blame::Device, format!("{}: {error}", path.display()))
}

/// A directory's path, once nothing is there any more.
pub(crate) fn fresh(directory: &Path) -> Result<PathBuf, Fault> {
    if directory.exists() {
        std::fs::remove_dir_all(directory).map_err(|error| io(directory, &error))?;
    }
    Ok(directory.to_owned())
}
