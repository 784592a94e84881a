//! The operators of a Substrait plan, by number, and which of them a level executes.

use datafusion_substrait::substrait::proto::read_rel::ReadType;
use datafusion_substrait::substrait::proto::rel::RelType;
use datafusion_substrait::substrait::proto::{Plan, ReadRel, Rel, plan_rel};
use pithead_model::DatasetName;
use prost::Message;

/// Operators are numbered from the top down, left inputs first, from 0. Of a plan with others than those that sub-plans have, nothing
/// is said.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Numbered {
    count: u32,
    /// The driving scan, and the filters directly above it, from the top down: what level 2 is.
    pub(super) filtered: Vec<u32>,
}

impl Numbered {
    /// Of a sub-plan that reads `driving` slice by slice.
    pub(super) fn of(plan: &[u8], driving: &DatasetName) -> Numbered {
        let Ok(plan) = Plan::decode(plan) else { return Numbered::default() };
        let root = plan.relations.first().and_then(|relation| match &relation.rel_type {
            Some(plan_rel::RelType::Root(root)) => root.input.as_ref(),
            Some(plan_rel::RelType::Rel(rel)) => Some(rel),
            None => None,
        });
        let mut numbered = Numbered::default();
        match root.and_then(|root| numbered.walk(root, &[], driving)) {
            Some(()) => numbered,
            None => Numbered::default(),
        }
    }

    pub(super) fn all(&self) -> Vec<u32> {
        (0..self.count).collect()
    }

    /// Numbers a relation and what is below it. `filters`: the filters directly above.
    fn walk(&mut self, rel: &Rel, filters: &[u32], driving: &DatasetName) -> Option<()> {
        let number = self.count;
        self.count += 1;
        let inputs: Vec<&Rel> = match rel.rel_type.as_ref()? {
            RelType::Read(read) => {
                // The first scan of the dataset is the one that takes slices.
                if self.filtered.is_empty() && reads(read, driving) {
                    self.filtered = filters.iter().copied().chain([number]).collect();
                }
                vec![]
            }
            RelType::Filter(filter) => {
                let filters: Vec<u32> = filters.iter().copied().chain([number]).collect();
                return self.walk(filter.input.as_deref()?, &filters, driving);
            }
            RelType::Project(project) => vec![project.input.as_deref()?],
            RelType::Aggregate(aggregate) => vec![aggregate.input.as_deref()?],
            RelType::Sort(sort) => vec![sort.input.as_deref()?],
            RelType::Fetch(fetch) => vec![fetch.input.as_deref()?],
            RelType::Join(join) => vec![join.left.as_deref()?, join.right.as_deref()?],
            RelType::Cross(cross) => vec![cross.left.as_deref()?, cross.right.as_deref()?],
            RelType::Set(set) => set.inputs.iter().collect(),
            _ => return None,
        };
        inputs.into_iter().try_for_each(|input| self.walk(input, &[], driving))
    }
}

fn reads(read: &ReadRel, dataset: &DatasetName) -> bool {
    match &read.read_type {
        Some(ReadType::NamedTable(table)) => table.names == [dataset.domain.as_str(), dataset.dataset.as_str()],
        _ => false,
    }
}
