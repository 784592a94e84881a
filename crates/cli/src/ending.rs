//! Where a statement ends, in lines as they come.

use pithead_host::Session;

/// Whether a text can be run: nothing, a backslash command, or statements that are complete.
pub(crate) fn is_complete(text: &str) -> bool {
    let trimmed = text.trim();
    trimmed.is_empty()
        || trimmed.starts_with('\\')
        || is_farewell(trimmed)
        || is_cry_for_help(trimmed)
        || going(trimmed).is_some()
        || is_ended(trimmed)
}

/// A statement that ends in `\g` or `\gx` in place of a `;`, as psql has it, and whether its rows are shown as lines.
pub(crate) fn going(text: &str) -> Option<(&str, bool)> {
    let text = text.trim_end();
    let (statement, expanded) = match text.strip_suffix("\\gx") {
        Some(statement) => (statement, true),
        None => (text.strip_suffix("\\g")?, false),
    };
    // What is quoted there, or a comment, is none.
    (!statement.trim().is_empty() && is_ended(&format!("{statement}\n;"))).then_some((statement, expanded))
}

/// Whether a text has no statement that could go on: none at all, or its last has its `;`. What is quoted or a comment is so by the
/// words of SQL: here, a word more would be a statement of its own.
pub(crate) fn is_ended(text: &str) -> bool {
    let statements = |text: &str| Session::split(text).map(|statements| statements.len());
    match (statements(text), statements(&format!("{text}\nmore"))) {
        (Ok(now), Ok(more)) => more == now + 1,
        _ => false,
    }
}

/// Whether a line may end a statement: most lines of a long one cannot, and are not looked at again and again.
pub(crate) fn may_end(line: &str) -> bool {
    let Some((_, rest)) = line.rsplit_once(';') else { return false };
    let rest = rest.trim_start();
    rest.is_empty() || rest.starts_with("--") || rest.starts_with("/*")
}

/// Whether somebody wants to leave who does not know how: these words begin no statement.
pub(crate) fn is_farewell(text: &str) -> bool {
    is_word(text, &["exit", "quit"])
}

/// Whether somebody asks what can be done. The word begins no statement either.
pub(crate) fn is_cry_for_help(text: &str) -> bool {
    is_word(text, &["help"])
}

fn is_word(text: &str, words: &[&str]) -> bool {
    let word = text.trim_end_matches(';').trim();
    words.iter().any(|known| word.eq_ignore_ascii_case(known))
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
    fn who_asks_for_help_is_answered_without_a_semicolon() {
        assert!(is_cry_for_help("help") && is_cry_for_help("HELP;") && is_complete(" help "));
        assert!(!is_cry_for_help("help me") && !is_complete("help me"));
    }

    #[test]
    fn a_statement_may_go_as_in_psql() {
        assert_eq!(going("select 1 \\gx "), Some(("select 1 ", true)));
        assert_eq!(going("select 1;\n\\g"), Some(("select 1;\n", false)));
        assert!(is_complete("select 1 \\gx"));
        for open in ["select '\\gx", "select 1 -- \\gx\nfrom t", "select 1 /* \\g", "select 1 \\gxx", "select 1 \\q"] {
            assert!(going(open).is_none() && !is_complete(open), "{open:?}");
        }
        assert_eq!(going("\\gx"), None);
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
        assert!(is_complete("select 'it''s';") && is_complete("-- note\nselect 1;") && is_complete("-- note"));
        assert!(!is_complete("select $$ a;\n") && is_complete("select $$ a;\n\\b;\n$$;"), "a text between dollars");
    }

    #[test]
    fn most_lines_of_a_statement_cannot_end_it() {
        for line in ["select 1;", "select 1; \r\n", "select ';' as s; -- complete\n", "select 1; /* note\n"] {
            assert!(may_end(line), "{line:?}");
        }
        for line in ["select 1\n", "('a;b'),\n", "('a;', 2)\n", ""] {
            assert!(!may_end(line), "{line:?}");
        }
    }
}
