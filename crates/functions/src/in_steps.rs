//! [`InSteps`]: an aggregate that drives compute in parts. The host puts the parts together, and a function of one row makes the result.
//!
//! What is kept of rows, and what is made of it, is told by those who implement [`Made`] and [`Kept`].

use std::fmt::Debug;
use std::hash::Hash;
use std::mem::size_of_val;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

use crate::wall_time::as_given;

/// What is made of a group's rows: each result that there is of them, and the parts themselves.
pub(crate) trait Made: Copy + Debug + Eq + Hash + Send + Sync + 'static {
    /// What is kept of rows.
    type Kept: Kept<Self>;

    /// The aggregate that gives parts.
    const PART: &'static str;
    /// The aggregate that puts them together.
    const MERGE: &'static str;
    /// The parts themselves.
    const PARTS: Self;
    /// Each aggregate, and the function of one row that makes its result of the parts put together.
    const FINISHED: &'static [(&'static str, &'static str, Self)];

    fn signature(is_of_parts: bool) -> Signature;

    /// The type of the values in a column.
    fn of_column(column: &DataType, is_of_parts: bool) -> Result<&DataType>;

    /// The type of the result for values of a type.
    fn result(self, values: &DataType) -> DataType;

    /// The result of no values, which is of this type.
    fn of_nothing(self, data_type: &DataType) -> Result<ScalarValue> {
        ScalarValue::try_from(data_type)
    }

    /// The results of parts, one of each row.
    fn of_parts(self, parts: &ArrayRef) -> Result<ArrayRef>;

    fn state_fields(name: &str, values: &DataType, is_distinct: bool) -> Result<Vec<FieldRef>>;

    fn accumulator(self, values: &DataType, is_of_parts: bool, is_distinct: bool) -> Result<Box<dyn Accumulator>>;
}

/// What is kept of a group's rows.
pub(crate) trait Kept<M>: Debug + Send + Sync + 'static {
    /// Adds a column's values.
    fn update(&mut self, values: &ArrayRef) -> Result<()>;

    /// Adds what parts have.
    fn merge_parts(&mut self, parts: &ArrayRef) -> Result<()>;

    /// Adds what states have.
    fn merge(&mut self, states: &[ArrayRef]) -> Result<()>;

    fn state(&self) -> Result<Vec<ScalarValue>>;

    fn result(&self, made: M) -> Result<ScalarValue>;

    /// Bytes beside those of the value itself.
    fn size(&self) -> usize;
}

/// Such an aggregate of a column's values. NULLs do not count.
pub(crate) fn made_udaf<M: Made>(name: &'static str, made: M) -> AggregateUDF {
    AggregateUDF::new_from_impl(InSteps { name, made, is_of_parts: false, signature: M::signature(false) })
}

/// What puts parts together.
pub(crate) fn merge_udaf<M: Made>() -> AggregateUDF {
    AggregateUDF::new_from_impl(InSteps { name: M::MERGE, made: M::PARTS, is_of_parts: true, signature: M::signature(true) })
}

/// What makes a result of parts that were put together.
pub(crate) fn finish_udf<M: Made>(name: &'static str, made: M) -> ScalarUDF {
    ScalarUDF::new_from_impl(Finish { name, made, signature: M::signature(true) })
}

/// All aggregates that are made of such parts.
pub(crate) fn finished_udafs<M: Made>() -> impl Iterator<Item = AggregateUDF> {
    M::FINISHED.iter().map(|(name, _, made)| made_udaf(name, *made))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct InSteps<M> {
    name: &'static str,
    made: M,
    /// Whether it is given parts rather than values.
    is_of_parts: bool,
    signature: Signature,
}

impl<M: Made> AggregateUDFImpl for InSteps<M> {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [column] => Ok(self.made.result(M::of_column(column, self.is_of_parts)?)),
            _ => plan_err!("{} takes one argument, not {}", self.name, types.len()),
        }
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.made.of_nothing(data_type)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let values = M::of_column(args.input_fields[0].data_type(), self.is_of_parts)?;
        M::state_fields(args.name, values, args.is_distinct)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let values = M::of_column(args.expr_fields[0].data_type(), self.is_of_parts)?;
        self.made.accumulator(values, self.is_of_parts, args.is_distinct)
    }
}

/// What is kept of a group's rows or parts, and what is made of it in the end.
#[derive(Clone, Debug)]
pub(crate) struct Accumulating<M: Made> {
    pub(crate) kept: M::Kept,
    pub(crate) made: M,
    pub(crate) is_of_parts: bool,
}

impl<M: Made> Accumulator for Accumulating<M> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        match self.is_of_parts {
            true => self.kept.merge_parts(&values[0]),
            false => self.kept.update(&values[0]),
        }
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.kept.merge(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.kept.result(self.made)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.kept.state()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.kept.size()
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Finish<M> {
    name: &'static str,
    made: M,
    signature: Signature,
}

impl<M: Made> ScalarUDFImpl for Finish<M> {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [parts] => Ok(self.made.result(M::of_column(parts, true)?)),
            _ => plan_err!("{} takes one argument, not {}", self.name, types.len()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [parts] = args.args.as_slice() else { return internal_err!("expected one argument") };
        let is_scalar = matches!(parts, ColumnarValue::Scalar(_));
        let parts = parts.to_array(if is_scalar { 1 } else { args.number_rows })?;
        as_given(self.made.of_parts(&parts)?, is_scalar)
    }
}
