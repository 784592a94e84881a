//! The modules of the benchmark, compiled by the `rustc` of this machine with the same optimisation as the native code.

use std::fs;
use std::path::Path;
use std::process::Command;

use pithead_model::{Blame, Fault};

use crate::tables::io;

/// SSDlets on the interface of docs/reference/program-abi.md itself, and the kernels that native code shares with them.
const GUEST: [(&str, &str); 2] = [("guest.rs", include_str!("guest.rs")), ("kernels.rs", include_str!("kernels.rs"))];
/// A function of SQL, as users write one.
const FUNCTION: (&str, &str) = ("function.rs", include_str!("function.rs"));
/// The guests' library in Rust.
const SDK: [(&str, &str); 9] = [
    ("lib.rs", include_str!("../../../../sdk/rust/src/lib.rs")),
    ("abi.rs", include_str!("../../../../sdk/rust/src/abi.rs")),
    ("aggregate.rs", include_str!("../../../../sdk/rust/src/aggregate.rs")),
    ("files.rs", include_str!("../../../../sdk/rust/src/files.rs")),
    ("function.rs", include_str!("../../../../sdk/rust/src/function.rs")),
    ("list.rs", include_str!("../../../../sdk/rust/src/list.rs")),
    ("ports.rs", include_str!("../../../../sdk/rust/src/ports.rs")),
    ("rows.rs", include_str!("../../../../sdk/rust/src/rows.rs")),
    ("task.rs", include_str!("../../../../sdk/rust/src/task.rs")),
];
const FLAGS: &str =
    "--edition 2024 --target wasm32-wasip1 -C opt-level=3 -C panic=abort -C target-feature=+simd128 -C strip=symbols";

/// The module of SSDlets. `folder` takes sources and modules.
pub(super) fn ssdlets(folder: &Path) -> Result<Vec<u8>, Fault> {
    write(folder, &GUEST)?;
    rustc(folder, "--crate-type cdylib -o guest.wasm guest.rs")?;
    let made = folder.join("guest.wasm");
    fs::read(&made).map_err(|error| io(&made, &error))
}

/// The module of the function, `function.wasm` in the folder.
pub(super) fn function(folder: &Path) -> Result<(), Fault> {
    let sdk = folder.join("sdk");
    fs::create_dir_all(&sdk).map_err(|error| io(&sdk, &error))?;
    write(&sdk, &SDK)?;
    write(folder, &[FUNCTION])?;
    rustc(folder, "--crate-type rlib --crate-name pithead_ssdlet -o libpithead_ssdlet.rlib sdk/lib.rs")?;
    rustc(folder, "--crate-type cdylib --extern pithead_ssdlet=libpithead_ssdlet.rlib -o function.wasm function.rs")
}

fn write(folder: &Path, files: &[(&str, &str)]) -> Result<(), Fault> {
    for (name, text) in files {
        fs::write(folder.join(name), text).map_err(|error| io(folder, &error))?;
    }
    Ok(())
}

fn rustc(folder: &Path, arguments: &str) -> Result<(), Fault> {
    let hint = "the module is compiled with rustc: `rustup target add wasm32-wasip1`";
    let arguments = FLAGS.split_whitespace().chain(arguments.split_whitespace());
    let output = Command::new("rustc").args(arguments).current_dir(folder).output();
    let output = output.map_err(|error| Fault::new(Blame::Unsupported, format!("rustc: {error}")).hint(hint))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(Fault::new(Blame::Unsupported, format!("rustc failed: {}", said.trim_end())).hint(hint))
        }
    }
}
