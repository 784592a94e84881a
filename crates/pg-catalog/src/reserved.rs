//! Words that are no names unless they are in quotes.

/// What PostgreSQL 15 has as reserved, or as the name of a function or of a type that its grammar knows; and `struct`, which this parser
/// reads as a type.
const RESERVED: &str = "all analyse analyze and any array as asc asymmetric authorization between bigint binary bit boolean \
     both case cast char character check coalesce collate collation column concurrently constraint create cross current_catalog \
     current_date current_role current_schema current_time current_timestamp current_user dec decimal default deferrable \
     desc distinct do else end except exists extract false fetch float for foreign freeze from full grant greatest group \
     grouping having ilike in initially inner inout int integer intersect interval into is isnull join lateral leading \
     least left like limit localtime localtimestamp national natural nchar none normalize not notnull null nullif numeric \
     offset on only or order out outer overlaps overlay placing position precision primary real references returning right \
     row select session_user setof similar smallint some struct substring symmetric table tablesample then time timestamp \
     to trailing treat trim true union unique user using values varchar variadic verbose when where window with \
     xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable";

/// Whether a word, in small letters, is a name only in quotes.
pub(crate) fn is_reserved(word: &str) -> bool {
    RESERVED.split(' ').any(|reserved| reserved == word)
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::keywords::RESERVED_FOR_IDENTIFIER;

    use super::*;

    #[test]
    fn words_are_found_and_this_parser_has_no_others() {
        assert!(RESERVED_FOR_IDENTIFIER.iter().all(|keyword| is_reserved(&keyword.to_string().to_lowercase())));
        assert!(["all", "order", "user", "xmltable"].iter().all(|word| is_reserved(word)));
        assert!(["name", "trips", "id", "date", "text", "", "ORDER"].iter().all(|word| !is_reserved(word)));
    }
}
