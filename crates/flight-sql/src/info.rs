//! What the server is and can do, and the types that columns have.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use arrow_flight::sql::metadata::{SqlInfoData, SqlInfoDataBuilder, XdbcTypeInfo, XdbcTypeInfoData, XdbcTypeInfoDataBuilder};
use arrow_flight::sql::{
    Nullable, Searchable, SqlInfo, SqlNullOrdering, SqlOuterJoinsSupportLevel, SqlSupportedCaseSensitivity,
    SqlSupportedGroupBy, SqlSupportedResultSetConcurrency, SqlSupportedResultSetType, SqlSupportedSubqueries,
    SqlSupportedTransaction, SqlSupportedUnions, SqlTransactionIsolationLevel, SupportedSqlGrammar, XdbcDataType,
    XdbcDatetimeSubcode,
};
use pithead_host::substrait_version;
use pithead_model::{COLUMNS_MAX, Fault, NAME_BYTES_MAX};

use crate::flight::IDLE;

static SQL_INFO: LazyLock<Result<SqlInfoData, Fault>> = LazyLock::new(|| all_info().build().map_err(Fault::bug));
static TYPES: LazyLock<Result<XdbcTypeInfoData, Fault>> = LazyLock::new(|| all_types().build().map_err(Fault::bug));

/// What the server is and can do.
pub(crate) fn sql_info() -> Result<&'static SqlInfoData, Fault> {
    SQL_INFO.as_ref().map_err(Clone::clone)
}

/// The types.
pub(crate) fn types() -> Result<&'static XdbcTypeInfoData, Fault> {
    TYPES.as_ref().map_err(Clone::clone)
}

/// Several values as the bits of one.
fn bits(values: &[i32]) -> i32 {
    values.iter().fold(0, |bits, value| bits | 1 << value)
}

/// One of an enumeration's values. The specification says that these have 32 bits. But only bitmasks have a place of 32 bits in the answer,
/// the JDBC and the ODBC driver read these as numbers of 64 bits, and Arrow's own servers send them so.
fn ordinal(value: i32) -> i64 {
    i64::from(value)
}

fn all_info() -> SqlInfoDataBuilder {
    let mut info = SqlInfoDataBuilder::new();
    info.append(SqlInfo::FlightSqlServerName, "Pithead");
    info.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    info.append(SqlInfo::FlightSqlServerArrowVersion, arrow::ARROW_VERSION);
    info.append(SqlInfo::FlightSqlServerReadOnly, false);
    info.append(SqlInfo::FlightSqlServerSql, true);
    info.append(SqlInfo::FlightSqlServerSubstrait, true);
    let spoken = substrait_version();
    info.append(SqlInfo::FlightSqlServerSubstraitMinVersion, spoken.as_str());
    info.append(SqlInfo::FlightSqlServerSubstraitMaxVersion, spoken.as_str());
    info.append(SqlInfo::FlightSqlServerTransaction, SqlSupportedTransaction::None as i32);
    info.append(SqlInfo::FlightSqlServerCancel, true);
    info.append(SqlInfo::FlightSqlServerBulkIngestion, true);
    info.append(SqlInfo::FlightSqlServerIngestTransactionsSupported, false);
    info.append(SqlInfo::FlightSqlServerStatementTimeout, i32::try_from(IDLE.as_millis()).unwrap_or(i32::MAX));
    info.append(SqlInfo::FlightSqlServerTransactionTimeout, 0_i32);
    names(&mut info);
    abilities(&mut info);
    transactions(&mut info);
    limits(&mut info);
    info
}

fn names(info: &mut SqlInfoDataBuilder) {
    info.append(SqlInfo::SqlDdlCatalog, false);
    info.append(SqlInfo::SqlDdlSchema, false);
    info.append(SqlInfo::SqlDdlTable, true);
    info.append(SqlInfo::SqlIdentifierCase, ordinal(SqlSupportedCaseSensitivity::SqlCaseSensitivityLowercase as i32));
    info.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    info.append(SqlInfo::SqlQuotedIdentifierCase, ordinal(SqlSupportedCaseSensitivity::SqlCaseSensitivityUnknown as i32));
    info.append(SqlInfo::SqlAllTablesAreSelectable, true);
    info.append(SqlInfo::SqlSearchStringEscape, "\\");
    info.append(SqlInfo::SqlExtraNameCharacters, "");
    info.append(SqlInfo::SqlSchemaTerm, "domain");
    info.append(SqlInfo::SqlProcedureTerm, "");
    info.append(SqlInfo::SqlCatalogTerm, "catalog");
    info.append(SqlInfo::SqlCatalogAtStart, true);
    info.append(SqlInfo::SqlKeywords, &["COPY", "EXPLAIN", "PUSHDOWN", "SUMMARIZE"] as &[&str]);
    let none: &[&str] = &[];
    for functions in
        [SqlInfo::SqlNumericFunctions, SqlInfo::SqlStringFunctions, SqlInfo::SqlSystemFunctions, SqlInfo::SqlDatetimeFunctions]
    {
        info.append(functions, none);
    }
}

fn abilities(info: &mut SqlInfoDataBuilder) {
    use SqlSupportedSubqueries::{SqlSubqueriesInComparisons, SqlSubqueriesInExists, SqlSubqueriesInIns};
    info.append(SqlInfo::SqlNullOrdering, ordinal(SqlNullOrdering::SqlNullsSortedHigh as i32));
    info.append(SqlInfo::SqlSupportsColumnAliasing, true);
    info.append(SqlInfo::SqlNullPlusNullIsNull, true);
    // By the function CONVERT of ODBC and JDBC, which there is none of.
    info.append(SqlInfo::SqlSupportsConvert, BTreeMap::<i32, Vec<i32>>::new());
    info.append(SqlInfo::SqlSupportsTableCorrelationNames, true);
    info.append(SqlInfo::SqlSupportsDifferentTableCorrelationNames, false);
    info.append(SqlInfo::SqlSupportsExpressionsInOrderBy, true);
    info.append(SqlInfo::SqlSupportsOrderByUnrelated, true);
    let groups = [SqlSupportedGroupBy::SqlGroupByUnrelated as i32, SqlSupportedGroupBy::SqlGroupByBeyondSelect as i32];
    info.append(SqlInfo::SqlSupportedGroupBy, bits(&groups));
    info.append(SqlInfo::SqlSupportsLikeEscapeClause, true);
    info.append(SqlInfo::SqlSupportsNonNullableColumns, true);
    let grammars = [SupportedSqlGrammar::SqlMinimumGrammar as i32, SupportedSqlGrammar::SqlCoreGrammar as i32];
    info.append(SqlInfo::SqlSupportedGrammar, bits(&grammars));
    // Entry level, the first bit.
    info.append(SqlInfo::SqlAnsi92SupportedLevel, 1_i32);
    info.append(SqlInfo::SqlSupportsIntegrityEnhancementFacility, false);
    info.append(SqlInfo::SqlOuterJoinsSupportLevel, bits(&[SqlOuterJoinsSupportLevel::SqlFullOuterJoins as i32]));
    info.append(SqlInfo::SqlSchemasSupportedActions, 0_i32);
    info.append(SqlInfo::SqlCatalogsSupportedActions, 0_i32);
    info.append(SqlInfo::SqlSupportedPositionedCommands, 0_i32);
    info.append(SqlInfo::SqlSelectForUpdateSupported, false);
    info.append(SqlInfo::SqlStoredProceduresSupported, false);
    let subqueries = [SqlSubqueriesInComparisons as i32, SqlSubqueriesInExists as i32, SqlSubqueriesInIns as i32];
    info.append(SqlInfo::SqlSupportedSubqueries, bits(&subqueries));
    info.append(SqlInfo::SqlCorrelatedSubqueriesSupported, true);
    info.append(
        SqlInfo::SqlSupportedUnions,
        bits(&[SqlSupportedUnions::SqlUnion as i32, SqlSupportedUnions::SqlUnionAll as i32]),
    );
    info.append(SqlInfo::SqlSupportedResultSetTypes, bits(&[SqlSupportedResultSetType::SqlResultSetTypeForwardOnly as i32]));
    let read_only = SqlSupportedResultSetConcurrency::SqlResultSetConcurrencyReadOnly as i32;
    info.append(SqlInfo::SqlSupportedConcurrenciesForResultSetForwardOnly, bits(&[read_only]));
    for other in [
        SqlInfo::SqlSupportedConcurrenciesForResultSetUnspecified,
        SqlInfo::SqlSupportedConcurrenciesForResultSetScrollSensitive,
        SqlInfo::SqlSupportedConcurrenciesForResultSetScrollInsensitive,
    ] {
        info.append(other, 0_i32);
    }
    info.append(SqlInfo::SqlBatchUpdatesSupported, true);
    info.append(SqlInfo::SqlNamedParametersSupported, false);
    info.append(SqlInfo::SqlLocatorsUpdateCopy, false);
    info.append(SqlInfo::SqlStoredFunctionsUsingCallSyntaxSupported, false);
}

/// There are none over several statements.
fn transactions(info: &mut SqlInfoDataBuilder) {
    let none = SqlTransactionIsolationLevel::SqlTransactionNone as i32;
    info.append(SqlInfo::SqlDefaultTransactionIsolation, ordinal(none));
    info.append(SqlInfo::SqlTransactionsSupported, false);
    info.append(SqlInfo::SqlSupportedTransactionsIsolationLevels, bits(&[none]));
    info.append(SqlInfo::SqlDataDefinitionCausesTransactionCommit, false);
    info.append(SqlInfo::SqlDataDefinitionsInTransactionsIgnored, false);
    info.append(SqlInfo::SqlSavepointsSupported, false);
}

/// How much of something there may be; 0: as much as there is memory for, or there is no such thing.
fn limits(info: &mut SqlInfoDataBuilder) {
    info.append(SqlInfo::SqlMaxColumnsInTable, COLUMNS_MAX as i64);
    for named in [SqlInfo::SqlDbSchemaNameLength, SqlInfo::SqlMaxTableNameLength, SqlInfo::SqlMaxUsernameLength] {
        info.append(named, NAME_BYTES_MAX as i64);
    }
    for unlimited in [
        SqlInfo::SqlMaxBinaryLiteralLength,
        SqlInfo::SqlMaxCharLiteralLength,
        SqlInfo::SqlMaxColumnNameLength,
        SqlInfo::SqlMaxColumnsInGroupBy,
        SqlInfo::SqlMaxColumnsInIndex,
        SqlInfo::SqlMaxColumnsInOrderBy,
        SqlInfo::SqlMaxColumnsInSelect,
        SqlInfo::SqlMaxConnections,
        SqlInfo::SqlMaxCursorNameLength,
        SqlInfo::SqlMaxIndexLength,
        SqlInfo::SqlMaxProcedureNameLength,
        SqlInfo::SqlMaxCatalogNameLength,
        SqlInfo::SqlMaxRowSize,
        SqlInfo::SqlMaxStatementLength,
        SqlInfo::SqlMaxStatements,
        SqlInfo::SqlMaxTablesInSelect,
    ] {
        info.append(unlimited, 0_i64);
    }
    info.append(SqlInfo::SqlMaxRowSizeIncludesBlobs, false);
}

/// A number's type: its digits, and whether it is unsigned.
fn number(name: &str, data_type: XdbcDataType, digits: i32, unsigned: bool) -> XdbcTypeInfo {
    XdbcTypeInfo {
        column_size: Some(digits),
        unsigned_attribute: Some(unsigned),
        fixed_prec_scale: false,
        num_prec_radix: Some(10),
        ..plain(name, data_type)
    }
}

/// A type whose values are written as texts, maybe after a word.
fn quoted(name: &str, data_type: XdbcDataType, word: &str) -> XdbcTypeInfo {
    let prefix = if word.is_empty() { "'".to_owned() } else { format!("{word} '") };
    XdbcTypeInfo { literal_prefix: Some(prefix), literal_suffix: Some("'".to_owned()), ..plain(name, data_type) }
}

/// A moment's type: its characters, and which of the kinds of moments it is.
fn moment(name: &str, data_type: XdbcDataType, size: i32, kind: XdbcDatetimeSubcode) -> XdbcTypeInfo {
    XdbcTypeInfo {
        column_size: Some(size),
        sql_data_type: XdbcDataType::XdbcDatetime,
        datetime_subcode: Some(kind),
        ..quoted(name, data_type, name)
    }
}

fn plain(name: &str, data_type: XdbcDataType) -> XdbcTypeInfo {
    XdbcTypeInfo {
        type_name: name.to_owned(),
        data_type,
        nullable: Nullable::NullabilityNullable,
        searchable: Searchable::Full,
        auto_increment: Some(false),
        local_type_name: Some(name.to_owned()),
        sql_data_type: data_type,
        ..XdbcTypeInfo::default()
    }
}

fn all_types() -> XdbcTypeInfoDataBuilder {
    use XdbcDataType::{
        XdbcBigint, XdbcBit, XdbcDate, XdbcDecimal, XdbcDouble, XdbcInteger, XdbcReal, XdbcSmallint, XdbcTime, XdbcTimestamp,
        XdbcTinyint, XdbcVarbinary, XdbcVarchar,
    };
    let mut types = XdbcTypeInfoDataBuilder::new();
    types.append(plain("BOOLEAN", XdbcBit));
    for (name, unsigned_name, data_type, digits) in [
        ("TINYINT", "TINYINT UNSIGNED", XdbcTinyint, 3),
        ("SMALLINT", "SMALLINT UNSIGNED", XdbcSmallint, 5),
        ("INTEGER", "INTEGER UNSIGNED", XdbcInteger, 10),
        ("BIGINT", "BIGINT UNSIGNED", XdbcBigint, 19),
    ] {
        types.append(number(name, data_type, digits, false));
        types.append(number(unsigned_name, data_type, digits + i32::from(digits == 19), true));
    }
    types.append(number("REAL", XdbcReal, 7, false));
    types.append(number("DOUBLE", XdbcDouble, 15, false));
    types.append(XdbcTypeInfo {
        create_params: Some(vec!["precision".to_owned(), "scale".to_owned()]),
        minimum_scale: Some(0),
        maximum_scale: Some(38),
        ..number("DECIMAL", XdbcDecimal, 38, false)
    });
    types.append(XdbcTypeInfo { case_sensitive: true, ..quoted("VARCHAR", XdbcVarchar, "") });
    types.append(quoted("BYTEA", XdbcVarbinary, "X"));
    // The number 1 is that of dates as well.
    types.append(moment("DATE", XdbcDate, 10, XdbcDatetimeSubcode::XdbcSubcodeYear));
    types.append(moment("TIME", XdbcTime, 18, XdbcDatetimeSubcode::XdbcSubcodeTime));
    types.append(moment("TIMESTAMP", XdbcTimestamp, 29, XdbcDatetimeSubcode::XdbcSubcodeTimestamp));
    types
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::UInt32Type;

    use super::*;

    /// Which kind of value an answer has for something, by the place in the union.
    fn kind(info: SqlInfo) -> i8 {
        let batch = sql_info().unwrap().record_batch([info as u32]).unwrap();
        assert_eq!(batch.num_rows(), 1, "{info:?} is missing");
        batch.column(1).as_union().type_id(0)
    }

    #[test]
    fn drivers_find_all_that_they_ask_for() {
        let known = sql_info().unwrap().record_batch([]).unwrap();
        let known = known.column(0).as_primitive::<UInt32Type>().values().to_vec();
        let all = (0..1_000).filter(|number| SqlInfo::try_from(*number).is_ok());
        let missing: Vec<_> = all.filter(|number| !known.contains(&(*number as u32))).collect();
        assert_eq!(missing, [0; 0]);
    }

    #[test]
    fn values_have_the_types_that_drivers_cast_them_to() {
        let (truth, number, mask) = (1, 2, 3);
        for info in [
            SqlInfo::SqlDefaultTransactionIsolation,
            SqlInfo::SqlIdentifierCase,
            SqlInfo::SqlNullOrdering,
            SqlInfo::SqlMaxStatementLength,
            SqlInfo::SqlMaxUsernameLength,
        ] {
            assert_eq!(kind(info), number, "{info:?}");
        }
        for info in [SqlInfo::SqlSupportedTransactionsIsolationLevels, SqlInfo::SqlSupportedGroupBy] {
            assert_eq!(kind(info), mask, "{info:?}");
        }
        assert_eq!((kind(SqlInfo::SqlMaxRowSizeIncludesBlobs), kind(SqlInfo::SqlSupportsConvert)), (truth, 5));
    }

    #[test]
    fn info_and_types_are_built_and_filtered() {
        let info = sql_info().unwrap().record_batch([SqlInfo::FlightSqlServerName as u32, 999_999]).unwrap();
        assert_eq!(info.num_rows(), 1);
        assert!(sql_info().unwrap().record_batch([]).unwrap().num_rows() > 50);
        assert_eq!(types().unwrap().record_batch(XdbcDataType::XdbcBigint as i32).unwrap().num_rows(), 2);
    }
}
