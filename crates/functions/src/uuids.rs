//! [`Uuids`]: UUIDs in SQL. They are 16 bytes, in columns that say so by Arrow's extension type `arrow.uuid`; statements write them as
//! texts.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeBinaryArray, FixedSizeBinaryBuilder, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::expr::{Cast, TryCast};
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::sql::sqlparser::ast::DataType as SqlType;
use pithead_model::{UUID_BYTES as BYTES, is_uuid, uuid_metadata};
use uuid::Uuid;

use crate::compared::{read_compared, text_of};
use crate::kept_names::map_named;
use crate::same_moments::CHOOSING;

/// The type UUID of SQL.
#[derive(Debug)]
pub(crate) struct UuidType;

impl TypePlanner for UuidType {
    fn plan_type_field(&self, sql_type: &SqlType) -> Result<Option<FieldRef>> {
        Ok(matches!(sql_type, SqlType::Uuid).then(|| uuid_field("")))
    }
}

fn uuid_field(name: &str) -> FieldRef {
    Arc::new(Field::new(name, DataType::FixedSizeBinary(BYTES), true).with_metadata(uuid_metadata()))
}

/// Reads texts that are cast to UUIDs, or compared with them, and writes those that are cast to texts.
#[derive(Debug)]
pub(crate) struct Uuids;

impl AnalyzerRule for Uuids {
    fn name(&self) -> &'static str {
        "pithead_uuids"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_uuids(&plan)? {
            return Ok(plan);
        }
        let changed = plan.transform_up_with_subqueries(|node| {
            if matches!(node, LogicalPlan::TableScan(_)) {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            map_named(node, |expr| expr.transform_up(|part| read(part, &schema)))?.map_data(LogicalPlan::recompute_schema)
        })?;
        Ok(changed.data)
    }
}

/// Whether a plan has columns of UUIDs, or casts to bytes of their length.
fn has_uuids(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= node.schema().fields().iter().any(|field| is_uuid(field));
        node.apply_expressions(|expr| {
            let is_of_length = |field: &Field| *field.data_type() == DataType::FixedSizeBinary(BYTES);
            found = found || expr.exists(|part| {
                Ok(matches!(part, Expr::Cast(Cast { field, .. }) | Expr::TryCast(TryCast { field, .. }) if is_of_length(field)))
            })?;
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(found)
}

fn read(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::Cast(Cast { expr, field }) => casted(*expr, field, schema, false),
        Expr::TryCast(TryCast { expr, field }) => casted(*expr, field, schema, true),
        expr => {
            let read = read_compared(expr, |part| is_of_uuids(part, schema), |part| as_uuid(part, schema))?;
            Ok(match is_choice_of_uuids(&read.data, schema) {
                true => Transformed::yes(chosen_udf().call(vec![read.data])),
                false => read,
            })
        }
    }
}

/// Whether an expression gives one of several values which are UUIDs, or NULL. The engine forgets what they are.
fn is_choice_of_uuids(expr: &Expr, schema: &DFSchema) -> bool {
    let values: Vec<&Expr> = match expr {
        Expr::ScalarFunction(call) if call.func.name() == "nullif" => call.args.iter().take(1).collect(),
        Expr::ScalarFunction(call) if call.func.name() == "nvl2" => call.args.iter().skip(1).collect(),
        Expr::ScalarFunction(call) if CHOOSING.contains(&call.func.name()) => call.args.iter().collect(),
        Expr::Case(case) => {
            let results = case.when_then_expr.iter().map(|(_, result)| result);
            results.chain(&case.else_expr).map(AsRef::as_ref).collect()
        }
        _ => return false,
    };
    let is_null = |value: &&Expr| value.get_type(schema).is_ok_and(|of| of.is_null());
    let mut values = values.into_iter().filter(|value| !is_null(value)).peekable();
    values.peek().is_some() && values.all(|value| is_of_uuids(value, schema))
}

/// A cast. That of a text to 16 bytes which no metadata explains is one to a column of UUIDs, if the text has the form of one.
fn casted(expr: Expr, field: FieldRef, schema: &DFSchema, tries: bool) -> Result<Transformed<Expr>> {
    let kept = |expr| match tries {
        false => Expr::Cast(Cast::new_from_field(Box::new(expr), Arc::clone(&field))),
        true => Expr::TryCast(TryCast::new_from_field(Box::new(expr), Arc::clone(&field))),
    };
    let (to_uuid, to_bytes) = (is_uuid(&field), *field.data_type() == DataType::FixedSizeBinary(BYTES));
    if is_text(field.data_type()) && is_of_uuids(&expr, schema) {
        let text = text_udf().call(vec![expr]);
        let cast = if *field.data_type() == DataType::Utf8View { text } else { kept(text) };
        return Ok(Transformed::yes(cast));
    }
    if !to_bytes || !is_of_texts(&expr, schema) {
        return Ok(match to_uuid && is_of_uuids(&expr, schema) {
            true => Transformed::yes(expr),
            false => Transformed::no(kept(expr)),
        });
    }
    match text_of(&expr) {
        Some(text) if to_uuid || Uuid::try_parse(text.trim()).is_ok() => match (literal(text), tries) {
            (Err(_), true) => Ok(Transformed::yes(Expr::Literal(ScalarValue::FixedSizeBinary(BYTES, None), None))),
            (literal, _) => literal.map(Transformed::yes),
        },
        Some(_) => Ok(Transformed::no(kept(expr))),
        None => Ok(Transformed::yes(uuid_udf(tries).call(vec![expr]))),
    }
}

fn as_uuid(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    match text_of(&expr) {
        Some(text) => literal(text),
        None if is_of_texts(&expr, schema) => Ok(uuid_udf(false).call(vec![expr])),
        None => Ok(expr),
    }
}

fn literal(text: &str) -> Result<Expr> {
    let value = ScalarValue::FixedSizeBinary(BYTES, Some(parsed(text)?.as_bytes().to_vec()));
    Ok(Expr::Literal(value, Some(FieldMetadata::from(uuid_metadata().into_iter().collect::<BTreeMap<_, _>>()))))
}

fn parsed(text: &str) -> Result<Uuid> {
    let text = text.trim();
    let digits = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(text);
    match Uuid::try_parse(digits) {
        Ok(uuid) => Ok(uuid),
        Err(_) => plan_err!(
            "Cannot cast '{text}' to UUID: expected 32 hexadecimal digits, such as 00000000-0000-0000-0000-00000000002a"
        ),
    }
}

fn is_text(of: &DataType) -> bool {
    matches!(of, DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8)
}

fn is_of_texts(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|of| is_text(&of))
}

fn is_of_uuids(expr: &Expr, schema: &DFSchema) -> bool {
    expr.to_field(schema).is_ok_and(|(_, field)| is_uuid(&field))
}

/// The functions behind casts.
pub(crate) fn uuid_udfs() -> [ScalarUDF; 4] {
    [uuid_udf(false), uuid_udf(true), text_udf(), chosen_udf()]
}

fn chosen_udf() -> ScalarUDF {
    let takes = vec![DataType::FixedSizeBinary(BYTES)];
    ScalarUDF::new_from_impl(ChosenUuid { signature: Signature::uniform(1, takes, Volatility::Immutable) })
}

fn uuid_udf(tries: bool) -> ScalarUDF {
    ScalarUDF::new_from_impl(ToUuid {
        tries,
        signature: Signature::uniform(1, vec![DataType::Utf8View], Volatility::Immutable),
    })
}

fn text_udf() -> ScalarUDF {
    let takes = vec![DataType::FixedSizeBinary(BYTES)];
    ScalarUDF::new_from_impl(OfUuid { signature: Signature::uniform(1, takes, Volatility::Immutable) })
}

/// UUIDs of texts. `tries`: what is none is NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ToUuid {
    tries: bool,
    signature: Signature,
}

impl ScalarUDFImpl for ToUuid {
    fn name(&self) -> &str {
        if self.tries { "pithead_try_uuid" } else { "pithead_uuid" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::FixedSizeBinary(BYTES))
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(uuid_field(self.name()))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        by_array(args, |texts| {
            let texts = cast(texts, &DataType::Utf8View)?;
            let mut uuids = FixedSizeBinaryBuilder::with_capacity(texts.len(), BYTES);
            for text in texts.as_string_view() {
                match text.map(parsed).transpose() {
                    Ok(Some(uuid)) => uuids.append_value(uuid.as_bytes())?,
                    Err(error) if !self.tries => return Err(error),
                    Ok(None) | Err(_) => uuids.append_null(),
                }
            }
            Ok(Arc::new(uuids.finish()))
        })
    }
}

/// UUIDs that say what they are.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ChosenUuid {
    signature: Signature,
}

impl ScalarUDFImpl for ChosenUuid {
    fn name(&self) -> &'static str {
        "pithead_chosen_uuid"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::FixedSizeBinary(BYTES))
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(uuid_field(self.name()))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match <[ColumnarValue; 1]>::try_from(args.args) {
            Ok([chosen]) => Ok(chosen),
            Err(other) => exec_err!("expected one argument, got {}", other.len()),
        }
    }
}

/// Texts of UUIDs, as PostgreSQL and DuckDB write them.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OfUuid {
    signature: Signature,
}

impl ScalarUDFImpl for OfUuid {
    fn name(&self) -> &'static str {
        "pithead_uuid_text"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        by_array(args, |uuids| {
            let Some(uuids) = uuids.as_any().downcast_ref::<FixedSizeBinaryArray>() else {
                return exec_err!("expected UUIDs, got {}", uuids.data_type());
            };
            let mut texts = StringViewBuilder::with_capacity(uuids.len());
            for uuid in uuids {
                texts.append_option(uuid.and_then(|bytes| Uuid::from_slice(bytes).ok()).map(|uuid| uuid.to_string()));
            }
            Ok(Arc::new(texts.finish()))
        })
    }
}

/// Applies a function of one array, to a single value, too.
fn by_array(args: ScalarFunctionArgs, apply: impl Fn(&ArrayRef) -> Result<ArrayRef>) -> Result<ColumnarValue> {
    match args.args.as_slice() {
        [ColumnarValue::Array(array)] => apply(array).map(ColumnarValue::Array),
        [ColumnarValue::Scalar(value)] => {
            let array = apply(&value.to_array()?)?;
            ScalarValue::try_from_array(&array, 0).map(ColumnarValue::Scalar)
        }
        other => exec_err!("expected one argument, got {}", other.len()),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::context::SessionContext;

    use crate::{EngineOptions, session_state};

    const ID: &str = "00000000-0000-0000-0000-00000000002a";

    async fn shown(sql: &str) -> std::result::Result<String, String> {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let batches = async { context.sql(sql).await?.collect().await }.await.map_err(|error| error.to_string())?;
        let rows = arrow::util::pretty::pretty_format_batches(&batches).unwrap().to_string();
        Ok(rows.lines().skip(3).map(|line| line.trim_matches(['|', ' ', '+', '-'])).filter(|line| !line.is_empty()).collect())
    }

    #[tokio::test]
    async fn chosen_uuids_are_uuids() {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let t = format!("(SELECT CAST(x AS UUID) AS id, true AS b FROM (VALUES ('{ID}'), (NULL)) AS v(x)) AS t");
        for (expression, is_uuid) in [
            ("coalesce(id, id)", true),
            ("coalesce(NULL, coalesce(id, id))", true),
            ("CASE WHEN b THEN id END", true),
            ("CASE WHEN b THEN id ELSE NULL END", true),
            ("nullif(id, id)", true),
            ("coalesce(arrow_cast(arrow_cast('0123456789abcdef', 'Binary'), 'FixedSizeBinary(16)'), id)", false),
        ] {
            let found = context.sql(&format!("SELECT {expression} AS chosen FROM {t}")).await.unwrap().collect().await.unwrap();
            assert_eq!(pithead_model::is_uuid(found[0].schema().field(0)), is_uuid, "{expression}");
        }
        let same = format!("SELECT count(*) FROM {t} WHERE coalesce(id, id) = '{ID}' AND CASE WHEN b THEN id END = id");
        assert_eq!(shown(&same).await, Ok("1".to_owned()));
    }

    #[tokio::test]
    async fn texts_are_read_where_uuids_are_meant() {
        let with =
            |rest: &str| format!("WITH t AS (SELECT CAST(x AS UUID) AS id, x FROM (VALUES ('{ID}'), (NULL)) AS v(x)) {rest}");
        for (query, answer) in [
            (format!("SELECT CAST('{{{}}}' AS UUID)", ID.to_uppercase()), "0000000000000000000000000000002a".to_owned()),
            (format!("SELECT CAST(CAST('{ID}' AS UUID) AS VARCHAR)"), ID.to_owned()),
            (with(&format!("SELECT x FROM t WHERE id = '{ID}'")), ID.to_owned()),
            (with("SELECT count(*) FROM t WHERE id = x"), "1".to_owned()),
            (with(&format!("SELECT count(*) FROM t WHERE id IN ('{ID}', NULL)")), "1".to_owned()),
            (with(&format!("SELECT count(*) FROM t WHERE id BETWEEN '{ID}' AND '{ID}'")), "1".to_owned()),
            (with("SELECT count(*) FROM t WHERE id <> '00000000000000000000000000000000'"), "1".to_owned()),
            (with("SELECT id::VARCHAR FROM t WHERE id IS NOT NULL"), ID.to_owned()),
            ("SELECT TRY_CAST('x' AS UUID) IS NULL".to_owned(), "true".to_owned()),
            (with("SELECT count(DISTINCT id) FROM t JOIN (SELECT id AS other FROM t) ON id = other"), "1".to_owned()),
        ] {
            assert_eq!(shown(&query).await, Ok(answer), "{query}");
        }
        for query in ["SELECT CAST('x' AS UUID)".to_owned(), with("SELECT * FROM t WHERE id = '7'")] {
            let error = shown(&query).await.unwrap_err();
            assert!(error.contains("to UUID: expected 32 hexadecimal digits"), "{error}");
        }
    }
}
