//! [`UserFunction`]: a user's function as all the functions of an engine that it takes.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use pithead_functions::{Extension, Steps};
use pithead_model::{CalledFunction, FunctionKind};

use crate::aggregate::{WasmAggregate, name_of};
use crate::aggregator::{Aggregator, Step};
use crate::code::Code;
use crate::finish::{self, finish};
use crate::function::scalar;

/// The functions of an engine by which a user's function is called.
#[derive(Clone, Debug)]
pub enum UserFunction {
    /// A function of one row, or of one that has any number of results.
    Scalar(Arc<ScalarUDF>),
    /// An aggregate: whole, in parts, of parts; and what makes results of parts.
    Aggregate([Arc<AggregateUDF>; 3], Arc<ScalarUDF>),
}

impl UserFunction {
    /// The function of a definition. `aliases`: other names by which statements call it.
    pub fn new(called: &CalledFunction, code: &Code, aliases: Vec<String>) -> UserFunction {
        match called.function.kind {
            FunctionKind::Scalar | FunctionKind::Table => UserFunction::Scalar(Arc::new(scalar(called, code, aliases))),
            FunctionKind::Aggregate => {
                let of = Aggregator::new(called, code);
                let mut aliases = Some(aliases);
                let steps = [Step::Whole, Step::Part, Step::Merge].map(|step| {
                    let aliases = if step == Step::Whole { aliases.take() } else { None };
                    Arc::new(AggregateUDF::new_from_impl(WasmAggregate::new(&of, step, aliases.unwrap_or_default())))
                });
                UserFunction::Aggregate(steps, Arc::new(finish(&of)))
            }
        }
    }

    /// Makes it known to a state.
    pub fn register(&self, state: &mut SessionState) -> Result<()> {
        match self {
            UserFunction::Scalar(function) => state.register_udf(Arc::clone(function)).map(drop),
            UserFunction::Aggregate(steps, finish) => {
                steps.iter().try_for_each(|step| state.register_udaf(Arc::clone(step)).map(drop))?;
                state.register_udf(Arc::clone(finish)).map(drop)
            }
        }
    }
}

/// A user's function among those that an engine may lack. OPEN names it by all that its result hangs on.
pub fn extensions(called: &CalledFunction, code: &Code) -> Vec<Extension> {
    let announced = called.extension();
    let version = announced.strip_prefix(called.called.as_str()).and_then(|rest| rest.strip_prefix('/')).unwrap_or_default();
    match UserFunction::new(called, code, vec![]) {
        UserFunction::Scalar(function) => vec![Extension::scalar(function.as_ref().clone(), version)],
        UserFunction::Aggregate(steps, finish) => {
            let of = Aggregator::new(called, code);
            let [part, merge] = [Step::Part, Step::Merge].map(|step| name_of(&of, step));
            let [whole, parts, merges] = steps.map(|step| Extension::aggregate(step.as_ref().clone(), version));
            vec![
                whole.in_steps(Steps { part, finish: finish::name_of(&of) }),
                parts.merged_by(&merge).announced_as(&announced),
                merges.merged_by(&merge).announced_as(&announced),
                Extension::scalar(finish.as_ref().clone(), version).announced_as(&announced),
            ]
        }
    }
}
