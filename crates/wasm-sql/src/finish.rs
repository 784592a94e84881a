//! [`finish`]: what makes the result of a user's aggregate of a state, as a function of the engine.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature};

use crate::aggregator::Aggregator;
use crate::external::external;
use crate::function::{CallMemory, engine_volatility};

/// The name by which plans call it.
pub(crate) fn name_of(of: &Aggregator) -> String {
    format!("{}.finish", of.called().called)
}

/// The function from a state to a result. The state NULL is that of no row.
pub(crate) fn finish(of: &Aggregator) -> ScalarUDF {
    let signature = Signature::exact(vec![DataType::BinaryView], engine_volatility(of.called().function.volatility));
    ScalarUDF::new_from_impl(Finish { name: name_of(of), of: of.clone(), signature })
}

#[derive(Debug)]
struct Finish {
    name: String,
    of: Aggregator,
    signature: Signature,
}

/// The name that plans call it by says all that it is.
impl PartialEq for Finish {
    fn eq(&self, other: &Self) -> bool {
        self.of.called() == other.of.called()
    }
}

impl Eq for Finish {}

impl Hash for Finish {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Finish {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.of.returns().clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [states] = args.args.as_slice() else {
            return Err(external(crate::code::failed(self.of.called().name(), "its results are made of one state")));
        };
        let states = states.to_array(args.number_rows)?;
        let states = if *states.data_type() == DataType::BinaryView { states } else { cast(&states, &DataType::BinaryView)? };
        let memory = CallMemory::of(self.of.called().name(), &args.config_options);
        let results = self.of.finish(&Arc::clone(&states), &|| memory.counted(), &mut *memory.counted())?;
        memory.held(results).map(ColumnarValue::Array)
    }
}
