//! How fast a scan is; run by hand.

use std::time::Instant;

use super::*;

/// Rows that compress no better than TPC-H's do: no order, no runs.
fn noise(first: i64, count: i64) -> RecordBatch {
    let mix = |row: i64, salt: u64| ((row as u64 ^ (salt << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24) as i64;
    let at = first..first + count;
    let text = |row: i64| format!("{:x} item {} of {}", mix(row, 5), mix(row, 6) % 50, mix(row, 7) % 1_000);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("k", Arc::new(Int64Array::from_iter_values(at.clone().map(|row| mix(row, 1) % 2_000_000)))),
        ("i", Arc::new(Int32Array::from_iter_values(at.clone().map(|row| (mix(row, 2) % 50) as i32)))),
        ("f", Arc::new(Float64Array::from_iter_values(at.clone().map(|row| (mix(row, 3) % 100_000) as f64 / 100.0)))),
        (
            "d",
            Arc::new(
                Decimal128Array::from_iter_values(at.clone().map(|row| i128::from(mix(row, 4) % 10_000_000)))
                    .with_precision_and_scale(15, 2)
                    .unwrap(),
            ),
        ),
        ("t", Arc::new(StringViewArray::from_iter_values(at.clone().map(text)))),
        ("day", Arc::new(Date32Array::from_iter_values(at.map(|row| 8_000 + (mix(row, 8) % 2_526) as i32)))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

#[tokio::test]
#[ignore = "a measurement"]
async fn filtered_sum_of_a_million_rows() {
    for encoding in ENCODINGS {
        let slices: Vec<RecordBatch> = (0..4).map(|slice| noise(slice * 262_144, 262_144)).collect();
        let lab = Arc::new(Lab::new(encoding).dataset("t", &slices[0].schema(), slices));
        for sql in [
            "SELECT sum(d) FROM main.t WHERE day BETWEEN DATE '1994-01-01' AND DATE '1994-12-31' AND i < 24 AND d < 50000",
            "SELECT sum(k) FROM main.t WHERE i < 24",
            "SELECT sum(k) FROM main.t",
            "SELECT i, sum(d), count(*) FROM main.t GROUP BY i",
            "SELECT count(*) FROM main.t WHERE t LIKE '%item 17 of%'",
        ] {
            let (plan, schema) = lab.sub_plan(sql).await;
            let mut seconds = Vec::new();
            for _ in 0..7 {
                let start = Instant::now();
                let bound = Bound::bind(lab.request(plan.clone(), Arc::clone(&schema), How::default())).await.unwrap();
                let mut round = bound.round(usize::MAX).await.unwrap();
                while let Some(batch) = round.stream.next().await {
                    batch.unwrap();
                }
                seconds.push(start.elapsed().as_secs_f64());
            }
            seconds.sort_by(f64::total_cmp);
            println!("{encoding}: {:.1} million rows a second: {sql}", 1.048576 / seconds[3]);
        }
    }
}

#[tokio::test]
#[ignore = "a measurement"]
async fn smallest_session() {
    let lab = Arc::new(Lab::new("vortex").dataset("t", &rows(0, 1).schema(), vec![rows(0, 100)]));
    let (plan, schema) = lab.sub_plan("SELECT i, sum(d) FROM main.t WHERE k < 50 GROUP BY i").await;
    let (mut bind, mut round) = (Vec::new(), Vec::new());
    for _ in 0..101 {
        let start = Instant::now();
        let bound = Bound::bind(lab.request(plan.clone(), Arc::clone(&schema), How::default())).await.unwrap();
        bind.push(start.elapsed().as_micros());
        let start = Instant::now();
        bound.round(1).await.unwrap().stream.try_collect::<Vec<RecordBatch>>().await.unwrap();
        round.push(start.elapsed().as_micros());
    }
    bind.sort_unstable();
    round.sort_unstable();
    println!("bind {} us, round {} us", bind[50], round[50]);
}

#[tokio::test]
#[ignore = "a measurement"]
async fn joins() {
    let slices: Vec<RecordBatch> = (0..4).map(|slice| noise(slice * 262_144, 262_144)).collect();
    let other: Vec<RecordBatch> = (0..1).map(|slice| noise(slice * 262_144, 262_144)).collect();
    let schema = slices[0].schema();
    let lab = Arc::new(Lab::new("vortex").dataset("t", &schema, slices).dataset("o", &schema, other));
    for sql in [
        "SELECT t.k, t.d, t.t FROM main.t JOIN main.o ON t.k = o.k WHERE o.i = 5 AND o.f < 10.0",
        "SELECT t.k, t.d, t.t FROM main.t JOIN main.o ON t.k = o.k WHERE o.i = 5",
        "SELECT t.k, t.d, o.f FROM main.t JOIN main.o ON t.i = o.i WHERE o.k < 50",
        "SELECT t.k, t.d, t.t FROM main.t ORDER BY d DESC, k LIMIT 10",
    ] {
        let (plan, schema) = lab.sub_plan(sql).await;
        let mut seconds = Vec::new();
        for _ in 0..7 {
            let start = Instant::now();
            let bound = Bound::bind(lab.request(plan.clone(), Arc::clone(&schema), How::default())).await.unwrap();
            bound.round(usize::MAX).await.unwrap().stream.try_collect::<Vec<RecordBatch>>().await.unwrap();
            seconds.push(start.elapsed().as_secs_f64());
        }
        seconds.sort_by(f64::total_cmp);
        println!("{:.1} million rows a second: {sql}", 1.048576 / seconds[3]);
    }
}
