//! Arrays: lists of values of one type, in text and in binary.

use std::ops::Range;

use arrow::array::timezone::Tz;

use crate::columns::Column;
use crate::message::Fields;
use crate::reply::end_length;
use crate::{binary, text};

/// Most values of an array that a client sends.
const ITEMS_MAX: usize = 1 << 20;

/// `{1,NULL,"a b"}`.
pub(crate) fn write_text(out: &mut Vec<u8>, items: &Column, range: Range<usize>, zone: &Tz) {
    out.push(b'{');
    for (place, row) in range.enumerate() {
        if place > 0 {
            out.push(b',');
        }
        if items.is_null(row) {
            out.extend_from_slice(b"NULL");
            continue;
        }
        let start = out.len();
        text::write(out, items, row, zone);
        quote(out, start);
    }
    out.push(b'}');
}

/// Puts quotes around what was written from `start` on, where it would be read as something else without.
fn quote(out: &mut Vec<u8>, start: usize) {
    let value = &out[start..];
    let special = |byte: &u8| matches!(byte, b'{' | b'}' | b',' | b'"' | b'\\') || byte.is_ascii_whitespace();
    if !value.is_empty() && !value.eq_ignore_ascii_case(b"null") && !value.iter().any(special) {
        return;
    }
    let value = out.split_off(start);
    out.push(b'"');
    for byte in value {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
}

/// Dimensions, whether there are NULLs, the type of the values, how many, the first one's number; then the values.
pub(crate) fn write_binary(out: &mut Vec<u8>, items: &Column, item_type: u32, range: Range<usize>) {
    let nulls = range.clone().any(|row| items.is_null(row));
    let mut int = |value: i32| out.extend_from_slice(&value.to_be_bytes());
    int(i32::from(!range.is_empty()));
    int(i32::from(nulls));
    int(item_type as i32);
    if range.is_empty() {
        return;
    }
    int(range.len() as i32);
    int(1);
    for row in range {
        if items.is_null(row) {
            out.extend_from_slice(&(-1_i32).to_be_bytes());
            continue;
        }
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        binary::write(out, items, row);
        end_length(out, start, false);
    }
}

/// The values of an array in text, still as text.
pub(crate) fn read_text(text: &str) -> Result<Vec<Option<String>>, String> {
    let wrong = || format!("expected an array such as {{1,2,NULL}}, got {:?}", text.chars().take(40).collect::<String>());
    let inner = text.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).ok_or_else(wrong)?;
    let mut items = Vec::new();
    let mut rest = inner.trim_start();
    while !rest.is_empty() {
        if items.len() >= ITEMS_MAX {
            return Err(format!("an array has more than {ITEMS_MAX} values"));
        }
        let (item, after) = match rest.strip_prefix('"') {
            Some(quoted) => unquoted(quoted).ok_or_else(wrong)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                let item = rest[..end].trim();
                if item.is_empty() || item.contains(['{', '}', '"']) {
                    return Err(wrong());
                }
                ((!item.eq_ignore_ascii_case("null")).then(|| item.to_owned()), &rest[end..])
            }
        };
        items.push(item);
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            Some(more) if !more.trim().is_empty() => more.trim_start(),
            None if after.is_empty() => "",
            _ => return Err(wrong()),
        };
    }
    Ok(items)
}

/// A value in quotes, without the first, and what follows it.
fn unquoted(text: &str) -> Option<(Option<String>, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((place, character)) = characters.next() {
        match character {
            '"' => return Some((Some(value), &text[place + 1..])),
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

/// A value of an array, still in binary; none: NULL.
type Item<'a> = Option<&'a [u8]>;

/// The type of the values of an array in binary, and the values.
pub(crate) fn read_binary(bytes: &[u8]) -> Result<(u32, Vec<Item<'_>>), String> {
    let mut fields = Fields { rest: bytes };
    let mut int = || fields.int().map_err(|error| error.to_string());
    let (dimensions, _nulls, item_type) = (int()?, int()?, int()? as u32);
    let count = match dimensions {
        0 => 0,
        1 => {
            let count = usize::try_from(int()?).ok().filter(|count| *count <= ITEMS_MAX);
            int()?;
            count.ok_or_else(|| format!("an array has a negative number of values, or more than {ITEMS_MAX}"))?
        }
        _ => return Err(format!("an array has {dimensions} dimensions; one is supported")),
    };
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(fields.bytes_of_value().map_err(|error| error.to_string())?);
    }
    match fields.rest.is_empty() {
        true => Ok((item_type, items)),
        false => Err("an array is longer than its values".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_read_from_text() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(read_text("{}").unwrap(), []);
        assert_eq!(read_text("{1, NULL ,\"a,\\\"b\",\"NULL\"}").unwrap(), [some("1"), None, some("a,\"b"), some("NULL")]);
        for wrong in ["", "1,2", "{1,}", "{1", "{\"a}", "{a\"b}", "{{1}}", "{,1}", "{\"a\"b}"] {
            assert!(read_text(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn values_are_quoted_where_they_have_to_be() {
        let quoted = |value: &str| {
            let mut out = value.as_bytes().to_vec();
            quote(&mut out, 0);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(["a", "", "Null", "a b", "a\"\\"].map(quoted), ["a", "\"\"", "\"Null\"", "\"a b\"", "\"a\\\"\\\\\""]);
    }

    #[test]
    fn lying_arrays_are_refused() {
        let array = |ints: &[i32]| ints.iter().flat_map(|int| int.to_be_bytes()).collect::<Vec<u8>>();
        assert_eq!(read_binary(&array(&[1, 0, 23, 1, 1, 4, 7])).unwrap(), (23, vec![Some(&[0, 0, 0, 7][..])]));
        for wrong in [
            &[][..],
            &[1, 0, 23],
            &[1, 0, 23, -1, 1],
            &[1, 0, 23, 1 << 30, 1],
            &[2, 0, 23, 1, 1, 1, 1],
            &[1, 0, 23, 1, 1, 4, 7, 7],
        ] {
            assert!(read_binary(&array(wrong)).is_err(), "{wrong:?}");
        }
    }
}
