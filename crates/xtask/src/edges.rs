//! Imports between crates point down, never to the same floor, and some libraries have only a few users.

use std::process::Command;

use serde_json::Value;

use crate::findings::{Findings, Tree};

/// The floors, lowest first. A crate imports from lower floors only.
const FLOORS: &[&[&str]] = &[
    &["boxed"],
    &["model", "matrix"],
    &["slice", "functions", "syntax", "door", "entry", "device", "sched", "observe", "policy", "emulate"],
    &["matrix-sql", "pg-catalog", "plan", "store", "wire", "program", "files", "fakes", "repro", "span"],
    &["exec", "cse", "fleet", "capi", "wasm-sql"],
    &["drive", "load", "remote", "kinetic"],
    &["host"],
    &["embed", "array", "cell", "front", "flight-sql", "console", "workers"],
    &["bench"],
    &["cli", "python"],
    &["e2e", "fuzz", "xtask"],
];

/// Edges that point down and are still not allowed. The benchmark meets drives as a user does; the store it measures by itself,
/// beside the medium under it, so that edge is allowed.
const FORBIDDEN: &[(&str, &str)] = &[("host", "drive"), ("host", "store"), ("sched", "model"), ("bench", "drive")];

/// Libraries (by prefix of the name) and the only crates that may use them.
const USERS: &[(&str, &[&str])] = &[
    (
        "datafusion",
        &["functions", "syntax", "matrix-sql", "wasm-sql", "pg-catalog", "plan", "exec", "drive", "remote", "host", "workers"],
    ),
    ("vortex", &["slice"]),
    ("redb", &["store"]),
    ("substrait", &["plan"]),
    ("tonic", &["wire", "drive", "front", "flight-sql", "workers", "bench", "e2e"]),
    ("arrow-flight", &["wire", "front", "flight-sql", "bench", "e2e"]),
    ("pyo3", &["python"]),
    ("wasmtime", &["program"]),
    ("ureq", &["files"]),
];

/// Checks the edges that `cargo metadata` shows.
pub fn check(tree: &Tree, findings: &mut Findings) {
    match packages(tree) {
        Ok(packages) => packages.iter().for_each(|package| check_package(package, findings)),
        Err(what) => findings.error("cargo metadata", what),
    }
}

fn packages(tree: &Tree) -> Result<Vec<Value>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(&tree.root)
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    metadata["packages"].as_array().cloned().ok_or_else(|| "no packages".to_owned())
}

fn check_package(package: &Value, findings: &mut Findings) {
    let name = short(package["name"].as_str().unwrap_or_default());
    let folder = if name == "python" { "" } else { "crates/" };
    let place = format!("{folder}{name}/Cargo.toml");
    let Some(floor) = floor_of(name) else {
        findings.error(place, "the crate has no floor in crates/xtask/src/edges.rs");
        return;
    };
    for dependency in package["dependencies"].as_array().into_iter().flatten() {
        let wanted = dependency["name"].as_str().unwrap_or_default();
        let lower = short(wanted);
        if dependency["path"].is_string() {
            if floor_of(lower).is_none_or(|below| below >= floor) {
                findings.error(&place, format!("imports {lower}, which is not on a lower floor"));
            }
            if FORBIDDEN.contains(&(name, lower)) {
                findings.error(&place, format!("never imports {lower}"));
            }
        }
        for (library, users) in USERS {
            if wanted.starts_with(library) && !users.contains(&name) {
                findings.error(&place, format!("uses {wanted}, which only {} may", users.join(", ")));
            }
        }
    }
}

fn floor_of(name: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&name))
}

fn short(name: &str) -> &str {
    name.strip_prefix("pithead-").unwrap_or(name)
}
