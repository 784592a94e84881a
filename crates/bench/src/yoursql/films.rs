//! Tables of films, people and companies for plans under uncertainty, in the manner of the Join Order Benchmark (Leis et al. 2015; see
//! `docs/bibliography.md`): keys are skewed, columns go together, and texts hold rare words. All values follow from a seed.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use pithead_model::{Blame, Fault};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::tables::io;

/// The tables, small ones first.
pub(super) const TABLES: [&str; 7] = ["keyword", "company", "person", "title", "movie_company", "movie_keyword", "cast_info"];
const WORDS: [&str; 16] = [
    "the", "night", "of", "river", "a", "house", "day", "silent", "king", "road", "in", "winter", "last", "garden", "and",
    "city",
];
const BATCH_ROWS: usize = 65_536;

/// Rows of a table at scale 1.
fn rows(table: &str) -> f64 {
    match table {
        "keyword" => 20_000.0,
        "company" => 30_000.0,
        "person" => 300_000.0,
        "title" => 400_000.0,
        "movie_company" => 800_000.0,
        "movie_keyword" => 1_500_000.0,
        _ => 2_500_000.0,
    }
}

/// Makes the Parquet files that are not there yet.
pub(super) fn generate(directory: &Path, scale: f64) -> Result<(), Fault> {
    std::fs::create_dir_all(directory).map_err(|error| io(directory, &error))?;
    TABLES.iter().try_for_each(|table| write(directory, table, scale))
}

fn write(directory: &Path, table: &str, scale: f64) -> Result<(), Fault> {
    let path = directory.join(format!("{table}.parquet"));
    if path.exists() {
        return Ok(());
    }
    let partial = path.with_extension("partial");
    let failed = |error: &dyn std::fmt::Display| Fault::new(Blame::Device, format!("{}: {error}", partial.display()));
    let count = (rows(table) * scale).ceil() as usize;
    let mut rng = StdRng::seed_from_u64(table.bytes().map(u64::from).sum());
    let mut writer: Option<ArrowWriter<File>> = None;
    for first in (0..count).step_by(BATCH_ROWS) {
        let ids = first..(first + BATCH_ROWS).min(count);
        let batch = batch(table, ids, scale, &mut rng).map_err(|error| failed(&error))?;
        let writer = match &mut writer {
            Some(writer) => writer,
            None => {
                let file = File::create(&partial).map_err(|error| io(&partial, &error))?;
                writer.insert(ArrowWriter::try_new(file, batch.schema(), None).map_err(|error| failed(&error))?)
            }
        };
        writer.write(&batch).map_err(|error| failed(&error))?;
    }
    writer.map(ArrowWriter::close).transpose().map_err(|error| failed(&error))?;
    std::fs::rename(&partial, &path).map_err(|error| io(&path, &error))
}

fn batch(
    table: &str,
    ids: std::ops::Range<usize>,
    scale: f64,
    rng: &mut StdRng,
) -> Result<RecordBatch, arrow::error::ArrowError> {
    let count = ids.len();
    let id: ArrayRef = Arc::new(Int64Array::from_iter_values(ids.map(|id| id as i64)));
    // A key of another table: the higher the power, the more rows have the first keys.
    let mut key = |of: &str, power: i32| -> ArrayRef {
        let keys = (rows(of) * scale).ceil();
        Arc::new(Int64Array::from_iter_values((0..count).map(|_| (keys * rng.random::<f64>().powi(power)) as i64)))
    };
    let columns: Vec<(&str, ArrayRef)> = match table {
        "movie_company" => vec![
            ("title_id", key("title", 2)),
            ("company_id", key("company", 3)),
            ("note", notes(count, rng, &[("co-production", 0.004), ("(worldwide)", 0.4)])),
        ],
        "movie_keyword" => vec![("title_id", key("title", 2)), ("keyword_id", key("keyword", 2))],
        "cast_info" => vec![
            ("title_id", key("title", 3)),
            ("person_id", key("person", 2)),
            ("note", notes(count, rng, &[("(voice)", 0.02), ("(uncredited)", 0.3)])),
        ],
        "title" => {
            // Series are a twelfth of all titles, and all of them are young.
            let kinds: Vec<i64> =
                (0..count).map(|_| if rng.random_bool(1.0 / 12.0) { 7 } else { rng.random_range(0..7) }).collect();
            let years =
                kinds.iter().map(|kind| if *kind == 7 { rng.random_range(2000..2025) } else { rng.random_range(1920..2025) });
            let years: ArrayRef = Arc::new(Int64Array::from_iter_values(years.collect::<Vec<i64>>()));
            let kinds: ArrayRef = Arc::new(Int64Array::from(kinds));
            vec![("id", id), ("kind", kinds), ("year", years), ("name", texts(count, rng, 5, &[("quartz", 0.001)]))]
        }
        "person" => {
            // Nearly everyone of the first country is of one gender in these records.
            let countries: Vec<i64> = (0..count).map(|_| (60.0 * rng.random::<f64>().powi(3)) as i64).collect();
            let genders =
                countries.iter().map(|country| if *country == 0 { rng.random_bool(0.99) } else { rng.random_bool(0.3) });
            let genders: ArrayRef =
                Arc::new(StringArray::from_iter_values(genders.map(|is_f| if is_f { "f" } else { "m" }).collect::<Vec<_>>()));
            let countries: ArrayRef = Arc::new(Int64Array::from(countries));
            vec![
                ("id", id),
                ("country", countries),
                ("gender", genders),
                ("about", texts(count, rng, 9, &[("harbour", 0.002)])),
            ]
        }
        "company" => vec![("id", id), ("name", texts(count, rng, 2, &[("pictures", 0.05)]))],
        _ => vec![("id", id), ("word", texts(count, rng, 1, &[("love", 0.01)]))],
    };
    RecordBatch::try_from_iter(columns)
}

/// Texts of some words, with a rare one among them by chance.
fn texts(count: usize, rng: &mut StdRng, words: usize, rare: &[(&str, f64)]) -> ArrayRef {
    let text = |_| {
        let mut text = String::new();
        for _ in 0..rng.random_range(1..=2 * words) {
            text.push_str(WORDS[(WORDS.len() as f64 * rng.random::<f64>().powi(2)) as usize]);
            text.push(' ');
        }
        for (word, share) in rare {
            if rng.random_bool(*share) {
                text.push_str(word);
            }
        }
        text + &rng.random_range(0..100_000).to_string()
    };
    Arc::new(StringArray::from_iter_values((0..count).map(text).collect::<Vec<_>>()))
}

/// Notes that most rows have none of.
fn notes(count: usize, rng: &mut StdRng, kinds: &[(&str, f64)]) -> ArrayRef {
    let note = |_| {
        let found: Vec<&str> = kinds.iter().filter(|(_, share)| rng.random_bool(*share)).map(|(word, _)| *word).collect();
        format!("as {} {}", found.join(" "), rng.random_range(0..10_000))
    };
    Arc::new(StringArray::from_iter_values((0..count).map(note).collect::<Vec<_>>()))
}
