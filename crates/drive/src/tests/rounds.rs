use super::*;
use datafusion::catalog::MemTable;
use datafusion::catalog::SchemaProvider;
use datafusion::catalog::memory::MemorySchemaProvider;
use datafusion::prelude::SessionContext;
use datafusion_substrait::logical_plan::producer::to_substrait_plan;
use pithead_functions::{EngineOptions, session_state};
use prost::Message;

/// A session that runs `sql` over the table `main.t`.
pub(super) async fn query(sql: &str, runs: &[&Run]) -> OpenRequest {
    let state = session_state(&EngineOptions::default());
    let tables = MemorySchemaProvider::new();
    let table = MemTable::try_new(schema(), vec![vec![]]).unwrap();
    tables.register_table("t".to_owned(), Arc::new(table)).unwrap();
    state.catalog_list().catalog("datafusion").unwrap().register_schema("main", Arc::new(tables)).unwrap();
    let context = SessionContext::new_with_state(state);
    let plan = context.state().create_logical_plan(sql).await.unwrap();
    let plan = context.state().optimize(&plan).unwrap();
    let bytes = to_substrait_plan(&plan, &context.state()).unwrap().encode_to_vec();
    let schema = Arc::new(plan.schema().as_arrow().clone());
    OpenRequest { plan: PlanBytes::Substrait(bytes.into()), schema, ..scan(runs) }
}

#[tokio::test]
async fn filters_run_at_the_drive() {
    let Rig { drive, directory: _directory } = rig();
    let made = load(&drive, 1, 95).await;
    let answer = run(&*drive, query("SELECT a FROM main.t WHERE a >= 42 AND b LIKE '%7'", &[&made]).await).await;
    assert_eq!(answer.values, [47, 57, 67, 77, 87]);
    assert_complete(&answer, 10);
    let skipped: u32 = answer.annotations.iter().map(|annotation| annotation.slices_skipped).sum();
    assert_eq!(skipped, 4);
}

#[tokio::test]
async fn partials_travel_as_one_round() {
    let Rig { drive, directory: _directory } = rig();
    let made = load(&drive, 1, 995).await;
    let answer = run(&*drive, query("SELECT sum(a), count(*) FROM main.t", &[&made]).await).await;
    assert_eq!(answer.values, [995 * 994 / 2]);
    assert_eq!(answer.annotations.len(), 1);
    assert_complete(&answer, 100);
}

#[tokio::test]
async fn groups_are_combined_over_rounds() {
    let Rig { drive, directory: _directory } = rig();
    let (first, second) = (load(&drive, 1, 500).await, load(&drive, 2, 500).await);
    let answer = run(&*drive, query("SELECT a % 7, min(b) FROM main.t GROUP BY a % 7", &[&first, &second]).await).await;
    assert_eq!(answer.values, [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(answer.annotations.len(), 1);
    assert_complete(&answer, 100);
}

#[tokio::test]
async fn the_first_rows_of_all_slices_come_once() {
    let Rig { drive, directory: _directory } = rig();
    let made = load(&drive, 1, 500).await;
    let answer = run(&*drive, query("SELECT a, b FROM main.t ORDER BY a DESC LIMIT 3", &[&made]).await).await;
    assert_eq!(answer.values, [497, 498, 499]);
    assert_complete(&answer, 50);
}

#[tokio::test]
async fn a_limit_stops_reading() {
    let Rig { drive, directory: _directory } = rig();
    let made = load(&drive, 1, 5_000).await;
    let answer = run(&*drive, query("SELECT a, b FROM main.t LIMIT 15", &[&made]).await).await;
    assert!(answer.values.len() >= 15);
    assert_complete(&answer, 500);
    let rows_in: u64 = answer.annotations.iter().map(|annotation| annotation.rows_in).sum();
    assert!(rows_in < 1_000, "{rows_in} rows were read for 15");
}

#[tokio::test]
async fn slices_that_are_ruled_out_are_answered_for() {
    let Rig { drive, directory: _directory } = rig();
    let made = load(&drive, 1, 50).await;
    let answer = run(&*drive, query("SELECT a FROM main.t WHERE a > 1000", &[&made]).await).await;
    assert_eq!(answer.values.len(), 0);
    assert_complete(&answer, 5);
    assert_eq!(answer.annotations.iter().map(|annotation| annotation.slices_skipped).sum::<u32>(), 5);
}

#[tokio::test]
async fn an_aggregate_over_nothing_has_a_row() {
    let Rig { drive, directory: _directory } = rig();
    let made = load(&drive, 1, 0).await;
    let answer = run(&*drive, query("SELECT count(*) FROM main.t", &[&made]).await).await;
    assert_eq!(answer.values, [0]);
    assert_complete(&answer, 0);
}

#[tokio::test]
async fn a_whole_partition_is_one_round() {
    let Rig { drive, directory: _directory } = rig();
    let made = load(&drive, 1, 500).await;
    let sql = "SELECT a % 100 AS k, count(*) FROM main.t GROUP BY k HAVING count(*) >= 5 AND k < 3";
    let answer = run(&*drive, OpenRequest { whole_partition: true, ..query(sql, &[&made]).await }).await;
    assert_eq!(answer.values, [0, 1, 2]);
    assert_eq!(answer.annotations.len(), 1);
    assert_complete(&answer, 50);
}

#[tokio::test]
async fn partials_that_outgrow_their_share_travel_in_several_rounds() {
    let Rig { drive, directory: _directory } = rig();
    let request = LoadRequest { slice_rows: 4_000, ..load_request(1) };
    let made = drive.load(request, batches(vec![Ok(batch(0..160_000))])).await.unwrap().run;
    let mut request = query("SELECT a, b, count(*) FROM main.t GROUP BY a, b", &[&made]).await;
    request.options.memory = 12 << 20;
    let answer = run(&*drive, request).await;
    assert_eq!(answer.values, (0..160_000).collect::<Vec<i64>>());
    assert!(answer.annotations.len() > 1);
    assert_complete(&answer, 40);
}

#[tokio::test]
async fn an_error_in_a_row_is_the_sessions_alone() {
    let Rig { drive, directory: _directory } = rig();
    let made = load(&drive, 1, 500).await;
    let request = query("SELECT a / (a - 250) FROM main.t", &[&made]).await;
    let session = open(&*drive, request).await.session;
    let ended = collect(drive.get(session).await.unwrap()).await;
    assert_eq!(ended.err().map(|fault| fault.blame), Some(Blame::User));
    drive.close(session).await.unwrap();
    assert_eq!(run(&*drive, scan(&[&made])).await.values.len(), 500);
    assert_eq!(drive.status().await.unwrap().memory_reserved, 0);
}

#[tokio::test]
async fn levels_below_the_whole_are_said_so() {
    let Rig { drive, directory: _directory } = rig();
    let made = load(&drive, 1, 50).await;
    let mut request = scan(&[&made]);
    request.options.level_max = Level::Bytes;
    let answer = run(&*drive, request).await;
    assert_eq!(answer.values.len(), 50);
    assert!(answer.annotations.iter().all(|annotation| annotation.level == Level::Bytes && annotation.cause.is_some()));
}

/// Run with `--nocapture` to see what the smallest session costs.
#[tokio::test]
async fn small_sessions_leave_nothing_behind() {
    let Rig { drive, directory: _directory } = rig();
    let made = load(&drive, 1, 5).await;
    let aggregate = query("SELECT sum(a) FROM main.t WHERE a < 3", &[&made]).await;
    for request in [scan(&[&made]), aggregate] {
        let mut steps = [Duration::ZERO; 3];
        let rounds = 200;
        for _ in 0..rounds {
            let request = request.clone();
            let start = std::time::Instant::now();
            let session = open(&*drive, request).await.session;
            let opened = start.elapsed();
            collect(drive.get(session).await.unwrap()).await.unwrap();
            let got = start.elapsed();
            drive.close(session).await.unwrap();
            let closed = start.elapsed();
            for (step, took) in steps.iter_mut().zip([opened, got - opened, closed - got]) {
                *step += took / rounds;
            }
        }
        println!("OPEN, GET, CLOSE: {steps:?}");
        let status = drive.status().await.unwrap();
        assert_eq!((status.sessions, status.memory_reserved), (0, 0));
    }
}
