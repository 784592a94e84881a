//! `pithead inspect`: what lies on a drive's medium, and what a sub-plan says of itself.
//!
//! What is shown of a store comes from its own files. What is damaged is an error that names it; `pithead check` finds all of it.
//! A sub-plan is a file by itself.

mod manifest;
mod plan;
mod segment;
mod slice;
mod store;

use clap::Subcommand;
use pithead_model::{Blame, Fault};

use crate::error::CliError;
use crate::interrupt::Interrupts;

/// What can be looked at.
#[derive(Debug, Subcommand)]
pub(crate) enum InspectCommand {
    Store(store::StoreArgs),
    Segment(segment::SegmentArgs),
    Slice(slice::SliceArgs),
    Manifest(manifest::ManifestArgs),
    Plan(plan::PlanArgs),
}

/// Runs the command.
pub(crate) async fn run(command: InspectCommand) -> Result<(), CliError> {
    let interrupts = Interrupts::listen();
    let work = tokio::task::spawn_blocking(move || match command {
        InspectCommand::Store(args) => store::run(&args),
        InspectCommand::Segment(args) => segment::run(&args),
        InspectCommand::Slice(args) => slice::run(&args),
        InspectCommand::Manifest(args) => manifest::run(&args),
        InspectCommand::Plan(args) => plan::run(&args),
    });
    let lost = |lost| CliError::from(Fault::new(Blame::Bug, format!("the look ended early: {lost}")));
    interrupts.cancels(async { work.await.unwrap_or_else(|error| Err(lost(error))) }).await
}
