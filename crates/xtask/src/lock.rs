//! One version of each library whose types cross crates: two Arrows beside each other give no error, only types that do
//! not match.

use std::path::Path;

use crate::findings::{Findings, Tree};

const SINGLE: &[&str] = &[
    "arrow",
    "arrow-array",
    "arrow-schema",
    "parquet",
    "arrow-flight",
    "datafusion",
    "datafusion-common",
    "vortex",
    "object_store",
    "prost",
    "tonic",
];

/// Checks `Cargo.lock`.
pub fn check(tree: &Tree, findings: &mut Findings) {
    let text = tree.text(Path::new("Cargo.lock"), findings);
    for wanted in SINGLE {
        let versions = versions(&text, wanted);
        if versions.len() > 1 {
            findings.error("Cargo.lock", format!("{wanted} in {} versions: {}", versions.len(), versions.join(", ")));
        }
    }
}

fn versions<'a>(lock: &'a str, wanted: &str) -> Vec<&'a str> {
    let value = |line: &'a str, key: &str| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"');
    lock.split("[[package]]")
        .filter(|package| package.lines().any(|line| value(line, "name") == Some(wanted)))
        .filter_map(|package| package.lines().find_map(|line| value(line, "version")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_one_package_are_found() {
        let lock = "[[package]]\nname = \"arrow\"\nversion = \"59.0.0\"\n\n[[package]]\nname = \"arrow-ord\"\nversion = \"1.0.0\"\n\n[[package]]\nname = \"arrow\"\nversion = \"60.0.0\"\n";
        assert_eq!(versions(lock, "arrow"), ["59.0.0", "60.0.0"]);
    }
}
