//! `pithead cell`: single-cell data. What it does is in the Python package, where the libraries are that read such files and draw; here
//! it is only found and started.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use clap::Args;
use pithead_model::{Blame, Fault};

use crate::error::CliError;

/// Tried in turn, unless PITHEAD_PYTHON names one.
const PYTHONS: [&str; 2] = ["python3", "python"];

/// Load single-cell matrices, look at them, and compare groups of cells
///
/// `pithead cell load|ls|show|de|drop`; `pithead cell --help` tells more. Runs in the Python that PITHEAD_PYTHON names, else in `python3`,
/// which needs the package: pip install 'pithead[cell]'.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct CellArgs {
    /// What to do, and with what
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

pub(crate) fn run(args: &CellArgs) -> Result<(), CliError> {
    let python = python()?;
    let arguments = if args.arguments.is_empty() { vec!["--help".into()] } else { args.arguments.clone() };
    // Takes this process's place, so that signals and the exit code are its own.
    let error = Command::new(&python).args(["-m", "pithead.cell"]).args(arguments).env("PITHEAD_PROG", "pithead cell").exec();
    Err(Fault::new(Blame::User, format!("cannot start {}: {error}", python.to_string_lossy())).into())
}

/// `help cell WHAT` is `cell WHAT --help`: Python has the words.
pub(crate) fn asked_for_help(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.collect();
    if arguments.iter().skip(1).take(2).eq(["help", "cell"]) {
        arguments.remove(1);
        arguments.push("--help".into());
    }
    arguments
}

/// A Python that has the package.
fn python() -> Result<OsString, Fault> {
    let named = std::env::var_os("PITHEAD_PYTHON").filter(|name| !name.is_empty());
    let tried = named.map_or_else(|| PYTHONS.map(OsString::from).to_vec(), |name| vec![name]);
    if let Some(python) = tried.iter().find(|python| has_package(python)) {
        return Ok(python.clone());
    }
    let names: Vec<_> = tried.iter().map(|python| python.to_string_lossy()).collect();
    let message =
        format!("`pithead cell` runs in Python, and {} has no package pithead with what cells need", names.join(" or "));
    Err(Fault::new(Blame::User, message)
        .hint("pip install 'pithead[cell]' (from a checkout: pip install '.[cell]'), and name its Python in PITHEAD_PYTHON"))
}

fn has_package(python: &OsString) -> bool {
    let mut command = Command::new(python);
    command.args(["-c", "import pithead.cell"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_asked_of_python() {
        let asked = |line: &str| {
            let words = asked_for_help(line.split(' ').map(OsString::from));
            words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(asked("pithead help cell load"), "pithead cell load --help");
        assert_eq!(asked("pithead help cell"), "pithead cell --help");
        assert_eq!(asked("pithead help drive"), "pithead help drive");
        assert_eq!(asked("pithead cell load --help"), "pithead cell load --help");
    }
}
