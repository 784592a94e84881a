//! Functions that queries of PostgreSQL's catalogue call, as functions of an engine.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int64Array, ListBuilder, StringArray, StringBuilder, new_empty_array};
use arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err, not_impl_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};

use crate::call::{Body, Call};
use crate::facts::Facts;
use crate::known::{FUNCTIONS, NULLARY, OF_ARGUMENTS};
use crate::sleep;

/// Most bytes of the texts that one call makes for the rows of a batch.
const TEXTS_BYTES_MAX: usize = 512 << 20;

/// All of them, over these facts.
pub fn functions(facts: &Arc<Facts>) -> Vec<ScalarUDF> {
    // Only those without arguments are constants of a statement. The others are called volatile, so that they stay at the host: drives
    // do not have them.
    let make = |&(name, body): &(&'static str, Body)| {
        let signature = match NULLARY.contains(&name) {
            true => Signature::nullary(Volatility::Stable),
            false => Signature::one_of(vec![TypeSignature::Nullary, TypeSignature::VariadicAny], Volatility::Volatile),
        };
        ScalarUDF::new_from_impl(PgFunction { name, body, facts: Arc::clone(facts), signature })
    };
    FUNCTIONS.iter().map(make).chain(sleep::functions()).collect()
}

/// Whether a function tells of the tables and settings that there were when its statement was planned. A later run of the statement has to
/// be planned again then. What is a constant of a statement is one of its session, too.
pub fn is_of_snapshot(function: &ScalarUDF) -> bool {
    let tells = |own: &PgFunction| !NULLARY.contains(&own.name) && !OF_ARGUMENTS.contains(&own.name);
    function.inner().downcast_ref::<PgFunction>().is_some_and(tells)
}

#[derive(Clone)]
struct PgFunction {
    name: &'static str,
    body: Body,
    facts: Arc<Facts>,
    signature: Signature,
}

impl std::fmt::Debug for PgFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for PgFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.facts, &other.facts)
    }
}

impl Eq for PgFunction {}

impl Hash for PgFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for PgFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.body.data_type())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = |argument: &ColumnarValue| matches!(argument, ColumnarValue::Scalar(_));
        let all_scalars = args.number_rows > 0 && args.args.iter().all(is_scalar);
        let wanted = if all_scalars { 1 } else { args.number_rows };
        let arrays = args.args.iter().map(|argument| argument.to_array(wanted)).collect::<Result<Vec<_>>>()?;
        let types = args.arg_fields.iter().map(AsRef::as_ref).collect();
        let made = self.made(&Call::new(&self.facts, &args.config_options, types, &arrays), wanted)?;
        match all_scalars {
            true => Ok(ColumnarValue::Scalar(datafusion::common::ScalarValue::try_from_array(&made, 0)?)),
            false => Ok(ColumnarValue::Array(made)),
        }
    }
}

impl PgFunction {
    /// The results of so many rows.
    fn made(&self, call: &Call<'_>, rows: usize) -> Result<ArrayRef> {
        let mut lists = ListBuilder::new(StringBuilder::new());
        Ok(match self.body {
            Body::Text(of) => {
                let made = texts((0..rows).map(|row| Ok(of(call, row))), TEXTS_BYTES_MAX);
                Arc::new(made.or_else(|what| self.wrong(&what))?)
            }
            Body::TextOrWrong(of) => {
                let made = texts((0..rows).map(|row| of(call, row)), TEXTS_BYTES_MAX);
                Arc::new(made.or_else(|what| self.wrong(&what))?)
            }
            Body::Int(of) => Arc::new((0..rows).map(|row| of(call, row)).collect::<Int64Array>()),
            Body::Bool(of) => Arc::new((0..rows).map(|row| of(call, row)).collect::<BooleanArray>()),
            Body::IntOrWrong(of) => Arc::new(self.each(rows, |row| of(call, row))?.into_iter().collect::<Int64Array>()),
            Body::BoolOrWrong(of) => Arc::new(self.each(rows, |row| of(call, row))?.into_iter().collect::<BooleanArray>()),
            Body::Texts(of) => {
                (0..rows).for_each(|row| lists.append_value(of(call, row).iter().map(Some)));
                Arc::new(lists.finish())
            }
            Body::TextsOrWrong(of) => {
                for row in 0..rows {
                    let texts = of(call, row).or_else(|what| self.wrong(&what))?;
                    lists.append_option(texts.map(|texts| texts.into_iter().map(Some)));
                }
                Arc::new(lists.finish())
            }
            Body::Never(_) if rows > 0 => return not_impl_err!("the function {} over rows", self.name),
            Body::Never(data_type) => new_empty_array(&data_type()),
        })
    }

    /// The values of so many rows; an error where one has wrong arguments.
    fn each<T>(&self, rows: usize, of: impl Fn(usize) -> std::result::Result<Option<T>, String>) -> Result<Vec<Option<T>>> {
        (0..rows).map(|row| of(row).or_else(|what| self.wrong(&what))).collect()
    }

    fn wrong<T>(&self, what: &str) -> Result<T> {
        // `'t'::regclass` is a call here, of a name that nobody has written.
        exec_err!("{}: {what}", self.name.trim_end_matches("_oid"))
    }
}

/// Texts as an array, of which the places are counted in 31 bits; an error where they have more bytes than the bound.
fn texts(
    rows: impl Iterator<Item = std::result::Result<Option<String>, String>>,
    bytes_max: usize,
) -> std::result::Result<StringArray, String> {
    let mut bytes = 0;
    let counted = rows.map(|text| {
        let text = text?;
        bytes += text.as_ref().map_or(0, String::len);
        match bytes > bytes_max {
            true => Err(format!("texts of over {bytes_max} bytes for the rows of a batch, which is the bound")),
            false => Ok(text),
        }
    });
    counted.collect()
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray};
    use arrow::datatypes::{Field, Int64Type};
    use datafusion::common::ScalarValue;
    use datafusion::common::config::ConfigOptions;

    use super::*;
    use crate::facts::facts_of_tests;

    /// What a function gives for arguments that are written out.
    fn given(name: &str, arguments: &[ScalarValue]) -> Result<ArrayRef> {
        let functions = functions(&facts_of_tests());
        let function = functions.iter().find(|function| function.name() == name).unwrap();
        let fields = arguments.iter().map(|value| Arc::new(Field::new("a", value.data_type(), true))).collect::<Vec<_>>();
        let types: Vec<DataType> = fields.iter().map(|field| field.data_type().clone()).collect();
        let mut config = ConfigOptions::default();
        config.catalog.default_schema = "main".to_owned();
        let args = ScalarFunctionArgs {
            args: arguments.iter().cloned().map(ColumnarValue::Scalar).collect(),
            arg_fields: fields,
            number_rows: 1,
            return_field: Arc::new(Field::new("r", function.return_type(&types)?, true)),
            config_options: Arc::new(config),
        };
        function.invoke_with_args(args)?.into_array(1)
    }

    fn text(name: &str, arguments: &[ScalarValue]) -> Option<String> {
        let array = given(name, arguments).unwrap();
        array.is_valid(0).then(|| array.as_string::<i32>().value(0).to_owned())
    }

    fn flag(name: &str, arguments: &[&str]) -> Option<bool> {
        let arguments: Vec<ScalarValue> = arguments.iter().map(|text| ScalarValue::from(*text)).collect();
        let array = given(name, &arguments).unwrap();
        array.is_valid(0).then(|| array.as_boolean().value(0))
    }

    #[test]
    fn arrays_have_bounds() {
        let list = |items: &[i64]| {
            let values: Vec<ScalarValue> = items.iter().map(|item| ScalarValue::from(*item)).collect();
            ScalarValue::List(ScalarValue::new_list_nullable(&values, &DataType::Int64))
        };
        let bound = |name: &str, items: &[i64], dimension: i64| {
            let array = given(name, &[list(items), ScalarValue::from(dimension)]).unwrap();
            array.is_valid(0).then(|| array.as_primitive::<Int64Type>().value(0))
        };
        assert_eq!((bound("array_lower", &[7, 8], 1), bound("array_upper", &[7, 8], 1)), (Some(1), Some(2)));
        assert_eq!((bound("array_lower", &[], 1), bound("array_upper", &[7], 2)), (None, None));
    }

    #[test]
    fn formats_are_those_of_postgresql() {
        let [some, name] = ["%I.%I", "My T"].map(ScalarValue::from);
        assert_eq!(text("format", &[some, ScalarValue::from("main"), name]).as_deref(), Some("main.\"My T\""));
        assert_eq!(text("format", &[ScalarValue::Utf8(None), ScalarValue::from("x")]), None);
        assert!(given("format", &[ScalarValue::from("%s")]).is_err());
    }

    #[test]
    fn texts_of_a_batch_are_bounded() {
        let rows = || [Some("abc"), None, Some("de")].into_iter().map(|text| Ok(text.map(str::to_owned)));
        assert_eq!(texts(rows(), 5).unwrap(), StringArray::from(vec![Some("abc"), None, Some("de")]));
        assert!(texts(rows(), 4).unwrap_err().contains("bound"));
        assert_eq!(texts([Err("no".to_owned())].into_iter(), 4).unwrap_err(), "no");
    }

    #[test]
    fn plans_are_kept_unless_a_function_tells_of_what_changes() {
        let functions = functions(&facts_of_tests());
        let tells = |name: &str| is_of_snapshot(functions.iter().find(|function| function.name() == name).unwrap());
        for name in ["to_regclass", "current_schemas", "current_setting", "has_table_privilege", "pg_table_is_visible"] {
            assert!(tells(name), "{name}");
        }
        for name in OF_ARGUMENTS.iter().chain(&NULLARY) {
            assert!(!tells(name), "{name}");
        }
    }

    #[test]
    fn rights_are_those_of_who_asks() {
        // Those of tests: `me` reads `main`, and writes `lab`.
        for (arguments, expected) in [
            (&["main.t", "SELECT"][..], Some(true)),
            (&["t", "insert"], Some(false)),
            (&["t", "INSERT, SELECT"], Some(true)),
            (&["lab.n", "DELETE"], Some(true)),
            (&["lab.n", "SELECT WITH GRANT OPTION"], Some(false)),
            (&["me", "lab.n", "UPDATE"], Some(true)),
            (&["pithead", "main.t", "UPDATE"], Some(true)),
            (&["somebody", "lab.n", "UPDATE"], Some(false)),
            (&["lab.v", "INSERT"], Some(false)),
            (&["4711", "SELECT"], None),
            (&["pg_catalog.pg_class", "SELECT"], Some(true)),
        ] {
            assert_eq!(flag("has_table_privilege", arguments), expected, "{arguments:?}");
        }
        let nothing = ["nothing", "SELECT"].map(ScalarValue::from);
        assert!(given("has_table_privilege", &nothing).is_err());
        assert_eq!(flag("has_column_privilege", &["t", "a", "UPDATE"]), Some(false));
        assert_eq!(flag("has_schema_privilege", &["me", "lab", "CREATE"]), Some(true));
        assert_eq!(flag("has_schema_privilege", &["main", "CREATE"]), Some(false));
        assert_eq!(flag("has_database_privilege", &["pithead", "CONNECT"]), Some(true));
        assert_eq!(flag("has_database_privilege", &["pithead", "CREATE"]), Some(false));
        assert_eq!(
            (flag("pg_has_role", &["me", "USAGE"]), flag("pg_has_role", &["pithead", "USAGE"])),
            (Some(true), Some(false))
        );
    }

    #[test]
    fn functions_tell_what_they_take_and_give() {
        let facts = facts_of_tests();
        let functions = facts.numbered().functions.iter();
        let told: Vec<_> = functions
            .map(|(oid, function)| {
                let number = [ScalarValue::from(*oid)];
                let of = |what: &str| text(&format!("pg_get_function_{what}"), &number).unwrap();
                assert_eq!(of("arguments"), of("identity_arguments"));
                let is_visible = given("pg_function_is_visible", &number).unwrap().as_boolean().value(0);
                (function.name.as_str(), of("arguments"), of("result"), is_visible)
            })
            .collect();
        let expected = [
            ("words", "text", "SETOF text", false),
            ("luhn", "digits text, integer", "boolean", true),
            ("mean", "\"order\" double precision", "double precision", true),
        ];
        assert_eq!(
            told,
            expected.map(|(name, takes, gives, is_visible)| (name, takes.to_owned(), gives.to_owned(), is_visible))
        );
        let nothing = [ScalarValue::from(1_i64)];
        assert_eq!(text("pg_get_function_result", &nothing), None);
    }

    #[test]
    fn functions_are_found_by_name() {
        let facts = facts_of_tests();
        let number = |name: &str| {
            let found = given("regproc_oid", &[ScalarValue::from(name)]).map_err(|error| error.strip_backtrace())?;
            Ok::<_, String>(found.as_primitive::<Int64Type>().value(0))
        };
        let (luhn, words) = (facts.numbered().functions[1].0, facts.numbered().functions[0].0);
        assert_eq!((number("luhn"), number("main.luhn(text, int4)")), (Ok(luhn), Ok(luhn)));
        assert_eq!((number("lab.words"), number(&luhn.to_string())), (Ok(words), Ok(luhn)));
        for name in ["words", "luhn(text)", "abs"] {
            assert!(number(name).unwrap_err().contains(&format!("function \"{name}\" does not exist")), "{name}");
        }
        assert!(text("pg_get_functiondef", &[ScalarValue::from(luhn)]).unwrap().contains("main.luhn(digits text, integer)"));
    }

    #[test]
    fn lists_of_numbers_have_names() {
        let list = |items: &[i64]| {
            let values: Vec<ScalarValue> = items.iter().map(|item| ScalarValue::from(*item)).collect();
            ScalarValue::List(ScalarValue::new_list_nullable(&values, &DataType::Int64))
        };
        let names = |function: &str, items: &[i64]| {
            let lists = given(function, &[list(items)]).unwrap();
            lists.as_list::<i32>().value(0).as_string::<i32>().iter().flatten().map(str::to_owned).collect::<Vec<_>>()
        };
        let tables = facts_of_tests().numbered().tables.iter().map(|(oid, _)| *oid).collect::<Vec<_>>();
        assert_eq!(names("regtype_names", &[23, 1009, 7]), ["integer", "text[]", "???"]);
        let named = names("regclass_names", &tables);
        assert!(named.contains(&"t".to_owned()) && named.contains(&"lab.n".to_owned()), "{named:?}");
    }

    #[test]
    fn numbers_of_tables_are_found_again() {
        let number = given("regclass_oid", &[ScalarValue::from("main.t")]).unwrap().as_primitive::<Int64Type>().value(0);
        let again = given("regclass_oid", &[ScalarValue::from(number)]).unwrap();
        assert_eq!(again.as_primitive::<Int64Type>().value(0), number);
        assert_eq!(text("regclass_name", &[ScalarValue::from("lab.n")]).as_deref(), Some("lab.n"));
        let own = [ScalarValue::from("pg_catalog.pg_class"), ScalarValue::from(1259_i64)];
        assert_eq!(given("regclass_oid", &own[..1]).unwrap().as_primitive::<Int64Type>().value(0), 1259);
        assert_eq!(text("regclass_name", &own[1..]).as_deref(), Some("pg_class"));
        let domain = given("regnamespace_oid", &[ScalarValue::from("\"lab\"")]).unwrap();
        assert_eq!(domain.as_primitive::<Int64Type>().value(0), facts_of_tests().numbered().domain("lab"));
    }

    #[test]
    fn connections_are_ended_by_number() {
        let ended = |name: &str, process: ScalarValue| {
            let array = given(name, &[process]).map_err(|error| error.strip_backtrace())?;
            Ok::<_, String>(array.is_valid(0).then(|| array.as_boolean().value(0)))
        };
        for (process, expected) in [(Some(7_i64), Some(true)), (Some(9), Some(false)), (None, None)] {
            for name in ["pg_cancel_backend", "pg_terminate_backend"] {
                assert_eq!(ended(name, ScalarValue::from(process)), Ok(expected), "{name} {process:?}");
            }
        }
        assert_eq!(ended("pg_cancel_backend", ScalarValue::from(8_i64)), Ok(Some(true)));
        let error = ended("pg_terminate_backend", ScalarValue::from(8_i64)).unwrap_err();
        assert!(error.ends_with("pg_terminate_backend: it is somebody else's"), "{error}");
        assert!(given("acldefault", &[ScalarValue::from("r"), ScalarValue::from(10_i64)]).unwrap().is_null(0));
    }

    /// A regression: they were NULL, and scripts that check by them went on.
    #[test]
    fn names_of_nothing_are_errors() {
        let said = |name: &str, arguments: &[&str]| {
            let arguments: Vec<ScalarValue> = arguments.iter().map(|text| ScalarValue::from(*text)).collect();
            given(name, &arguments).map(|array| array.is_valid(0)).map_err(|error| error.strip_backtrace())
        };
        let error = said("regclass_oid", &["tirps"]).unwrap_err();
        assert!(error.ends_with("regclass: table 'tirps' does not exist"), "{error}");
        assert!(said("pg_table_size", &["main.tirps"]).unwrap_err().contains("table 'main.tirps'"));
        assert_eq!((said("to_regclass", &["tirps"]).unwrap(), said("pg_table_size", &["main.t"]).unwrap()), (false, true));
        // Not all of PostgreSQL's own tables are here, and clients ask for the numbers of many.
        for own in ["pg_catalog.pg_class", "pg_collation", "information_schema.tables"] {
            assert!(said("regclass_oid", &[own]).is_ok(), "{own}");
        }
        let error = said("current_setting", &["nothing"]).unwrap_err();
        assert!(error.contains("unrecognized configuration parameter \"nothing\""), "{error}");
        let missing = [ScalarValue::from("nothing"), ScalarValue::from(true)];
        assert_eq!(text("current_setting", &missing), None);
    }

    #[test]
    fn settings_are_set_by_a_function_where_the_connection_takes_them() {
        let [name, value] = ["work_mem", "8MB"].map(ScalarValue::from);
        let arguments = [name.clone(), value, ScalarValue::from(false)];
        assert_eq!(text("set_config", &arguments).as_deref(), Some("8MB"));
        let unknown = [ScalarValue::from("nothing"), ScalarValue::from("1"), ScalarValue::from(false)];
        assert!(given("set_config", &unknown).unwrap_err().to_string().contains("nothing"));
        assert_eq!(text("current_setting", &[name]).as_deref(), Some("4MB"));
    }
}
