//! What CREATE FUNCTION and DROP FUNCTION say.

use datafusion::sql::sqlparser::ast::{
    CreateFunction, CreateFunctionBody, DataType, DropFunction, ExactNumberInfo, Expr, FunctionBehavior, FunctionCalledOnNull,
    FunctionReturnType, Ident, OperateFunctionArg, Value,
};
use pithead_model::{Blame, Fault, FunctionArgument, FunctionType, Volatility};

use crate::statement::Named;
use crate::tokens::parts;

/// How the statement is written, for whoever wrote it otherwise.
const FORM: &str = "CREATE [OR REPLACE] FUNCTION name([argument] type, …) RETURNS [SETOF] type LANGUAGE wasm \
                    [IMMUTABLE | STABLE | VOLATILE] [STRICT | CALLED ON NULL INPUT] AS 'module.wasm' [, 'name in the module']";

/// CREATE FUNCTION as it was written.
pub(crate) struct Definition {
    pub(crate) name: Named,
    pub(crate) replaces: bool,
    pub(crate) arguments: Vec<FunctionArgument>,
    pub(crate) returns: FunctionType,
    /// Whether it gives any number of results for each row.
    pub(crate) returns_set: bool,
    pub(crate) volatility: Volatility,
    pub(crate) called_on_null: bool,
    /// Where the module is: a file, or its bytes in hexadecimal digits after `\x`.
    pub(crate) module: String,
    /// The function's name in the module; none: that of the function.
    pub(crate) export: Option<String>,
}

/// DROP FUNCTION as it was written.
pub(crate) struct Dropped {
    pub(crate) name: Named,
    pub(crate) if_exists: bool,
}

impl Definition {
    pub(crate) fn of(create: CreateFunction) -> Result<Definition, Fault> {
        let is_wasm = create.language.as_ref().is_some_and(|language| language.value.eq_ignore_ascii_case("wasm"));
        if !is_wasm {
            let language = create.language.map_or("no language".to_owned(), |language| format!("language {language}"));
            return Err(
                Fault::new(Blame::Unsupported, format!("functions are in LANGUAGE wasm here, not in {language}")).hint(FORM)
            );
        }
        let is_other = create.temporary
            || create.if_not_exists
            || create.or_alter
            || create.using.is_some()
            || create.options.is_some()
            || create.remote_connection.is_some()
            || create.determinism_specifier.is_some()
            || !create.set_params.is_empty()
            || create.security.is_some();
        if is_other {
            return Err(
                Fault::new(Blame::Unsupported, "CREATE FUNCTION has a clause that this release does not know").hint(FORM)
            );
        }
        let (returns, returns_set) = match &create.return_type {
            Some(FunctionReturnType::DataType(DataType::Table(_))) => {
                return Err(Fault::new(Blame::Unsupported, "RETURNS TABLE is not supported").hint("RETURNS SETOF type"));
            }
            Some(FunctionReturnType::DataType(of)) => (type_of(of)?, false),
            Some(FunctionReturnType::SetOf(of)) => (type_of(of)?, true),
            None => return Err(incomplete("it has no RETURNS")),
        };
        let arguments = create.args.unwrap_or_default().iter().map(argument).collect::<Result<_, _>>()?;
        let Some(CreateFunctionBody::AsBeforeOptions { body, link_symbol }) = &create.function_body else {
            return Err(incomplete("it does not say where the module is"));
        };
        Ok(Definition {
            name: Named::new(parts(&create.name)?),
            replaces: create.or_replace,
            arguments,
            returns,
            returns_set,
            volatility: match create.behavior {
                None | Some(FunctionBehavior::Immutable) => Volatility::Immutable,
                Some(FunctionBehavior::Stable) => Volatility::Stable,
                Some(FunctionBehavior::Volatile) => Volatility::Volatile,
            },
            called_on_null: matches!(create.called_on_null, Some(FunctionCalledOnNull::CalledOnNullInput)),
            module: text(body)?,
            export: link_symbol.as_ref().map(text).transpose()?,
        })
    }
}

impl Dropped {
    pub(crate) fn of(drop: DropFunction) -> Result<Dropped, Fault> {
        let [function] = drop.func_desc.as_slice() else {
            return Err(Fault::new(Blame::Unsupported, "DROP FUNCTION drops one function at a time"));
        };
        Ok(Dropped { name: Named::new(parts(&function.name)?), if_exists: drop.if_exists })
    }
}

fn incomplete(what: &str) -> Fault {
    Fault::new(Blame::User, format!("CREATE FUNCTION is not whole: {what}")).hint(FORM)
}

fn argument(argument: &OperateFunctionArg) -> Result<FunctionArgument, Fault> {
    if argument.mode.is_some() || argument.default_expr.is_some() {
        return Err(Fault::new(Blame::Unsupported, format!("the argument {argument}: expected [name] type")));
    }
    let name = argument.name.as_ref().map(|Ident { value, .. }| value.to_lowercase());
    Ok(FunctionArgument { name, of: type_of(&argument.data_type)? })
}

/// A type of functions, by the names that PostgreSQL has for it.
fn type_of(of: &DataType) -> Result<FunctionType, Fault> {
    Ok(match of {
        DataType::Boolean | DataType::Bool => FunctionType::Boolean,
        DataType::Integer(None) | DataType::Int(None) | DataType::Int4(None) => FunctionType::Integer,
        DataType::BigInt(None) | DataType::Int8(None) | DataType::Int64 => FunctionType::Bigint,
        DataType::DoublePrecision | DataType::Double(ExactNumberInfo::None) | DataType::Float8 | DataType::Float64 => {
            FunctionType::Double
        }
        DataType::Text | DataType::Varchar(None) | DataType::String(None) => FunctionType::Text,
        other => {
            let types: Vec<String> = FunctionType::ALL.iter().map(ToString::to_string).collect();
            let what = format!("functions know no type {other}; the types are {}", types.join(", "));
            return Err(Fault::new(Blame::User, what).hint("declare one of these, and cast what is given and what comes back"));
        }
    })
}

fn text(expr: &Expr) -> Result<String, Fault> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Ok(text.clone()),
            Value::DollarQuotedString(text) => Ok(text.value.clone()),
            other => Err(incomplete(&format!("expected a text after AS, got {other}"))),
        },
        other => Err(incomplete(&format!("expected a text after AS, got {other}"))),
    }
}
