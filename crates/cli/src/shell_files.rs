//! `pithead completions` and `pithead man`: what shells and `man` want to know of the commands, made from what the program itself knows.

use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;

use crate::error::CliError;
use crate::terminal;

const NAME: &str = "pithead";

/// Print completions of commands and options for a shell.
///
/// bash: pithead completions bash > ~/.local/share/bash-completion/completions/pithead
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Write a page for `man` of each command.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Folder for the pages, such as ~/.local/share/man/man1; made where it is not there
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Prints completions of a command line.
pub(crate) fn completions(args: &CompletionsArgs, mut command: Command) -> Result<(), CliError> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, NAME, &mut text);
    use std::io::Write;
    Ok(std::io::stdout().write_all(&text)?)
}

/// Writes pages of a command line.
pub(crate) fn man(args: &ManArgs, command: Command) -> Result<(), CliError> {
    let directory = &args.directory;
    std::fs::create_dir_all(directory).map_err(|error| CliError::file(directory, error))?;
    clap_mangen::generate_to(command, directory).map_err(|error| CliError::file(directory, error))?;
    let pages = std::fs::read_dir(directory).map_err(|error| CliError::file(directory, error))?;
    let own = pages.flatten().filter(|page| is_own(&page.path())).count();
    terminal::tell(format_args!("{own} pages in {}", directory.display()));
    Ok(())
}

fn is_own(page: &Path) -> bool {
    page.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(NAME))
}
