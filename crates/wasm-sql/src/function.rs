//! A user's function of one row as the engine calls it.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arrow::array::{Array, ArrayRef};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility as EngineVolatility,
};
use parking_lot::Mutex;
use pithead_functions::{Holder, SessionCalls, SessionMemory, announce_call, fault_from_datafusion};
use pithead_model::{CalledFunction, Fault, Function, FunctionKind, Volatility};
use pithead_program::{FunctionCall, GuestMemory, hex, thread_time};
use sha2::{Digest, Sha256};

use crate::code::{Code, data_type, failed, result_type};
use crate::external::external;
use crate::fit;

/// Digits of the hash in the name by which plans call a function: 128 bits.
const HASH_DIGITS: usize = 32;
/// A failure for constants that took so long is the answer for some time when they come again.
const SLOW: Duration = Duration::from_millis(100);
const FAILED_WAIT: Duration = Duration::from_secs(10);

/// How plans call a domain's function.
pub fn called(domain: &str, name: &str, function: &Function) -> CalledFunction {
    // JSON of one form: its fields are in the order of their declaration.
    let definition = serde_json::to_vec(function).unwrap_or_default();
    let digits = hex(&Sha256::digest(definition));
    CalledFunction { called: format!("{domain}.{name}@{}", &digits[..HASH_DIGITS]), function: function.clone() }
}

/// The function.
pub(crate) fn scalar(called: &CalledFunction, code: &Code, aliases: Vec<String>) -> ScalarUDF {
    let function = &called.function;
    let volatility = engine_volatility(function.volatility);
    let takes: Vec<DataType> = function.arguments.iter().map(|argument| data_type(argument.of)).collect();
    let signature = Signature::user_defined(volatility);
    let returns = result_type(function);
    announce_call(&called.called);
    ScalarUDF::new_from_impl(WasmFunction {
        called: called.clone(),
        code: code.clone(),
        aliases,
        signature,
        takes,
        returns,
        failed: Mutex::default(),
    })
}

/// Whether a function is a user's that gives any number of results for each row. What it gives is a list of them.
pub fn returns_set(function: &ScalarUDF) -> bool {
    let own = function.inner().downcast_ref::<WasmFunction>();
    own.is_some_and(|own| own.called.function.kind == FunctionKind::Table)
}

pub(crate) fn engine_volatility(volatility: Volatility) -> EngineVolatility {
    match volatility {
        Volatility::Immutable => EngineVolatility::Immutable,
        Volatility::Stable => EngineVolatility::Stable,
        Volatility::Volatile => EngineVolatility::Volatile,
    }
}

#[derive(Debug)]
struct WasmFunction {
    called: CalledFunction,
    code: Code,
    aliases: Vec<String>,
    signature: Signature,
    takes: Vec<DataType>,
    returns: DataType,
    /// What it failed for last after a long time. The optimiser asks for constants again and again, and waits for each answer.
    failed: Mutex<Option<Failure>>,
}

/// Constants that a function failed for.
#[derive(Debug)]
struct Failure {
    constants: Vec<ScalarValue>,
    when: Instant,
    fault: Fault,
    /// The memory of its session, where that was refused: with more of it, the function may not fail.
    refused_bytes: Option<usize>,
}

impl Failure {
    /// Whether it is the answer for a session with so much memory.
    fn answers(&self, constants: &[ScalarValue], memory_bytes: usize) -> bool {
        let has_no_more = self.refused_bytes.is_none_or(|refused| memory_bytes <= refused);
        self.constants == constants && has_no_more && self.when.elapsed() < FAILED_WAIT
    }
}

/// The name that plans call it by says all that it is.
impl PartialEq for WasmFunction {
    fn eq(&self, other: &Self) -> bool {
        self.called == other.called
    }
}

impl Eq for WasmFunction {}

impl Hash for WasmFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.called.hash(state);
    }
}

impl ScalarUDFImpl for WasmFunction {
    fn name(&self) -> &str {
        &self.called.called
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    /// A statement sees one version of each function, so names of columns need no hash.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let args: Vec<String> = args.iter().map(|arg| arg.schema_name().to_string()).collect();
        Ok(format!("{}({})", self.called.name(), args.join(",")))
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        Ok(format!("{}({})", self.called.name(), args.join(", ")))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        Ok(fit::fitted(&self.takes, given))
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.returns.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let given: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        fit::check(self.called.name(), &self.takes, &given, args.scalar_arguments)?;
        Ok(Arc::new(Field::new(self.name(), self.returns.clone(), true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match self.constants(&args.args) {
            Some(constants) => self.of_constants(&args, constants).map(ColumnarValue::Scalar),
            None => {
                let memory = CallMemory::of(self.called.name(), &args.config_options);
                // The call has this thread until it ends.
                let began = thread_time();
                let rows = self.rows(&args.args, args.number_rows, &memory)?;
                let (cpu, calls) = (thread_time().saturating_sub(began), SessionCalls::of(&args.config_options));
                calls.took(self.called.name(), self.name(), args.number_rows, cpu);
                Ok(ColumnarValue::Array(rows))
            }
        }
    }
}

impl WasmFunction {
    /// The arguments, where one result is that of all rows.
    fn constants(&self, args: &[ColumnarValue]) -> Option<Vec<ScalarValue>> {
        let constant = |arg: &ColumnarValue| match arg {
            ColumnarValue::Scalar(value) => Some(value.clone()),
            ColumnarValue::Array(_) => None,
        };
        let is_volatile = self.called.function.volatility == Volatility::Volatile;
        args.iter().map(constant).collect::<Option<Vec<_>>>().filter(|_| !is_volatile)
    }

    fn of_constants(&self, args: &ScalarFunctionArgs, constants: Vec<ScalarValue>) -> Result<ScalarValue> {
        let memory = CallMemory::of(self.called.name(), &args.config_options);
        let limit = memory.memory.limit();
        if let Some(known) = self.failed.lock().as_ref().filter(|known| known.answers(&constants, limit)) {
            return Err(external(known.fault.clone()));
        }
        let began = Instant::now();
        match self.rows(&args.args, 1, &memory) {
            Ok(result) => ScalarValue::try_from_array(&result, 0),
            Err(error) => {
                let fault = fault_from_datafusion(error);
                if began.elapsed() > SLOW {
                    let refused_bytes = memory.has_refused().then_some(limit);
                    let (when, fault) = (Instant::now(), fault.clone());
                    *self.failed.lock() = Some(Failure { constants, when, fault, refused_bytes });
                }
                Err(external(fault))
            }
        }
    }

    fn rows(&self, args: &[ColumnarValue], rows: usize, memory: &CallMemory<'_>) -> Result<ArrayRef> {
        let name = self.called.name();
        let lost = || Fault::bug(format!("the module of the function {name} was not loaded before it ran"));
        let module = self.code.get().ok_or_else(|| external(lost()))?;
        if args.len() != self.takes.len() {
            return Err(external(failed(name, &format!("it takes {} arguments, not {}", self.takes.len(), args.len()))));
        }
        let array = |(arg, takes): (&ColumnarValue, &DataType)| {
            let array = arg.to_array(rows)?;
            Ok(if array.data_type() == takes { array } else { cast(&array, takes)? })
        };
        let arrays: Vec<ArrayRef> = args.iter().zip(&self.takes).map(array).collect::<Result<_>>()?;
        let counted = || memory.counted();
        let function = &self.called.function;
        let call =
            FunctionCall { module, export: &function.export, returns: &self.returns, called_on_null: function.called_on_null };
        let result = call.rows(&arrays, rows, &counted).map_err(|cause| external(failed(name, &cause)))?;
        memory.held(result)
    }
}

/// The memory of a session for one call of a function.
pub(crate) struct CallMemory<'a> {
    name: &'a str,
    memory: SessionMemory,
    has_refused: Arc<AtomicBool>,
}

impl<'a> CallMemory<'a> {
    pub(crate) fn of(name: &'a str, options: &ConfigOptions) -> CallMemory<'a> {
        CallMemory { name, memory: SessionMemory::of(options), has_refused: Arc::default() }
    }

    /// For the memory of one instance.
    pub(crate) fn counted(&self) -> Box<dyn GuestMemory> {
        Box::new(Counted { holder: self.memory.holder(self.name), has_refused: Arc::clone(&self.has_refused) })
    }

    /// Counts the result's memory for as long as it is there. Numbers take no more than what they were computed from.
    pub(crate) fn held(&self, result: ArrayRef) -> Result<ArrayRef> {
        if !matches!(result.data_type(), DataType::Utf8View | DataType::List(_)) {
            return Ok(result);
        }
        let mut holder = self.memory.holder(self.name);
        let grown = holder.grow(result.get_array_memory_size() as u64);
        grown.inspect_err(|_| self.has_refused.store(true, Ordering::Relaxed))?;
        Ok(holder.hold(&result))
    }

    /// Whether the session had too little of it.
    fn has_refused(&self) -> bool {
        self.has_refused.load(Ordering::Relaxed)
    }
}

/// The memory of an instance, out of its session's.
struct Counted {
    holder: Holder,
    has_refused: Arc<AtomicBool>,
}

impl GuestMemory for Counted {
    fn grow(&mut self, bytes: usize) -> std::result::Result<(), String> {
        let grown = self.holder.grow(bytes as u64).map_err(|error| fault_from_datafusion(error).message);
        grown.inspect_err(|_| self.has_refused.store(true, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_kept_for_who_has_no_more_memory() {
        let constants = vec![ScalarValue::Int64(Some(1))];
        let failed = |refused_bytes| {
            let (constants, fault) = (constants.clone(), Fault::invalid("it is too much"));
            Failure { constants, when: Instant::now(), fault, refused_bytes }
        };
        let (refused, any) = (failed(Some(10)), failed(None));
        assert_eq!([9, 10, 11].map(|bytes| refused.answers(&constants, bytes)), [true, true, false]);
        assert!(any.answers(&constants, 11) && !any.answers(&[ScalarValue::Int64(Some(2))], 11));
        if let Some(when) = Instant::now().checked_sub(FAILED_WAIT) {
            assert!(!Failure { when, ..any }.answers(&constants, 11), "it may do better by now");
        }
    }
}
