//! Builds modules with the compilers that `tools/setup.sh` brings, into the folder of this test's build.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// One compiler at a time.
static TURN: Mutex<()> = Mutex::new(());

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where the modules of a language go.
pub fn out(language: &str) -> PathBuf {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("modules").join(language);
    std::fs::create_dir_all(&out).expect("a folder for modules");
    out
}

/// Runs a compiler to its end.
pub fn run(command: &mut Command) {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
    let shown = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed; tools/setup.sh installs the compilers.\n{shown}");
}

/// The compiler of C++: `$ZIG`, or what `tools/setup.sh` has installed.
fn zig() -> String {
    env::var("ZIG").unwrap_or_else(|_| format!("{} -m ziglang", root().join(".tools/bin/python").display()))
}

/// A module in C++.
pub fn cpp(folder: &str, module: &str) -> PathBuf {
    let out = out("cpp");
    let made = out.join(module);
    let mut make = Command::new("make");
    run(make.current_dir(root().join(folder)).arg(format!("ZIG={}", zig())).arg(format!("OUT={}", out.display())).arg(&made));
    made
}
