//! Runs every check and says what each found.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::findings::{Findings, Tree};
use crate::{circles, documents, edges, lock, sources};

const ROOT_ENTRIES_MAX: usize = 14;

/// Checks everything.
pub fn run() -> ExitCode {
    let tree = match read_tree() {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("error: the repository cannot be read: {error}");
            return ExitCode::from(2);
        }
    };
    let mut findings = Findings::default();
    check_root(&tree, &mut findings);
    edges::check(&tree, &mut findings);
    lock::check(&tree, &mut findings);
    documents::check(&tree, &mut findings);
    sources::check(&tree, &mut findings);
    circles::check(&tree, &mut findings);
    for warning in &findings.warnings {
        eprintln!("warning: {warning}");
    }
    for error in &findings.errors {
        eprintln!("error: {error}");
    }
    eprintln!("tidy: {} files, {} errors, {} warnings", tree.files.len(), findings.errors.len(), findings.warnings.len());
    if findings.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Counts what a newcomer sees: names with a dot in front are for tools.
fn check_root(tree: &Tree, findings: &mut Findings) {
    let mut entries: Vec<_> = tree.files.iter().filter_map(|file| file.components().next()).collect();
    entries.dedup();
    entries.retain(|entry| !entry.as_os_str().to_string_lossy().starts_with('.'));
    if entries.len() > ROOT_ENTRIES_MAX {
        findings.error("the root", format!("{} entries, at most {ROOT_ENTRIES_MAX} are allowed", entries.len()));
    }
}

fn read_tree() -> std::io::Result<Tree> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(Path::to_owned).unwrap_or_default();
    let mut ignored = vec![".git".to_owned()];
    ignored.extend(
        std::fs::read_to_string(root.join(".gitignore"))?.lines().filter_map(|line| line.strip_prefix('/').map(str::to_owned)),
    );
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&root)? {
        let entry = entry?;
        if !ignored.iter().any(|name| entry.file_name().to_string_lossy() == *name) {
            collect(&entry.path(), &root, &mut files)?;
        }
    }
    files.sort();
    Ok(Tree { root, files })
}

fn collect(path: &Path, root: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if path.is_dir() {
        if path.ends_with("__pycache__") {
            return Ok(());
        }
        for entry in std::fs::read_dir(path)? {
            collect(&entry?.path(), root, files)?;
        }
    } else if let Ok(relative) = path.strip_prefix(root) {
        files.push(relative.to_owned());
    }
    Ok(())
}
