//! Functions from a gene's row to bytes.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BinaryViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use pithead_matrix::{Accumulate, Cells, Codec, GramParts, RankSums, Row, RowBuffer, Values, take_cells};

use crate::blobs::{Blobs, constant, malformed};
use crate::counted::Counted;
use crate::known_cells::cells;
use crate::outcomes::TStat;

/// Every scalar function over expression matrices.
pub(crate) fn all() -> Vec<ScalarUDF> {
    let of_rows =
        [RowFunction::Accumulate, RowFunction::RankSums, RowFunction::TakeCells, RowFunction::GramPart].map(OfRow::new);
    let mut functions: Vec<ScalarUDF> = of_rows.into_iter().map(ScalarUDF::new_from_impl).collect();
    functions.push(ScalarUDF::new_from_impl(DenseRow::new()));
    functions.push(ScalarUDF::new_from_impl(TStat::new()));
    functions
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RowFunction {
    Accumulate,
    RankSums,
    TakeCells,
    GramPart,
}

/// A function of a gene's row and the cells.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OfRow {
    function: RowFunction,
    signature: Signature,
}

impl OfRow {
    fn new(function: RowFunction) -> Self {
        Self { function, signature: Signature::any(2, Volatility::Immutable) }
    }

    fn run(&self, rows: &Blobs, cells: &Cells, mut result: Counted) -> Result<ArrayRef> {
        let (mut accumulate, mut ranks, mut buffer) = (Accumulate::default(), RankSums::default(), RowBuffer::default());
        let mut parts = GramParts::default();
        let mut builder = BinaryViewBuilder::with_capacity(rows.len());
        let mut out = Vec::new();
        for row in 0..rows.len() {
            let Some(bytes) = rows.get(row) else {
                builder.append_null();
                continue;
            };
            out.clear();
            let done = match self.function {
                RowFunction::Accumulate => accumulate.row(bytes, cells, &mut out),
                RowFunction::RankSums => ranks.row(bytes, cells, &mut out),
                RowFunction::TakeCells => take_cells(bytes, cells, &mut buffer, &mut out),
                RowFunction::GramPart => parts.row(bytes, cells, &mut out),
            };
            done.map_err(|error| malformed(self.name(), error))?;
            result.grow(out.len())?;
            builder.append_value(&out);
        }
        Ok(result.held(Arc::new(builder.finish())))
    }
}

impl ScalarUDFImpl for OfRow {
    fn name(&self) -> &str {
        match self.function {
            RowFunction::Accumulate => "accumulate",
            RowFunction::RankSums => "rank_sums",
            RowFunction::TakeCells => "take_cells",
            RowFunction::GramPart => "gram_part",
        }
    }

    /// The names of columns repeat the description of the cells many times, so they have only its checksum.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let names = args.iter().enumerate().map(|(place, argument)| match place {
            1 => brief_name(argument),
            _ => argument.schema_name().to_string(),
        });
        Ok(format!("{}({})", self.name(), names.collect::<Vec<_>>().join(",")))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::BinaryView)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [rows, known] = args.args.as_slice() else { return exec_err!("{}() takes two arguments", self.name()) };
        let cells = cells(constant(known, self.name(), "what is known of the cells")?, self.name())?;
        let rows = rows.to_array(args.number_rows)?;
        let result = Counted::of(self.name(), &args.config_options);
        Ok(ColumnarValue::Array(self.run(&Blobs::of(&rows, self.name())?, &cells, result)?))
    }
}

/// The description of the cells as it is in the names of columns. Its bytes, and their base64, begin with a checksum of
/// the whole.
fn brief_name(argument: &Expr) -> String {
    const HEAD: usize = 12;
    let head = match argument {
        Expr::Literal(
            ScalarValue::Utf8(Some(text)) | ScalarValue::LargeUtf8(Some(text)) | ScalarValue::Utf8View(Some(text)),
            _,
        ) => text.get(..HEAD).map(str::to_owned),
        Expr::Literal(
            ScalarValue::Binary(Some(bytes)) | ScalarValue::LargeBinary(Some(bytes)) | ScalarValue::BinaryView(Some(bytes)),
            _,
        ) => bytes.get(..HEAD).map(|head| format!("{head:02x?}")),
        _ => None,
    };
    head.unwrap_or_else(|| argument.schema_name().to_string())
}

/// A gene's row from one column for each cell, for matrices that are stored in that form. NULL is 0.
#[derive(Debug, PartialEq, Eq, Hash)]
struct DenseRow {
    signature: Signature,
}

impl DenseRow {
    fn new() -> Self {
        Self { signature: Signature::variadic_any(Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for DenseRow {
    fn name(&self) -> &str {
        "dense_row"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::BinaryView)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let as_floats = |value: &ColumnarValue| Ok(cast(&value.to_array(args.number_rows)?, &DataType::Float32)?);
        let columns = args.args.iter().map(as_floats).collect::<Result<Vec<ArrayRef>>>()?;
        let columns: Vec<_> = columns.iter().map(|column| column.as_primitive::<Float32Type>()).collect();
        let mut builder = BinaryViewBuilder::with_capacity(args.number_rows);
        let (mut cells, mut values, mut out) = (Vec::new(), Vec::new(), Vec::new());
        for row in 0..args.number_rows {
            cells.clear();
            values.clear();
            out.clear();
            for (cell, column) in (0_u32..).zip(&columns) {
                let value = column.value(row);
                if arrow::array::Array::is_valid(*column, row) && value != 0.0 {
                    cells.push(cell);
                    values.push(value);
                }
            }
            Row { n_cells: columns.len(), cells: &cells, values: Values::Floats(&values) }.encode(Codec::None, &mut out);
            builder.append_value(&out);
        }
        Ok(ColumnarValue::Array(Arc::new(builder.finish())))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::BinaryViewArray;
    use arrow::datatypes::Field;
    use datafusion::common::config::ConfigOptions;
    use pithead_matrix::{CellsSpec, GROUPS_MAX};

    use super::*;

    /// A row of few bytes gives a result for each group.
    #[test]
    fn results_of_many_groups_are_counted() {
        let known = CellsSpec { n_cells: 10, n_groups: GROUPS_MAX, ..CellsSpec::default() }.encode().unwrap();
        let mut row = Vec::new();
        Row { n_cells: 10, cells: &[3], values: Values::Floats(&[1.0]) }.encode(Codec::None, &mut row);
        let run = |function: RowFunction, rows: usize| {
            let rows_of = BinaryViewArray::from_iter_values(vec![&row; rows]);
            let field = |of| Arc::new(Field::new("", of, true));
            OfRow::new(function).invoke_with_args(ScalarFunctionArgs {
                args: vec![
                    ColumnarValue::Array(Arc::new(rows_of)),
                    ColumnarValue::Scalar(ScalarValue::BinaryView(Some(known.clone()))),
                ],
                arg_fields: vec![field(DataType::BinaryView), field(DataType::BinaryView)],
                number_rows: rows,
                return_field: field(DataType::BinaryView),
                config_options: Arc::new(ConfigOptions::default()),
            })
        };
        for function in [RowFunction::Accumulate, RowFunction::RankSums] {
            assert!(run(function, 3).is_ok(), "{function:?}");
            let refused = run(function, 8_192).err().unwrap_or_else(|| panic!("{function:?} took more than there is"));
            assert!(refused.to_string().contains("Resources exhausted"), "{function:?}: {refused}");
        }
    }
}
