//! Joins of the driving dataset with co-partitioned datasets and with tables that were sent along.

use super::*;

fn keys(name: &str, keys: impl IntoIterator<Item = i64>) -> RecordBatch {
    let keys: Int64Array = keys.into_iter().collect();
    let names: StringViewArray = keys.values().iter().map(|key| Some(format!("{name} {key}"))).collect();
    RecordBatch::try_from_iter([("key", Arc::new(keys) as ArrayRef), ("name", Arc::new(names) as ArrayRef)]).unwrap()
}

fn join_lab(encoding: &'static str) -> Arc<Lab> {
    let slices: Vec<RecordBatch> = (0..3).map(|slice| rows(slice * 20_000, 20_000)).collect();
    let other: Vec<RecordBatch> = (0..2).map(|slice| rows(slice * 15_000 + 10_000, 15_000)).collect();
    let lab = Lab::new(encoding)
        .dataset("t", &slices[0].schema(), slices)
        .dataset("o", &other[0].schema(), other)
        .input("few", keys("few", (30_000..30_040).step_by(2)))
        .input("nothing", keys("nothing", []));
    Arc::new(lab)
}

const BY_SLICE: &[&str] = &[
    "SELECT t.k, few.name FROM main.t JOIN \"/input\".few ON t.k = few.key",
    "SELECT t.k, o.i FROM main.t JOIN main.o ON t.k = o.k WHERE t.i = 4 AND o.b",
    "SELECT t.k, o.d FROM main.t LEFT JOIN main.o ON t.k = o.k AND o.i > 50 WHERE t.k % 100 = 0",
    "SELECT t.k FROM main.t WHERE t.k IN (SELECT key FROM \"/input\".few)",
    "SELECT x.k FROM main.t AS x WHERE x.k < 12000 AND NOT EXISTS (SELECT 1 FROM main.o WHERE o.k = x.k)",
    "SELECT t.k, nothing.name FROM main.t JOIN \"/input\".nothing ON t.k = nothing.key",
    "SELECT a.k, b.i FROM main.t a JOIN main.t b ON a.k = b.k WHERE b.i = 9 AND a.k < 25000",
    "SELECT count(*), sum(o.k) FROM main.t JOIN main.o ON t.k = o.k",
];

#[tokio::test]
async fn joins_by_slice_give_the_rows_that_the_engine_gives() {
    for encoding in ENCODINGS {
        let lab = join_lab(encoding);
        for sql in BY_SLICE {
            lab.same(sql, How::default()).await;
            lab.same(sql, How { slices_max: usize::MAX, batch_rows: 1000, ..How::default() }).await;
        }
    }
}

#[tokio::test]
async fn whole_partitions_join_in_any_way() {
    for encoding in ENCODINGS {
        let lab = join_lab(encoding);
        let how = How { whole_partition: true, ..How::default() };
        for sql in [
            "SELECT t.k, o.k FROM main.t FULL JOIN main.o ON t.k = o.k AND t.i = 3",
            "SELECT count(*) FROM main.t, \"/input\".few WHERE t.k > few.key",
            "SELECT o.k FROM main.t RIGHT JOIN main.o ON t.k = o.k AND t.b WHERE t.k IS NULL",
        ] {
            lab.same(sql, how).await;
        }
    }
}

#[tokio::test]
async fn keys_of_a_join_keep_slices_and_pages_from_being_read() {
    for encoding in ENCODINGS {
        let lab = join_lab(encoding);
        let ran = lab.same(BY_SLICE[0], How { slices_max: usize::MAX, ..How::default() }).await;
        let round = &ran.rounds[0];
        assert_eq!((round.slices.len(), round.slices_skipped), (3, 2), "{encoding}: {round:?}");
        assert_eq!((round.pages_read, round.pages_skipped), (1, 2), "{encoding}: {round:?}");
    }
}

/// More keys than the engine makes a list of, far from each other.
#[tokio::test]
async fn many_keys_of_a_join_keep_rows_from_being_decoded() {
    let lab = Lab::new("vortex")
        .dataset("t", &rows(0, 1).schema(), vec![rows(0, 60_000)])
        .input("many", keys("many", (0..60_000).step_by(7)))
        .input("all", keys("all", 0..60_000));
    let lab = Arc::new(lab);
    let how = How { slices_max: usize::MAX, ..How::default() };
    let texts = |table: &str| format!("SELECT t.t, t.k, j.name FROM main.t JOIN \"/input\".{table} AS j ON t.k = j.key");
    let few = lab.same(&texts("many"), how).await;
    assert_eq!(few.rounds[0].scan.rows, 60_000_u64.div_ceil(7));
    let all = lab.same(&texts("all"), how).await;
    assert_eq!(all.rounds[0].scan.rows, 60_000);
    for sql in [
        "SELECT m.key, t.i FROM \"/input\".many AS m LEFT JOIN main.t ON t.k = m.key AND t.i > 90",
        "SELECT t.k FROM main.t WHERE t.k NOT IN (SELECT key FROM \"/input\".many)",
        "SELECT t.k FROM main.t WHERE EXISTS (SELECT 1 FROM \"/input\".many AS m WHERE m.key = t.k AND m.name > 'many 5')",
        "SELECT count(*) FROM main.t FULL JOIN \"/input\".many AS m ON t.k = m.key",
        "SELECT count(*), sum(t.k) FROM main.t JOIN \"/input\".many AS m ON t.k = m.key AND t.i = m.key % 100",
        "SELECT count(*) FROM main.t JOIN \"/input\".many AS m ON t.i IS NOT DISTINCT FROM nullif(m.key % 100, 7)",
    ] {
        lab.same(sql, How { whole_partition: true, ..how }).await;
    }
}

/// The other datasets joined have no row, which no bounds tell, but the host knows: then no slice of the driving one is read.
#[tokio::test]
async fn keys_of_a_join_of_joins_keep_slices_from_being_read() {
    for encoding in ENCODINGS {
        let other: Vec<RecordBatch> = (0..2).map(|slice| rows(slice * 15_000 + 10_000, 15_000)).collect();
        let slices: Vec<RecordBatch> = (0..3).map(|slice| rows(slice * 20_000, 20_000)).collect();
        let lab = Lab::new(encoding)
            .dataset("t", &slices[0].schema(), slices)
            .dataset("o", &other[0].schema(), other.clone())
            .dataset("m", &other[0].schema(), other)
            .passing("o", 0.0);
        let lab = Arc::new(lab);
        let sql = "SELECT t.k, o.i FROM main.o JOIN main.m ON o.k = m.k JOIN main.t ON t.k = o.k \
                   WHERE o.i * 2 = 1001 AND t.t LIKE '%item%'";
        let ran = lab.same(sql, How { slices_max: usize::MAX, ..How::default() }).await;
        let round = &ran.rounds[0];
        assert_eq!((round.pages_read, round.medium_bytes), (0, 0), "{encoding}: {round:?}");
        assert!(round.other_rows_in > 0, "{encoding}: {round:?}");
    }
}

#[tokio::test]
async fn other_datasets_are_accounted_apart() {
    let lab = join_lab("vortex");
    let ran = lab.same(BY_SLICE[1], How { slices_max: usize::MAX, ..How::default() }).await;
    assert_eq!(ran.rounds[0].other_rows_in, 30_000);
    assert!(ran.rounds[0].other_medium_bytes > 0);
}
