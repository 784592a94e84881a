//! Sizes of files and functions, and what must not be left lying about.

use std::path::Path;

use crate::findings::{Findings, Tree};

const FILE_LINES_MAX: usize = 800;
const FILE_LINES_GOOD: usize = 400;
const FUNCTION_LINES_GOOD: usize = 70;

/// Texts that no source may hold, cut in two so that this file does not.
const LEFTOVERS: &[(&str, &str)] = &[("TO", "DO"), ("FIX", "ME"), ("to", "do!("), ("unimple", "mented!("), ("db", "g!(")];
/// Places that exist on one machine only.
const PLACES: &[(&str, &str)] = &[("/ro", "ot/"), ("/wo", "rk/"), ("/ho", "me/")];

/// Checks all sources, scripts and documents.
pub fn check(tree: &Tree, findings: &mut Findings) {
    for file in tree.with_endings(&["rs", "py", "sh"]) {
        let text = tree.text(file, findings);
        check_length(file, &text, findings);
        check_texts(file, &text, LEFTOVERS, "holds", findings);
    }
    for file in tree.with_endings(&["rs"]) {
        check_functions(file, &tree.text(file, findings), findings);
    }
    for file in tree.with_endings(&["rs", "py", "sh", "md", "toml", "slt", "sql", "json", "yml"]) {
        check_texts(file, &tree.text(file, findings), PLACES, "names a place on one machine,", findings);
    }
}

fn check_length(file: &Path, text: &str, findings: &mut Findings) {
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        findings.error(file.display(), format!("{lines} lines, at most {FILE_LINES_MAX} are allowed"));
    } else if lines > FILE_LINES_GOOD {
        findings.warn(file.display(), format!("{lines} lines; {FILE_LINES_GOOD} or fewer read better"));
    }
}

fn check_texts(file: &Path, text: &str, unwanted: &[(&str, &str)], verb: &str, findings: &mut Findings) {
    for (number, line) in text.lines().enumerate() {
        for (start, end) in unwanted {
            let whole = format!("{start}{end}");
            if line.contains(&whole) {
                findings.error(format!("{}:{}", file.display(), number + 1), format!("{verb} {whole}"));
            }
        }
    }
}

fn check_functions(file: &Path, text: &str, findings: &mut Findings) {
    for (line, name, lines) in functions(text) {
        if lines > FUNCTION_LINES_GOOD {
            findings.warn(
                format!("{}:{line}", file.display()),
                format!("{name} has {lines} lines; {FUNCTION_LINES_GOOD} or fewer read better"),
            );
        }
    }
}

/// Line, name and number of lines of each function in formatted source: it ends at the next closing brace with the same
/// indentation.
fn functions(text: &str) -> Vec<(usize, &str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indent = &line[..line.len() - line.trim_start().len()];
        let ends = |l: &&str| **l == format!("{indent}}}") || (l.starts_with(&format!("{indent})")) && l.ends_with(';'));
        let end = if line.ends_with(';') { Some(0) } else { lines[start..].iter().position(ends) };
        if let Some(end) = end {
            found.push((start + 1, name, end + 1));
        }
    }
    found
}

fn function_name(line: &str) -> Option<&str> {
    let before = ["pub", "pub(crate)", "pub(super)", "async", "const", "unsafe", "extern", "\"C\""];
    let mut words = line.split_whitespace().skip_while(|word| before.contains(word));
    let name = (words.next() == Some("fn")).then(|| words.next()).flatten()?;
    let end = name.find(['(', '<']).unwrap_or(name.len());
    (!line.trim_end().ends_with('}')).then_some(&name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_end_at_their_own_brace() {
        let text = "impl A {\n    pub fn long(\n        &self,\n    ) -> B {\n        if x {\n        }\n    }\n    fn one() {}\n    fn declared();\n}\n";
        assert_eq!(functions(text), [(2, "long", 6), (9, "declared", 1)]);
    }
}
