//! Every path that a document names exists, and documents are of a width and a length that people read.

use std::path::{Component, Path, PathBuf};

use crate::findings::{Findings, Tree};

/// First parts of paths that only a build, a run or a set-up makes.
const MADE: &[&str] = &["target", ".tools", "demo-data"];
const ENDINGS: &[&str] = &["rs", "md", "toml", "sh", "py", "slt", "sql", "json"];

/// Characters of a line at most, so that documents read well beside code.
const LINE_CHARS_MAX: usize = 120;
/// The map of the house: lines at most. What is longer belongs into `docs/internals`.
const MAP: (&str, usize) = ("ARCHITECTURE.md", 300);

/// Checks widths, the length of the map, code in backticks that looks like a path of the repository, and the targets of links.
pub fn check(tree: &Tree, findings: &mut Findings) {
    for file in tree.with_endings(&["md"]) {
        let text = tree.text(file, findings);
        let is_map = file == Path::new(MAP.0);
        if is_map && text.lines().count() > MAP.1 {
            findings.error(file.display(), format!("{} lines, at most {} are allowed", text.lines().count(), MAP.1));
        }
        let (mut fenced, mut hidden) = (false, false);
        for (number, line) in text.lines().enumerate() {
            fenced ^= line.trim_start().starts_with("```");
            // Nobody reads what is hidden from readers.
            hidden |= line.starts_with("<!--");
            let may_be_wide = !is_map && (fenced || hidden || line.starts_with('|'));
            hidden &= !line.trim_end().ends_with("-->");
            if line.chars().count() > LINE_CHARS_MAX && !may_be_wide {
                let place = format!("{}:{}", file.display(), number + 1);
                findings.error(place, format!("{} characters, at most {LINE_CHARS_MAX} are allowed", line.chars().count()));
            }
            let named = if fenced { Vec::new() } else { paths(tree, line) };
            for path in named.into_iter().filter(|path| !exists(tree, file, path)) {
                findings.error(format!("{}:{}", file.display(), number + 1), format!("names {path}, which does not exist"));
            }
        }
    }
}

fn paths<'a>(tree: &Tree, line: &'a str) -> Vec<&'a str> {
    let code = line.split('`').skip(1).step_by(2).filter(|text| looks_like_path(tree, text));
    let links = line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let links =
        links.filter(|target| !target.contains("://") && !target.starts_with(['#', '<']) && !target.starts_with("mailto:"));
    code.chain(links.map(|target| target.split('#').next().unwrap_or(target))).collect()
}

fn looks_like_path(tree: &Tree, text: &str) -> bool {
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
    let Some((first, _)) = text.split_once('/') else { return false };
    if !plain || first.is_empty() || MADE.contains(&first) {
        return false;
    }
    let ending = Path::new(text).extension().is_some_and(|e| ENDINGS.iter().any(|ending| e == *ending));
    ending || (tree.root.join(first).is_dir() && first != "." && first != "..")
}

/// Whether the path is there, seen from the root, from `crates/`, or from the document.
fn exists(tree: &Tree, document: &Path, path: &str) -> bool {
    let beside = document.parent().unwrap_or(Path::new(""));
    [Path::new(""), Path::new("crates"), beside].iter().any(|base| tree.root.join(flat(&base.join(path))).exists())
}

fn flat(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut flat, part| {
        match part {
            Component::ParentDir => {
                flat.pop();
            }
            Component::Normal(name) => flat.push(name),
            _ => {}
        }
        flat
    })
}
