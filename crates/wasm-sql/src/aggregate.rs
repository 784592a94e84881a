//! A user's aggregate as the engine calls it: whole, and in the steps in which drives and host compute it.
//!
//! The engine has it under four names. `NAME@HASH` goes from rows to the result. `NAME@HASH.part` goes from rows to a state, which is
//! bytes; `NAME@HASH.merge` from states to a state; and `NAME@HASH.finish`, a function of one row, from a state to the result.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::buffer::NullBuffer;
use arrow::compute::{cast, filter};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::{AggregateFunctionParams, WindowFunctionParams};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature, udaf_default_schema_name,
    udaf_default_window_function_schema_name,
};
use pithead_model::{Blame, CalledFunction, Fault};
use pithead_program::{AggregateCall, GroupStates, GuestMemory};

use crate::code::{AtMost, Code, data_type, failed};
use crate::function::{engine_volatility, external};
use crate::groups::{GroupsOf, One};

/// The memory of a call. The engine does not say which session an aggregate works for, so this much is no session's.
const CALL_BYTES_MAX: usize = 128 << 20;

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

    /// The results of states.
    pub(crate) fn finish(&self, states: &ArrayRef, memory: &dyn Fn() -> Box<dyn GuestMemory>) -> Result<ArrayRef> {
        self.call(|call| call.finish(states, memory))
    }

    /// What a step gives of states.
    pub(crate) fn given(&self, step: Step, states: ArrayRef) -> Result<ArrayRef> {
        match step {
            Step::Whole => self.finish(&states, &call_memory),
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

/// One step of a user's aggregate as an aggregate of the engine.
#[derive(Debug)]
pub(crate) struct WasmAggregate {
    of: Aggregator,
    step: Step,
    name: String,
    aliases: Vec<String>,
    signature: Signature,
}

impl WasmAggregate {
    pub(crate) fn new(of: &Aggregator, step: Step, aliases: Vec<String>) -> WasmAggregate {
        let takes = if step == Step::Merge { vec![DataType::BinaryView] } else { of.takes.clone() };
        let signature = Signature::exact(takes, engine_volatility(of.called.function.volatility));
        WasmAggregate { of: of.clone(), step, name: name_of(of, step), aliases, signature }
    }

    /// A statement sees one version of each function, so names of columns need no hash.
    fn plain(&self, text: String) -> String {
        match (self.step, text.strip_prefix(self.name.as_str())) {
            (Step::Whole, Some(rest)) => format!("{}{rest}", self.of.called.name()),
            _ => text,
        }
    }
}

/// The name by which plans call a step.
pub(crate) fn name_of(of: &Aggregator, step: Step) -> String {
    let called = &of.called.called;
    match step {
        Step::Whole => called.clone(),
        Step::Part => format!("{called}.part"),
        Step::Merge => format!("{called}.merge"),
    }
}

/// The name that plans call it by says all that it is.
impl PartialEq for WasmAggregate {
    fn eq(&self, other: &Self) -> bool {
        self.step == other.step && self.of.called == other.of.called
    }
}

impl Eq for WasmAggregate {}

impl Hash for WasmAggregate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl AggregateUDFImpl for WasmAggregate {
    fn name(&self) -> &str {
        &self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn schema_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        udaf_default_schema_name(self, params).map(|text| self.plain(text))
    }

    fn window_function_schema_name(&self, params: &WindowFunctionParams) -> Result<String> {
        udaf_default_window_function_schema_name(self, params).map(|text| self.plain(text))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(if self.step == Step::Whole { self.of.returns.clone() } else { DataType::BinaryView })
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "state"), DataType::BinaryView, true))])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match args.is_distinct {
            true => Err(external(distinct(self.of.called.name()))),
            false => Ok(Box::new(One::new(self.of.clone(), self.step))),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(GroupsOf::new(self.of.clone(), self.step)))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    /// The result over no row. Its module is there: modules are loaded before plans are optimised.
    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        if self.step != Step::Whole || self.of.code.get().is_none() {
            return ScalarValue::try_from(data_type);
        }
        let mut states = GroupStates::default();
        states.resize(1);
        ScalarValue::try_from_array(&self.of.given(self.step, states.take(1))?, 0)
    }
}

fn distinct(name: &str) -> Fault {
    Fault::new(Blame::Unsupported, format!("{name}(DISTINCT …) cannot be computed beside these other aggregates"))
        .hint("aggregate over (SELECT DISTINCT …) instead")
}
