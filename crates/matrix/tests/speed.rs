//! A measurement to run by hand: `cargo test --release -p pithead-matrix --test speed -- --ignored --nocapture`.

use std::time::Instant;

use pithead_matrix::{Accumulate, Cells, CellsSpec, Codec, Method, Partials, RankSums, Row, Test, Values};

#[test]
#[ignore = "a measurement"]
fn what_a_value_costs() {
    let n_cells = 100_000_usize;
    let mut seed = 1_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    let genes: Vec<(Vec<u32>, Vec<u32>)> = (0..200)
        .map(|_| {
            let cells: Vec<u32> = (0..n_cells as u32).filter(|_| random() % 100 < 7).collect();
            let counts = cells.iter().map(|_| 1 + (random() % 64).trailing_zeros()).collect();
            (cells, counts)
        })
        .collect();
    let values: usize = genes.iter().map(|(cells, _)| cells.len()).sum();
    let spec = CellsSpec {
        n_cells,
        n_groups: 20,
        codes: (0..n_cells).map(|_| (random() % 20) as u16).collect(),
        totals: (0..n_cells).map(|_| 2_000.0 + (random() % 4_000) as f64).collect(),
        target_sum: 1e4,
        log1p: true,
        ..CellsSpec::default()
    };
    let started = Instant::now();
    let bytes = spec.encode().unwrap();
    println!("cells: {} bytes, {:?}", bytes.len(), started.elapsed());
    let started = Instant::now();
    let cells = Cells::decode(&bytes).unwrap();
    println!("decoded in {:?}", started.elapsed());
    for codec in [Codec::None, Codec::Zstd] {
        let started = Instant::now();
        let rows: Vec<Vec<u8>> = genes
            .iter()
            .map(|(cells, counts)| {
                let mut bytes = Vec::new();
                Row { n_cells, cells, values: Values::Counts(counts) }.encode(codec, &mut bytes);
                bytes
            })
            .collect();
        let each = |elapsed: std::time::Duration| elapsed.as_nanos() as f64 / values as f64;
        let stored = rows.iter().map(Vec::len).sum::<usize>() as f64 / values as f64;
        println!("{codec:?}: {stored:.2} bytes, encoded in {:.2} ns a value", each(started.elapsed()));
        let started = Instant::now();
        let mut row = pithead_matrix::RowBuffer::default();
        rows.iter().for_each(|bytes| row.decode(bytes).unwrap());
        println!("  decoded in {:.2} ns", each(started.elapsed()));
        let started = Instant::now();
        let (mut accumulate, mut out) = (Accumulate::default(), Vec::new());
        rows.iter().for_each(|bytes| accumulate.row(bytes, &cells, &mut out).unwrap());
        println!("  accumulated in {:.2} ns, {} bytes a gene", each(started.elapsed()), out.len() / rows.len());
        let started = Instant::now();
        let (mut ranks, mut out) = (RankSums::default(), Vec::new());
        rows.iter().for_each(|bytes| ranks.row(bytes, &cells, &mut out).unwrap());
        println!("  ranked in {:.2} ns", each(started.elapsed()));
    }
    let mut out = Vec::new();
    let mut bytes = Vec::new();
    Row { n_cells, cells: &genes[0].0, values: Values::Counts(&genes[0].1) }.encode(Codec::None, &mut bytes);
    Accumulate::default().row(&bytes, &cells, &mut out).unwrap();
    let test = Test {
        method: Method::Welch,
        groups: (0..20).collect(),
        reference: None,
        fold_change: Default::default(),
        base: None,
        tie_correct: false,
    };
    let started = Instant::now();
    let mut outcomes = Vec::new();
    for _ in 0..20_000 {
        outcomes.clear();
        test.run(&Partials::decode(&out).unwrap(), None, &mut outcomes).unwrap();
    }
    println!("20,000 genes × 20 groups tested in {:?}", started.elapsed());
}
