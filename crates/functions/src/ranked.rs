//! `percentile_disc` (`quantile_disc`, `quantile`) and `mad`: what follows from the order of all values.
//!
//! These need every value, so a drive computes them where it has all rows of a group, and else the host does.

use std::mem::size_of_val;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, new_empty_array};
use arrow::compute::{cast, filter, is_not_null};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Schema};
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Result, ScalarValue, exec_err, internal_err, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, Signature, Volatility};

use crate::one_value::canonical;

/// `percentile_disc(x, share)`, also as `percentile_disc(share) WITHIN GROUP (ORDER BY x)`: the first value in their order up to which
/// there are at least this share of all values. A share below 0 is counted from the last value. Of a list of shares it is a list of values.
pub(crate) fn percentile_disc_udaf() -> AggregateUDF {
    let aliases = ["quantile_disc", "quantile"].map(str::to_owned).to_vec();
    AggregateUDF::new_from_impl(PercentileDisc { aliases, signature: Signature::user_defined(Volatility::Immutable) })
}

/// `mad(Float64) -> Float64`: the median of the values' distances from their median.
pub(crate) fn mad_udaf() -> AggregateUDF {
    AggregateUDF::new_from_impl(Mad { signature: Signature::exact(vec![DataType::Float64], Volatility::Immutable) })
}

/// The values of a group, as bytes that compare as the values do.
#[derive(Debug)]
pub(crate) struct Values {
    data_type: DataType,
    converter: RowConverter,
    rows: Rows,
}

impl Values {
    pub(crate) fn new(data_type: &DataType) -> Result<Self> {
        let fields = vec![SortField::new(data_type.clone())];
        if !RowConverter::supports_fields(&fields) {
            return exec_err!("values of {data_type} have no order here");
        }
        let converter = RowConverter::new(fields)?;
        let rows = converter.empty_rows(0, 0);
        Ok(Self { data_type: data_type.clone(), converter, rows })
    }

    /// Adds those that are not NULL.
    pub(crate) fn add(&mut self, values: &ArrayRef) -> Result<()> {
        let values = match values.data_type() == &self.data_type {
            true => filter(values, &is_not_null(values)?)?,
            false => cast(&filter(values, &is_not_null(values)?)?, &self.data_type)?,
        };
        Ok(self.converter.append(&mut self.rows, &[canonical(&values)?])?)
    }

    /// Adds those of states.
    pub(crate) fn merge(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [lists] = states else { return internal_err!("expected one column of states") };
        lists.as_list::<i32>().iter().flatten().try_for_each(|values| self.add(&values))
    }

    /// All of them, or those that are distinct.
    pub(crate) fn array(&self, is_distinct: bool) -> Result<ArrayRef> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        if rows.is_empty() {
            return Ok(new_empty_array(&self.data_type));
        }
        if is_distinct {
            rows.sort_unstable();
            rows.dedup();
        }
        match <[ArrayRef; 1]>::try_from(self.converter.convert_rows(rows)?) {
            Ok([values]) => Ok(values),
            Err(_) => internal_err!("expected one column"),
        }
    }

    pub(crate) fn state(&self) -> Result<Vec<ScalarValue>> {
        Ok(vec![SingleRowListArrayBuilder::new(self.array(false)?).build_list_scalar()])
    }

    /// The value at such a place, of all or of those that are distinct; NULL if there is none.
    fn at(&self, share: &Share, is_distinct: bool) -> Result<ScalarValue> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        if is_distinct {
            rows.sort_unstable();
            rows.dedup();
        }
        if rows.is_empty() {
            return ScalarValue::try_from(&self.data_type);
        }
        let place = share.place(rows.len());
        let (_, value, _) = rows.select_nth_unstable(place);
        match &self.converter.convert_rows([*value])?[..] {
            [value] => ScalarValue::try_from_array(value, 0),
            _ => internal_err!("expected one column"),
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.converter.size() + self.rows.size()
    }
}

pub(crate) fn state_field(name: &str, values: &DataType) -> FieldRef {
    let list = DataType::List(Arc::new(Field::new_list_field(values.clone(), true)));
    Arc::new(Field::new(format_state_name(name, "values"), list, true))
}

/// A share of all values, as the decimal that is written: digits, and how many of them are behind the point.
#[derive(Clone, Debug, PartialEq)]
struct Share {
    digits: u128,
    scale: u32,
    is_from_last: bool,
}

/// The most digits of a share behind the point. Its product with a number of values has 128 bits.
const SCALE_MAX: usize = 18;

impl Share {
    fn of(share: f64, is_descending: bool) -> Result<Share> {
        if share.is_nan() || share.abs() > 1.0 {
            return plan_err!("percentile_disc expects a share from -1 to 1, and {share} was given");
        }
        // The shortest text that is read as this float is what was written.
        let text = share.abs().to_string();
        let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
        let part = &part[..part.len().min(SCALE_MAX)];
        let Ok(digits) = format!("{whole}{part}").parse() else { return internal_err!("{text} is no number") };
        Ok(Share { digits, scale: part.len() as u32, is_from_last: (share < 0.0) != is_descending })
    }

    /// The place of the value that is asked for, among so many in their order.
    fn place(&self, count: usize) -> usize {
        let up_to = (self.digits * count as u128).div_ceil(10_u128.pow(self.scale)) as usize;
        let place = up_to.clamp(1, count) - 1;
        if self.is_from_last { count - 1 - place } else { place }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct PercentileDisc {
    aliases: Vec<String>,
    signature: Signature,
}

impl AggregateUDFImpl for PercentileDisc {
    fn name(&self) -> &'static str {
        "percentile_disc"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let asked = match types {
            [DataType::Dictionary(_, values), share] => of_share(share).map(|share| vec![values.as_ref().clone(), share]),
            [values, share] => of_share(share).map(|share| vec![values.clone(), share]),
            _ => None,
        };
        match asked {
            Some(asked) => Ok(asked),
            None => plan_err!(
                "percentile_disc expects values and shares, such as percentile_disc(x, 0.5) or percentile_disc(x, [0.5])"
            ),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [values, DataType::List(_)] => Ok(list_of(values)),
            [values, _] => Ok(values.clone()),
            _ => plan_err!("percentile_disc takes two arguments, not {}", types.len()),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(vec![state_field(args.name, args.input_fields[0].data_type())])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let shares = shares(&args)?;
        let is_descending = args.order_bys.first().is_some_and(|key| key.options.descending);
        let shares = shares.into_iter().map(|share| Share::of(share, is_descending)).collect::<Result<_>>()?;
        let values = Values::new(args.expr_fields[0].data_type())?;
        let is_list = *args.return_type() == list_of(&values.data_type);
        Ok(Box::new(Places { values, shares, is_list, is_distinct: args.is_distinct }))
    }

    fn supports_within_group_clause(&self) -> bool {
        true
    }
}

/// The type that a share has, or a list of shares; none: it is neither.
pub(crate) fn of_share(share: &DataType) -> Option<DataType> {
    match share {
        number if number.is_numeric() => Some(DataType::Float64),
        DataType::List(of) | DataType::LargeList(of) | DataType::FixedSizeList(of, _)
            if of.data_type().is_numeric() || of.data_type().is_null() =>
        {
            Some(list_of(&DataType::Float64))
        }
        _ => None,
    }
}

pub(crate) fn list_of(values: &DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(values.clone(), true)))
}

/// A list of such values, one of them for each share; NULL if there are none.
pub(crate) fn list(values: Vec<ScalarValue>, of: &DataType) -> Result<ScalarValue> {
    let values = match values.is_empty() {
        true => new_empty_array(of),
        false => ScalarValue::iter_to_array(values)?,
    };
    Ok(SingleRowListArrayBuilder::new(values).build_list_scalar())
}

/// The shares that an aggregate is asked for, one or a list.
pub(crate) fn shares(args: &AccumulatorArgs) -> Result<Vec<f64>> {
    let nothing = RecordBatch::new_empty(Arc::new(Schema::empty()));
    let shares = match args.exprs.get(1).map(|shares| shares.evaluate(&nothing)) {
        Some(Ok(ColumnarValue::Scalar(ScalarValue::Float64(Some(share))))) => Some(vec![share]),
        Some(Ok(ColumnarValue::Scalar(ScalarValue::List(list)))) if list.is_valid(0) => {
            list.value(0).as_primitive::<Float64Type>().iter().collect()
        }
        _ => None,
    };
    match shares {
        Some(shares) => Ok(shares),
        None => plan_err!("expected shares that are the same for all rows, and not NULL, as in percentile_disc(x, 0.5)"),
    }
}

#[derive(Debug)]
struct Places {
    values: Values,
    shares: Vec<Share>,
    /// Whether a list was asked for.
    is_list: bool,
    is_distinct: bool,
}

impl Accumulator for Places {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.add(&values[0])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.values.merge(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let of = &self.values.data_type;
        if self.is_list && self.values.rows.num_rows() == 0 {
            return ScalarValue::try_from(&list_of(of));
        }
        let mut found = self.shares.iter().map(|share| self.values.at(share, self.is_distinct)).collect::<Result<Vec<_>>>()?;
        match (self.is_list, found.pop()) {
            (false, Some(value)) => Ok(value),
            (false, None) => internal_err!("expected a share"),
            (true, last) => {
                found.extend(last);
                list(found, of)
            }
        }
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.values.state()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.size()
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Mad {
    signature: Signature,
}

impl AggregateUDFImpl for Mad {
    fn name(&self) -> &'static str {
        "mad"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(vec![state_field(args.name, &DataType::Float64)])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Distances { values: Values::new(&DataType::Float64)?, is_distinct: args.is_distinct }))
    }
}

#[derive(Debug)]
struct Distances {
    values: Values,
    is_distinct: bool,
}

impl Accumulator for Distances {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.add(&values[0])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.values.merge(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut values = self.values.array(self.is_distinct)?.as_primitive::<Float64Type>().values().to_vec();
        let Some(middle) = median(&mut values) else { return Ok(ScalarValue::Float64(None)) };
        // NaN is larger than all other floats, with whichever sign a difference has left it.
        let distance = |value: f64| Some((value - middle).abs()).filter(|distance| !distance.is_nan()).unwrap_or(f64::NAN);
        let mut distances: Vec<f64> = values.into_iter().map(distance).collect();
        Ok(ScalarValue::Float64(median(&mut distances)))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.values.state()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.size()
    }
}

/// The value in the middle, or what is between the two values there; none if there are no values.
fn median(values: &mut [f64]) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    let (_, lower, above) = values.select_nth_unstable_by(last / 2, f64::total_cmp);
    let lower = *lower;
    if last.is_multiple_of(2) {
        return Some(lower);
    }
    let upper = above.iter().copied().min_by(f64::total_cmp).unwrap_or(lower);
    Some(if lower == upper { lower } else { f64::midpoint(lower, upper) })
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, StringArray};

    use super::*;

    #[test]
    fn a_share_is_the_decimal_that_is_written() {
        let place = |share: f64, count: usize| Share::of(share, false).unwrap().place(count);
        for (share, count, expected) in [
            (0.0, 4, 0),
            (0.25, 4, 0),
            (0.26, 4, 1),
            (0.5, 4, 1),
            (1.0, 4, 3),
            (-0.25, 4, 3),
            (-1.0, 4, 0),
            (0.5, 1, 0),
            (0.29, 100, 28),
            (0.07, 100, 6),
            (0.999_999, 1_000_000, 999_998),
            (1e-30, 1_000_000, 0),
        ] {
            assert_eq!(place(share, count), expected, "{share} of {count}");
        }
        assert_eq!(Share::of(0.5, true).unwrap().place(4), 2);
        for share in [1.5, -2.0, f64::NAN] {
            assert!(Share::of(share, false).is_err());
        }
    }

    #[test]
    fn values_of_any_kind_have_an_order() {
        let mut values = Values::new(&DataType::Utf8).unwrap();
        let half = Share::of(0.5, false).unwrap();
        assert_eq!(values.at(&half, false).unwrap(), ScalarValue::Utf8(None));
        values.add(&(Arc::new(StringArray::from(vec![Some("c"), None, Some("a"), Some("a")])) as ArrayRef)).unwrap();
        let mut others = Values::new(&DataType::Utf8).unwrap();
        others.merge(&[values.state().unwrap()[0].to_array().unwrap()]).unwrap();
        others.add(&(Arc::new(StringArray::from(vec!["a", "b"])) as ArrayRef)).unwrap();
        assert_eq!(others.at(&half, false).unwrap(), ScalarValue::from("a"));
        assert_eq!(others.at(&half, true).unwrap(), ScalarValue::from("b"));
        let mut floats = Values::new(&DataType::Float64).unwrap();
        floats.add(&(Arc::new(Float64Array::from(vec![f64::NAN, -f64::NAN, 2.0, -0.0])) as ArrayRef)).unwrap();
        assert_eq!(floats.at(&half, false).unwrap(), ScalarValue::from(2.0));
        assert_eq!(floats.at(&Share::of(0.0, false).unwrap(), true).unwrap(), ScalarValue::from(0.0));
    }

    #[test]
    fn distances_are_from_the_median() {
        let of = |values: &[f64], is_distinct| {
            let mut mad = Distances { values: Values::new(&DataType::Float64).unwrap(), is_distinct };
            mad.update_batch(&[Arc::new(Float64Array::from(values.to_vec()))]).unwrap();
            match mad.evaluate().unwrap() {
                ScalarValue::Float64(value) => value,
                other => panic!("expected a float, got {other}"),
            }
        };
        assert_eq!(of(&[], false), None);
        assert_eq!(of(&[1.0, 2.0, 3.0, 9.0], false), Some(1.0));
        assert_eq!(of(&[2.0, 2.0, 3.0, 5.0], true), Some(1.0));
        assert_eq!(of(&[f64::INFINITY; 3], false).map(f64::is_nan), Some(true));
        assert!(of(&[1.5, 2.0, f64::NAN, f64::NAN], false).unwrap().is_nan());
    }
}
