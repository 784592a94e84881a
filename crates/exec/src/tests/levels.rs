//! Slices that are taken to other levels and finished elsewhere: the same rows.

use std::collections::BTreeMap;

use super::*;

const QUERIES: &[&str] = &[
    "SELECT count(*), sum(k), min(t) FROM main.t WHERE i > 50",
    "SELECT i, count(*), sum(d) FROM main.t WHERE t LIKE '%item 1%' GROUP BY i",
    "SELECT i, b, max(f) FROM main.t GROUP BY i, b",
    "SELECT k + 1, t FROM main.t WHERE k % 1000 = 7",
    "SELECT d, k FROM main.t WHERE i = 3 ORDER BY d DESC NULLS LAST, k LIMIT 7",
    // Bounds rule out all slices but one.
    "SELECT count(*), sum(i) FROM main.t WHERE k >= 45000",
    "SELECT t.b, sum(t.k) FROM main.t AS t JOIN \"/input\".small AS s ON t.i = s.i GROUP BY t.b",
];

fn small() -> RecordBatch {
    let values: Vec<i32> = (0..40).step_by(3).collect();
    RecordBatch::try_from_iter([("i", Arc::new(Int32Array::from(values)) as ArrayRef)]).unwrap()
}

fn two_of_three(encoding: &'static str) -> Arc<Lab> {
    let slices: Vec<RecordBatch> = (0..3).map(|slice| rows(slice * 20_000, 20_000)).collect();
    Arc::new(Lab::new(encoding).dataset("t", &slices[0].schema(), slices).input("small", small()))
}

async fn drain(mut round: crate::RunningRound) -> (Vec<RecordBatch>, RoundStats) {
    let mut rows = Vec::new();
    while let Some(batch) = round.stream.next().await {
        rows.push(batch.unwrap());
    }
    (rows, round.finish())
}

#[tokio::test]
async fn a_slice_whole_one_filtered_and_one_as_stored_make_the_answer() {
    for encoding in ["vortex", "arrow"] {
        let lab = two_of_three(encoding);
        for sql in QUERIES {
            let (plan, schema) = lab.sub_plan(sql).await;
            let below = Bound::bind(lab.request(plan.clone(), Arc::clone(&schema), How::default())).await.unwrap();
            let above = Bound::bind(lab.request(plan, schema, How::default())).await.unwrap();
            assert!(below.can_carry(), "{sql}");
            let carried = below.carry().unwrap();
            assert_eq!(carried.slice.ordinal, 2);
            let mut rows = Vec::new();
            if carried.may_match {
                let (batches, stats) = drain(above.round_over(vec![carried.slice]).await.unwrap()).await;
                assert_eq!(stats.slices, [2], "{sql}");
                rows.extend(batches);
            }
            if below.can_filter() {
                let (batches, stats) = drain(below.filter_round(1).await.unwrap()).await;
                assert_eq!(stats.scan.rows as usize, total_rows(&batches), "{sql}");
                let first = lab.parts[0].slices[0].clone();
                let handed = SliceRef { filtered: Some(batches.into()), ..first };
                rows.extend(drain(above.round_over(vec![handed]).await.unwrap()).await.0);
            }
            while !below.queue_is_empty() {
                rows.extend(drain(below.round(1).await.unwrap()).await.0);
            }
            let answer: Vec<RecordBatch> = below.combine(rows).await.unwrap().try_collect().await.unwrap();
            assert_eq!(bag(&answer), bag(&lab.judge(sql).await), "{encoding} {sql}");
        }
    }
}

#[tokio::test]
async fn what_waits_is_counted_without_what_bounds_rule_out() {
    let lab = two_of_three("vortex");
    let (plan, schema) = lab.sub_plan("SELECT count(*) FROM main.t WHERE k >= 45000").await;
    let held = vec![SliceSpan { first: 2, count: 1 }];
    let bound = Bound::bind(BindRequest { held, ..lab.request(plan, schema, How::default()) }).await.unwrap();
    let waiting = bound.waiting();
    assert_eq!((waiting.slices, waiting.held, waiting.rows), (1, 1, 20_000));
    let features = bound.features(Some((1.0, 8.0)), &BTreeMap::new()).unwrap();
    assert_eq!((features.rows, features.functions, features.result_rows), (20_000.0, 1.0, 1.0));
    let carried = bound.carry().unwrap();
    assert!(carried.held && carried.may_match);
    assert_eq!(bound.waiting().slices, 0);
    assert!(!bound.carry().unwrap().may_match && !bound.queue_is_empty());
}

#[tokio::test]
async fn what_is_only_filtered_and_what_reads_all_for_each_slice_is_not_split() {
    let lab = two_of_three("vortex");
    let bound = |sql: &'static str| {
        let lab = Arc::clone(&lab);
        async move {
            let (plan, schema) = lab.sub_plan(sql).await;
            Bound::bind(lab.request(plan, schema, How::default())).await.unwrap()
        }
    };
    let rows = bound("SELECT k, t FROM main.t WHERE i = 3").await;
    assert!(rows.can_carry() && !rows.can_filter());
    let counted = bound("SELECT count(*) FROM main.t").await;
    assert!(counted.can_carry() && !counted.can_filter());
    let with_itself = bound("SELECT count(*) FROM main.t AS x JOIN main.t AS y ON x.k = y.k + 20000").await;
    assert!(!with_itself.can_carry() && !with_itself.can_filter());
}

#[tokio::test]
async fn filtered_rows_of_other_types_are_refused() {
    let lab = two_of_three("vortex");
    let (plan, schema) = lab.sub_plan("SELECT sum(k) FROM main.t WHERE i > 50").await;
    let bound = Bound::bind(lab.request(plan, schema, How::default())).await.unwrap();
    let foreign: Vec<ArrayRef> = vec![Arc::new(Int32Array::from(vec![1])), Arc::new(Float64Array::from(vec![1.0]))];
    for (name, column) in ["k", "other"].into_iter().zip(foreign) {
        let batch = RecordBatch::try_from_iter([(name, column)]).unwrap();
        let handed = SliceRef { filtered: Some(vec![batch].into()), ..lab.parts[0].slices[0].clone() };
        let mut round = bound.round_over(vec![handed]).await.unwrap();
        assert!(round.stream.next().await.unwrap().is_err(), "{name}");
    }
}

/// A host's view of a slice at level 1: the parts that were sent.
fn came(lab: &Lab, slice: &SliceRef, hinted: &crate::Hinted) -> SliceRef {
    let parts = pithead_slice::SliceParts { parts: hinted.parts.parts.clone(), ..hinted.parts.clone() };
    let reader = pithead_slice::open_parts(&lab.parts[0].schema, parts, hinted.pages.as_bytes()).unwrap();
    assert_eq!(reader.rows_of(&hinted.pages), hinted.rows);
    SliceRef { came: Some(reader), ..slice.clone() }
}

#[tokio::test]
async fn pages_that_may_match_make_the_same_answer_elsewhere() {
    for encoding in ["vortex", "arrow"] {
        let lab = two_of_three(encoding);
        for sql in QUERIES {
            for search in [false, true] {
                let (plan, schema) = lab.sub_plan(sql).await;
                let below = Bound::bind(lab.request(plan.clone(), Arc::clone(&schema), How::default())).await.unwrap();
                let above = Bound::bind(lab.request(plan, schema, How::default())).await.unwrap();
                let mut rows = Vec::new();
                while let Some(carried) = below.carry() {
                    let hinted = below.hint(&carried.slice, search).await.unwrap();
                    assert!(hinted.bounded_bytes >= hinted.parts.bytes());
                    if carried.may_match && !hinted.pages.is_empty() {
                        let slice = came(&lab, &carried.slice, &hinted);
                        rows.extend(drain(above.round_over(vec![slice]).await.unwrap()).await.0);
                    }
                }
                let answer: Vec<RecordBatch> = below.combine(rows).await.unwrap().try_collect().await.unwrap();
                assert_eq!(bag(&answer), bag(&lab.judge(sql).await), "{encoding} {sql}");
            }
        }
    }
}

#[tokio::test]
async fn bounds_rule_pages_out_and_a_search_rules_out_more() {
    let word = |n: i64| if (9_000..9_005).contains(&n) { "quartz" } else { "granite" };
    let texts: ArrayRef =
        Arc::new(StringViewArray::from_iter_values((0..20_000).map(|n| format!("{} {}", word(n), n * 7 % 999))));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..20_000));
    let batch = RecordBatch::try_from_iter([("n", numbers), ("t", texts)]).unwrap();
    for encoding in ENCODINGS {
        let lab = Arc::new(Lab::new(encoding).dataset("t", &batch.schema(), vec![batch.clone()]));
        let pages_of = |sql: &'static str, search: bool| {
            let lab = Arc::clone(&lab);
            async move {
                let (plan, schema) = lab.sub_plan(sql).await;
                let bound = Bound::bind(lab.request(plan, schema, How::default())).await.unwrap();
                let hinted = bound.hint(&lab.parts[0].slices[0], search).await.unwrap();
                (hinted.pages.iter().collect::<Vec<_>>(), hinted.pages_searched)
            }
        };
        assert_eq!(pages_of("SELECT count(*), max(t) FROM main.t WHERE n >= 17000", false).await, (vec![2], 0));
        let rare = "SELECT count(*), sum(n) FROM main.t WHERE t LIKE '%quartz%'";
        assert_eq!(pages_of(rare, false).await, (vec![0, 1, 2], 0), "{encoding}");
        assert_eq!(pages_of(rare, true).await, (vec![1], 3), "{encoding}");
        let both = "SELECT sum(n) FROM main.t WHERE t LIKE '%quartz%' AND n < 5000 AND n % 7 = 1";
        assert_eq!(pages_of(both, true).await, (vec![], 1), "{encoding}");
        // What slices do not understand is left to the host.
        assert_eq!(pages_of("SELECT count(*) FROM main.t WHERE n % 1000 = 7", true).await, (vec![0, 1, 2], 0));
    }
}
