//! Files that users load, through the host's own door.

use std::io::Write;
use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use parquet::arrow::ArrowWriter;
use parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use pithead_fuzz::{Bound, Outcome, Parts, Run, Seed, Target};
use pithead_host::{CsvOptions, Format, LoadMode, LoadSpec};

use crate::link::lying_lengths;
use crate::sessions::Rig;
use crate::{data, refused};

pub const NAMES: [&str; 4] = ["file_csv", "file_json", "file_parquet", "file_arrow"];

/// Buffers of files and of the drive's slices, and the batches between.
const BOUND: Bound = Bound { bytes: 256 << 20, factor: 64 };

pub fn targets(rig: &Arc<LazyLock<Arc<Rig>>>) -> Vec<Target> {
    let rig: &Arc<Rig> = rig;
    let of = |format: Format| -> Run {
        let rig = Arc::clone(rig);
        Box::new(move |bytes| load(&rig, format, bytes))
    };
    let target = |name, seeds, run| Target { name, seeds, parts: Parts::WHOLE, bound: BOUND, run };
    vec![
        target("file_csv", csv_seeds(), of(Format::Csv)),
        target("file_json", json_seeds(), of(Format::Json)),
        target("file_parquet", parquet_seeds(), of(Format::Parquet)),
        target("file_arrow", arrow_seeds(), of(Format::ArrowIpc)),
    ]
}

fn load(rig: &Rig, format: Format, bytes: &[u8]) -> Outcome {
    let path = rig.folder.path().join("file");
    std::fs::write(&path, bytes).unwrap();
    let mut spec = LoadSpec::new("loaded".parse().unwrap(), vec![path.display().to_string()]);
    (spec.format, spec.mode) = (Some(format), LoadMode::Replace);
    // Half of the inputs have no header.
    spec.csv = CsvOptions { header: bytes.len().is_multiple_of(2), schema_rows: 20, ..CsvOptions::default() };
    match rig.runtime.block_on(rig.host.load(spec, Arc::new(|_| ()))) {
        Ok(_) => Outcome::Accepted,
        Err(fault) => refused(&fault),
    }
}

fn csv_seeds() -> Vec<Seed> {
    let header = "number,text,float,date,time,flag\n";
    let rows: String = (0..30)
        .map(|row| {
            format!("{row},\"a \"\"text\"\"\n{row}\",{}.5,2024-01-{:02},2024-01-01T00:00:{row:02},true\n", row * 7, row + 1)
        })
        .collect();
    let wide: String = (0..2_000).map(|column| format!("c{column},")).collect();
    vec![
        Seed::hostile("rows", format!("{header}{rows}")),
        Seed::hostile("rows and a line end", format!("{header}{rows}\n")),
        Seed::hostile("crlf", format!("{header}{rows}").replace('\n', "\r\n")),
        Seed::valid("two columns", "a,b\n1,2\n3,44\n"),
        Seed::valid("zstd", zstd::encode_all("a,b\n1,2\n3,44\n".as_bytes(), 1).unwrap()),
        Seed::hostile("gzip", gzip(format!("{header}{rows}").as_bytes())),
        Seed::hostile("open quote", format!("a,b\n1,\"{}", "x".repeat(200_000))),
        Seed::hostile("wide", format!("{wide}c\n{}\n", ",".repeat(2_000))),
        Seed::hostile("empty lines", format!("a,b\n{}", "\n".repeat(100_000))),
    ]
}

fn json_seeds() -> Vec<Seed> {
    let rows: String = (0..30)
        .map(|row| format!("{{\"n\":{row},\"t\":\"text {row}\",\"l\":[{row},null],\"o\":{{\"f\":{row}.5,\"b\":true}}}}\n"))
        .collect();
    let deep = |open: &str, close: &str| format!("{{\"a\":{}1{}}}\n", open.repeat(100_000), close.repeat(100_000));
    vec![
        Seed::valid("rows", rows.clone()),
        Seed::valid("zstd", zstd::encode_all(rows.as_bytes(), 1).unwrap()),
        Seed::hostile("gzip", gzip(rows.as_bytes())),
        Seed::hostile("types that change", "{\"a\":1}\n{\"a\":\"x\"}\n{\"a\":[1]}\n{\"a\":{\"b\":1}}\n"),
        Seed::hostile("deep lists", deep("[", "]")),
        Seed::hostile("deep objects", deep("{\"a\":", "}")),
        Seed::hostile("surrogates", "{\"a\":\"\\ud800\"}\n{\"a\":\"\\u0000\"}\n"),
        Seed::hostile("numbers", "{\"a\":1e999}\n{\"a\":-0}\n{\"a\":99999999999999999999}\n"),
    ]
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

/// Columns that files have, in types of theirs.
fn tables() -> Vec<RecordBatch> {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter((0..500).map(|row| (row % 9 != 0).then_some(row / 7))));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..500).map(|row| format!("text {}", row % 40))));
    let few = RecordBatch::try_from_iter_with_nullable([("n", numbers, true), ("t", texts, true)]).unwrap();
    let all = data::every_type(40, false);
    let is_held = |column: &usize| parquet(&all.project(&[*column]).unwrap(), WriterProperties::default()).is_some();
    let columns: Vec<usize> = (0..all.num_columns()).filter(is_held).collect();
    vec![few, all.project(&columns).unwrap()]
}

/// None: Parquet does not hold it.
fn parquet(batch: &RecordBatch, properties: WriterProperties) -> Option<Vec<u8>> {
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).ok()?;
    writer.write(batch).ok()?;
    writer.into_inner().ok()
}

fn parquet_seeds() -> Vec<Seed> {
    let compressions = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::ZSTD(ZstdLevel::default()),
        Compression::LZ4_RAW,
        Compression::LZ4,
        Compression::BROTLI(BrotliLevel::default()),
        Compression::GZIP(GzipLevel::default()),
    ];
    let mut seeds = Vec::new();
    for (number, batch) in tables().iter().enumerate() {
        for (index, compression) in compressions.iter().enumerate() {
            let version = if index % 2 == 0 { WriterVersion::PARQUET_1_0 } else { WriterVersion::PARQUET_2_0 };
            let properties = WriterProperties::builder()
                .set_compression(*compression)
                .set_writer_version(version)
                .set_dictionary_enabled(index != 2)
                .set_max_row_group_row_count(Some(200))
                .build();
            let file = parquet(batch, properties).unwrap();
            seeds.extend(lying_page(&file).map(|lying| Seed::hostile(format!("{number} {compression} lying"), lying)));
            seeds.push(Seed::valid(format!("{number} {compression}"), file));
        }
    }
    seeds.push(Seed::hostile("bomb", parquet_bomb()));
    seeds
}

/// The first page says that it has 2 GiB. What follows it has moved, but for the footer.
fn lying_page(file: &[u8]) -> Option<Vec<u8>> {
    // Thrift: a number, which is the page's kind, then another, which is its size.
    let (before, size) = file.split_at_checked(7).filter(|(before, _)| before[4] == 0x15 && before[6] == 0x15)?;
    let rest = &size[size.iter().position(|byte| *byte < 0x80)? + 1..];
    Some([before, &[0xfe, 0xff, 0xff, 0xff, 0x0f], rest].concat())
}

/// One text of 80 MB in some thousand bytes.
fn parquet_bomb() -> Vec<u8> {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(80 << 20)]));
    let batch = RecordBatch::try_from_iter([("t", text)]).unwrap();
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default()));
    parquet(&batch, properties.set_dictionary_enabled(false).set_statistics_enabled(EnabledStatistics::None).build()).unwrap()
}

fn arrow_seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    for (number, batch) in tables().iter().enumerate() {
        for compression in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
            let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
            let mut file = FileWriter::try_new_with_options(Vec::new(), &batch.schema(), options.clone()).unwrap();
            let mut stream = StreamWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
            for part in [batch.clone(), batch.slice(1, 9)] {
                file.write(&part).unwrap();
                stream.write(&part).unwrap();
            }
            for (kind, bytes) in [("file", file.into_inner().unwrap()), ("stream", stream.into_inner().unwrap())] {
                if compression.is_some() {
                    seeds.push(Seed::hostile(format!("{kind} {number} {compression:?} lying"), lying_lengths(&bytes)));
                }
                seeds.push(Seed::valid(format!("{kind} {number} {compression:?}"), bytes));
            }
        }
    }
    seeds
}
