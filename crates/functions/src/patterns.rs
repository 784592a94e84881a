//! `regexp_extract_all` and `string_split_regex`: all parts of a text that fit a pattern, and the parts between them, as in DuckDB.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, ListBuilder, StringViewArray, StringViewBuilder};
use arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::functions::regex::compile_and_cache_regex;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};

use crate::wall_time::as_given;

/// Options that are known: letters of either case are one, or are not; a dot is also the end of a line.
const OPTIONS: [char; 3] = ['c', 'i', 's'];

/// What such a function gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Parts {
    Fitting,
    Between,
}

pub(crate) fn patterns_udfs() -> [ScalarUDF; 2] {
    let (text, number) = (DataType::Utf8View, DataType::Int64);
    let of = |types: &[&DataType]| TypeSignature::Exact(types.iter().map(|of| (*of).clone()).collect());
    let fitting = [of(&[&text, &text]), of(&[&text, &text, &number]), of(&[&text, &text, &number, &text])];
    let between = [of(&[&text, &text]), of(&[&text, &text, &text])];
    let split = ["str_split_regex", "regexp_split_to_array"].map(str::to_owned).to_vec();
    [
        ("regexp_extract_all", vec![], Parts::Fitting, fitting.to_vec()),
        ("string_split_regex", split, Parts::Between, between.to_vec()),
    ]
    .map(|(name, aliases, parts, signatures)| {
        let signature = Signature::one_of(signatures, Volatility::Immutable);
        ScalarUDF::new_from_impl(Patterns { name, aliases, parts, signature })
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Patterns {
    name: &'static str,
    aliases: Vec<String>,
    parts: Parts,
    signature: Signature,
}

impl ScalarUDFImpl for Patterns {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(Arc::new(Field::new_list_field(DataType::Utf8View, true))))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let columns = args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let [texts, patterns, rest @ ..] = &columns[..] else { return internal_err!("expected two arguments") };
        let (texts, patterns) = (texts.as_string_view(), patterns.as_string_view());
        let found = match (self.parts, rest) {
            (Parts::Fitting, rest) => {
                let whole: ArrayRef = Arc::new(Int64Array::from(vec![0; rows]));
                let groups = rest.first().unwrap_or(&whole).as_primitive::<Int64Type>();
                fitting(texts, patterns, groups, rest.get(1).map(|options| options.as_string_view()))?
            }
            (Parts::Between, rest) => between(texts, patterns, rest.first().map(|options| options.as_string_view()))?,
        };
        as_given(found, is_scalar)
    }
}

/// The options of a row, as the engine has them; none: there are none.
fn options(column: Option<&StringViewArray>, row: usize) -> Result<Option<&'static str>> {
    let Some(options) = column.filter(|options| options.is_valid(row)).map(|options| options.value(row)) else {
        return Ok(None);
    };
    if let Some(other) = options.chars().find(|option| !OPTIONS.contains(option)) {
        return exec_err!("options of a pattern are c, i and s, and {other} was given");
    }
    Ok(match (options.contains('i'), options.contains('s')) {
        (false, false) => None,
        (true, false) => Some("i"),
        (false, true) => Some("s"),
        (true, true) => Some("is"),
    })
}

/// What a group of the pattern fits, each time that the pattern does. Group 0 is the whole pattern.
fn fitting(
    texts: &StringViewArray,
    patterns: &StringViewArray,
    groups: &Int64Array,
    of_options: Option<&StringViewArray>,
) -> Result<ArrayRef> {
    let mut known = HashMap::new();
    let mut lists = ListBuilder::new(StringViewBuilder::new());
    for row in 0..texts.len() {
        if texts.is_null(row) || patterns.is_null(row) || groups.is_null(row) {
            lists.append_null();
            continue;
        }
        let pattern = compile_and_cache_regex(patterns.value(row), options(of_options, row)?, &mut known)?;
        let (text, group, count) = (texts.value(row), groups.value(row), pattern.captures_len() - 1);
        if group > count as i64 {
            return exec_err!("the pattern {} has {count} groups, and group {group} was asked for", patterns.value(row));
        }
        let mut from = usize::try_from(group).map_or(text.len() + 1, |_| 0);
        while from <= text.len()
            && let Some(found) = pattern.captures_at(text, from)
        {
            lists.values().append_option(found.get(group as usize).map(|part| part.as_str()));
            let whole = found.get_match();
            // After one that is empty comes the next character.
            let next = text[whole.end()..].chars().next().map_or(1, char::len_utf8);
            from = if whole.is_empty() { whole.end() + next } else { whole.end() };
        }
        lists.append(true);
    }
    Ok(Arc::new(lists.finish()))
}

/// The parts of a text between those that fit. Where the pattern fits a place without characters, a part has one character. A text
/// without a pattern is one part.
fn between(texts: &StringViewArray, patterns: &StringViewArray, of_options: Option<&StringViewArray>) -> Result<ArrayRef> {
    let mut known = HashMap::new();
    let mut lists = ListBuilder::new(StringViewBuilder::new());
    for row in 0..texts.len() {
        if texts.is_null(row) {
            lists.append_null();
            continue;
        }
        let (text, mut from) = (texts.value(row), 0);
        if patterns.is_valid(row) {
            let pattern = compile_and_cache_regex(patterns.value(row), options(of_options, row)?, &mut known)?;
            while from < text.len()
                && let Some(found) = pattern.find_at(text, from)
            {
                let next = from + text[from..].chars().next().map_or(0, char::len_utf8);
                let (end, following) = match found.end() {
                    end if end > from => (found.start(), end),
                    _ if next == text.len() => break,
                    _ => (next, next),
                };
                lists.values().append_value(&text[from..end]);
                from = following;
            }
        }
        lists.values().append_value(&text[from..]);
        lists.append(true);
    }
    Ok(Arc::new(lists.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(lists: &ArrayRef) -> Vec<Option<Vec<Option<String>>>> {
        let texts = |list: ArrayRef| list.as_string_view().iter().map(|text| text.map(str::to_owned)).collect();
        lists.as_list::<i32>().iter().map(|list| list.map(texts)).collect()
    }

    fn some(texts: &[&str]) -> Vec<Option<Vec<Option<String>>>> {
        vec![Some(texts.iter().map(|text| Some((*text).to_owned())).collect())]
    }

    fn one(text: &str) -> StringViewArray {
        StringViewArray::from(vec![text])
    }

    #[test]
    fn parts_that_fit_are_found() {
        let of = |text: &str, pattern: &str, group| fitting(&one(text), &one(pattern), &Int64Array::from(vec![group]), None);
        for (text, pattern, group, expected) in [
            ("abc1de2", "[a-z](\\d)", 1, vec!["1", "2"]),
            ("abc1de2", "[a-z]\\d", 0, vec!["c1", "e2"]),
            ("xxabxc", "x*", 0, vec!["xx", "", "", "x", "", ""]),
            ("é1", ".", 0, vec!["é", "1"]),
            ("éa", "", 0, vec!["", "", ""]),
            ("aba", "^a", 0, vec!["a"]),
            ("", "a*", 0, vec![""]),
            ("", "a", 0, vec![]),
            ("ab", "a", -1, vec![]),
        ] {
            assert_eq!(parts(&of(text, pattern, group).unwrap()), some(&expected), "{text} {pattern}");
        }
        assert_eq!(parts(&of("aXbX", "(a)|(b)", 2).unwrap()), [Some(vec![None, Some("b".to_owned())])]);
        assert!(of("ab", "(a)", 2).unwrap_err().to_string().contains("has 1 groups"));
        assert!(of("ab", "[", 0).is_err());
        let none = StringViewArray::from(vec![None::<&str>]);
        let group = Int64Array::from(vec![0]);
        assert_eq!(parts(&fitting(&none, &one("a"), &group, None).unwrap()), [None]);
        assert_eq!(parts(&fitting(&one("AB"), &one("a"), &group, Some(&one("i"))).unwrap()), some(&["A"]));
        assert!(fitting(&one("AB"), &one("a"), &group, Some(&one("g"))).unwrap_err().to_string().contains("g was given"));
    }

    #[test]
    fn parts_between_are_found() {
        let of = |text: &str, pattern: &str| parts(&between(&one(text), &one(pattern), None).unwrap());
        for (text, pattern, expected) in [
            ("a1b22c", "\\d", vec!["a", "b", "", "c"]),
            ("a1b22c", "\\d+", vec!["a", "b", "c"]),
            ("héxé", "x*", vec!["h", "é", "", "é"]),
            ("xxabxc", "x*", vec!["", "a", "b", "", "c"]),
            ("ab", "b?", vec!["a", "", ""]),
            ("ab", "$", vec!["ab", ""]),
            ("ab", "^", vec!["a", "b"]),
            ("ab cd", "\\b", vec!["a", "b", " ", "c", "d", ""]),
            ("", "a", vec![""]),
            ("", "", vec![""]),
        ] {
            assert_eq!(of(text, pattern), some(&expected), "{text} {pattern}");
        }
        let none = StringViewArray::from(vec![None::<&str>]);
        assert_eq!(parts(&between(&none, &one("a"), None).unwrap()), [None]);
        assert_eq!(parts(&between(&one("a"), &none, None).unwrap()), some(&["a"]));
        assert_eq!(parts(&between(&one("AaB"), &one("a"), Some(&one("i"))).unwrap()), some(&["", "", "B"]));
    }
}
