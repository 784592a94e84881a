//! Programs of others beside us, through scripts of Python.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pithead_model::{Blame, Fault};
use serde::de::DeserializeOwned;

/// A script that measures a library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    /// Its name, for people.
    pub(crate) library: &'static str,
    /// Its module, without which the script cannot run.
    pub(crate) module: &'static str,
    /// The script.
    pub(crate) text: &'static str,
}

impl Script {
    /// Runs it with these arguments and this input, and reads the JSON that it prints last. None: no Python has the module.
    pub(crate) fn run<T: DeserializeOwned>(self, arguments: &[&OsStr], input: &[u8]) -> Result<Option<T>, Fault> {
        let failed = |what: String| self.failed(what);
        let Some(python) = python_with(self.module) else { return Ok(None) };
        let mut child = Command::new(python)
            .arg("-c")
            .arg(self.text)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input).map_err(|error| failed(error.to_string()))?;
        }
        let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            return Err(failed(format!("ended with {}", output.status)));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        serde_json::from_str(text.trim_end().lines().last().unwrap_or_default())
            .map(Some)
            .map_err(|error| failed(error.to_string()))
    }

    /// The line for people where no Python has the module.
    pub(crate) fn missing(self) -> String {
        format!("no Python with {} was found: skipping the comparison (tools/setup.sh installs it)", self.library)
    }

    /// A failure of the script's.
    pub(crate) fn failed(self, what: String) -> Fault {
        Fault::new(Blame::Device, format!("{}: {what}", self.library))
    }
}

/// A Python that has this module: `$PITHEAD_PYTHON`, the tools' own, or the system's.
pub(crate) fn python_with(module: &str) -> Option<PathBuf> {
    let own = std::env::var_os("PITHEAD_PYTHON").map(PathBuf::from);
    let candidates = own.into_iter().chain([Path::new(".tools/bin/python").to_owned(), PathBuf::from("python3")]);
    candidates.into_iter().find(|python| {
        let status = Command::new(python).args(["-c", &format!("import {module}")]).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(module: &'static str, text: &'static str) -> Script {
        Script { library: "A library", module, text }
    }

    #[test]
    fn the_last_line_is_the_answer_and_failures_name_the_library() {
        if python_with("json").is_none() {
            println!("skipped: there is no Python");
            return;
        }
        let echo = script("json", "import sys; print('progress'); print(sys.argv[1] + sys.stdin.read())");
        assert_eq!(echo.run::<Vec<u32>>(&[OsStr::new("[1,")], b"2]").unwrap(), Some(vec![1, 2]));
        let fault = script("json", "raise SystemExit(3)").run::<u32>(&[], &[]).unwrap_err();
        assert!(fault.message.starts_with("A library: ended with"), "{}", fault.message);
        assert!(script("json", "print('no number')").run::<u32>(&[], &[]).is_err());
        assert_eq!(script("a_module_of_nobody", "print(1)").run::<u32>(&[], &[]).unwrap(), None);
    }
}
