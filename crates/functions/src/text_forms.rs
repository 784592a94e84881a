//! What texts stand for: bytes, and arrays.

/// What is said of a text that stands for no bytes.
pub(crate) fn no_bytes(text: &str) -> String {
    let start: String = text.chars().take(40).collect();
    format!(
        "'{start}' does not stand for bytes: \\x is followed by pairs of hexadecimal digits, and a backslash elsewhere by xHH, \
         three octal digits, or another one"
    )
}

/// The bytes that a text stands for: `\x00ff` as in PostgreSQL, with white space between bytes or not, or letters, and others as
/// `\x00`, `\000` or `\\`, as in DuckDB and in PostgreSQL's older form. None: it stands for none.
pub fn bytes_of_text(text: &str) -> Option<Vec<u8>> {
    if let Some(digits) = text.strip_prefix("\\x")
        && !digits.contains('\\')
    {
        return of_digits(digits);
    }
    let mut rest = text.as_bytes();
    let mut bytes = Vec::with_capacity(rest.len());
    loop {
        let (byte, behind) = match rest {
            [] => return Some(bytes),
            [b'\\', b'\\', behind @ ..] => (b'\\', behind),
            [b'\\', b'x', high, low, behind @ ..] => (hex(*high)? * 16 + hex(*low)?, behind),
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', behind @ ..] => {
                ((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'), behind)
            }
            [b'\\', ..] => return None,
            [byte, behind @ ..] => (*byte, behind),
        };
        bytes.push(byte);
        rest = behind;
    }
}

fn of_digits(digits: &str) -> Option<Vec<u8>> {
    let mut all = Vec::with_capacity(digits.len() / 2);
    for digits in digits.split([' ', '\t', '\n', '\r']) {
        let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
        for [high, low] in pairs {
            all.push(hex(*high)? * 16 + hex(*low)?);
        }
    }
    Some(all)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// What is said of a text that stands for no array.
pub(crate) fn no_list(text: &str) -> String {
    let start: String = text.chars().take(40).collect();
    format!("'{start}' does not stand for an array: expected a text such as '{{1,2,NULL}}' or '[1, 2, NULL]'")
}

/// The values of the array that a text stands for, as texts. None: it stands for none.
pub(crate) fn list_of_text(text: &str) -> Option<Vec<Option<String>>> {
    let text = text.trim();
    let within = |open: char, close: char| text.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
    let (inner, quotes): (&str, &[char]) = match within('{', '}') {
        Some(inner) => (inner, &['"']),
        None => (within('[', ']')?, &['"', '\'']),
    };
    let mut items = Vec::new();
    let mut rest = inner.trim_start();
    while !rest.is_empty() {
        let (item, behind) = match rest.strip_prefix(quotes) {
            Some(quoted) => in_quotes(quoted, rest.chars().next()?)?,
            None => bare(rest, quotes)?,
        };
        items.push(item);
        rest = match behind.trim_start().strip_prefix(',').map(str::trim_start) {
            Some("") => return None,
            Some(more) => more,
            None if behind.trim_start().is_empty() => "",
            None => return None,
        };
    }
    Some(items)
}

/// A value, and what follows it.
type Item<'a> = (Option<String>, &'a str);

/// A value in quotes, whose first quote is gone.
fn in_quotes(text: &str, quote: char) -> Option<Item<'_>> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((place, character)) = characters.next() {
        match character {
            '\\' => value.push(characters.next()?.1),
            other if other == quote => return Some((Some(value), &text[place + 1..])),
            other => value.push(other),
        }
    }
    None
}

/// A value without quotes. White space around it is none of it, but for what follows a backslash.
fn bare<'a>(text: &'a str, quotes: &[char]) -> Option<Item<'a>> {
    let (mut value, mut kept, mut end) = (String::new(), 0, text.len());
    let mut characters = text.char_indices();
    while let Some((place, character)) = characters.next() {
        match character {
            ',' => {
                end = place;
                break;
            }
            '\\' => {
                value.push(characters.next()?.1);
                kept = value.len();
            }
            '{' | '}' | '[' | ']' if quotes.len() > 1 || matches!(character, '{' | '}') => return None,
            other if quotes.contains(&other) => return None,
            other => {
                value.push(other);
                if !other.is_whitespace() {
                    kept = value.len();
                }
            }
        }
    }
    value.truncate(kept);
    let is_null = text[..end].trim().eq_ignore_ascii_case("null");
    (!value.is_empty()).then(|| ((!is_null).then_some(value), &text[end..]))
}
