//! How fast a scan is; run by hand.

use std::time::Instant;

use super::*;

#[tokio::test]
#[ignore = "a measurement"]
async fn filtered_sum_of_a_million_rows() {
    for encoding in ENCODINGS {
        let slices: Vec<RecordBatch> = (0..4).map(|slice| rows(slice * 262_144, 262_144)).collect();
        let lab = Arc::new(Lab::new(encoding).dataset("t", &slices[0].schema(), slices));
        for sql in [
            "SELECT sum(d) FROM main.t WHERE day < DATE '1980-01-01' AND i < 24 AND f BETWEEN 5.0 AND 70.0",
            "SELECT sum(k) FROM main.t WHERE i < 24",
            "SELECT sum(k) FROM main.t",
            "SELECT i, sum(d), count(*) FROM main.t GROUP BY i",
            "SELECT count(*) FROM main.t WHERE t LIKE '%long one item 1%'",
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
    let slices: Vec<RecordBatch> = (0..4).map(|slice| rows(slice * 262_144, 262_144)).collect();
    let other: Vec<RecordBatch> = (0..1).map(|slice| rows(slice * 262_144, 262_144)).collect();
    let schema = slices[0].schema();
    let lab = Arc::new(Lab::new("vortex").dataset("t", &schema, slices).dataset("o", &schema, other));
    for sql in [
        "SELECT t.k, t.d, o.t FROM main.t JOIN main.o ON t.k = o.k WHERE o.i = 5 AND o.f < 0.0",
        "SELECT t.k, t.d, o.t FROM main.t JOIN main.o ON t.i = o.i WHERE o.k < 50",
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
