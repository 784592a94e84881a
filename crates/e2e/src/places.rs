//! Where things are, also when the build is not in `target`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The repository's root.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// The folder that cargo builds into: this program runs from its `release/deps`.
pub fn target() -> PathBuf {
    let program = std::env::current_exe().expect("a test knows its own program");
    program.ancestors().nth(3).expect("a test runs from a target folder").to_owned()
}

/// The program under test.
pub fn pithead() -> PathBuf {
    let program = std::env::current_exe().expect("a test knows its own program");
    let built = program.ancestors().nth(2).map(|release| release.join("pithead")).unwrap_or_default();
    assert!(built.exists(), "{} is not built\nhint: cargo build --release --workspace", built.display());
    built
}

/// Runs one of the repository's Python scripts to its end.
pub(crate) fn run_python(script: &str, arguments: &[&Path]) {
    let python = repository().join(".tools/bin/python");
    assert!(python.exists(), "{} is missing\nhint: tools/setup.sh", python.display());
    let output = Command::new(python)
        .arg(repository().join(script))
        .args(arguments)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("Python starts");
    assert!(output.status.success(), "{script} failed: {}", String::from_utf8_lossy(&output.stderr));
}
