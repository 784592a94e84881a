//! [`Parameters`]: values for the placeholders of a statement.

use std::collections::BTreeSet;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::metadata::{FieldMetadata, ScalarAndMetadata};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, ParamValues, ScalarValue};
use datafusion::logical_expr::expr::{Cast, Placeholder};
use datafusion::logical_expr::{Expr, LogicalPlan, Values as PlanValues};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};
use pithead_functions::fault_from_datafusion;
use pithead_model::{Blame, Fault};

use crate::Frames;
use crate::parameter_groups::computed_before;
use crate::tokens::{is_gap, token_at};

/// Values for the placeholders of a statement: `$1`, `$2` or `?` by place, `$name` by name. They take the place of literals of their
/// types before anything is planned, so what they stand in is pushed down as with literals. And tables in memory, which the statement
/// finds by their names.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    values: Values,
    frames: Frames,
}

#[derive(Clone, Debug, Default)]
enum Values {
    #[default]
    None,
    ByPlace(Vec<ScalarAndMetadata>),
    ByName(Vec<(String, ScalarAndMetadata)>),
}

impl Parameters {
    /// By place: the columns of a batch of one row, the first for `$1`.
    pub fn by_place(row: &RecordBatch) -> Result<Self, Fault> {
        Ok(Self { values: Values::ByPlace(values(row)?), frames: Frames::default() })
    }

    /// By name: the columns of a batch of one row, under their names.
    pub fn by_name(row: &RecordBatch) -> Result<Self, Fault> {
        let names = row.schema().fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
        let values = Values::ByName(names.into_iter().zip(values(row)?).collect());
        Ok(Self { values, frames: Frames::default() })
    }

    /// The same with tables in memory. In the session's domain each comes before a dataset of its name.
    pub fn with_frames(self, frames: Frames) -> Self {
        Self { frames, ..self }
    }

    /// The tables in memory.
    pub(crate) fn frames(&self) -> &Frames {
        &self.frames
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        match &self.values {
            Values::None => true,
            Values::ByPlace(values) => values.is_empty(),
            Values::ByName(values) => values.is_empty(),
        }
    }

    /// Whether a statement that was planned for the others can have these values in their places: there are as many, of the same types, and
    /// no tables in memory.
    pub(crate) fn fit_in_place_of(&self, others: &Parameters) -> bool {
        let alike = |(one, other): (&ScalarAndMetadata, &ScalarAndMetadata)| {
            one.value.data_type() == other.value.data_type() && one.metadata == other.metadata
        };
        let fit = match (&self.values, &others.values) {
            (Values::None, Values::None) => true,
            (Values::ByPlace(these), Values::ByPlace(those)) => {
                these.len() == those.len() && these.iter().zip(those).all(alike)
            }
            (Values::ByName(these), Values::ByName(those)) => {
                let pairs = || these.iter().zip(those);
                these.len() == those.len()
                    && pairs().all(|((name, value), (other, known))| name == other && alike((value, known)))
            }
            _ => false,
        };
        fit && self.frames.is_empty() && others.frames.is_empty()
    }

    /// An error unless there are none: the statement named takes none.
    pub(crate) fn refuse(&self, statement: &str) -> Result<(), Fault> {
        match self.is_empty() {
            true => Ok(()),
            false => {
                Err(Fault::new(Blame::User, format!("{statement} takes no parameters; write the values into the statement")))
            }
        }
    }

    /// Tells intervals beside `+` for what they are: the planner takes a placeholder there for a value of the other side's type, and
    /// moments cannot be added to moments.
    pub(crate) fn tell_intervals(&self, tokens: &mut Vec<TokenWithSpan>) {
        let is_interval = |value: &ScalarAndMetadata| matches!(value.value.data_type(), DataType::Interval(_));
        let intervals: BTreeSet<String> = match &self.values {
            Values::None => return,
            Values::ByPlace(values) => {
                (1..).zip(values).filter(|(_, value)| is_interval(value)).map(|(place, _)| format!("${place}")).collect()
            }
            Values::ByName(values) => {
                values.iter().filter(|(_, value)| is_interval(value)).map(|(name, _)| format!("${name}")).collect()
            }
        };
        if intervals.is_empty() {
            return;
        }
        let is_plus = |token: Option<&TokenWithSpan>| token.is_some_and(|token| token.token == Token::Plus);
        let word = |token: &&TokenWithSpan| !is_gap(token);
        for place in (0..tokens.len()).rev() {
            let Token::Placeholder(name) = &tokens[place].token else { continue };
            let is_added = is_plus(tokens[..place].iter().rfind(word)) || is_plus(tokens[place + 1..].iter().find(word));
            if is_added && intervals.contains(name) {
                let (span, placeholder) = (tokens[place].span, tokens[place].token.clone());
                let cast = Token::Word(Word { value: "arrow_cast".to_owned(), quote_style: None, keyword: Keyword::NoKeyword });
                let to = Token::SingleQuotedString("Interval(MonthDayNano)".to_owned());
                let call = [cast, Token::LParen, placeholder, Token::Comma, to, Token::RParen];
                tokens.splice(place..=place, call.map(|token| token_at(token, span)));
            }
        }
    }

    /// Puts the values into a plan. Each placeholder must have a value, and each value a placeholder.
    pub(crate) fn put_into(&self, plan: LogicalPlan) -> Result<LogicalPlan, Fault> {
        let names = plan.get_parameter_names().map_err(fault_from_datafusion)?;
        if names.is_empty() && self.is_empty() {
            return Ok(plan);
        }
        // The sign before the name is `$` or `:`.
        let wanted: BTreeSet<&str> = names.iter().filter_map(|name| name.get(1..)).collect();
        let values = match &self.values {
            Values::None => return Err(missing(&wanted, "no values")),
            Values::ByPlace(values) => {
                check_places(&wanted, values.len())?;
                ParamValues::List(values.clone())
            }
            Values::ByName(values) => {
                let given: BTreeSet<&str> = values.iter().map(|(name, _)| name.as_str()).collect();
                let without: BTreeSet<&str> = wanted.difference(&given).copied().collect();
                if !without.is_empty() {
                    return Err(missing(&without, "no values of these names"));
                }
                if let Some(unknown) = given.difference(&wanted).next() {
                    let there = listed(&wanted);
                    let message = format!("the statement has no parameter ${unknown}; its parameters are {there}");
                    return Err(Fault::new(Blame::User, message).hint("leave the value out, or write the placeholder"));
                }
                ParamValues::Map(values.iter().cloned().collect())
            }
        };
        let plan = with_marks_of_nulls(plan, &values).and_then(computed_before).and_then(|plan| plan.with_param_values(values));
        plan.and_then(plain_filters).map_err(fault_from_datafusion)
    }
}

/// The plan with each NULL in a column of VALUES said to be what another row's value there is, as an identifier: the planner
/// takes no rows of which some say it and others do not.
fn with_marks_of_nulls(plan: LogicalPlan, given: &ParamValues) -> Result<LogicalPlan, DataFusionError> {
    let has_marks = match given {
        ParamValues::List(values) => values.iter().any(|value| value.metadata.is_some()),
        ParamValues::Map(values) => values.values().any(|value| value.metadata.is_some()),
    };
    if !has_marks {
        return Ok(plan);
    }
    let told = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Values(PlanValues { schema, mut values }) if values.len() > 1 => {
            let mut is_changed = false;
            for column in 0..schema.fields().len() {
                is_changed |= mark_nulls(&mut values, column, given);
            }
            Ok(Transformed::new_transformed(LogicalPlan::Values(PlanValues { schema, values }), is_changed))
        }
        node => Ok(Transformed::no(node)),
    })?;
    Ok(told.data)
}

/// Whether there were any.
fn mark_nulls(rows: &mut [Vec<Expr>], column: usize, given: &ParamValues) -> bool {
    let said: Vec<Option<ScalarAndMetadata>> =
        rows.iter().map(|row| row.get(column).and_then(|value| said(value, given))).collect();
    let Some(marks) = said.iter().flatten().find_map(|value| value.metadata.clone()) else { return false };
    let mut is_changed = false;
    for (row, said) in rows.iter_mut().zip(said) {
        if said.is_some_and(|said| said.value.is_null() && said.metadata.is_none()) {
            row[column] = Expr::Literal(ScalarValue::Null, Some(marks.clone()));
            is_changed = true;
        }
    }
    is_changed
}

/// The value of a literal or a placeholder, which may be cast.
fn said(expr: &Expr, given: &ParamValues) -> Option<ScalarAndMetadata> {
    match expr {
        Expr::Literal(value, metadata) => Some(ScalarAndMetadata::new(value.clone(), metadata.clone())),
        Expr::Placeholder(Placeholder { id, .. }) => given.get_placeholders_with_values(id).ok(),
        Expr::Cast(Cast { expr, .. }) => said(expr, given),
        _ => None,
    }
}

/// Filters whose values are told by their types alone. What a field says beside its type has no part in a comparison, and Substrait
/// does not carry it: such a filter would stay at the host.
fn plain_filters(plan: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    let plain = |expr: Expr| match expr {
        Expr::Literal(value, Some(_)) => Ok(Transformed::yes(Expr::Literal(value, None))),
        expr => Ok(Transformed::no(expr)),
    };
    let told = plan.transform_down_with_subqueries(|node| match node {
        LogicalPlan::Filter(_) | LogicalPlan::Join(_) => node.map_expressions(|expr| expr.transform(plain)),
        node => Ok(Transformed::no(node)),
    })?;
    Ok(told.data)
}

/// Writes `$1`, `$2` and so on for each `?`.
pub(crate) fn number(tokens: &mut [TokenWithSpan]) -> Result<(), Fault> {
    let (mut count, mut others) = (0_usize, None);
    for token in tokens {
        match &mut token.token {
            Token::Placeholder(name) if name == "?" => {
                count += 1;
                *name = format!("${count}");
            }
            Token::Placeholder(name) => others = Some(name.clone()),
            _ => {}
        }
    }
    match others {
        Some(name) if count > 0 => Err(Fault::invalid(format!("the statement has parameters of two kinds, ? and {name}"))
            .hint("write all as ?, all as $1, $2, …, or all as $name")),
        _ => Ok(()),
    }
}

/// The values of a row, each with what its field says of it beside its type, as that it is an identifier.
fn values(row: &RecordBatch) -> Result<Vec<ScalarAndMetadata>, Fault> {
    if row.num_rows() != 1 && row.num_columns() > 0 {
        return Err(Fault::new(Blame::User, format!("expected parameters as one row, got {} rows", row.num_rows())));
    }
    let value = |(column, field): (&ArrayRef, &FieldRef)| {
        let marks = (!field.metadata().is_empty()).then(|| FieldMetadata::from(field.metadata()));
        Ok(ScalarAndMetadata::new(ScalarValue::try_from_array(column, 0).map_err(fault_from_datafusion)?, marks))
    };
    row.columns().iter().zip(row.schema_ref().fields()).map(value).collect()
}

fn check_places(wanted: &BTreeSet<&str>, given: usize) -> Result<(), Fault> {
    let mut used = 0;
    for name in wanted {
        let Ok(place) = name.parse::<usize>() else {
            return Err(Fault::new(
                Blame::User,
                format!("the statement has a parameter ${name}, and the values have no names"),
            )
            .hint("give the values by name, or write $1, $2, …"));
        };
        used = used.max(place);
    }
    if used > given {
        let message = format!("the statement has parameters up to ${used}, but {given} values were given");
        return Err(Fault::new(Blame::User, message).hint("give one value for each, the first for $1"));
    }
    match (1..=given).find(|place| !wanted.contains(place.to_string().as_str())) {
        Some(place) => {
            let message = format!("{given} values were given, but the statement has no parameter ${place}");
            Err(Fault::new(Blame::User, message).hint("give as many values as the statement has parameters"))
        }
        None => Ok(()),
    }
}

fn missing(names: &BTreeSet<&str>, given: &str) -> Fault {
    Fault::new(Blame::User, format!("the statement has the parameters {}, but {given} were given", listed(names)))
        .hint("give a list of values for $1, $2 or ?, or values by name for $name")
}

fn listed(names: &BTreeSet<&str>) -> String {
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.iter().map(|name| format!("${name}")).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use datafusion::logical_expr::{LogicalPlanBuilder, lit, placeholder};

    use super::*;
    use crate::tokens::{tokens, written};

    fn plain(sql: &str) -> String {
        written(&tokens(sql).unwrap())
    }

    #[test]
    fn question_marks_get_numbers() {
        let numbered = |sql: &str| {
            let mut tokens = tokens(sql).unwrap();
            number(&mut tokens).map(|()| written(&tokens))
        };
        let sql = "SELECT '?''', \"a?\" -- ?\n FROM t WHERE a=? AND b IN (?,?) /* ? */";
        let expected = "SELECT '?''', \"a?\" -- ?\n FROM t WHERE a=$1 AND b IN ($2,$3) /* ? */";
        assert_eq!(numbered(sql).unwrap(), plain(expected));
        assert_eq!(numbered("SELECT '?'").unwrap(), plain("SELECT '?'"));
        assert_eq!(numbered("SELECT $1").unwrap(), plain("SELECT $1"));
        assert!(numbered("SELECT ?, $2").is_err());
    }

    #[test]
    fn intervals_are_told_beside_plus() {
        let value = ScalarValue::new_interval_mdn(0, 1, 0);
        let interval = ScalarAndMetadata::from(value);
        let number = ScalarAndMetadata::from(ScalarValue::from(1_i64));
        let told = |parameters: &Parameters, sql: &str| {
            let mut tokens = tokens(sql).unwrap();
            parameters.tell_intervals(&mut tokens);
            written(&tokens)
        };
        let by_place = Parameters { values: Values::ByPlace(vec![interval.clone(), number]), frames: Frames::default() };
        let cast = "arrow_cast($1, 'Interval(MonthDayNano)')";
        assert_eq!(
            told(&by_place, "SELECT a + $1, $1+a, a - $1, k + $2, '+ $1'"),
            plain(&format!("SELECT a + {cast}, {cast}+a, a - $1, k + $2, '+ $1'"))
        );
        let by_name = Parameters { values: Values::ByName(vec![("v".to_owned(), interval)]), frames: Frames::default() };
        assert_eq!(told(&by_name, "SELECT a +\n$v"), plain("SELECT a + arrow_cast($v, 'Interval(MonthDayNano)')"));
        assert_eq!(told(&by_name, "SELECT a + $w"), plain("SELECT a + $w"));
    }

    /// A regression: rows with an identifier and rows with NULL were "inconsistent metadata".
    #[test]
    fn nulls_stand_beside_identifiers() {
        let marks = FieldMetadata::from(&HashMap::from([("kind".to_owned(), "identifier".to_owned())]));
        let identifier = ScalarAndMetadata::new(ScalarValue::FixedSizeBinary(2, Some(vec![1, 2])), Some(marks.clone()));
        let (null, number) = (ScalarAndMetadata::from(ScalarValue::Null), ScalarAndMetadata::from(ScalarValue::from(1_i64)));
        let parameters = Parameters { values: Values::ByPlace(vec![number, identifier, null]), frames: Frames::default() };
        let rows = vec![
            vec![placeholder("$1"), placeholder("$2")],
            vec![lit(2_i64), placeholder("$3")],
            vec![lit(ScalarValue::Int64(None)), lit(ScalarValue::Null)],
        ];
        let plan = LogicalPlanBuilder::values(rows).and_then(LogicalPlanBuilder::build).unwrap();
        let put = parameters.put_into(plan).unwrap();
        let [number, identifier] = [0, 1].map(|column| put.schema().field(column).clone());
        assert_eq!((number.data_type(), number.metadata().len()), (&DataType::Int64, 0));
        assert_eq!(identifier.data_type(), &DataType::FixedSizeBinary(2));
        assert_eq!(identifier.metadata(), &HashMap::from([("kind".to_owned(), "identifier".to_owned())]));
    }

    #[test]
    fn places_and_values_go_together() {
        let check =
            |names: &[&str], given| check_places(&names.iter().copied().collect(), given).map_err(|fault| fault.message);
        assert_eq!(check(&["1", "2", "10"], 2).unwrap_err(), "the statement has parameters up to $10, but 2 values were given");
        assert_eq!(check(&["1", "2"], 2), Ok(()));
        assert_eq!(check(&["1"], 2).unwrap_err(), "2 values were given, but the statement has no parameter $2");
        assert!(check(&["name"], 1).is_err());
    }
}
