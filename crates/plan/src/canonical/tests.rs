//! Plans with the same meaning, and plans that only look the same.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::datasource::empty::EmptyTable;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;
use pithead_functions::{EngineOptions, Registry, session_state};

use super::Canonical;
use crate::RollUp;

async fn plan(sql: &str) -> LogicalPlan {
    let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
    for name in ["o", "p"] {
        let fields = ["id", "v", "k"].map(|column| Field::new(column, DataType::Int64, true)).into_iter();
        let fields = fields.chain([Field::new("s", DataType::Utf8View, true), Field::new("n", DataType::Int32, true)]);
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        context.register_table(name, Arc::new(EmptyTable::new(schema))).unwrap();
    }
    let plan = context.state().create_logical_plan(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    context.state().optimize(&plan).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

async fn canonical(sql: &str) -> Canonical {
    Canonical::of(&plan(sql).await).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// Each pair looks the same somewhere, as EXPLAIN writes it or nearly so.
const DIFFERENT: &[(&str, &str)] = &[
    ("SELECT sum(id-(v+k)) FROM o", "SELECT sum(id-v+k) FROM o"),
    ("SELECT sum(v*(id/7)) FROM o", "SELECT sum(v*id/7) FROM o"),
    ("SELECT id FROM o WHERE v-(k-id) > 3", "SELECT id FROM o WHERE v-k-id > 3"),
    ("SELECT id-(v+k), count(*) FROM o GROUP BY 1", "SELECT id-v+k, count(*) FROM o GROUP BY 1"),
    ("SELECT sum(array_position(['a', 'b'], s)) FROM o", "SELECT sum(array_position(['a, b'], s)) FROM o"),
    ("SELECT count(*) FROM o WHERE s = '1'", "SELECT count(*) FROM o WHERE s = '01'"),
    ("SELECT o.id FROM o JOIN p ON o.k = p.k", "SELECT o.id FROM o JOIN p ON o.k IS NOT DISTINCT FROM p.k"),
    ("SELECT o.id FROM o JOIN p ON o.k = p.k", "SELECT o.id FROM p JOIN o ON o.k = p.v"),
    ("SELECT sum(n) FROM o", "SELECT sum(id) FROM o"),
    ("SELECT sum(CAST(v AS DOUBLE)) FROM o", "SELECT sum(v) FROM o"),
    ("SELECT id FROM o WHERE (v = 1 OR k = 2) AND id > 3", "SELECT id FROM o WHERE v = 1 OR (k = 2 AND id > 3)"),
    ("SELECT count(DISTINCT v) FROM o", "SELECT count(v) FROM o"),
    ("SELECT sum(v) FILTER (WHERE id > 1) FROM o", "SELECT sum(v) FROM o"),
    ("SELECT v FROM o ORDER BY v LIMIT 3", "SELECT v FROM o ORDER BY v DESC LIMIT 3"),
    ("SELECT 0.0::double + v FROM o", "SELECT -0.0::double + v FROM o"),
    ("SELECT id, unnest(range(v)) FROM o", "SELECT id, unnest(range(k)) FROM o"),
    ("SELECT unnest(range(v)), unnest(range(v, k)) FROM o", "SELECT unnest(range(v, k)), unnest(range(v)) FROM o"),
    ("SELECT o.id, a FROM o, unnest(range(v)) AS t (a)", "SELECT o.id, a FROM o LEFT JOIN unnest(range(v)) AS t (a) ON true"),
    ("SELECT unnest([range(v)]) FROM o", "SELECT unnest(unnest([range(v)])) FROM o"),
];

const SAME: &[(&str, &str)] = &[
    ("SELECT id AS a FROM o AS x WHERE x.v > 1", "SELECT y.id FROM o AS y WHERE y.v > 1"),
    ("SELECT id FROM o WHERE v > 1 AND k < 2", "SELECT id FROM o WHERE k < 2 AND v > 1"),
    ("SELECT id FROM o WHERE v BETWEEN 1 AND 9", "SELECT id FROM o WHERE v >= 1 AND v <= 9"),
    ("SELECT sum(v) AS a, k FROM o GROUP BY k", "SELECT sum(x.v) AS b, x.k FROM o AS x GROUP BY x.k"),
    ("SELECT id, unnest(range(v)) AS a FROM o", "SELECT x.id, unnest(range(x.v)) AS b FROM o AS x"),
];

#[tokio::test]
async fn plans_that_only_read_the_same_differ() {
    for (one, other) in DIFFERENT {
        let (one_is, other_is) = (canonical(one).await, canonical(other).await);
        assert_ne!(one_is, other_is, "{one} and {other}");
        assert_eq!(one_is, canonical(one).await, "{one}");
    }
}

#[tokio::test]
async fn names_and_the_order_of_conditions_do_not_count() {
    for (one, other) in SAME {
        assert_eq!(canonical(one).await, canonical(other).await, "{one} and {other}");
    }
}

#[tokio::test]
async fn partial_results_serve_what_is_made_of_the_same() {
    let roll_up =
        async |sql: &str| RollUp::of(&plan(sql).await, &Registry::own()).unwrap_or_else(|| panic!("{sql} has no parts"));
    let finer = roll_up("SELECT k, n, sum(id-(v+k)), count(*) FROM o WHERE v > 0 GROUP BY k, n").await;
    for (sql, serves) in [
        ("SELECT n, count(*) FROM o AS x WHERE x.v > 0 GROUP BY n", Some(vec![1, 3])),
        ("SELECT sum(id-(v+k)) FROM o WHERE v > 0", Some(vec![2])),
        ("SELECT sum(id-v+k) FROM o WHERE v > 0", None),
        ("SELECT sum(id-(v+k)) FROM o WHERE v > 1", None),
        ("SELECT sum(id-(v+k)) FROM p WHERE v > 0", None),
        ("SELECT s, count(*) FROM o WHERE v > 0 GROUP BY s", None),
    ] {
        assert_eq!(roll_up(sql).await.columns_of(&finer), serves, "{sql}");
    }
}
