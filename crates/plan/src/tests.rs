//! The cut on TPC-H-like datasets.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{CatalogProvider, MemoryCatalogProvider, MemorySchemaProvider, SchemaProvider};
use datafusion::datasource::empty::EmptyTable;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{LogicalPlan, TableScan};
use pithead_functions::{EngineOptions, session_state};
use pithead_model::{ColumnSummary, Dataset, DatasetId, DatasetName, DriveId, LoadId, Partition, Partitioning, Run, Value};

use crate::{
    BeforeJoins, Catalogue, CutOptions, DatasetFacts, Decomposer, Decomposition, Reduced, Travelling, order_joins,
    reduce_by_joins,
};

#[derive(Debug, Default)]
struct Tables {
    facts: BTreeMap<String, Arc<DatasetFacts>>,
    /// A function that the drives do not have.
    lacking: Option<&'static str>,
}

impl Catalogue for Tables {
    fn facts(&self, scan: &TableScan) -> Option<Arc<DatasetFacts>> {
        self.facts.get(scan.table_name.table()).cloned()
    }

    fn lacking(&self, _: &DatasetFacts, function: &str) -> Option<String> {
        self.lacking.filter(|lacking| *lacking == function).map(|_| "drive-7".to_owned())
    }
}

const DECIMAL: DataType = DataType::Decimal128(15, 2);

fn dataset(name: &str, key: &str, rows: u64, columns: &[(&str, DataType, u64)]) -> Arc<DatasetFacts> {
    let fields: Vec<Field> = columns.iter().map(|(name, data_type, _)| Field::new(*name, data_type.clone(), true)).collect();
    let summary = |(_, data_type, distinct): &(&str, DataType, u64)| {
        let numeric = !matches!(data_type, DataType::Utf8View);
        let bound = |value: i128| numeric.then_some(Value::Int(value));
        let first = if *data_type == DataType::Date32 { 8036 } else { 1 };
        ColumnSummary {
            min: bound(first),
            max: bound(first + i128::from(*distinct)),
            exact: true,
            distinct: *distinct,
            ..ColumnSummary::default()
        }
    };
    let columns: Vec<ColumnSummary> = columns.iter().map(summary).collect();
    let partition = |i: u64| Partition {
        copies: vec![DriveId(i)],
        runs: vec![Run { load: LoadId(i), slices: 2, rows: rows / 4, bytes: rows }],
        columns: columns.clone(),
    };
    let dataset = Dataset {
        id: DatasetId(1),
        schema: Arc::new(Schema::new(fields)),
        metadata: BTreeMap::new(),
        partitioning: if key.is_empty() {
            Partitioning::RoundRobin
        } else {
            Partitioning::Hash { columns: vec![key.to_owned()] }
        },
        sort: vec![],
        encoding: "vortex".into(),
        slice_rows: 1000,
        slice_bytes: None,
        copies: 1,
        merged: 0,
        partitions: (0..4).map(partition).collect(),
    };
    let name = DatasetName::new("main", name).unwrap();
    Arc::new(DatasetFacts { name, dataset: Arc::new(dataset), columns, manifest_version: 1, rest: None })
}

fn tables() -> Tables {
    use DataType::{Date32, Int32, Int64, Utf8View};
    let orders = [
        ("o_orderkey", Int64, 1_500_000),
        ("o_custkey", Int64, 100_000),
        ("o_orderstatus", Utf8View, 3),
        ("o_totalprice", DECIMAL, 1_000_000),
        ("o_orderdate", Date32, 2406),
        ("o_orderpriority", Utf8View, 5),
        ("o_clerk", Utf8View, 1000),
        ("o_shippriority", Int32, 1),
        ("o_comment", Utf8View, 1_500_000),
    ];
    let lineitem = [
        ("l_orderkey", Int64, 1_500_000),
        ("l_partkey", Int64, 200_000),
        ("l_suppkey", Int64, 10_000),
        ("l_linenumber", Int32, 7),
        ("l_quantity", DECIMAL, 50),
        ("l_extendedprice", DECIMAL, 900_000),
        ("l_discount", DECIMAL, 11),
        ("l_tax", DECIMAL, 9),
        ("l_returnflag", Utf8View, 3),
        ("l_linestatus", Utf8View, 2),
        ("l_shipdate", Date32, 2526),
        ("l_commitdate", Date32, 2466),
        ("l_receiptdate", Date32, 2554),
        ("l_shipinstruct", Utf8View, 4),
        ("l_shipmode", Utf8View, 7),
        ("l_comment", Utf8View, 4_500_000),
    ];
    let customer = [
        ("c_custkey", Int64, 150_000),
        ("c_name", Utf8View, 150_000),
        ("c_address", Utf8View, 150_000),
        ("c_nationkey", Int64, 25),
        ("c_phone", Utf8View, 150_000),
        ("c_acctbal", DECIMAL, 140_000),
        ("c_mktsegment", Utf8View, 5),
        ("c_comment", Utf8View, 150_000),
    ];
    let part = [
        ("p_partkey", Int64, 200_000),
        ("p_name", Utf8View, 200_000),
        ("p_mfgr", Utf8View, 5),
        ("p_brand", Utf8View, 25),
        ("p_type", Utf8View, 150),
        ("p_size", Int32, 50),
        ("p_container", Utf8View, 40),
        ("p_retailprice", DECIMAL, 20_000),
        ("p_comment", Utf8View, 130_000),
    ];
    let partsupp = [
        ("ps_partkey", Int64, 200_000),
        ("ps_suppkey", Int64, 10_000),
        ("ps_availqty", Int32, 9999),
        ("ps_supplycost", DECIMAL, 99_000),
        ("ps_comment", Utf8View, 800_000),
    ];
    let supplier = [
        ("s_suppkey", Int64, 10_000),
        ("s_name", Utf8View, 10_000),
        ("s_address", Utf8View, 10_000),
        ("s_nationkey", Int64, 25),
        ("s_phone", Utf8View, 10_000),
        ("s_acctbal", DECIMAL, 10_000),
        ("s_comment", Utf8View, 10_000),
    ];
    let nation = [("n_nationkey", Int64, 25), ("n_name", Utf8View, 25), ("n_regionkey", Int64, 5), ("n_comment", Utf8View, 25)];
    let region = [("r_regionkey", Int64, 5), ("r_name", Utf8View, 5), ("r_comment", Utf8View, 5)];
    let all = [
        dataset("orders", "o_orderkey", 1_500_000, &orders),
        dataset("lineitem", "l_orderkey", 6_000_000, &lineitem),
        dataset("customer", "c_custkey", 150_000, &customer),
        dataset("part", "p_partkey", 200_000, &part),
        dataset("partsupp", "ps_partkey", 800_000, &partsupp),
        dataset("supplier", "s_suppkey", 10_000, &supplier),
        dataset("nation", "n_nationkey", 25, &nation),
        dataset("region", "", 5, &region),
    ];
    Tables { facts: all.into_iter().map(|facts| (facts.name.dataset.clone(), facts)).collect(), lacking: None }
}

fn state_with(tables: &Tables) -> SessionState {
    let state = session_state(&EngineOptions::default());
    let schema = MemorySchemaProvider::new();
    for (name, facts) in &tables.facts {
        let provider: SchemaRef = Arc::clone(&facts.dataset.schema);
        schema.register_table(name.clone(), Arc::new(EmptyTable::new(provider))).unwrap();
    }
    let catalog = MemoryCatalogProvider::new();
    catalog.register_schema("public", Arc::new(schema)).unwrap();
    state.catalog_list().register_catalog("datafusion".into(), Arc::new(catalog));
    state
}

async fn cut(sql: &str, options: &CutOptions) -> Decomposition {
    cut_over(&tables(), sql, options).await
}

async fn cut_over(tables: &Tables, sql: &str, options: &CutOptions) -> Decomposition {
    let state = state_with(tables);
    let plan = state.create_logical_plan(sql).await.unwrap();
    let plan = state.optimize(&plan).unwrap();
    Decomposer::new(tables, &state).cut(&plan, options).await.unwrap()
}

#[tokio::test]
async fn what_drives_lack_stays_at_the_host() {
    const MERGE: &str = "pithead_merge_mean/1";
    let sql =
        "SELECT o_orderkey, pithead_merge_mean(o_custkey, o_totalprice::double) FROM orders WHERE o_custkey > 7 GROUP BY 1";
    let cut_by = async |lacking| {
        let cut = cut_over(&Tables { lacking, ..tables() }, sql, &CutOptions::default()).await;
        let reason = cut.reasons.values().cloned().collect::<Vec<_>>().join("; ");
        (top(&cut.super_plan), cut.sub_plans[0].extensions.clone(), reason)
    };
    let (host, extensions, _) = cut_by(None).await;
    assert!(!host.contains("Aggregate"), "{host}");
    assert_eq!(extensions, [MERGE]);
    let (host, extensions, reason) = cut_by(Some(MERGE)).await;
    assert!(host.contains("Aggregate") && !host.contains("Filter"), "{host}");
    assert!(extensions.is_empty(), "{extensions:?}");
    assert!(reason.contains("drive-7 does not have the function pithead_merge_mean/1"), "{reason}");
}

fn top(plan: &LogicalPlan) -> String {
    plan.display_indent().to_string()
}

async fn pushed(sql: &str) -> (Decomposition, String) {
    let cut = cut(sql, &CutOptions::default()).await;
    let text = cut.sub_plans.iter().map(|sub_plan| top(&sub_plan.plan)).collect::<Vec<_>>().join("\n--\n");
    (cut, text)
}

#[tokio::test]
async fn filters_and_partial_aggregates_go_down() {
    let (cut, text) =
        pushed("select l_returnflag, avg(l_quantity), count(*) from lineitem where l_shipdate < date '1998-09-02' group by 1")
            .await;
    assert_eq!(cut.sub_plans.len(), 1);
    assert!(text.contains("Aggregate") && text.contains("Filter") && text.contains("sum("), "{text}");
    assert!(!cut.sub_plans[0].whole_partition);
    assert!(matches!(cut.sub_plans[0].travelling, Travelling::Substrait(_)));
}

#[tokio::test]
async fn parts_of_several_aggregates_are_one_part() {
    let sql = "select l_shipmode, mode(l_linenumber), entropy(l_linenumber), histogram(l_linenumber), skewness(l_tax::double), \
               kurtosis(l_tax::double), kurtosis_pop(l_tax::double), product(l_linenumber) from lineitem group by 1";
    let (cut, text) = pushed(sql).await;
    let called = |text: &str| ["pithead_counted(", "pithead_powers(", "product("].map(|name| text.matches(name).count());
    assert_eq!(called(&text), [1, 1, 1], "{text}");
    assert_eq!(cut.sub_plans[0].extensions, ["pithead_counted/1", "pithead_powers/1", "product/1"]);
    assert!(matches!(cut.sub_plans[0].travelling, Travelling::Substrait(_)));
    let host = top(&cut.super_plan);
    for merge in ["pithead_merge_counted(", "pithead_merge_powers("] {
        assert_eq!(host.matches(merge).count(), 1, "{merge} in {host}");
    }
    for finish in ["pithead_mode_of(", "pithead_entropy_of(", "pithead_histogram_of(", "pithead_skewness_of("] {
        assert!(host.contains(finish), "{finish} in {host}");
    }
    for sql in [
        "select percentile_disc(l_tax, 0.5), mad(l_linenumber) from lineitem",
        "select l_shipmode, mode(l_comment) from lineitem group by 1",
        "select entropy(l_comment) from lineitem",
    ] {
        let (_, text) = pushed(sql).await;
        assert!(!text.contains("Aggregate"), "{sql}: {text}");
    }
}

#[tokio::test]
async fn parts_and_results_of_values_and_counts_have_their_types_at_drives() {
    for sql in [
        "select l_shipmode, mode(l_shipinstruct), skewness(l_tax::double) from lineitem group by 1",
        "select l_orderkey, histogram(l_shipmode), quantile_disc(l_shipmode, 0.5), mad(l_tax) from lineitem group by 1 \
         having count(*) > 7",
    ] {
        let tables = tables();
        let (cut, _) = pushed(sql).await;
        let sub_plan = &cut.sub_plans[0];
        let Travelling::Substrait(bytes) = &sub_plan.travelling else { panic!("{sql}") };
        let state = state_with(&tables);
        let catalog = state.catalog_list().catalog("datafusion").unwrap();
        catalog.register_schema("main", catalog.schema("public").unwrap()).unwrap();
        let read = crate::consume(bytes, &state).await.unwrap();
        let types = |schema: &Schema| schema.fields().iter().map(|field| field.data_type().clone()).collect::<Vec<_>>();
        assert_eq!(types(read.schema().as_arrow()), types(&sub_plan.schema), "{sql}");
        assert!(top(&read).contains("Aggregate"), "{}", top(&read));
    }
}

#[tokio::test]
async fn functions_of_one_row_travel() {
    for (condition, function) in [
        ("hex(l_comment) like '61%'", "hex/1"),
        ("bin(l_linenumber) = '101'", "bin/1"),
        ("jaccard(l_comment, l_shipmode) > 0.5", "jaccard/1"),
        ("hamming(l_returnflag, l_linestatus) = 1", "hamming/1"),
        ("bit_count(l_linenumber) = 2", "bit_count/1"),
        ("make_timestamp(l_partkey) > timestamp '1970-01-02'", "make_timestamp/1"),
        ("len(regexp_extract_all(l_comment, '[a-z]+', 0)) > 3", "regexp_extract_all/1"),
        ("len(string_split_regex(l_comment, ' +')) > 3", "string_split_regex/1"),
        ("list_median([l_linenumber, 3]) > 2", "list_aggregate/1"),
        ("list_unique([l_partkey, l_suppkey]) = 1", "list_unique/1"),
    ] {
        let (cut, text) = pushed(&format!("select l_orderkey from lineitem where {condition}")).await;
        assert!(text.contains("Filter"), "{condition}: {text}");
        assert_eq!(cut.sub_plans[0].extensions, [function], "{condition}");
        assert!(matches!(cut.sub_plans[0].travelling, Travelling::Substrait(_)));
    }
    let (cut, text) = pushed("select count(*) from lineitem where century(l_shipdate) = 20").await;
    assert!(text.contains("Filter") && cut.sub_plans[0].extensions.is_empty(), "{text}");
}

#[tokio::test]
async fn groups_on_the_partition_key_are_complete_at_the_drive() {
    let (cut, text) = pushed("select l_orderkey from lineitem group by l_orderkey having sum(l_quantity) > 300").await;
    assert!(cut.sub_plans[0].whole_partition);
    assert!(text.trim_start().starts_with("Projection") || text.contains("Filter: sum"), "{text}");
}

#[tokio::test]
async fn co_partitioned_joins_and_small_sides_go_down() {
    let sql = "select o_orderpriority, count(*) from orders, lineitem, customer \
               where o_orderkey = l_orderkey and c_custkey = o_custkey and c_mktsegment = 'BUILDING' group by 1";
    let (cut, text) = pushed(sql).await;
    assert_eq!(cut.sub_plans.len(), 1, "{}", top(&cut.super_plan));
    assert_eq!(cut.sub_plans[0].inputs.len(), 1);
    assert_eq!(text.matches("Join").count(), 2, "{text}");
}

#[tokio::test]
async fn a_join_at_the_host_tells_what_keeps_each_side_from_the_others_drives() {
    let reasons = async |sql: &str| cut(sql, &CutOptions::default()).await.reasons.into_values().collect::<Vec<_>>().join("; ");
    let outer = reasons("select c_name, n_name from customer full join nation on c_nationkey = n_nationkey").await;
    assert!(outer.contains("a row without a match at one drive may have one at another"), "{outer}");
    let large = reasons("select * from lineitem join orders on l_comment = o_comment").await;
    assert!(large.contains("neither is small enough to ship"), "{large}");
    let sums = "select c_nationkey, c_mktsegment, sum(c_acctbal) as total from customer group by 1, 2";
    let dear = reasons(&format!("select n_name, total from nation join ({sums}) on n_nationkey = c_nationkey")).await;
    assert!(dear.contains("is made at the host, and to ship the"), "{dear}");
    assert!(!dear.contains("small enough") && !dear.contains("partitioned alike"), "{dear}");
}

#[tokio::test]
async fn pushdown_off_sends_columns_and_keeps_zone_maps() {
    let options = CutOptions { pushdown: false, ..CutOptions::default() };
    let cut = cut("select sum(l_tax) from lineitem where l_shipdate < date '1994-01-01'", &options).await;
    let text = top(&cut.sub_plans[0].plan);
    assert!(text.starts_with("Filter"), "{text}");
    assert_eq!(cut.sub_plans[0].schema.fields().len(), 2);
    assert!(top(&cut.super_plan).contains("Filter"), "the host filters again");
}

#[tokio::test]
async fn not_in_and_volatile_functions_stay() {
    let (_, text) = pushed("select * from nation where n_regionkey not in (select r_regionkey from region)").await;
    assert!(!text.contains("Join"), "{text}");
    let (_, text) = pushed("select n_name from nation where n_nationkey > random() * 10 and n_regionkey = 1").await;
    assert!(text.contains("n_regionkey = ") && !text.contains("random"), "{text}");
}

#[tokio::test]
async fn variance_travels_as_moments() {
    let (_, text) = pushed("select l_shipmode, stddev(l_quantity), var_pop(l_tax) from lineitem group by 1").await;
    assert!(text.contains("var_pop(") && !text.contains("stddev("), "{text}");
}

#[tokio::test]
async fn top_k_runs_at_both() {
    let (cut, text) = pushed("select o_orderkey from orders order by o_totalprice desc limit 10").await;
    assert!(text.contains("fetch=10"), "{text}");
    assert!(top(&cut.super_plan).contains("fetch=10"));
}

/// Every one of the 22 queries is cut, and each sub-plan survives Substrait.
#[tokio::test]
async fn tpch_survives_the_wire() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/queries");
    for number in 1..=22 {
        let sql = std::fs::read_to_string(folder.join(format!("q{number:02}.sql"))).unwrap();
        let (cut, text) = pushed(sql.trim().trim_end_matches(';')).await;
        println!("==== Q{number}\n{}\n{text}\n{:?}\n", top(&cut.super_plan), cut.reasons);
        assert!(cut.reasons.values().all(|reason| !reason.contains("Substrait")), "Q{number}: {:?}", cut.reasons);
        assert!(cut.sub_plans.iter().all(|sub_plan| matches!(sub_plan.travelling, Travelling::Substrait(_))), "Q{number}");
    }
}

/// A query with its joins in order and its sides reduced.
async fn reduced(sql: &str) -> (LogicalPlan, Reduced) {
    let tables = tables();
    let state = state_with(&tables);
    let plan = state.create_logical_plan(sql).await.unwrap();
    let plan = state.optimize(&plan).unwrap();
    let options = CutOptions::default();
    let ordered = order_joins(&plan, &tables, &state, &options).unwrap();
    assert_eq!(plan.schema(), ordered.schema(), "{sql}");
    let reduced = reduce_by_joins(&ordered, &tables, &state, &options).unwrap();
    assert_eq!(plan.schema(), reduced.plan.schema(), "{sql}");
    (ordered, reduced)
}

/// The bytes that the cut expects the sub-plans of a plan to send.
async fn link_bytes(plan: &LogicalPlan) -> f64 {
    let tables = tables();
    let state = state_with(&tables);
    let cut = Decomposer::new(&tables, &state).cut(plan, &CutOptions::default()).await.unwrap();
    cut.sub_plans.iter().map(|sub_plan| sub_plan.estimate.bytes()).sum()
}

#[tokio::test]
async fn a_join_that_drives_can_run_comes_first() {
    let sql = include_str!("../../bench/queries/q09.sql");
    let (ordered, _) = reduced(sql.trim().trim_end_matches(';')).await;
    let text = top(&ordered);
    // The parts reduce the lines first, which drives then join with their orders.
    let (parts, orders) =
        ("Inner Join: part.p_partkey = lineitem.l_partkey\n", "Inner Join: lineitem.l_orderkey = orders.o_orderkey\n");
    let (parts, orders) = (text.find(parts), text.find(orders));
    assert!(orders.is_some() && orders < parts, "what is below comes later: {text}");
    // No condition names parts beside their suppliers: the equality follows from what each has in common with lines.
    assert!(text.contains("part.p_partkey = partsupp.ps_partkey\n"), "{text}");
}

#[tokio::test]
async fn a_semi_join_goes_where_its_keys_are() {
    let sql = "select c_name, o_totalprice from customer, orders, lineitem \
               where c_custkey = o_custkey and o_orderkey = l_orderkey \
               and o_orderkey in (select l_orderkey from lineitem group by l_orderkey having sum(l_quantity) > 300)";
    let (ordered, _) = reduced(sql).await;
    let text = top(&ordered);
    let (semi, customers) = (text.find("LeftSemi").unwrap(), text.find("TableScan: customer").unwrap());
    let above = &text[..semi];
    assert!(above.contains("Inner Join") && (customers < semi || text[semi..].contains("TableScan: orders")), "{text}");
}

#[tokio::test]
async fn keys_of_a_small_side_go_below_an_aggregate() {
    let sql = "select sum(l_extendedprice) from lineitem, part where p_partkey = l_partkey and p_brand = 'Brand#23' \
               and p_container = 'MED BOX' and l_quantity < (select 0.2 * avg(l_quantity) from lineitem where l_partkey = p_partkey)";
    let (ordered, reduced) = reduced(sql).await;
    assert_eq!(reduced.first.len(), 1, "{}", top(&reduced.plan));
    let text = top(&reduced.plan);
    let aggregate = text.find("Aggregate: groupBy=[[lineitem.l_partkey]]").unwrap();
    assert!(text[aggregate..].contains("LeftSemi Join: lineitem.l_partkey = \0keys_"), "{text}");
    let (before, after) = (link_bytes(&ordered).await, link_bytes(&reduced.plan).await);
    assert!(after * 20.0 < before, "{before} -> {after}");
}

#[tokio::test]
async fn rows_that_show_without_a_match_are_not_reduced() {
    let joins = [
        "select c_name, o_totalprice from orders left join customer on c_custkey = o_custkey and c_name = 'x'",
        "select c_name, o_totalprice from (select * from customer where c_name = 'x') c full join orders on c_custkey = o_custkey",
        "select o_totalprice from orders where o_custkey not in (select c_custkey from customer where c_name = 'x')",
    ];
    for sql in joins {
        let (_, reduced) = reduced(sql).await;
        assert!(reduced.first.is_empty(), "{sql}\n{}", top(&reduced.plan));
    }
}

/// With the order and the reductions that were found, every one of the 22 queries survives the wire, and none is
/// expected to send notably more.
#[tokio::test]
async fn tpch_is_ordered_and_reduced() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/queries");
    let mut all = (0.0, 0.0);
    for number in 1..=22 {
        let sql = std::fs::read_to_string(folder.join(format!("q{number:02}.sql"))).unwrap();
        let sql = sql.trim().trim_end_matches(';');
        let (_, reduced) = reduced(sql).await;
        let before = cut(sql, &CutOptions::default()).await;
        let before: f64 = before.sub_plans.iter().map(|sub_plan| sub_plan.estimate.bytes()).sum();
        let after = link_bytes(&reduced.plan).await;
        assert!(after < before + 2e6, "Q{number}: {before} -> {after}");
        all = (all.0 + before, all.1 + after);
    }
    assert!(all.1 * 4.0 < all.0, "{all:?}");
}

#[tokio::test]
async fn equal_columns_of_one_relation_stay_equal() {
    let sql = "select 1 from lineitem, partsupp, orders where l_suppkey = ps_suppkey and l_partkey = ps_suppkey and o_orderkey = l_orderkey";
    let (ordered, _) = reduced(sql).await;
    let text = top(&ordered);
    let within = ["lineitem.l_suppkey = lineitem.l_partkey", "lineitem.l_partkey = lineitem.l_suppkey"];
    assert!(within.iter().any(|condition| text.contains(condition)), "{text}");
}

/// An equality of two columns of one side is no key of an outer join.
#[tokio::test]
async fn a_condition_on_one_side_is_read_as_one() {
    let sql = "select o_orderkey, l_tax from orders left join lineitem \
               on o_orderkey = l_orderkey and o_orderkey = o_custkey and o_custkey = l_suppkey";
    let (cut, text) = pushed(sql).await;
    let sub_plan = &cut.sub_plans[0];
    let Travelling::Substrait(bytes) = &sub_plan.travelling else { panic!("{text}") };
    let state = session_state(&EngineOptions::default());
    let main = Arc::new(MemorySchemaProvider::new());
    for facts in &sub_plan.datasets {
        let table = Arc::new(EmptyTable::new(Arc::clone(&facts.dataset.schema)));
        main.register_table(facts.name.dataset.clone(), table).unwrap();
    }
    state.catalog_list().catalog("datafusion").unwrap().register_schema("main", main).unwrap();
    let read = state.optimize(&crate::consume(bytes, &state).await.unwrap()).unwrap();
    let text = top(&read);
    assert!(text.contains("o_orderkey = main.lineitem.l_orderkey, "), "{text}");
    assert!(text.contains("Filter: main.orders.o_orderkey = main.orders.o_custkey"), "{text}");
}

#[tokio::test]
async fn few_groups_have_a_sum_far_above_the_mean() {
    let (cut, text) = pushed("select l_orderkey from lineitem group by l_orderkey having sum(l_quantity) > 3.00").await;
    let rows = cut.sub_plans[0].estimate.rows;
    assert!((1.0..30_000.0).contains(&rows), "{rows} of 1.5 million\n{text}");
    let (cut, _) = pushed("select l_orderkey from lineitem group by l_orderkey having sum(l_quantity) > 0.10").await;
    assert!(cut.sub_plans[0].estimate.rows > 1e6, "{:?}", cut.sub_plans[0].estimate.rows);
}

/// Orders by customer: a customer's orders are on all drives, so the join is at the host; orders are counted before they travel.
const ORDERS_BY_CUSTOMER: &str = "select c_custkey, count(o_orderkey) from customer left join orders on c_custkey = o_custkey \
                                  and o_comment not like '%special%requests%' group by c_custkey";

async fn bytes_by(sql: &str, before_joins: BeforeJoins) -> (f64, String) {
    let cut = cut(sql, &CutOptions { before_joins, ..CutOptions::default() }).await;
    (cut.cost.bytes, top(&cut.super_plan))
}

#[tokio::test]
async fn a_side_is_grouped_before_it_travels_to_a_join() {
    let (eager, plan) = bytes_by(ORDERS_BY_CUSTOMER, BeforeJoins::Auto).await;
    let (lazy, plain) = bytes_by(ORDERS_BY_CUSTOMER, BeforeJoins::Off).await;
    assert!(eager * 2.0 < lazy, "{lazy} -> {eager}\n{plan}");
    assert!(plan.matches("Aggregate").count() == plain.matches("Aggregate").count() + 1, "{plan}\n{plain}");
}

#[tokio::test]
async fn what_groups_would_change_stays_as_it_is_written() {
    let same = [
        // Rows that match nothing might fail.
        "select c_nationkey, count(1 / o_shippriority) from customer left join orders on c_custkey = o_custkey group by 1",
        "select c_nationkey, sum(o_orderkey * o_orderkey) from customer left join orders on c_custkey = o_custkey group by 1",
        "select c_nationkey, count(o_orderkey) filter (where o_totalprice > 3.00) from customer \
         left join orders on c_custkey = o_custkey group by 1",
        // Of both sides.
        "select c_nationkey, sum(o_shippriority + c_nationkey) from customer left join orders on c_custkey = o_custkey group by 1",
        "select c_nationkey, max(c_acctbal), count(o_orderkey) from customer left join orders on c_custkey = o_custkey group by 1",
    ];
    for sql in same {
        let always = bytes_by(sql, BeforeJoins::Always).await;
        let off = bytes_by(sql, BeforeJoins::Off).await;
        assert_eq!(always.1.matches("Aggregate").count(), off.1.matches("Aggregate").count(), "{sql}\n{}", always.1);
    }
}

#[tokio::test]
async fn what_one_side_suffices_for_is_computed_before_a_join() {
    let sql = include_str!("../../bench/queries/q14.sql");
    let sql = sql.trim().trim_end_matches(';');
    let (early, plan) = bytes_by(sql, BeforeJoins::Auto).await;
    let (late, plain) = bytes_by(sql, BeforeJoins::Off).await;
    assert!(early * 1.5 < late, "{late} -> {early}\n{plan}");
    assert!(plan.contains("right_0 THEN") && !plain.contains("right_0 THEN"), "{plan}");
}

#[tokio::test]
async fn what_rows_without_a_match_would_change_is_computed_after_a_join() {
    // A text is NULL or not in rows without a match, too; and so is what is between other columns, or in no list.
    let late = ["o_comment is null", "1 between o_shippriority and 0", "coalesce(o_comment, 'x') = 'x'"];
    for condition in late {
        let sql = format!(
            "select c_nationkey, count(*) filter (where {condition}) from customer left join orders on c_custkey = o_custkey group by 1"
        );
        let always = bytes_by(&sql, BeforeJoins::Always).await;
        assert_eq!(always.1, bytes_by(&sql, BeforeJoins::Off).await.1, "{sql}");
    }
}

/// A query whose small side is `parts`.
async fn reduced_by(parts: &str) -> Reduced {
    let sql = format!(
        "select sum(l_extendedprice) from lineitem, (select p_partkey from part where {parts}) as p \
         where p_partkey = l_partkey and l_quantity < (select 0.2 * avg(l_quantity) from lineitem where l_partkey = p_partkey)"
    );
    reduced(&sql).await.1
}

/// The queries of one statement name what they compute first anew, and the keys of one once answered for those of another.
#[tokio::test]
async fn what_is_computed_first_is_known_by_its_rows() {
    const FEW: &str = "p_brand = 'Brand#23' and p_container = 'MED BOX'";
    let (one, again) = (reduced_by(FEW).await, reduced_by(FEW).await);
    let other = reduced_by("p_brand = 'Brand#23' and p_container = 'LG BOX'").await;
    assert_eq!((one.first.len(), other.first.len()), (1, 1), "{}", top(&one.plan));
    assert_eq!(one.first[0].leaf, again.first[0].leaf);
    assert_eq!(one.plan, again.plan);
    assert_ne!(one.first[0].leaf, other.first[0].leaf);
    // All else in them is alike.
    assert_eq!(top(&one.plan), top(&other.plan));
    assert_ne!(one.plan, other.plan);
}

/// Rows that are chosen by chance are others in each place where the choice is written.
#[tokio::test]
async fn a_side_with_random_values_is_not_computed_first() {
    let random = reduced_by("p_brand = 'Brand#23' and p_container = 'MED BOX' and random() < 0.5").await;
    assert!(random.first.is_empty(), "{}", top(&random.plan));
}
