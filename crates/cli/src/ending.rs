//! Where a statement ends, in lines as they come.

/// Whether a text can be run: nothing, a backslash command, or a last `;` that is not in quotes or a comment.
pub(crate) fn is_complete(text: &str) -> bool {
    let trimmed = text.trim();
    if trimmed.is_empty() || trimmed.starts_with('\\') || is_farewell(trimmed) {
        return true;
    }
    let mut rest = trimmed;
    let mut ended = false;
    while let Some(first) = rest.chars().next() {
        // Where a quote or comment opens, what closes it; an open one is not complete.
        let skipped = match first {
            '\'' | '"' => after(&rest[1..], &first.to_string()),
            _ if rest.starts_with("--") => Some(after(rest, "\n").unwrap_or("")),
            _ if rest.starts_with("/*") => after(&rest[2..], "*/"),
            _ => {
                ended = first == ';' || (ended && first.is_whitespace());
                Some(&rest[first.len_utf8()..])
            }
        };
        match skipped {
            Some(skipped) => {
                ended &= !matches!(first, '\'' | '"');
                rest = skipped;
            }
            None => return false,
        }
    }
    ended
}

fn after<'a>(text: &'a str, end: &str) -> Option<&'a str> {
    text.find(end).map(|at| &text[at + end.len()..])
}

/// Whether somebody wants to leave who does not know how: these words begin no statement.
pub(crate) fn is_farewell(text: &str) -> bool {
    let word = text.trim_end_matches(';').trim();
    ["exit", "quit"].iter().any(|known| word.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wants_to_leave_may() {
        assert!(is_farewell("exit") && is_farewell("QUIT ;") && is_complete("quit"));
        assert!(!is_farewell("exit now") && !is_complete("exit now"));
    }

    #[test]
    fn statements_end_at_a_semicolon_that_is_code() {
        for complete in ["", "  ", "\\d", "select 1;", "select 1; ", "select ';';", "select 1; -- done", "select 1; /* a */ "] {
            assert!(is_complete(complete), "{complete:?}");
        }
        for open in
            ["select 1", "select ';", "select 1 -- ;", "select 1 /* ;", "select \"a;", "select 1; select 2", "select '';'a'"]
        {
            assert!(!is_complete(open), "{open:?}");
        }
        assert!(is_complete("select 'it''s';") && is_complete("-- note\nselect 1;"));
    }
}
