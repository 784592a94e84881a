//! Rounds over parts of the slices, and their outputs put together.

use datafusion::execution::runtime_env::RuntimeEnvBuilder;

use super::*;

const PARTIALS: &[&str] = &[
    "SELECT count(*), count(i), sum(k), min(t), max(day) FROM main.t",
    "SELECT i, count(*), sum(d), min(f), max(f) FROM main.t GROUP BY i",
    "SELECT i, b, sum(k) FROM main.t WHERE t LIKE '%item 1%' GROUP BY i, b",
    "SELECT count(*) FROM main.t WHERE k < 0",
    "SELECT sum(k), min(k) FROM main.t WHERE k < 0",
    "SELECT t FROM main.t GROUP BY t",
    "SELECT DISTINCT i, b FROM main.t",
    "SELECT bool_and(b), bool_or(b), bit_and(k), bit_or(k), bit_xor(k) FROM main.t",
    "SELECT count(*) FILTER (WHERE b), sum(k) FILTER (WHERE i > 50) FROM main.t",
];

#[tokio::test]
async fn partials_of_several_rounds_make_one() {
    for encoding in ENCODINGS {
        let lab = lab(encoding);
        for sql in PARTIALS {
            let several = lab.same(sql, How::default()).await;
            assert_eq!(several.shape, ResultShape::Partials, "{sql}");
            lab.same(sql, How { slices_max: 2, ..How::default() }).await;
            let one = lab.same(sql, How { slices_max: usize::MAX, ..How::default() }).await;
            assert_eq!(one.rounds.len(), 1);
        }
    }
}

#[tokio::test]
async fn moments_of_several_rounds_make_one() {
    let lab = lab("vortex");
    let of_mean = |mean: &str| {
        format!("SELECT i, count(d2), {mean}, var_pop(d2) FROM (SELECT i, CAST(k AS DOUBLE) / 7 AS d2 FROM main.t) GROUP BY i")
    };
    let text = |sql: &str| format!("SELECT i, round(m * 1e6), round(v * 1e3) FROM ({sql}) AS x(i, c, m, v)");
    let rounds = lab.run(&of_mean("pithead_merge_mean(1, d2)"), How::default()).await.unwrap();
    assert_eq!((rounds.shape, rounds.rounds.len()), (ResultShape::Partials, 3));
    let table = MemTable::try_new(rounds.rows[0].schema(), vec![rounds.rows]).unwrap();
    let context = SessionContext::new();
    context.register_table("merged", Arc::new(table)).unwrap();
    let merged = context.sql(&text("SELECT * FROM merged")).await.unwrap().collect().await.unwrap();
    assert_eq!(bag(&merged), bag(&lab.judge(&text(&of_mean("avg(d2)"))).await));
}

#[tokio::test]
async fn first_rows_of_several_rounds_make_the_first_rows() {
    for encoding in ENCODINGS {
        let lab = lab(encoding);
        for sql in [
            "SELECT d, k, t FROM main.t ORDER BY d DESC NULLS LAST, k LIMIT 7",
            "SELECT k, t FROM main.t WHERE i = 3 ORDER BY k DESC LIMIT 3",
            "SELECT k, i FROM main.t ORDER BY i NULLS FIRST, k LIMIT 20",
        ] {
            let ran = lab.same(sql, How::default()).await;
            assert_eq!(ran.shape, ResultShape::TopK, "{sql}");
        }
    }
}

#[tokio::test]
async fn a_whole_partition_is_one_round() {
    for encoding in ENCODINGS {
        let lab = lab(encoding);
        let how = How { whole_partition: true, ..How::default() };
        for sql in [
            "SELECT i, sum(k) AS s FROM main.t GROUP BY i HAVING sum(k) > 17000000",
            "SELECT i, count(DISTINCT t), avg(d) FROM main.t GROUP BY i ORDER BY 2 DESC, 1 LIMIT 5",
            "SELECT a.k FROM main.t a WHERE a.k IN (SELECT max(k) FROM main.t GROUP BY i)",
            "SELECT k, row_number() OVER (PARTITION BY i ORDER BY k) AS n FROM main.t WHERE k < 500",
        ] {
            let ran = lab.same(sql, how).await;
            assert_eq!((ran.rounds.len(), ran.rounds[0].slices.len()), (1, 3), "{sql}");
        }
    }
}

#[tokio::test]
async fn a_limit_stops_reading() {
    for encoding in ENCODINGS {
        let lab = lab(encoding);
        let ran =
            lab.run("SELECT k, t FROM main.t WHERE i = 3 LIMIT 10", How { slices_max: 3, ..How::default() }).await.unwrap();
        assert_eq!((total_rows(&ran.rows), ran.opened, ran.shape), (10, 1, ResultShape::Limit(10)));
        assert!(ran.rounds[0].pages_read <= 1, "{:?}", ran.rounds);
    }
}

#[tokio::test]
async fn an_empty_partition_has_one_round() {
    let schema = rows(0, 1).schema();
    let lab = Arc::new(Lab::new("vortex").dataset("t", &schema, vec![]));
    for sql in ["SELECT count(*), sum(k) FROM main.t", "SELECT k FROM main.t", "SELECT i, count(*) FROM main.t GROUP BY i"] {
        let ran = lab.same(sql, How::default()).await;
        assert_eq!((ran.rounds.len(), ran.rounds[0].slices.len()), (1, 0));
    }
}

#[tokio::test]
async fn rounds_side_by_side_share_the_queue() {
    let slices: Vec<RecordBatch> = (0..40).map(|slice| rows(slice * 100, 100)).collect();
    let lab = Arc::new(Lab::new("arrow").dataset("t", &slices[0].schema(), slices));
    let (plan, schema) = lab.sub_plan("SELECT k FROM main.t").await;
    let bound = Bound::bind(lab.request(plan, schema, How::default())).await.unwrap();
    assert_eq!(bound.slices_total(), 40);
    let mut rounds = Vec::new();
    for _ in 0..3 {
        rounds.push(bound.round(20).await.unwrap());
    }
    let mut seen = Vec::new();
    while !bound.queue_is_empty() {
        for round in &mut rounds {
            seen.extend(round.stream.next().await.map(Result::unwrap));
        }
    }
    let mut slices = Vec::new();
    for mut round in rounds {
        while let Some(batch) = round.stream.next().await {
            seen.push(batch.unwrap());
        }
        slices.extend(round.finish().slices);
    }
    slices.sort_unstable();
    assert_eq!(slices, (0..40).collect::<Vec<u32>>());
    assert_eq!(total_rows(&seen), 4_000);
}

#[tokio::test]
async fn slices_that_are_done_are_left_out() {
    let slices: Vec<RecordBatch> = (0..10).map(|slice| rows(slice * 100, 100)).collect();
    let lab = Arc::new(Lab::new("arrow").dataset("t", &slices[0].schema(), slices));
    // The other scan of the same dataset reads the whole partition all the same.
    let sql = "SELECT k FROM main.t WHERE k IN (SELECT k FROM main.t)";
    let (plan, schema) = lab.sub_plan(sql).await;
    let done = vec![SliceSpan { first: 0, count: 3 }, SliceSpan { first: 8, count: 7 }];
    let how = How { zone_maps: false, ..How::default() };
    let bound = Bound::bind(BindRequest { done, ..lab.request(plan, schema, how) }).await.unwrap();
    assert_eq!((bound.slices_total(), bound.slices_left().collect::<Vec<u32>>()), (10, (3..8).collect()));
    let mut round = bound.round(usize::MAX).await.unwrap();
    let rows: Vec<RecordBatch> = (&mut round.stream).try_collect().await.unwrap();
    let stats = round.finish();
    assert_eq!((total_rows(&rows), stats.slices), (500, (3..8).collect()));
    assert!(bound.queue_is_empty());
    let reads = bound.reads();
    assert_eq!((reads.len(), reads[0].slices), (1, 15));
    assert_eq!(reads[0].bytes, stats.medium_bytes + stats.other_medium_bytes);
    assert_eq!(bag(&rows), bag(&lab.judge("SELECT k FROM main.t WHERE k >= 300 AND k < 800").await));
}

#[tokio::test]
async fn plain_scans_need_no_substrait() {
    let lab = lab("vortex");
    let schema = Arc::new(rows(0, 1).schema().project(&[4, 0]).unwrap());
    let plan = |columns: &[&str]| PlanBytes::Scan {
        dataset: "t".parse().unwrap(),
        columns: columns.iter().map(|column| (*column).to_owned()).collect(),
    };
    let request = lab.request(plan(&["t", "k"]), Arc::clone(&schema), How::default());
    let bound = Bound::bind(request).await.unwrap();
    let mut round = bound.round(usize::MAX).await.unwrap();
    let batches: Vec<RecordBatch> = (&mut round.stream).try_collect().await.unwrap();
    assert_eq!(bag(&batches), bag(&lab.judge("SELECT t, k FROM main.t").await));

    let fault = Bound::bind(lab.request(plan(&["t", "kk"]), schema, How::default())).await.unwrap_err();
    assert!(fault.message.contains("no column kk in main.t; near: k"), "{fault}");
}

#[tokio::test]
async fn what_does_not_fit_is_named() {
    let lab = lab("arrow");
    let (plan, schema) = lab.sub_plan("SELECT k, i FROM main.t").await;
    let narrow = Arc::new(schema.project(&[0]).unwrap());
    let fault = Bound::bind(lab.request(plan.clone(), narrow, How::default())).await.unwrap_err();
    assert!(fault.message.contains("gives 2 columns, expected 1"), "{fault}");
    let swapped = Arc::new(schema.project(&[1, 0]).unwrap());
    let fault = Bound::bind(lab.request(plan.clone(), swapped, How::default())).await.unwrap_err();
    assert!(fault.message.contains("column 0 (i) of the sub-plan is Int64, expected Int32"), "{fault}");

    let other = Arc::new(Lab::new("arrow").dataset("u", &rows(0, 1).schema(), vec![rows(0, 10)]));
    let fault = Bound::bind(other.request(plan, schema, How::default())).await.unwrap_err();
    assert!(fault.message.contains("main.u"), "{fault}");
}

#[tokio::test]
async fn errors_of_rows_are_the_users() {
    let lab = lab("vortex");
    for (sql, what) in [
        ("SELECT sum(k * 100000000000000) FROM main.t", "overflow in sum"),
        ("SELECT 1 / (k - 30000) FROM main.t", "zero"),
        ("SELECT CAST(t AS INT) FROM main.t", "Cannot cast"),
    ] {
        let fault = lab.run(sql, How { slices_max: 9, ..How::default() }).await.err().unwrap();
        assert!(fault.message.contains(what), "{fault}");
        assert_eq!(fault.blame, pithead_model::Blame::User);
    }
}

#[tokio::test]
async fn work_over_its_memory_spills_or_says_so() {
    let lab = lab("vortex");
    let how = How { whole_partition: true, ..How::default() };
    let run = async |sql: &str, bytes: usize| {
        let (plan, schema) = lab.sub_plan(sql).await;
        let runtime = RuntimeEnvBuilder::new().with_memory_limit(bytes, 1.0).build_arc().unwrap();
        let bound = Bound::bind(BindRequest { runtime, ..lab.request(plan, schema, how) }).await?;
        let round = bound.round(usize::MAX).await?;
        round.stream.try_collect::<Vec<RecordBatch>>().await.map_err(fault_from_datafusion)
    };
    let sql = "SELECT k, min(t) FROM main.t GROUP BY k";
    let spilled = run(sql, 4 << 20).await.unwrap();
    assert_eq!(bag(&spilled), bag(&lab.judge(sql).await));
    let fault = run("SELECT count(DISTINCT k), count(DISTINCT t) FROM main.t", 64 << 10).await.unwrap_err();
    assert_eq!(fault.blame, pithead_model::Blame::Limit, "{fault}");
    assert!(fault.hint.is_some());
}

#[tokio::test]
async fn few_groups_are_those_that_the_engine_finds() {
    for encoding in ENCODINGS {
        let lab = lab(encoding);
        for sql in [
            "SELECT t, count(*), sum(d), min(k), max(day) FROM main.t GROUP BY t",
            "SELECT b, t, count(i) FILTER (WHERE k % 2 = 0), sum(i) FROM main.t WHERE i < 50 GROUP BY b, t",
            "SELECT t, i, count(*) FROM main.t WHERE i < 3 GROUP BY t, i",
            "SELECT t, count(DISTINCT i), max(f) FROM main.t GROUP BY t",
            "SELECT t FROM main.t GROUP BY t",
            "SELECT t, count(*) FROM main.t WHERE k < 0 GROUP BY t",
            "SELECT t, sum(n) FROM (SELECT t, i, count(*) AS n FROM main.t GROUP BY t, i) GROUP BY t HAVING sum(n) > 3",
        ] {
            lab.same(sql, How { slices_max: usize::MAX, ..How::default() }).await;
        }
    }
}
