//! What checks look at, and what they find.

use std::path::{Path, PathBuf};

/// What the checks found. Errors fail the run; warnings ask for a second look.
#[derive(Default)]
pub struct Findings {
    /// What is wrong.
    pub errors: Vec<String>,
    /// What may be.
    pub warnings: Vec<String>,
}

impl Findings {
    /// Adds an error.
    pub fn error(&mut self, place: impl std::fmt::Display, what: impl std::fmt::Display) {
        self.errors.push(format!("{place}: {what}"));
    }

    /// Adds a warning.
    pub fn warn(&mut self, place: impl std::fmt::Display, what: impl std::fmt::Display) {
        self.warnings.push(format!("{place}: {what}"));
    }
}

/// The repository as files, without what is ignored.
pub struct Tree {
    /// The repository's root.
    pub root: PathBuf,
    /// Every file, relative to the root.
    pub files: Vec<PathBuf>,
}

impl Tree {
    /// Files with one of these endings.
    pub fn with_endings<'a>(&'a self, endings: &'a [&str]) -> impl Iterator<Item = &'a PathBuf> {
        self.files.iter().filter(|file| file.extension().is_some_and(|e| endings.iter().any(|ending| e == *ending)))
    }

    /// A file's text; a file that is not UTF-8 is a finding.
    pub fn text(&self, file: &Path, findings: &mut Findings) -> String {
        std::fs::read_to_string(self.root.join(file)).unwrap_or_else(|error| {
            findings.error(file.display(), error);
            String::new()
        })
    }
}
