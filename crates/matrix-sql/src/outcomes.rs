//! `t_stat(partials, test[, ranks])`: a list of outcomes for each gene, with one outcome for each group that is tested.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Builder, Int32Builder, ListArray, StructArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};
use pithead_matrix::{Outcome, Partials, Ranks, Test};

use crate::blobs::{Blobs, malformed};
use crate::counted::Counted;

const NAME: &str = "t_stat";
const FLOATS: [&str; 7] = ["score", "p_value", "log2_fold_change", "share", "share_other", "mean", "mean_other"];

/// The bytes of an outcome.
const OUTCOME_BYTES: usize = size_of::<i32>() + FLOATS.len() * size_of::<f64>();

/// The result type of `t_stat`: a list of `(group, score, p_value, log2_fold_change, share, share_other, mean,
/// mean_other)`, with shares of cells whose value is not zero.
fn test_type() -> DataType {
    DataType::List(Arc::new(Field::new("item", DataType::Struct(fields()), false)))
}

fn fields() -> Fields {
    let group = Field::new("group", DataType::Int32, false);
    std::iter::once(group).chain(FLOATS.map(|name| Field::new(name, DataType::Float64, false))).collect()
}

/// The function TStat of MSG Express (Montana et al. 2023, section 6; see `docs/bibliography.md`).
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct TStat {
    signature: Signature,
}

impl TStat {
    pub(crate) fn new() -> Self {
        use datafusion::logical_expr::TypeSignature::{Any, OneOf};
        Self { signature: Signature::new(OneOf(vec![Any(2), Any(3)]), Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for TStat {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(test_type())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (Some(partials), Some(test)) = (args.args.first(), args.args.get(1)) else {
            return exec_err!("{NAME}() takes partials and a test");
        };
        let test = Test::parse(text(test)?).map_err(|error| malformed(NAME, error))?;
        let partials = Blobs::of(&partials.to_array(args.number_rows)?, NAME)?;
        let ranks = args.args.get(2).map(|ranks| Blobs::of(&ranks.to_array(args.number_rows)?, NAME)).transpose()?;
        let result = Counted::of(NAME, &args.config_options);
        Ok(ColumnarValue::Array(outcomes(&partials, &test, ranks.as_ref(), result)?))
    }
}

fn text(value: &ColumnarValue) -> Result<&str> {
    match value {
        ColumnarValue::Scalar(
            ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) | ScalarValue::LargeUtf8(Some(text)),
        ) => Ok(text),
        _ => exec_err!(r#"{NAME}() takes a test as one text, such as '{{"method": "t-test", "groups": [0]}}'"#),
    }
}

fn outcomes(partials: &Blobs, test: &Test, ranks: Option<&Blobs>, mut result: Counted) -> Result<ArrayRef> {
    let mut columns = Columns::default();
    let mut lengths = Vec::with_capacity(partials.len());
    let mut valid = Vec::with_capacity(partials.len());
    let mut found = Vec::new();
    for row in 0..partials.len() {
        found.clear();
        if let Some(bytes) = partials.get(row) {
            let partials = Partials::decode(bytes).map_err(|error| malformed(NAME, error))?;
            let ranks = ranks.and_then(|ranks| ranks.get(row)).map(Ranks::decode).transpose();
            let ranks = ranks.map_err(|error| malformed(NAME, error))?;
            test.run(&partials, ranks.as_ref(), &mut found).map_err(|error| malformed(NAME, error))?;
        }
        result.grow(found.len() * OUTCOME_BYTES)?;
        test.groups.iter().zip(&found).for_each(|(group, outcome)| columns.push(*group, outcome));
        lengths.push(found.len());
        valid.push(partials.get(row).is_some());
    }
    let item = Arc::new(Field::new("item", DataType::Struct(fields()), false));
    let list = ListArray::try_new(item, OffsetBuffer::from_lengths(lengths), columns.finish()?, Some(NullBuffer::from(valid)))?;
    Ok(result.held(Arc::new(list)))
}

#[derive(Default)]
struct Columns {
    groups: Int32Builder,
    floats: [Float64Builder; FLOATS.len()],
}

impl Columns {
    fn push(&mut self, group: usize, outcome: &Outcome) {
        let [own, other] = &outcome.sides;
        let share = |side: &pithead_matrix::Moments| side.nonzeros as f64 / side.n as f64;
        let Outcome { score, p_value, log2_fold_change, .. } = *outcome;
        self.groups.append_value(group as i32);
        let values = [score, p_value, log2_fold_change, share(own), share(other), own.mean, other.mean];
        self.floats.iter_mut().zip(values).for_each(|(column, value)| column.append_value(value));
    }

    fn finish(mut self) -> Result<ArrayRef> {
        let mut columns: Vec<ArrayRef> = vec![Arc::new(self.groups.finish())];
        columns.extend(self.floats.iter_mut().map(|column| Arc::new(column.finish()) as ArrayRef));
        Ok(Arc::new(StructArray::try_new(fields(), columns, None)?))
    }
}
