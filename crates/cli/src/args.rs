//! The command line as a whole. Each command's flags are in its own file.

use clap::{Parser, Subcommand};

use crate::{
    array_serve, bench, cell, cert, check, device, drive_add, drive_aside, drive_drain, drive_serve, drop, error, explain,
    front_serve, inspect, kv, load, log, ls, program, repair, repro, restore, service, session, shell_files, sql, status,
    token, whatif,
};

const LONG_ABOUT: &str = "\
Pithead answers SQL where the data is: queries run on the drives that hold it, and only answers travel.

Without --drives, drives run inside this process, on a directory (--data); nothing has to be started.";

const EXAMPLES: &str = "\
Examples:
  pithead load trips 'trips-*.parquet'           # into drives under ./pithead-data
  pithead sql -c 'SELECT count(*) FROM trips'
  pithead drive serve --data /disk1 --listen 0.0.0.0:7433 \\
      --tls-cert server1.pem --tls-key server1.key --access access.toml
  pithead sql --drives server1:7433,server2:7433 --tls-ca ca.pem --token-file reports.token

Environment:
  PITHEAD_DATA    directory that --data stands for by default (else ./pithead-data)
  PITHEAD_DRIVES  drives that --drives stands for by default; goes before PITHEAD_DATA
  PITHEAD_TLS_CA, PITHEAD_TLS_CERT, PITHEAD_TLS_KEY, PITHEAD_TOKEN_FILE
                  files that --tls-ca and the like stand for by default; PITHEAD_TOKEN is the token itself
  PITHEAD_LOG     what to log to stderr, such as pithead_host=debug
  NO_COLOR        no colours";

/// Computational storage: queries run on the drives that hold the data, and only answers travel.
#[derive(Debug, Parser)]
#[command(name = "pithead", version, long_about = LONG_ABOUT, after_help = after_help(), max_term_width = 110)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do. Help texts of commands are those of their arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Sql(sql::SqlArgs),
    Explain(Box<explain::ExplainArgs>),
    Load(Box<load::LoadArgs>),
    Serve(Box<front_serve::FrontServeArgs>),
    Ls(ls::LsArgs),
    Drop(drop::DropArgs),
    Log(log::LogArgs),
    Restore(restore::RestoreArgs),
    Status(status::StatusArgs),
    /// See the sessions that are open at drives, and end them
    #[command(subcommand)]
    Session(session::SessionCommand),
    /// See what drives do behind the scenes, and say how much of it
    #[command(subcommand)]
    Service(service::ServiceCommand),
    /// Load, run and remove programs for drives: SSDlets
    #[command(subcommand)]
    Program(program::ProgramCommand),
    Repair(repair::RepairArgs),
    Check(check::CheckArgs),
    /// Look at what lies on a drive's medium, or in a sub-plan
    #[command(subcommand)]
    Inspect(inspect::InspectCommand),
    /// Be a drive, or change which drives there are
    #[command(subcommand)]
    Drive(DriveCommand),
    /// Put drives behind a server that hosts see as one drive
    #[command(subcommand)]
    Array(ArrayCommand),
    Cell(cell::CellArgs),
    Kv(Box<kv::KvArgs>),
    /// Make certificates for TLS between hosts and drives
    #[command(subcommand)]
    Cert(cert::CertCommand),
    Token(token::TokenArgs),
    /// Show and measure what push-down is good for
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Look at profiles of devices: what computational storage is made of, number by number
    #[command(subcommand)]
    Device(device::DeviceCommand),
    Repro(repro::ReproArgs),
    Whatif(Box<whatif::WhatifArgs>),
    Completions(shell_files::CompletionsArgs),
    Man(shell_files::ManArgs),
}

/// What can be done with drives.
#[derive(Debug, Subcommand)]
pub(crate) enum DriveCommand {
    Serve(drive_serve::ServeArgs),
    Add(drive_add::AddArgs),
    Drain(drive_drain::DrainArgs),
    #[command(name = "rm")]
    Remove(drive_drain::RemoveArgs),
    /// See, take up or drop what a drive changed after it was declared lost
    #[command(subcommand)]
    Aside(drive_aside::AsideCommand),
}

/// What can be done with arrays.
#[derive(Debug, Subcommand)]
pub(crate) enum ArrayCommand {
    Serve(Box<array_serve::ArrayServeArgs>),
}

fn after_help() -> String {
    format!("{EXAMPLES}\n\n{}", error::EXIT_CODES)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_names_every_exit_code_and_has_examples() {
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("Exit codes:") && help.contains("Examples:"), "{help}");
    }
}
