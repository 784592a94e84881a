//! What is needed of XML to read the answers of servers of buckets, which have neither comments nor elements within their own like.

use std::borrow::Cow;

/// What stands in the first element with a name.
pub(crate) fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    element_and_rest(text, name).map(|(content, _)| content)
}

/// The same, and what is behind it.
pub(crate) fn element_and_rest<'a>(text: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    let mut rest = text;
    loop {
        let (_, after) = rest.split_once('<')?;
        rest = after;
        let Some(attributes) = after.strip_prefix(name).filter(|more| more.starts_with(['>', ' ', '/', '\n', '\t', '\r']))
        else {
            continue;
        };
        let (attributes, content) = attributes.split_once('>')?;
        if attributes.ends_with('/') {
            return Some(("", content));
        }
        return content.split_once(&format!("</{name}>"));
    }
}

/// A text with `&amp;` and its like as what they stand for.
pub(crate) fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('&') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        out.push_str(before);
        let (name, behind) = after.split_once(';').unwrap_or(("", after));
        let character = match name {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            _ => match name.strip_prefix("#x") {
                Some(hex) => u32::from_str_radix(hex, 16).ok().and_then(char::from_u32),
                None => name.strip_prefix('#').and_then(|number| number.parse().ok()).and_then(char::from_u32),
            },
        };
        rest = match character {
            Some(character) => {
                out.push(character);
                behind
            }
            None => {
                out.push('&');
                after
            }
        };
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// A key as it was before it was encoded for a URL.
pub(crate) fn decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(out).ok()
}
