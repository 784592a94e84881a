//! [`parse_ident`]: the parts of a name as a text writes it.

/// The parts of a name such as `lab."My T"`, with quotes taken off and the rest in small letters. `is_strict`: nothing may follow them.
pub(crate) fn parse_ident(text: &str, is_strict: bool) -> Result<Vec<String>, String> {
    let wrong = || format!("string is not a valid identifier: {text:?}");
    let (mut rest, mut parts) = (text.trim_start(), Vec::new());
    loop {
        let (part, after) = match rest.strip_prefix('"') {
            Some(inner) => quoted(inner).filter(|(part, _)| !part.is_empty()).ok_or_else(wrong)?,
            None => bare(rest).ok_or_else(wrong)?,
        };
        parts.push(part);
        rest = after.trim_start();
        match rest.strip_prefix('.') {
            Some(after) => rest = after.trim_start(),
            None if rest.is_empty() || !is_strict => return Ok(parts),
            None => return Err(wrong()),
        }
    }
}

/// What is in quotes, and what comes after the second one.
fn quoted(inner: &str) -> Option<(String, &str)> {
    let (mut part, mut rest) = (String::new(), inner);
    loop {
        let end = rest.find('"')?;
        part.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(after) => {
                part.push('"');
                rest = after;
            }
            None => return Some((part, rest)),
        }
    }
}

fn bare(text: &str) -> Option<(String, &str)> {
    let is_first = |first: char| first.is_alphabetic() || first == '_';
    let is_more = |character: char| character.is_alphanumeric() || character == '_' || character == '$';
    let end = text.find(|character: char| !is_more(character)).unwrap_or(text.len());
    text.starts_with(is_first).then(|| (text[..end].to_lowercase(), &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        let parts = |text: &str| parse_ident(text, true).ok().map(|parts| parts.join("|"));
        assert_eq!(parts("Main . \"My \"\"T\"\"\"").as_deref(), Some("main|My \"T\""));
        assert_eq!(parts("t").as_deref(), Some("t"));
        for wrong in ["", "a.", ".a", "1a", "a b", "\"a", "\"\"", "a()"] {
            assert_eq!(parts(wrong), None, "{wrong}");
        }
        assert_eq!(parse_ident("f(int)", false).unwrap(), ["f"]);
    }
}
