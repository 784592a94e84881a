//! SHOW TABLES of a domain, or by a pattern, and SHOW FUNCTIONS: the queries over `information_schema` that they are short for.

use datafusion::sql::parser::Statement as Syntax;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, Query, SetExpr, ShowStatementFilter, ShowStatementFilterPosition, ShowStatementIn,
    ShowStatementOptions, Statement as Sql, Value,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use pithead_functions::fault_from_datafusion;
use pithead_model::Fault;

use crate::dialect::binary;
use crate::tokens::parts;

/// What SHOW TABLES without a word more is.
const TABLES: &str = "SELECT * FROM information_schema.tables ORDER BY table_schema, table_name";

/// What SHOW FUNCTIONS is. A function has a row for each signature, which is a result with the arguments of the same number. Those
/// of the engine that give tables have none.
const FUNCTIONS: &str = "SELECT function_name, return_type, parameters, parameter_types, function_type, description, \
     syntax_example FROM (SELECT DISTINCT routine.specific_name AS function_name, \
     coalesce(signature.return_type, routine.data_type) AS return_type, signature.parameters, signature.parameter_types, \
     routine.function_type, routine.description, routine.syntax_example FROM information_schema.routines AS routine \
     LEFT JOIN (SELECT given.specific_schema, given.specific_name, given.data_type AS return_type, \
     array_agg(taken.parameter_name ORDER BY taken.ordinal_position) FILTER (WHERE taken.rid IS NOT NULL) AS parameters, \
     array_agg(taken.data_type ORDER BY taken.ordinal_position) FILTER (WHERE taken.rid IS NOT NULL) AS parameter_types \
     FROM information_schema.parameters AS given LEFT JOIN information_schema.parameters AS taken \
     ON taken.specific_schema = given.specific_schema AND taken.specific_name = given.specific_name AND taken.rid = given.rid \
     AND taken.parameter_mode = 'IN' WHERE given.parameter_mode = 'OUT' \
     GROUP BY given.specific_schema, given.specific_name, given.data_type, given.rid) AS signature \
     ON signature.specific_schema = routine.specific_schema AND signature.specific_name = routine.specific_name \
     AND coalesce(routine.data_type, '') <> 'TABLE' \
     WHERE routine.data_type = 'TABLE' OR signature.specific_name IS NOT NULL) AS shown \
     ORDER BY function_name, function_type, return_type, array_to_string(parameter_types, ', ')";

/// Puts the query in the place of a SHOW TABLES that says which.
pub(crate) fn show_tables(statement: &mut Syntax) -> Result<(), Fault> {
    let Syntax::Statement(sql) = statement else { return Ok(()) };
    let Sql::ShowTables { terse: false, history: false, extended: false, full: false, external: false, show_options } =
        sql.as_ref()
    else {
        return Ok(());
    };
    let ShowStatementOptions { show_in, starts_with: None, limit: None, limit_from: None, filter_position } = show_options
    else {
        return Ok(());
    };
    if let Some(wanted) = condition(show_in.as_ref(), filter_position.as_ref())? {
        **sql = Sql::Query(Box::new(query(TABLES, Some(wanted))?));
    }
    Ok(())
}

/// Puts the query in the place of a SHOW FUNCTIONS.
pub(crate) fn show_functions(statement: &mut Syntax) -> Result<(), Fault> {
    let Syntax::Statement(sql) = statement else { return Ok(()) };
    let Sql::ShowFunctions { filter } = sql.as_ref() else { return Ok(()) };
    let wanted = filter.as_ref().map(|filter| named("function_name", filter));
    **sql = Sql::Query(Box::new(query(FUNCTIONS, wanted)?));
    Ok(())
}

fn condition(show_in: Option<&ShowStatementIn>, filter: Option<&ShowStatementFilterPosition>) -> Result<Option<Expr>, Fault> {
    let domain = match show_in {
        None => None,
        Some(ShowStatementIn { parent_type: None, parent_name: Some(name), .. }) => {
            let domain = parts(name)?;
            let [domain] = domain.as_slice() else {
                return Err(Fault::invalid(format!("expected SHOW TABLES FROM domain, got {name}")));
            };
            Some(binary(column("table_schema"), BinaryOperator::Eq, text(domain)))
        }
        Some(other) => return Err(Fault::invalid(format!("expected SHOW TABLES FROM domain, got {other}"))),
    };
    let (ShowStatementFilterPosition::Infix(filter) | ShowStatementFilterPosition::Suffix(filter)) = match filter {
        None => return Ok(domain),
        Some(filter) => filter,
    };
    let named = named("table_name", filter);
    Ok(Some(match domain {
        Some(domain) => binary(domain, BinaryOperator::And, named),
        None => named,
    }))
}

/// What a filter asks for, of which patterns are those of a column.
fn named(name: &str, filter: &ShowStatementFilter) -> Expr {
    use ShowStatementFilter::{ILike, Like, NoKeyword, Where};
    let (expr, pattern) = (Box::new(column(name)), |pattern: &str| Box::new(text(pattern)));
    match filter {
        Like(name) | NoKeyword(name) => {
            Expr::Like { negated: false, any: false, expr, pattern: pattern(name), escape_char: None }
        }
        ILike(name) => Expr::ILike { negated: false, any: false, expr, pattern: pattern(name), escape_char: None },
        Where(condition) => Expr::Nested(Box::new(condition.clone())),
    }
}

fn query(sql: &str, condition: Option<Expr>) -> Result<Query, Fault> {
    let parsed = Parser::new(&GenericDialect {}).try_with_sql(sql).and_then(|mut parser| parser.parse_query());
    let mut query = *parsed.map_err(|error| fault_from_datafusion(error.into()))?;
    match query.body.as_mut() {
        SetExpr::Select(select) => select.selection = condition,
        _ => return Err(Fault::bug("the query of SHOW is no SELECT")),
    }
    Ok(query)
}

fn column(name: &str) -> Expr {
    Expr::Identifier(Ident::new(name))
}

fn text(value: &str) -> Expr {
    Expr::value(Value::SingleQuotedString(value.to_owned()))
}
