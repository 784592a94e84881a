//! Statements from stdin that is no terminal: each runs as soon as it is complete, however long the next one takes to come.

use std::io::BufRead;
use std::path::Path;

use tokio::sync::mpsc;

use crate::error::CliError;
use crate::script::{Next, Script};
use crate::statements::Runner;

/// Lines that were read and wait for what runs.
const LINES_MAX: usize = 1_024;

/// Reads and runs, up to the first statement that fails.
pub(crate) async fn run(runner: &mut Runner) -> Result<(), CliError> {
    let mut lines = lines()?;
    let mut script = Script::default();
    while let Some(line) = lines.recv().await {
        let line = line.map_err(|error| CliError::file(Path::new("stdin"), error))?;
        if let Next::Leave = script.line(runner, &line).await? {
            return Ok(());
        }
    }
    script.end(runner).await
}

/// The lines of stdin, each with its end. A thread reads them, which the end of the process does not wait for.
fn lines() -> Result<mpsc::Receiver<std::io::Result<String>>, CliError> {
    let (sender, receiver) = mpsc::channel(LINES_MAX);
    let read = move || {
        let mut stdin = std::io::stdin().lock();
        loop {
            let mut line = String::new();
            let read = match stdin.read_line(&mut line) {
                Ok(0) => return,
                read => read.map(|_| line),
            };
            let is_last = read.is_err();
            if sender.blocking_send(read).is_err() || is_last {
                return;
            }
        }
    };
    let started = std::thread::Builder::new().name("stdin".to_owned()).spawn(read);
    started.map_err(|error| CliError::user(format!("cannot read stdin beside what runs: {error}")))?;
    Ok(receiver)
}
