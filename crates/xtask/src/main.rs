//! Chores of the workspace: `cargo xtask tidy` checks what neither rustc nor Clippy can.

mod circles;
mod documents;
mod edges;
mod findings;
mod lock;
mod sources;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy

tidy    checks the edges between crates, circles of modules, duplicate libraries, paths that documents name, sizes, leftovers";

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("tidy") => tidy::run(),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}
