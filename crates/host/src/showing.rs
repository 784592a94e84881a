//! SHOW TABLES of a domain, or by a pattern: the query over `information_schema.tables` that it is short for.

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
        **sql = Sql::Query(Box::new(query(wanted)?));
    }
    Ok(())
}

fn condition(show_in: Option<&ShowStatementIn>, filter: Option<&ShowStatementFilterPosition>) -> Result<Option<Expr>, Fault> {
    use ShowStatementFilter::{ILike, Like, NoKeyword, Where};
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
    let (expr, pattern) = (Box::new(column("table_name")), |pattern: &str| Box::new(text(pattern)));
    let named = match filter {
        Like(name) | NoKeyword(name) => {
            Expr::Like { negated: false, any: false, expr, pattern: pattern(name), escape_char: None }
        }
        ILike(name) => Expr::ILike { negated: false, any: false, expr, pattern: pattern(name), escape_char: None },
        Where(condition) => Expr::Nested(Box::new(condition.clone())),
    };
    Ok(Some(match domain {
        Some(domain) => binary(domain, BinaryOperator::And, named),
        None => named,
    }))
}

fn query(condition: Expr) -> Result<Query, Fault> {
    let parsed = Parser::new(&GenericDialect {}).try_with_sql(TABLES).and_then(|mut parser| parser.parse_query());
    let mut query = *parsed.map_err(|error| fault_from_datafusion(error.into()))?;
    match query.body.as_mut() {
        SetExpr::Select(select) => select.selection = Some(condition),
        _ => return Err(Fault::bug("the query of SHOW TABLES is no SELECT")),
    }
    Ok(query)
}

fn column(name: &str) -> Expr {
    Expr::Identifier(Ident::new(name))
}

fn text(value: &str) -> Expr {
    Expr::value(Value::SingleQuotedString(value.to_owned()))
}
