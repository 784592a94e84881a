use arrow::util::display::array_value_to_string;
use datafusion::prelude::SessionContext;

use super::*;
use crate::{EngineOptions, session_state};

async fn answer(call: &str) -> Result<String, String> {
    let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
    let frame = context.sql(&format!("SELECT {call} FROM (VALUES (1)) AS t(one)")).await.map_err(|error| error.to_string())?;
    let found = frame.collect().await.map_err(|error| error.to_string())?;
    Ok(array_value_to_string(found[0].column(0), 0).unwrap())
}

/// What DuckDB 2.0 answers.
#[tokio::test]
async fn braces_are_places_for_values() {
    for (call, expected) in [
        ("format('{} {}', 1, 'a')", "1 a"),
        ("format('{1} {0} {1}', one, 'a')", "a 1 a"),
        ("format('{{}} {}', true)", "{} true"),
        ("format('plain')", "plain"),
        ("format('{:.2f} {:5d}|{:<5}|{:>5}|{:^5}', 1.234::double, 5, 'a', 'b', 'c')", "1.23     5|a    |    b|  c  "),
        ("format('{:05d}|{:+d}|{: d}|{:,d}|{:_d}', -7, 8, 9, -1000000, 123)", "-0007|+8| 9|-1,000,000|123"),
        ("format('{:x}|{:X}|{:#x}|{:b}|{:o}|{:#b}', 255, 255, 255, 5, 8, -5)", "ff|FF|0xff|101|10|-0b101"),
        ("format('{:*^9}|{:5}|{:5}|{:.3}', 'abc', 'é', 7, 'abcdef')", "***abc***|é    |    7|abc"),
        ("format('{:=5d}|{:>+5d}|{:<05d}', -5, 5, 5)", "-   5|   +5|00005"),
        ("format('{:5}|{:d}', true, false)", "true |0"),
        ("format('{} {} {}', 1.0::double, 1e20::double, 0.00001234::double)", "1.0 1e+20 1.234e-05"),
        ("format('{} {} {}', 1e15::double, 1e16::double, -0.0::double)", "1000000000000000.0 1e+16 -0.0"),
        (
            "format('{:.3} {:.3} {:.3} {:.3}', 1.0::double, 100.0::double, 0.5::double, 1234.0::double)",
            "1.00 100.0 0.5 1.23e+03",
        ),
        (
            "format('{:e} {:G} {:g} {:#g}', 12345.678::double, 1e-10::double, 0.00012::double, 1.0::double)",
            "1.234568e+04 1E-10 0.00012 1.00000",
        ),
        ("format('{:,.2f} {:010.2f}', 1234567.891::double, -2.5::double)", "1,234,567.89 -000002.50"),
        ("format('{} {:.1f} {:>6}', 'NaN'::double, '-inf'::double, 'inf'::double)", "nan -inf    inf"),
        ("format('{} {}', 1.50::decimal(5, 2), 18446744073709551615)", "1.5 18446744073709551615"),
        ("format('{}', DATE '2024-02-29')", "2024-02-29"),
        ("format('{} {}', 1, NULL)", ""),
        ("format(NULL, 1)", ""),
    ] {
        assert_eq!(answer(call).await.as_deref(), Ok(expected), "{call}");
    }
}

#[tokio::test]
async fn percents_are_places_for_values() {
    for (call, expected) in [
        ("printf('%d %s %.2f%%', 1, 'a', 2.5::double)", "1 a 2.50%"),
        ("printf('%5d|%-5d|%05d|%+d|% d|%.3d', 1, 2, 3, 4, 5, 6)", "    1|2    |00003|+4| 5|006"),
        ("printf('%x %X %o %c %u', 255, 255, 8, 65, -1)", "ff FF 10 A 18446744073709551615"),
        ("printf('%#x %#x %#o %#.2o %.0c', 255, 0, 8, 1, 65)", "0xff 0 010 01 A"),
        ("printf('%,d %_d %ld %lld', 1000000, 1000000, 1, 2)", "1,000,000 1_000_000 1 2"),
        ("printf('%.3s|%10s|%-10s|%05s', 'abcdef', 'x', 'y', 'z')", "abc|         x|y         |    z"),
        ("printf('%2$s %1$s', 'a', 'b')", "b a"),
        (
            "printf('%e|%g|%g|%.0e', 0.0::double, 100000.0::double, 1000000.0::double, 15.0::double)",
            "0.000000e+00|100000|1e+06|2e+01",
        ),
        ("printf('%d %s', true, false)", "1 false"),
        ("printf('%s', DATE '2024-02-29')", "2024-02-29"),
        ("printf('%s', NULL)", ""),
    ] {
        assert_eq!(answer(call).await.as_deref(), Ok(expected), "{call}");
    }
}

#[tokio::test]
async fn formats_that_are_none_are_refused() {
    for (call, expected) in [
        ("format('{')", "is not closed"),
        ("format('}')", "stands alone"),
        ("format('{a}', 1)", "where a } should"),
        ("format('{} {}', 1)", "no value 2; 1 are given"),
        ("format('{} {0}', 1)", "either all places have a number, or none has"),
        ("format('{0} {}', 1)", "either all places have a number, or none has"),
        ("format('{:d}', 'a')", "{:d} does not write a text"),
        ("format('{:d}', 1.5::double)", "{:d} does not write a number with a fraction"),
        ("format('{:+}', 'a')", "are for numbers"),
        ("format('{:.2d}', 5)", "no digits behind its point"),
        ("format('{:1001}', 1)", "at most 1000"),
        ("format('{:{}}', 1, 5)", "write it as digits"),
        ("printf('%*d', 1, 5)", "write it as digits"),
        ("printf('%')", "expected %d"),
        ("printf('%s', 1)", "%s does not write a whole number"),
        ("printf('%c', -1)", "the number of no character"),
        ("printf('%0$s', 'a')", "counted from 1"),
        ("format(1)", "expects a text"),
    ] {
        let error = answer(call).await.unwrap_err();
        assert!(error.contains(expected), "{call}: {error}");
    }
}

#[tokio::test]
async fn each_row_has_its_own_format_and_values() {
    let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
    let rows =
        "(VALUES (1, '{} {}', 1, 'a'), (2, '<{1}>', 2, 'b'), (3, NULL, 3, 'c'), (4, '{}', NULL, 'd'), (5, '{}', 5, 'e'))";
    let sql = format!("SELECT format(f, x, s) AS v FROM {rows} AS t(i, f, x, s) ORDER BY i");
    let found = context.sql(&sql).await.unwrap().collect().await.unwrap();
    let texts: Vec<Option<&str>> = found[0].column(0).as_string_view().iter().collect();
    assert_eq!(texts, [Some("1 a"), Some("<b>"), None, None, Some("5")]);
}

/// The result of a short format can be long.
#[test]
fn what_a_format_writes_is_no_more_than_its_bound() {
    for (style, format) in
        [(Style::Braces, "{:300.20f}|{:,.2f}|{:.3e}"), (Style::Percent, "%f|%.100e|%900g"), (Style::Braces, "{0} {0:b}")]
    {
        let values: Vec<ArrayRef> = match format.contains("0}") {
            true => vec![Arc::new(Int64Array::from(vec![i64::MIN]))],
            false => (0..3).map(|_| Arc::new(Float64Array::from(vec![f64::MIN])) as ArrayRef).collect(),
        };
        let made = style.texts(&(Arc::new(StringViewArray::from(vec![format])) as ArrayRef), &values).unwrap();
        let (own, places) = style.sizes(format);
        let bytes = made.as_string_view().value(0).len() as u64;
        assert!(bytes <= own && places > 0, "{format}: {bytes} of {own}");
        assert!(own < 8 * bytes + 400, "{format}: {bytes} of {own}");
    }
}
