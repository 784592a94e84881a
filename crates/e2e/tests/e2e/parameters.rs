//! Statements with parameters: the same plans and rows as with literals.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Int64Array, IntervalMonthDayNanoArray, NullArray, RecordBatch, StringArray,
    new_null_array,
};
use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit, Schema};
use futures::{StreamExt, TryStreamExt};
use pithead_e2e::tpch::{load_tpch, spec};
use pithead_e2e::{Mode, Setup, Table, block_on, collect, load, table};
use pithead_host::{Parameters, Session, Statement};
use pithead_model::{Blame, Fault};

async fn rows(session: &Session, sql: &str, parameters: &Parameters) -> Result<Table, Fault> {
    let mut answer = session.run_with(sql, parameters).await?;
    let mut batches = Vec::new();
    while let Some(batch) = answer.rows.next().await {
        batches.push(batch?);
    }
    Ok(table(&answer.schema, &batches))
}

fn int(value: i64) -> ArrayRef {
    Arc::new(Int64Array::from(vec![value]))
}

fn text(value: &str) -> ArrayRef {
    Arc::new(StringArray::from(vec![value]))
}

fn row(columns: &[(&str, ArrayRef)]) -> RecordBatch {
    match columns {
        [] => RecordBatch::new_empty(Arc::new(Schema::empty())),
        columns => RecordBatch::try_from_iter_with_nullable(columns.iter().map(|(n, c)| (*n, Arc::clone(c), true))).unwrap(),
    }
}

fn places(values: &[ArrayRef]) -> Parameters {
    let columns: Vec<(&str, ArrayRef)> = values.iter().map(|value| ("", Arc::clone(value))).collect();
    Parameters::by_place(&row(&columns)).unwrap()
}

/// A statement with parameters, its values, and the statement with literals.
fn cases() -> Vec<(&'static str, Parameters, &'static str)> {
    // 1995-06-17
    let date: ArrayRef = Arc::new(Date32Array::from(vec![9298]));
    let rate: ArrayRef = Arc::new(Decimal128Array::from(vec![5]).with_precision_and_scale(15, 2).unwrap());
    let null: ArrayRef = Arc::new(NullArray::new(1));
    vec![
        (
            "SELECT count(*) FROM lineitem WHERE l_quantity < $1 AND l_shipmode = $2",
            places(&[int(20), text("AIR")]),
            "SELECT count(*) FROM lineitem WHERE l_quantity < 20 AND l_shipmode = 'AIR'",
        ),
        (
            "SELECT l_returnflag, sum(l_quantity) FROM lineitem WHERE l_shipdate > ? AND l_discount = ? GROUP BY 1 HAVING count(*) > ? ORDER BY 1 LIMIT ?",
            places(&[Arc::clone(&date), rate, int(3), int(2)]),
            "SELECT l_returnflag, sum(l_quantity) FROM lineitem WHERE l_shipdate > DATE '1995-06-17' AND l_discount = arrow_cast(0.05, 'Decimal128(15, 2)') GROUP BY 1 HAVING count(*) > 3 ORDER BY 1 LIMIT 2",
        ),
        (
            "SELECT o_orderkey + $two AS k FROM orders WHERE o_orderdate BETWEEN $since AND $since + INTERVAL '10' DAY AND o_custkey IN ($one, $two, 40) ORDER BY k",
            Parameters::by_name(&row(&[("two", int(17)), ("since", date), ("one", int(4))])).unwrap(),
            "SELECT o_orderkey + 17 AS k FROM orders WHERE o_orderdate BETWEEN DATE '1995-06-17' AND DATE '1995-06-17' + INTERVAL '10' DAY AND o_custkey IN (4, 17, 40) ORDER BY k",
        ),
        (
            "SELECT n_name FROM nation WHERE n_regionkey = (SELECT r_regionkey FROM region WHERE r_name = ?) AND n_name LIKE ? ORDER BY 1",
            places(&[text("ASIA"), text("%I%")]),
            "SELECT n_name FROM nation WHERE n_regionkey = (SELECT r_regionkey FROM region WHERE r_name = 'ASIA') AND n_name LIKE '%I%' ORDER BY 1",
        ),
        (
            "SELECT round(avg(l_tax) * ?, 3) AS a, ? AS s, ? AS n FROM lineitem",
            places(&[int(10), text("it's"), null]),
            "SELECT round(avg(l_tax) * 10, 3) AS a, 'it''s' AS s, NULL AS n FROM lineitem",
        ),
    ]
}

#[test]
fn parameters_are_as_literals() {
    block_on(async {
        let setup = Setup::new(Mode::FOUR_HERE).await;
        load_tpch(&setup).await;
        let session = setup.session().await;
        let none = Parameters::default();
        for (with, parameters, literal) in cases() {
            let expected = rows(&session, literal, &none).await.unwrap();
            let got = rows(&session, with, &parameters).await.unwrap_or_else(|fault| panic!("{with}: {fault}"));
            assert_eq!(got, expected, "{with}");
            let explained = rows(&session, &format!("EXPLAIN {with}"), &parameters).await.unwrap();
            let plan = rows(&session, &format!("EXPLAIN {literal}"), &none).await.unwrap();
            let drives = |plan: &Table| plan.rows.iter().filter(|row| row[0].starts_with("drive")).cloned().collect::<Vec<_>>();
            assert!(!drives(&plan).is_empty(), "{literal} has nothing at the drives");
            assert_eq!(drives(&explained), drives(&plan), "{with}");
            let prepared = session.prepare(with, &parameters).await.unwrap();
            let described = prepared.schema().unwrap();
            let answer = prepared.run(&session).await.unwrap();
            let types =
                |schema: &Schema| schema.fields().iter().map(|f| (f.name().clone(), f.data_type().clone())).collect::<Vec<_>>();
            assert_eq!(types(described), types(&answer.schema), "{with}");
        }
        setup.shutdown().await;
    });
}

/// Rows of a statement that was prepared with other values.
async fn rows_again(session: &Session, statement: &Statement, parameters: &Parameters) -> Result<Table, Fault> {
    let answer = statement.run_with(session, parameters, &Arc::default()).await?;
    let batches: Vec<RecordBatch> = answer.rows.try_collect().await?;
    Ok(table(&answer.schema, &batches))
}

/// Statements that were prepared with NULL for each value give what they give with the values of each run: of the same types, of others,
/// and in a session whose settings and tables change meanwhile.
#[test]
fn statements_run_again_with_other_values() {
    block_on(async {
        let setup = Setup::new(Mode::FOUR_HERE).await;
        load_tpch(&setup).await;
        let session = setup.session().await;
        let nulls = |types: &[DataType]| places(&types.iter().map(|of| new_null_array(of, 1)).collect::<Vec<_>>());
        let of = "SELECT l_shipmode, count(*) AS n, sum(l_quantity) FROM lineitem WHERE l_orderkey < $1 AND l_shipmode <> $2 GROUP BY 1 ORDER BY 1";
        let of = session.prepare(of, &nulls(&[DataType::Int64, DataType::Utf8])).await.unwrap();
        let since = "SELECT count(*) FROM orders WHERE o_orderdate < DATE '1995-06-17' + $1 AND o_custkey IN ($2, $3)";
        let types = [DataType::Interval(IntervalUnit::MonthDayNano), DataType::Int64, DataType::Int64];
        let since = session.prepare(since, &nulls(&types)).await.unwrap();
        let days =
            |days| -> ArrayRef { Arc::new(IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(0, days, 0)])) };
        let same = async |statement: &Statement, values: &[ArrayRef], literal: &str| {
            let expected = rows(&session, literal, &Parameters::default()).await.unwrap();
            let got =
                rows_again(&session, statement, &places(values)).await.unwrap_or_else(|fault| panic!("{literal}: {fault}"));
            assert_eq!(got, expected, "{literal}");
            let bound = statement.bind(&session, &places(values)).await.unwrap();
            let answer = bound.run(&session).await.unwrap();
            assert_eq!(bound.schema().unwrap().fields(), answer.schema.fields(), "{literal}");
            let batches: Vec<RecordBatch> = answer.rows.try_collect().await.unwrap();
            assert_eq!(table(&answer.schema, &batches), expected, "{literal}");
        };
        let decimal: ArrayRef = Arc::new(Decimal128Array::from(vec![9_950]).with_precision_and_scale(15, 2).unwrap());
        let sums = |key: &str, mode: &str| {
            let condition = format!("l_orderkey < {key} AND l_shipmode <> {mode}");
            format!("SELECT l_shipmode, count(*) AS n, sum(l_quantity) FROM lineitem WHERE {condition} GROUP BY 1 ORDER BY 1")
        };
        let counts = |days: i32, one: &str, other: &str| {
            let date = format!("DATE '1995-06-17' + INTERVAL '{days} days'");
            format!("SELECT count(*) FROM orders WHERE o_orderdate < {date} AND o_custkey IN ({one}, {other})")
        };
        for round in 0..2 {
            same(&of, &[int(100), text("none of them")], &sums("100", "'none of them'")).await;
            same(&of, &[int(7), text("AIR")], &sums("7", "'AIR'")).await;
            same(&of, &[new_null_array(&DataType::Int64, 1), text("AIR")], &sums("NULL", "'AIR'")).await;
            same(&of, &[Arc::clone(&decimal), text("AIR")], &sums("arrow_cast(99.5, 'Decimal128(15, 2)')", "'AIR'")).await;
            same(&since, &[days(0), int(4), int(4)], &counts(0, "4", "4")).await;
            same(&since, &[days(900), int(4), new_null_array(&DataType::Int64, 1)], &counts(900, "4", "NULL")).await;
            if round == 0 {
                collect(&session, "SET pithead.pushdown = off").await.unwrap();
                collect(&session, "DELETE FROM lineitem WHERE l_orderkey = 1").await.unwrap();
            }
        }
        for (values, told) in
            [(vec![], "up to $2"), (vec![int(1)], "up to $2"), (vec![int(1), text(""), int(1)], "no parameter $3")]
        {
            let fault = rows_again(&session, &of, &places(&values)).await.expect_err("values that do not fit");
            assert!(fault.blame == Blame::User && fault.message.contains(told), "{fault}");
        }
        collect(&session, "DROP TABLE lineitem").await.unwrap();
        let fault = rows_again(&session, &of, &places(&[int(7), text("AIR")])).await.expect_err("a table that is gone");
        assert!(fault.message.contains("no dataset main.lineitem"), "{fault}");
        setup.shutdown().await;
    });
}

#[test]
fn values_that_do_not_fit_the_placeholders_are_refused() {
    block_on(async {
        let setup = Setup::new(Mode::ONE_HERE).await;
        load(&setup.engine, spec("nation", "vortex")).await.unwrap();
        let session = setup.session().await;
        let named = Parameters::by_name(&row(&[("key", int(1)), ("kye", int(1))])).unwrap();
        let cases = [
            ("SELECT $1 + $2", places(&[int(1)]), "up to $2"),
            ("SELECT $1", places(&[int(1), int(2)]), "no parameter $2"),
            ("SELECT ? + $1", places(&[int(1)]), "two kinds"),
            ("SELECT 1", places(&[int(1)]), "no parameter $1"),
            ("SELECT $1", Parameters::default(), "no values"),
            ("SELECT $key", places(&[int(1)]), "have no names"),
            ("SELECT n_name FROM nation WHERE n_nationkey = $key", named.clone(), "no parameter $kye"),
            ("SELECT $key + $kye + $other", named, "$other"),
            ("SET pithead.level = $1", places(&[int(1)]), "SET takes no parameters"),
            ("DROP TABLE nation", places(&[int(1)]), "DROP TABLE takes no parameters"),
        ];
        for (sql, parameters, told) in cases {
            let Err(fault) = rows(&session, sql, &parameters).await else { panic!("{sql}: an error is expected") };
            assert!(fault.blame == Blame::User && fault.message.contains(told), "{sql}: {fault}");
        }
        assert_eq!(session.prepare("SET pithead.level = 0", &Parameters::default()).await.unwrap().schema(), None);
        assert!(session.prepare("SELECT nothing FROM nation", &Parameters::default()).await.is_err());
        for sql in ["EXPLAIN SELECT 1", "EXPLAIN PUSHDOWN SELECT count(*) FROM nation", "SHOW TABLES", "DESCRIBE nation"] {
            let prepared = session.prepare(sql, &Parameters::default()).await.unwrap();
            let answer = prepared.run(&session).await.unwrap();
            assert_eq!(prepared.schema().unwrap().fields(), answer.schema.fields(), "{sql}");
        }
        setup.shutdown().await;
    });
}
