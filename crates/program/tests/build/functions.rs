//! Builds the functions of SQL in `sdk/examples/functions`, as a newcomer builds them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The module of a folder of examples.
pub fn built(folder: &str, module: &str) -> PathBuf {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("modules").join(folder);
    std::fs::create_dir_all(&out).expect("a folder for modules");
    let mut cargo = Command::new(env!("CARGO"));
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/examples/functions");
    cargo.args(["build", "--release", "--locked", "--target-dir"]).arg(&out).current_dir(examples.join(folder));
    // The settings of the build that runs this test are for another machine.
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_TARGET"] {
        cargo.env_remove(name);
    }
    let output = cargo.output().unwrap_or_else(|error| panic!("{cargo:?} cannot be started: {error}"));
    let shown = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{cargo:?} failed; tools/setup.sh installs the compilers.\n{shown}");
    out.join("wasm32-wasip1/release").join(module)
}
