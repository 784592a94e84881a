//! What travels and is stored of expression matrices: rows, what is known of cells, and results that are combined.

use pithead_fuzz::{Bound, Outcome, Parts, Run, Seed, Target};
use pithead_matrix::{
    Accumulate, CellSums, CellTotals, Cells, CellsSpec, Codec, Gram, GramParts, GramResult, Malformed, Partials, RankSums,
    Ranks, Row, RowBuffer, Values, merge,
};
use xxhash_rust::xxh3::xxh3_64;

pub const NAMES: [&str; 3] = ["matrix_row", "matrix_cells", "matrix_results"];

/// Cells of the seeds.
const CELLS: usize = 300;
/// Bytes of the tag and the checksum in front of a description of cells.
const HEAD: usize = 9;
/// A description of many cells is short where they are alike, and takes some 40 bytes for each; a Gram matrix has 4,096 cells at most.
const BOUND: Bound = Bound { bytes: 320 << 20, factor: 64 };

/// The tag, then what the checksum is of.
const CHECKED: Parts = Parts {
    split: |bytes| Some(vec![vec![*bytes.first()?], bytes.get(HEAD..)?.to_vec()]),
    join: |parts| [&parts[0][..], &xxh3_64(&parts[1]).to_le_bytes(), &parts[1]].concat(),
    piece: 2,
};

pub fn targets() -> Vec<Target> {
    let target = |name, parts, seeds, run: Run| Target { name, seeds, parts, bound: BOUND, run };
    vec![
        target("matrix_row", Parts::WHOLE, row_seeds(), Box::new(row)),
        target("matrix_cells", CHECKED, cells_seeds(), Box::new(cells)),
        target("matrix_results", Parts::WHOLE, result_seeds(), Box::new(results)),
    ]
}

fn rows() -> Vec<(&'static str, Vec<u8>)> {
    let cells: Vec<u32> = (0..CELLS as u32).step_by(7).chain([CELLS as u32 - 1]).collect();
    let counts: Vec<u32> = cells.iter().map(|cell| if cell % 3 == 0 { cell * 1_000 + 1 } else { cell % 5 + 1 }).collect();
    let floats: Vec<f32> = counts.iter().map(|count| *count as f32 / 3.0).collect();
    let of = |cells: &[u32], values, codec| {
        let mut bytes = Vec::new();
        Row { n_cells: CELLS, cells, values }.encode(codec, &mut bytes);
        bytes
    };
    vec![
        ("counts", of(&cells, Values::Counts(&counts), Codec::None)),
        ("counts_zstd", of(&cells, Values::Counts(&counts), Codec::Zstd)),
        ("floats", of(&cells, Values::Floats(&floats), Codec::None)),
        ("floats_zstd", of(&cells, Values::Floats(&floats), Codec::Zstd)),
        ("none", of(&[], Values::Counts(&[]), Codec::Zstd)),
    ]
}

fn specs() -> Vec<(&'static str, CellsSpec)> {
    let plain = CellsSpec {
        n_cells: CELLS,
        n_groups: 3,
        codes: (0..CELLS as u16).map(|cell| cell % 5).collect(),
        ..CellsSpec::default()
    };
    let scaled = CellsSpec {
        totals: (0..CELLS).map(|cell| cell as f64).collect(),
        target_sum: 1e4,
        log1p: true,
        base: Some(2.0),
        sum_expm1: true,
        ..plain.clone()
    };
    let basis = CellsSpec { basis: vec![0.5; CELLS * 2], centered: true, unit_variance: true, ..plain.clone() };
    let reference = CellsSpec { reference: Some(1), ..plain.clone() };
    vec![("groups", plain), ("scaled", scaled), ("basis", basis), ("reference", reference)]
}

fn row_seeds() -> Vec<Seed> {
    rows().into_iter().map(|(name, bytes)| Seed::valid(name, bytes)).collect()
}

fn cells_seeds() -> Vec<Seed> {
    specs().into_iter().map(|(name, spec)| Seed::valid(name, spec.encode().unwrap())).collect()
}

/// Every kind of result, of every row and description.
fn result_seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    let mut sums = CellSums::default();
    for (name, spec) in specs() {
        let cells = Cells::decode(&spec.encode().unwrap()).unwrap();
        let mut gram = Gram::default();
        for (row_name, row) in rows() {
            let (mut partials, mut ranks, mut part) = (Vec::new(), Vec::new(), Vec::new());
            Accumulate::default().row(&row, &cells, &mut partials).unwrap();
            RankSums::default().row(&row, &cells, &mut ranks).unwrap();
            GramParts::default().row(&row, &cells, &mut part).unwrap();
            gram.part(&part).unwrap();
            sums.row(&row).unwrap();
            for (kind, bytes) in [("partials", partials), ("ranks", ranks), ("gram_part", part)] {
                seeds.push(Seed::valid(format!("{kind}_{name}_{row_name}"), bytes));
            }
        }
        let mut bytes = Vec::new();
        gram.result().unwrap().encode(&mut bytes);
        seeds.push(Seed::valid(format!("gram_{name}"), bytes));
    }
    let mut bytes = Vec::new();
    sums.totals().unwrap().encode(&mut bytes);
    seeds.push(Seed::valid("sums", bytes));
    seeds
}

fn judged(result: Result<(), Malformed>) -> Outcome {
    result.map_or(Outcome::Refused, |()| Outcome::Accepted)
}

/// A row that decodes is in order, and every function takes it.
fn row(bytes: &[u8]) -> Outcome {
    let mut row = RowBuffer::default();
    if row.decode(bytes).is_err() {
        return Outcome::Refused;
    }
    let in_order = row.cells.is_sorted_by(|a, b| a < b) && row.cells.last().is_none_or(|last| (*last as usize) < row.n_cells);
    if !in_order || row.cells.len() != row.counts.len() + row.floats.len() {
        return Outcome::Wrong("the row's cells do not ascend, or lack values".into());
    }
    let spec = CellsSpec { n_cells: row.n_cells, log1p: true, sum_expm1: true, ..CellsSpec::default() };
    let Ok(cells) = spec.encode().and_then(|bytes| Cells::decode(&bytes)) else { return Outcome::Refused };
    let mut out = Vec::new();
    let taken = Accumulate::default().row(bytes, &cells, &mut out);
    judged(taken.and_then(|()| RankSums::default().row(bytes, &cells, &mut out)).and_then(|()| CellSums::default().row(bytes)))
}

/// Whatever is known of cells, rows of as many are computed with.
fn cells(bytes: &[u8]) -> Outcome {
    let Ok(cells) = Cells::decode(bytes) else { return Outcome::Refused };
    if cells.counting() as usize > cells.n_cells || cells.numbers.len() != cells.n_cells {
        return Outcome::Wrong("more cells count than there are".into());
    }
    for (_, row) in rows().into_iter().filter(|_| cells.n_cells == CELLS) {
        let (mut out, mut part) = (Vec::new(), Vec::new());
        let done = Accumulate::default()
            .row(&row, &cells, &mut out)
            .and_then(|()| RankSums::default().row(&row, &cells, &mut out))
            .and_then(|()| GramParts::default().row(&row, &cells, &mut part))
            .and_then(|()| Gram::default().part(&part));
        if let Err(error) = done {
            return Outcome::Wrong(format!("a row is refused: {error}"));
        }
    }
    Outcome::Accepted
}

/// A result is decoded as what it may be, and combined with itself.
fn results(bytes: &[u8]) -> Outcome {
    let mut merged = bytes.to_vec();
    let combined = merge(&mut merged, bytes);
    let known = Partials::decode(bytes).is_ok()
        || Ranks::decode(bytes).is_ok()
        || CellTotals::decode(bytes).is_ok()
        || GramResult::decode(bytes).is_ok()
        || Gram::default().part(bytes).is_ok();
    if combined.is_ok() && !known {
        return Outcome::Wrong("what is no result was combined".into());
    }
    if known { Outcome::Accepted } else { Outcome::Refused }
}
