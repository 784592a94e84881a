//! [`Aggregator`]: a user's aggregate, ready to be called for many groups at once.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::buffer::NullBuffer;
use arrow::compute::{cast, filter};
use arrow::datatypes::DataType;
use datafusion::common::Result;
use pithead_model::{CalledFunction, Fault};
use pithead_program::{AggregateCall, GroupStates, GuestMemory};

use crate::code::{AtMost, Code, data_type, failed};
use crate::external::external;

/// The memory of a call. The engine does not say which session an aggregate works for, so this much is no session's.
const CALL_BYTES_MAX: usize = 128 << 20;

/// The same for the results of all calls that give one array.
const RESULT_BYTES_MAX: usize = 1 << 30;

/// What an aggregate of the engine computes of a user's aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// Results from rows.
    Whole,
    /// States from rows.
    Part,
    /// States from states.
    Merge,
}

/// A user's aggregate, ready to be called.
#[derive(Clone, Debug)]
pub(crate) struct Aggregator {
    called: CalledFunction,
    code: Code,
    takes: Vec<DataType>,
    returns: DataType,
}

impl Aggregator {
    pub(crate) fn new(called: &CalledFunction, code: &Code) -> Aggregator {
        let takes = called.function.arguments.iter().map(|argument| data_type(argument.of)).collect();
        Aggregator { called: called.clone(), code: code.clone(), takes, returns: data_type(called.function.returns) }
    }

    pub(crate) fn called(&self) -> &CalledFunction {
        &self.called
    }

    /// The types of its arguments.
    pub(crate) fn takes(&self) -> &[DataType] {
        &self.takes
    }

    /// Whether its module is at hand.
    pub(crate) fn is_ready(&self) -> bool {
        self.code.get().is_some()
    }

    pub(crate) fn returns(&self) -> &DataType {
        &self.returns
    }

    fn call<T>(&self, run: impl FnOnce(AggregateCall<'_>) -> std::result::Result<T, String>) -> Result<T> {
        let name = self.called.name();
        let lost = || Fault::bug(format!("the module of the aggregate {name} was not loaded before it ran"));
        let module = self.code.get().ok_or_else(|| external(lost()))?;
        let call = AggregateCall { module, export: &self.called.function.export, returns: &self.returns };
        run(call).map_err(|cause| external(failed(name, &cause)))
    }

    /// Adds rows, or for [`Step::Merge`] states, to the states of their groups. Rows that the filter leaves out, or that have a NULL,
    /// are no rows of the groups; the latter are if it was created CALLED ON NULL INPUT.
    pub(crate) fn add(
        &self,
        step: Step,
        columns: &[ArrayRef],
        group_of: &[usize],
        wanted: Option<&BooleanArray>,
        states: &mut GroupStates,
    ) -> Result<()> {
        let takes: &[DataType] = if step == Step::Merge { &[DataType::BinaryView] } else { &self.takes };
        if columns.len() != takes.len() {
            let what = format!("it takes {} arguments, not {}", takes.len(), columns.len());
            return Err(external(failed(self.called.name(), &what)));
        }
        let fitted = |(column, takes): (&ArrayRef, &DataType)| {
            Ok(if column.data_type() == takes { Arc::clone(column) } else { cast(column, takes)? })
        };
        let mut columns: Vec<ArrayRef> = columns.iter().zip(takes).map(fitted).collect::<Result<_>>()?;
        let is_strict = step == Step::Merge || !self.called.function.called_on_null;
        let mut group_of = std::borrow::Cow::Borrowed(group_of);
        if let Some(kept) = kept_rows(&columns, is_strict, wanted) {
            columns = columns.iter().map(|column| filter(column, &kept)).collect::<std::result::Result<_, _>>()?;
            let groups = group_of.iter().zip(kept.values()).filter(|(_, is_kept)| *is_kept).map(|(group, _)| *group);
            group_of = groups.collect::<Vec<_>>().into();
        }
        self.call(|call| match step {
            Step::Merge => call.combine(&columns[0], &group_of, states, &call_memory),
            Step::Whole | Step::Part => call.accumulate(&columns, &group_of, states, &call_memory),
        })
    }

    /// The results of states, which count in `held` while there are more to come.
    pub(crate) fn finish(
        &self,
        states: &ArrayRef,
        memory: &dyn Fn() -> Box<dyn GuestMemory>,
        held: &mut dyn GuestMemory,
    ) -> Result<ArrayRef> {
        self.call(|call| call.finish(states, memory, held))
    }

    /// What a step gives of states.
    pub(crate) fn given(&self, step: Step, states: ArrayRef) -> Result<ArrayRef> {
        match step {
            Step::Whole => self.finish(&states, &call_memory, &mut AtMost::new(RESULT_BYTES_MAX)),
            Step::Part | Step::Merge => Ok(states),
        }
    }
}

fn call_memory() -> Box<dyn GuestMemory> {
    Box::new(AtMost::new(CALL_BYTES_MAX))
}

/// The rows that count; none: all of them.
fn kept_rows(columns: &[ArrayRef], is_strict: bool, wanted: Option<&BooleanArray>) -> Option<BooleanArray> {
    let nulls = columns.iter().filter(|_| is_strict).map(|column| column.nulls());
    let nulls = nulls.fold(None, |all, nulls| NullBuffer::union(all.as_ref(), nulls));
    let wanted = wanted.map(|wanted| match wanted.nulls() {
        Some(nulls) => NullBuffer::new(wanted.values() & nulls.inner()),
        None => NullBuffer::new(wanted.values().clone()),
    });
    let kept = NullBuffer::union(nulls.as_ref(), wanted.as_ref()).filter(|kept| kept.null_count() > 0)?;
    Some(BooleanArray::new(kept.into_inner(), None))
}
