//! A user's aggregate as the engine calls it: whole, and in the steps in which drives and host compute it.
//!
//! The engine has it under four names. `NAME@HASH` goes from rows to the result. `NAME@HASH.part` goes from rows to a state, which is
//! bytes; `NAME@HASH.merge` from states to a state; and `NAME@HASH.finish`, a function of one row, from a state to the result.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::{AggregateFunctionParams, WindowFunctionParams};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature, udaf_default_schema_name,
    udaf_default_window_function_schema_name,
};
use pithead_model::{Blame, Fault};
use pithead_program::GroupStates;

use crate::aggregator::{Aggregator, Step};
use crate::external::external;
use crate::fit;
use crate::function::engine_volatility;
use crate::groups::{GroupsOf, One};

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
        let signature = Signature::user_defined(engine_volatility(of.called().function.volatility));
        WasmAggregate { of: of.clone(), step, name: name_of(of, step), aliases, signature }
    }

    fn takes(&self) -> &[DataType] {
        if self.step == Step::Merge { &[DataType::BinaryView] } else { self.of.takes() }
    }

    /// A statement sees one version of each function, so names of columns need no hash.
    fn plain(&self, text: String) -> String {
        match (self.step, text.strip_prefix(self.name.as_str())) {
            (Step::Whole, Some(rest)) => format!("{}{rest}", self.of.called().name()),
            _ => text,
        }
    }
}

/// The name by which plans call a step.
pub(crate) fn name_of(of: &Aggregator, step: Step) -> String {
    let called = &of.called().called;
    match step {
        Step::Whole => called.clone(),
        Step::Part => format!("{called}.part"),
        Step::Merge => format!("{called}.merge"),
    }
}

/// The name that plans call it by says all that it is.
impl PartialEq for WasmAggregate {
    fn eq(&self, other: &Self) -> bool {
        self.step == other.step && self.of.called() == other.of.called()
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

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        Ok(fit::fitted(self.takes(), given))
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        fit::check(self.of.called().name(), self.takes(), given, &[])?;
        Ok(if self.step == Step::Whole { self.of.returns().clone() } else { DataType::BinaryView })
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "state"), DataType::BinaryView, true))])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match args.is_distinct {
            true => Err(external(distinct(self.of.called().name()))),
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
        if self.step != Step::Whole || !self.of.is_ready() {
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
