//! `pithead`: load datasets onto drives, ask them questions in SQL, look at both; and be a drive.
//!
//! Each command is a file of its own, from its flags to its last line of output.

mod allocator;
mod apart;
mod args;
mod array_serve;
mod bench;
mod cell;
mod cert;
mod check;
mod counting;
mod cpu;
mod device;
mod domains;
mod drive_add;
mod drive_aside;
mod drive_drain;
mod drive_serve;
mod drop;
mod ending;
mod entry_args;
mod error;
mod explain;
mod front_serve;
mod inspect;
mod interrupt;
mod kinetic_applets;
mod kinetic_serve;
mod kv;
mod link_args;
mod load;
mod load_spec;
mod log;
mod ls;
mod mending;
mod move_args;
mod output;
mod pace_args;
mod piped;
mod plans;
mod program;
mod prompt;
mod reference_work;
mod repair;
mod repro;
mod restore;
mod run;
mod scratch;
mod script;
mod secret_file;
mod service;
mod session;
mod shell_files;
mod simulate;
mod sql;
mod statements;
mod status;
mod status_cores;
mod status_energy;
mod status_partitions;
mod store_keys;
mod target;
mod terminal;
mod token;
mod value_text;
mod whatif;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    if let Some(missing) = cpu::missing() {
        eprintln!("error: this build needs an x86-64-v3 CPU (Haswell, Excavator or later); this one lacks {missing}");
        return ExitCode::FAILURE;
    }
    run_command()
}

/// Not inlined, so that nothing compiled for the newer CPU runs before the check.
#[inline(never)]
fn run_command() -> ExitCode {
    allocator::keep_free_memory();
    let command = args::Cli::parse_from(cell::asked_for_help(std::env::args_os())).command;
    error::exit_code(run::run(command))
}
