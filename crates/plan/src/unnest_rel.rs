//! Rows of lists on the wire: UNNEST as an extension of Substrait, which has no relation of its own for it, and neither has
//! DataFusion's producer.
//!
//! The relation is an `ExtensionSingleRel` whose detail is an [`UnnestDetail`], under the name [`UNNEST`].

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Column, NullHandling, RecursionUnnestOption, Result, UnnestOptions, not_impl_err, plan_err};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{EmptyRelation, LogicalPlan, Unnest};
use datafusion_substrait::extensions::Extensions;
use datafusion_substrait::logical_plan::producer::{DefaultSubstraitProducer, SubstraitProducer, to_substrait_rel};
use datafusion_substrait::substrait::proto::rel::RelType;
use datafusion_substrait::substrait::proto::{ExtensionSingleRel, Plan, PlanRel, Rel, RelRoot, Type, plan_rel};
use datafusion_substrait::substrait::version;
use prost::Message;

use crate::names::own;

/// The name of the relation's detail.
const UNNEST: &str = "pithead.dev/unnest";
/// Lists in lists of which one column's values may be made rows.
const DEPTH_MAX: u32 = 16;

/// What becomes of a relation's columns.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct UnnestDetail {
    /// The columns that are put in the place of others, in the order of these.
    #[prost(message, repeated, tag = "1")]
    unnested: Vec<Unnested>,
    #[prost(enumeration = "Nulls", tag = "2")]
    nulls: i32,
}

/// A column that is put in the place of a list: its values, a row each. Or, of a struct: its fields, a column each.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
struct Unnested {
    /// The number of the input's column, from 0.
    #[prost(uint32, tag = "1")]
    column: u32,
    /// How many lists, one in the other, become rows; 0: it is a struct.
    #[prost(uint32, tag = "2")]
    depth: u32,
}

/// What becomes of a row that has no value in any list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum Nulls {
    /// A row for NULL, none for an empty list.
    Preserve = 0,
    /// No row.
    Drop = 1,
    /// A row for each.
    PreserveAndExpandEmpty = 2,
}

/// The columns that are unnested: their numbers in the input, and the depth of lists; 0: a struct.
pub(crate) fn unnested(unnest: &Unnest) -> Vec<(usize, usize)> {
    let lists = unnest.list_type_columns.iter().map(|(column, list)| (*column, list.depth));
    let mut unnested: Vec<(usize, usize)> = lists.chain(unnest.struct_type_columns.iter().map(|column| (*column, 0))).collect();
    // Several depths of one list stay in their order, in which their columns are.
    unnested.sort_by_key(|(column, _)| *column);
    unnested
}

/// For each column of the output the number of the input's column that it repeats; none: it is put in the place of one.
pub(crate) fn repeated(unnest: &Unnest) -> impl Iterator<Item = Option<usize>> {
    let unnested = unnested(unnest);
    let is_unnested = move |column: usize| unnested.iter().any(|(known, _)| *known == column);
    unnest.dependency_indices.iter().map(move |of| (!is_unnested(*of)).then_some(*of))
}

/// A plan as Substrait.
pub(crate) fn to_substrait(plan: &LogicalPlan, state: &SessionState) -> Result<Plan> {
    let mut producer = Producer(DefaultSubstraitProducer::new(state));
    let input = Some(*producer.handle_plan(plan)?);
    let root = plan_rel::RelType::Root(RelRoot { input, names: names(&mut producer, plan)? });
    Ok(Plan {
        version: Some(version::version_with_producer("datafusion")),
        extensions: producer.get_extensions().into(),
        relations: vec![PlanRel { rel_type: Some(root) }],
        ..Plan::default()
    })
}

/// The names of a plan's columns, and of the fields in them, as a relation without rows has them.
fn names(producer: &mut Producer<'_>, plan: &LogicalPlan) -> Result<Vec<String>> {
    let nothing = EmptyRelation { produce_one_row: false, schema: Arc::clone(plan.schema()) };
    match producer.handle_empty_relation(&nothing)?.rel_type {
        Some(RelType::Read(read)) => Ok(read.base_schema.map(|schema| schema.names).unwrap_or_default()),
        _ => plan_err!("a relation without rows is not read"),
    }
}

/// DataFusion's producer, which has a relation for UNNEST, too.
struct Producer<'a>(DefaultSubstraitProducer<'a>);

impl SubstraitProducer for Producer<'_> {
    fn register_function(&mut self, signature: String) -> u32 {
        self.0.register_function(signature)
    }

    fn register_type(&mut self, name: String) -> u32 {
        self.0.register_type(name)
    }

    fn get_extensions(self) -> Extensions {
        self.0.get_extensions()
    }

    fn handle_plan(&mut self, plan: &LogicalPlan) -> Result<Box<Rel>> {
        match plan {
            LogicalPlan::Unnest(unnest) => {
                let input = Some(self.handle_plan(&unnest.input)?);
                let mut rel = ExtensionSingleRel { input, detail: Some(Default::default()), common: None };
                if let Some(detail) = &mut rel.detail {
                    (detail.type_url, detail.value) = (UNNEST.to_owned(), detail_of(unnest)?.encode_to_vec().into());
                }
                Ok(Box::new(Rel { rel_type: Some(RelType::ExtensionSingle(Box::new(rel))) }))
            }
            plan => to_substrait_rel(self, plan),
        }
    }

    fn push_lambda_parameters(&mut self, parameters: Vec<FieldRef>) -> Result<()> {
        self.0.push_lambda_parameters(parameters)
    }

    fn pop_lambda_parameters(&mut self) -> Result<()> {
        self.0.pop_lambda_parameters()
    }

    fn lambda_variable(&self, name: &str) -> Result<(u32, i32)> {
        self.0.lambda_variable(name)
    }

    fn lambda_parameter_type(&self, name: &str) -> Result<Type> {
        self.0.lambda_parameter_type(name)
    }
}

fn detail_of(unnest: &Unnest) -> Result<UnnestDetail> {
    let number = |it: usize| u32::try_from(it).or_else(|_| not_impl_err!("column {it} of a row of lists"));
    let unnested =
        unnested(unnest).into_iter().map(|(column, depth)| Ok(Unnested { column: number(column)?, depth: number(depth)? }));
    let nulls = match unnest.options.null_handling {
        NullHandling::Preserve => Nulls::Preserve,
        NullHandling::Drop => Nulls::Drop,
        NullHandling::PreserveAndExpandEmpty => Nulls::PreserveAndExpandEmpty,
    };
    Ok(UnnestDetail { unnested: unnested.collect::<Result<_>>()?, nulls: nulls.into() })
}

/// A relation of that kind over what its input was read as.
pub(crate) fn read(rel: &ExtensionSingleRel, input: LogicalPlan) -> Result<LogicalPlan> {
    let Some(detail) = rel.detail.as_ref().filter(|detail| detail.type_url == UNNEST) else {
        return plan_err!("expected {UNNEST} as an extension of a relation");
    };
    let detail = match UnnestDetail::decode(&*detail.value) {
        Ok(detail) => detail,
        Err(error) => return plan_err!("{UNNEST}: {error}"),
    };
    let null_handling = match Nulls::try_from(detail.nulls) {
        Ok(Nulls::Preserve) => NullHandling::Preserve,
        Ok(Nulls::Drop) => NullHandling::Drop,
        Ok(Nulls::PreserveAndExpandEmpty) => NullHandling::PreserveAndExpandEmpty,
        Err(_) => return plan_err!("{UNNEST}: expected what becomes of NULL as 0, 1 or 2, got {}", detail.nulls),
    };
    let (mut columns, mut recursions): (Vec<Column>, Vec<RecursionUnnestOption>) = (Vec::new(), Vec::new());
    let mut last = None;
    for (number, Unnested { column: at, depth }) in detail.unnested.into_iter().enumerate() {
        let schema = input.schema();
        let Some(column) = usize::try_from(at).ok().filter(|at| *at < schema.fields().len()) else {
            return plan_err!("{UNNEST}: column {at} of {}", schema.fields().len());
        };
        let is_struct = matches!(schema.field(column).data_type(), DataType::Struct(_));
        // The columns are in order, and a list may be there at several depths.
        if last.is_some_and(|last| at < last || (at == last && depth == 0)) || depth > DEPTH_MAX || is_struct != (depth == 0) {
            return plan_err!("{UNNEST}: column {at} cannot be made rows at a depth of {depth}");
        }
        let column = Column::from(schema.qualified_field(column));
        if last != Some(at) {
            columns.push(column.clone());
        }
        last = Some(at);
        if let 1.. = depth {
            // A name of its own: another column may be called like the list.
            let output_column = Column::new_unqualified(own("unnested", number));
            recursions.push(RecursionUnnestOption { input_column: column, output_column, depth: depth as usize });
        }
    }
    Unnest::try_new(Arc::new(input), columns, UnnestOptions { null_handling, recursions }).map(LogicalPlan::Unnest)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{Field, Schema};
    use datafusion::datasource::empty::EmptyTable;
    use datafusion::prelude::SessionContext;
    use pithead_functions::{EngineOptions, session_state};

    use super::*;
    use crate::canonical::Canonical;
    use crate::travel::consume;

    /// A session with a table of two numbers.
    fn context() -> SessionContext {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let fields = ["a", "b"].map(|name| Field::new(name, DataType::Int64, true));
        let table = EmptyTable::new(Arc::new(Schema::new(fields.to_vec())));
        context.register_table("t", Arc::new(table)).unwrap();
        context
    }

    #[tokio::test]
    async fn rows_of_lists_travel() {
        let context = context();
        for sql in [
            "SELECT b, unnest(range(a)) AS x FROM t",
            "SELECT unnest([a, b]) AS x, unnest([b]) AS y, a FROM t",
            "SELECT x, count(*), sum(a) FROM t, unnest(range(t.b)) AS u (x) WHERE x > 1 GROUP BY x",
            "SELECT a, x FROM t LEFT JOIN unnest(range(1, t.a)) AS u (x) ON true",
            "SELECT unnest(unnest([[a], [b, 7]])) AS x, unnest([[a]]) AS y FROM t",
            "SELECT x.a, y.a AS c FROM (SELECT unnest(range(a)) AS a FROM t) AS x JOIN (SELECT unnest(range(b)) AS a FROM t) AS y ON x.a = y.a",
        ] {
            let plan = context.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")).into_optimized_plan().unwrap();
            let bytes = to_substrait(&plan, &context.state()).unwrap_or_else(|error| panic!("{sql}: {error}")).encode_to_vec();
            let read = consume(&bytes, &context.state()).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
            assert!(plan.to_string().contains("Unnest"), "{plan}");
            assert_eq!(Canonical::of(&read).unwrap(), Canonical::of(&plan).unwrap(), "{sql}");
        }
    }

    #[tokio::test]
    async fn what_cannot_be_made_rows_is_refused() {
        let input = context().sql("SELECT a, [b] AS l, named_struct('f', a) AS s FROM t").await.unwrap();
        let input = input.into_optimized_plan().unwrap();
        let read = |name: &str, value: Vec<u8>| {
            let mut rel = ExtensionSingleRel { detail: Some(Default::default()), ..ExtensionSingleRel::default() };
            let detail = rel.detail.as_mut().unwrap();
            (detail.type_url, detail.value) = (name.to_owned(), value.into());
            super::read(&rel, input.clone()).map_err(|error| error.to_string())
        };
        let detail = |unnested: &[(u32, u32)], nulls: i32| {
            let unnested = unnested.iter().map(|(column, depth)| Unnested { column: *column, depth: *depth }).collect();
            UnnestDetail { unnested, nulls }.encode_to_vec()
        };
        assert!(read(UNNEST, detail(&[(1, 1), (2, 0)], 2)).is_ok());
        for (unnested, nulls, expected) in [
            (&[][..], 0, "at least 1 column"),
            (&[(3, 1)], 0, "column 3 of 3"),
            (&[(u32::MAX, 1)], 0, "of 3"),
            (&[(1, 1)], 3, "as 0, 1 or 2, got 3"),
            (&[(1, 0)], 0, "at a depth of 0"),
            (&[(2, 1)], 0, "at a depth of 1"),
            (&[(2, 0), (2, 0)], 0, "at a depth of 0"),
            (&[(2, 0), (1, 1)], 0, "column 1 cannot"),
            (&[(1, 17)], 0, "at a depth of 17"),
            (&[(1, 2)], 0, "invalid data type"),
            (&[(0, 1)], 0, "invalid data type"),
        ] {
            let refused = read(UNNEST, detail(unnested, nulls)).unwrap_err();
            assert!(refused.contains(expected), "{unnested:?}: {refused}");
        }
        assert!(read("elsewhere", detail(&[(1, 1)], 0)).unwrap_err().contains("expected pithead.dev/unnest"));
        assert!(read(UNNEST, vec![0xff; 9]).is_err());
    }
}
