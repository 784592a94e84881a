//! Sub-plans that were read before, over the tables of another session.

use arrow::array::StructArray;
use arrow::datatypes::{DataType, Field};

use super::*;
use crate::output_schema;

fn keys(from: i64, count: i64) -> RecordBatch {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(from..from + count));
    RecordBatch::try_from_iter([("k", keys)]).unwrap()
}

fn lab_of(from: i64, sent: i64) -> Arc<Lab> {
    let schema = keys(0, 1).schema();
    let slices = vec![keys(from, 10), keys(from + 10, 10)];
    Arc::new(Lab::new("arrow").dataset("t", &schema, slices).input("s", keys(sent, 5)))
}

#[tokio::test]
async fn a_plan_that_was_kept_reads_the_tables_of_its_own_session() {
    let sub_plans = [
        "SELECT sum(k), count(*) FROM main.t WHERE k >= 0",
        "SELECT k FROM main.t WHERE k % 2 = 0",
        "SELECT t.k FROM main.t JOIN \"/input\".s ON t.k = s.k",
        "SELECT a.k FROM main.t AS a JOIN main.t AS b ON a.k = b.k + 10",
    ];
    for (from, sent) in [(0, 3), (100, 90), (5, 5), (0, 3), (-20, -1)] {
        let lab = lab_of(from, sent);
        for sql in sub_plans {
            for slices_max in [1, 2] {
                lab.same(sql, How { slices_max, ..How::default() }).await;
            }
        }
    }
}

#[tokio::test]
async fn plans_that_differ_in_a_constant_a_name_or_a_zone_are_not_the_same() {
    let lab = lab_of(0, 3);
    for limit in 0..12 {
        lab.same(&format!("SELECT count(*) FROM main.t WHERE k < {limit}"), How::default()).await;
        lab.same(&format!("SELECT k - (k + {limit}) AS a, k - k + {limit} AS b FROM main.t"), How::default()).await;
    }
    let sql = "SELECT CAST(CAST('2024-01-01 00:00:00' AS TIMESTAMP) AS TIMESTAMP WITH TIME ZONE) AS x FROM main.t";
    let (plan, schema) = lab.sub_plan(sql).await;
    let mut seen = Vec::new();
    for zone in [None, Some("Asia/Tokyo"), Some("America/Lima"), None] {
        let request = lab.request(plan.clone(), Arc::clone(&schema), How::default());
        let bound = Bound::bind(BindRequest { time_zone: zone.map(str::to_owned), ..request }).await;
        seen.push(bound.map(|bound| bound.plan_text()).map_err(|fault| fault.message));
    }
    assert_eq!(seen[0], seen[3]);
}

/// A regression: a drive refused sub-plans whose outputs were fields that the host's optimiser had extracted.
#[tokio::test]
async fn an_output_may_have_the_name_of_what_the_optimiser_extracts() {
    let keys = keys(0, 10);
    let fields = StructArray::from(vec![(Arc::new(Field::new("a", DataType::Int64, true)), Arc::clone(keys.column(0)))]);
    let columns = [("k", Arc::clone(keys.column(0))), ("s", Arc::new(fields) as ArrayRef)];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let schema = batch.schema();
    let lab = Arc::new(Lab::new("arrow").dataset("t", &schema, vec![batch.clone(), batch]));
    let sql = |names: [&str; 2]| {
        format!(
            "SELECT a.k, a.s['a'] AS \"{}\", b.s['a'] AS \"{}\" FROM main.t a FULL JOIN main.t b ON a.k = b.k + 3",
            names[0], names[1]
        )
    };
    let expected = bag(&lab.judge(&sql(["x", "y"])).await);
    let (one, two) = ("__datafusion_extracted_1", "__datafusion_extracted_2");
    for names in [[one, "y"], ["x", one], [two, one]] {
        let (plan, schema) = sent_as_it_is(&lab, &sql(names)).await;
        let how = How { whole_partition: true, ..How::default() };
        let bound = Bound::bind(lab.request(plan, schema, how)).await.unwrap();
        let mut round = bound.round(usize::MAX).await.unwrap();
        let rows: Vec<RecordBatch> = (&mut round.stream).try_collect().await.unwrap();
        assert_eq!(rows.first().map(|rows| rows.schema().field(1).name().clone()).as_deref(), Some(names[0]));
        assert_eq!(bag(&rows), expected, "{names:?}");
    }
}

/// A regression: a cast of a column was taken for the column of the same table that is read again, and left out.
#[tokio::test]
async fn a_cast_is_told_from_the_column_of_the_same_table() {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10));
    let narrow: ArrayRef = Arc::new(Int32Array::from_iter_values((0..10).map(|id| (id * 7) % 10)));
    let batch = RecordBatch::try_from_iter([("id", ids), ("k", narrow)]).unwrap();
    let schema = batch.schema();
    let lab = Arc::new(Lab::new("arrow").dataset("t", &schema, vec![batch.slice(0, 6), batch.slice(6, 4)]));
    let condition = "(b.k + 1 > 3 OR a.cast_k % 3 = 0) AND (b.k + 1 < 9 OR a.cast_k % 3 = 1)";
    let casts = [
        "SELECT CAST(k AS BIGINT) AS cast_k FROM main.t WHERE id > 2",
        "SELECT CAST(k AS BIGINT) AS cast_k, count(*) AS n FROM main.t GROUP BY 1",
    ];
    for cast in casts {
        let sql = format!("SELECT a.cast_k, b.id FROM ({cast}) a RIGHT JOIN main.t b ON a.cast_k = b.id WHERE {condition}");
        let expected = bag(&lab.judge(&sql).await);
        let (plan, schema) = sent_as_it_is(&lab, &sql).await;
        let how = How { whole_partition: true, ..How::default() };
        let bound = Bound::bind(lab.request(plan, schema, how)).await.unwrap();
        let mut round = bound.round(usize::MAX).await.unwrap();
        let rows: Vec<RecordBatch> = (&mut round.stream).try_collect().await.unwrap();
        assert_eq!(bag(&rows), expected, "{cast}");
    }
}

/// What gives another value another time is read anew each time.
#[tokio::test]
async fn what_hangs_on_the_moment_is_not_kept() {
    let lab = lab_of(0, 3);
    let (plan, schema) = sent_as_it_is(&lab, "SELECT CAST(now() AS VARCHAR) AS x FROM main.t").await;
    let mut moments = Vec::new();
    for _ in 0..2 {
        let bound = Bound::bind(lab.request(plan.clone(), Arc::clone(&schema), How::default())).await.unwrap();
        let mut round = bound.round(usize::MAX).await.unwrap();
        let rows: Vec<RecordBatch> = (&mut round.stream).try_collect().await.unwrap();
        moments.push(bag(&rows));
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    assert_ne!(moments[0], moments[1]);
}

/// A regression: a drive was asked for the columns of a plan as another engine had parsed it, and its rows had others.
#[tokio::test]
async fn the_columns_of_a_foreign_plan_are_those_of_its_rows() {
    let lab = lab_of(0, 3);
    for x in ["now()", "date_trunc('month', DATE '2024-02-03')", "k + 1.5"] {
        let (plan, _) = sent_as_it_is(&lab, &format!("SELECT {x} AS x FROM main.t")).await;
        let PlanBytes::Substrait(bytes) = &plan else { panic!("a plan is sent") };
        let part = &lab.parts[0];
        let schema = output_schema(bytes, &part.name, &part.schema, Registry::own()).await.unwrap();
        assert_eq!(schema.field(0).name(), "x");
        let how = How { whole_partition: true, ..How::default() };
        let bound = Bound::bind(lab.request(plan.clone(), schema, how)).await.unwrap_or_else(|fault| panic!("{x}: {fault}"));
        let mut round = bound.round(usize::MAX).await.unwrap();
        let rows: Vec<RecordBatch> = (&mut round.stream).try_collect().await.unwrap();
        assert!(rows.iter().map(RecordBatch::num_rows).sum::<usize>() > 0, "{x}");
    }
}

/// A plan that was not optimised before it was sent.
async fn sent_as_it_is(lab: &Lab, sql: &str) -> (PlanBytes, SchemaRef) {
    let state = lab.tables(true).state();
    let plan = state.create_logical_plan(sql).await.unwrap();
    let bytes = to_substrait_plan(&plan, &state).unwrap().encode_to_vec();
    (PlanBytes::Substrait(bytes.into()), Arc::new(plan.schema().as_arrow().clone()))
}
