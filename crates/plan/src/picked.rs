//! [`Picked`]: columns of an aggregation, read without looking each of them up among all others.
//!
//! The library's reader compares each expression over an aggregation with all that this one makes, to find columns that were written
//! as expressions. Plans that travel name columns by number, and of `SELECT DISTINCT *` over thousands of columns, that was half of the
//! time that a drive took to open a session.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use datafusion::common::{Column, DFSchema, Result, plan_err};
use datafusion::logical_expr::{Expr, LogicalPlan, Projection};
use datafusion_substrait::substrait::proto::expression::field_reference::ReferenceType;
use datafusion_substrait::substrait::proto::expression::reference_segment::ReferenceType as Segment;
use datafusion_substrait::substrait::proto::expression::{RexType, field_reference::RootType};
use datafusion_substrait::substrait::proto::rel::RelType;
use datafusion_substrait::substrait::proto::rel_common::EmitKind;
use datafusion_substrait::substrait::proto::{Expression, Rel};
use pithead_model::RESERVED;

use crate::names::own;

/// A projection of nothing but columns over an aggregation.
pub(crate) struct Picked<'a> {
    /// The aggregation.
    pub(crate) input: &'a Rel,
    /// Columns of the input that come after all of its own.
    more: Vec<usize>,
    /// Which of both are put out, in order.
    mapping: &'a [i32],
}

impl<'a> Picked<'a> {
    /// A relation as such a projection, if it is one.
    pub(crate) fn of(rel: &'a Rel) -> Option<Self> {
        let Some(RelType::Project(project)) = &rel.rel_type else { return None };
        let input = project.input.as_deref().filter(|input| matches!(input.rel_type, Some(RelType::Aggregate(_))))?;
        let EmitKind::Emit(emit) = project.common.as_ref()?.emit_kind.as_ref()? else { return None };
        let more = project.expressions.iter().map(column).collect::<Option<Vec<_>>>()?;
        Some(Self { input, more, mapping: &emit.output_mapping })
    }

    /// The projection over what the input was read as.
    pub(crate) fn over(&self, input: LogicalPlan) -> Result<LogicalPlan> {
        let schema = Arc::clone(input.schema());
        let own = schema.fields().len();
        let (columns, columns_max) = (self.mapping.len(), own + self.more.len());
        if columns > columns_max {
            return plan_err!("a projection puts out {columns} columns of {columns_max}");
        }
        let (mut seen, mut names) = (BTreeSet::new(), SpareNames::new(&schema));
        let picked = self.mapping.iter().map(|at| {
            let column = usize::try_from(*at).ok().and_then(|at| match at.checked_sub(own) {
                None => Some(at),
                Some(at) => self.more.get(at).copied(),
            });
            let Some(column) = column.filter(|column| *column < own) else {
                return plan_err!("column {at} of a projection over {own} columns");
            };
            let expression = Expr::Column(Column::from(schema.qualified_field(column)));
            // A column that is put out twice has two names.
            Ok(if seen.insert(column) { expression } else { expression.alias(names.next()) })
        });
        let picked = picked.collect::<Result<Vec<_>>>()?;
        Projection::try_new(picked, Arc::new(input)).map(LogicalPlan::Projection)
    }
}

/// Names of ours that no column of an input has.
struct SpareNames<'a> {
    taken: HashSet<&'a str>,
    number: usize,
}

impl<'a> SpareNames<'a> {
    fn new(input: &'a DFSchema) -> Self {
        let ours = input.fields().iter().map(|field| field.name().as_str()).filter(|name| name.starts_with(RESERVED));
        Self { taken: ours.collect(), number: 0 }
    }

    fn next(&mut self) -> String {
        loop {
            let name = own("picked", self.number);
            self.number += 1;
            if !self.taken.contains(name.as_str()) {
                return name;
            }
        }
    }
}

/// The number of the input's column that an expression is.
fn column(expression: &Expression) -> Option<usize> {
    let Some(RexType::Selection(reference)) = &expression.rex_type else { return None };
    let (Some(ReferenceType::DirectReference(segment)), Some(RootType::RootReference(_))) =
        (&reference.reference_type, &reference.root_type)
    else {
        return None;
    };
    match &segment.reference_type {
        Some(Segment::StructField(field)) if field.child.is_none() => usize::try_from(field.field).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::logical_expr::{LogicalPlanBuilder, col, lit};
    use datafusion_substrait::logical_plan::producer::to_substrait_plan;
    use datafusion_substrait::substrait::proto::{Plan, plan_rel};
    use pithead_functions::{EngineOptions, session_state};
    use prost::Message;

    use super::*;
    use crate::travel::consume;

    /// What is read of a projection of these columns, counted from 1, over the distinct pairs of two columns.
    async fn read(columns: &[usize], change: impl Fn(&mut Vec<i32>)) -> std::result::Result<String, String> {
        let state = session_state(&EngineOptions { batch_rows: 8_192, ..EngineOptions::default() });
        let values = LogicalPlanBuilder::values(vec![vec![lit(7_i64), lit("x")]]).unwrap();
        let pairs = values.aggregate(vec![col("column1"), col("column2")], Vec::<Expr>::new()).unwrap();
        let named = columns.iter().map(|column| col(format!("column{column}")));
        let plan = pairs.project(named).unwrap().build().unwrap();
        let mut sent: Plan = *to_substrait_plan(&plan, &state).unwrap();
        let Some(plan_rel::RelType::Root(root)) = &mut sent.relations[0].rel_type else { panic!("no root") };
        assert!(Picked::of(root.input.as_ref().unwrap()).is_some());
        let Some(RelType::Project(project)) = &mut root.input.as_mut().unwrap().rel_type else { panic!("no projection") };
        let Some(EmitKind::Emit(emit)) = &mut project.common.as_mut().unwrap().emit_kind else { panic!("no mapping") };
        change(&mut emit.output_mapping);
        root.names.truncate(emit.output_mapping.len());
        root.names.extend((root.names.len()..emit.output_mapping.len()).map(|number| format!("more{number}")));
        let read = consume(&sent.encode_to_vec(), &state).await.map_err(|error| error.to_string())?;
        Ok(read.to_string().lines().next().unwrap_or_default().to_owned())
    }

    #[tokio::test]
    async fn columns_are_read_by_number() {
        assert_eq!(read(&[2, 1], |_| {}).await.unwrap(), "Projection: column2, column1");
        assert_eq!(read(&[2], |_| {}).await.unwrap(), "Projection: column2");
        assert_eq!(read(&[2], |mapping| mapping.clear()).await.unwrap(), "Projection:");
        // The input's own columns come first.
        assert_eq!(
            read(&[2], |mapping| *mapping = vec![0, 1]).await.unwrap(),
            "Projection: column1 AS column2, column2 AS more1"
        );
    }

    #[tokio::test]
    async fn a_column_twice_has_two_names_and_one_that_is_not_there_is_refused() {
        // The root's names are put over those that the reader made up.
        let twice = read(&[2], |mapping| *mapping = vec![2, 1, 1]).await.unwrap();
        assert!(twice.contains("column2, column2 AS ") && twice.contains("more1") && twice.contains("more2"), "{twice}");
        let refused = read(&[2], |mapping| *mapping = vec![0; 4]).await.unwrap_err();
        assert!(refused.contains("puts out 4 columns of 3"), "{refused}");
        for at in [3, -1, i32::MAX] {
            let refused = read(&[2], |mapping| mapping[0] = at).await.unwrap_err();
            assert!(refused.contains("of a projection over 2 columns"), "{refused}");
        }
    }

    #[test]
    fn spare_names_are_those_that_no_column_has() {
        let fields: Vec<Field> = [own("picked", 1), "k".to_owned()].map(|name| Field::new(name, DataType::Int8, true)).into();
        let schema = DFSchema::try_from(Schema::new(fields)).unwrap();
        let mut names = SpareNames::new(&schema);
        assert_eq!([names.next(), names.next()], [own("picked", 0), own("picked", 2)]);
    }
}
