//! `pithead service simulate`: policies for background services over virtual cores, without a drive.

use std::io::Write;

use clap::Args;
use pithead_policy::background::BackgroundPolicy;
use pithead_policy::background::sim::{Arrivals, Backlog, Outcome, Scenario, paper, simulate_with};
use serde_json::json;

use crate::error::CliError;
use crate::output::{Align, Grid, Sink};

const EXAMPLES: &str = "\
Examples:
  pithead service simulate                                      # four cores, as Park et al. 2022 had them
  pithead service simulate --cores 16 --threads 4,8,16,32 --policy bts,tail:1.2
  pithead service simulate --cores 2 --task-us 180 --step-us 90 --rate 300 --backlog endless --json";

/// Run policies for background services over virtual cores, without a drive: the same code that chooses the cores of drives.
///
/// Host threads send tasks, each to a core of its own, and services run in steps on whichever core the policy gives them.
/// The defaults are the experiment of Park et al. 2022 (puts of 16 KiB, with deduplication by chunks of 1 KiB). The same seed
/// gives the same outcome. Times are simulated.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SimulateArgs {
    /// Cores of the drive
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    cores: u16,
    /// Numbers of host threads
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16],
          value_parser = clap::value_parser!(u16).range(1..=4096))]
    threads: Vec<u16>,
    /// Policies: none, bts, shares:SHARE or tail:FACTOR
    #[arg(long, value_name = "POLICY,…", value_delimiter = ',', default_value = "none,bts,shares:0.2,tail:1.2")]
    policy: Vec<BackgroundPolicy>,
    /// Tasks that each thread sends in a second, at random moments
    #[arg(long, value_name = "N", default_value_t = 5_500.0, value_parser = positive)]
    rate: f64,
    /// Send each task when the one before is done, instead
    #[arg(long, conflicts_with = "rate")]
    closed: bool,
    /// Microseconds of a task on its core
    #[arg(long, value_name = "µs", default_value_t = 100.0, value_parser = positive)]
    task_us: f64,
    /// Standard deviation of the logarithm of that
    #[arg(long, value_name = "N", default_value_t = 0.3, value_parser = not_negative)]
    task_spread: f64,
    /// Microseconds of a task on no core: the medium, and the way there and back
    #[arg(long, value_name = "µs", default_value_t = 20.0, value_parser = not_negative)]
    elsewhere_us: f64,
    /// Services, each of which has one step running at most
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(0..=4096))]
    services: u16,
    /// Microseconds of a step
    #[arg(long, value_name = "µs", default_value_t = 62.0, value_parser = positive)]
    step_us: f64,
    /// Microseconds that the first step on another core takes besides
    #[arg(long, value_name = "µs", default_value_t = 5.0, value_parser = not_negative)]
    move_us: f64,
    /// Steps that each task brings; or `endless`, where there is always more to do; or `none`
    #[arg(long, value_name = "HOW", default_value = "1", value_parser = parse_backlog)]
    backlog: Backlog,
    /// Milliseconds from one decision to the next
    #[arg(long, value_name = "MS", default_value_t = 20.0, value_parser = positive)]
    interval_ms: f64,
    /// Seconds that are simulated
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = positive)]
    seconds: f64,
    /// Seed of all that is random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// One JSON object for each policy and number of threads
    #[arg(long)]
    json: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    not_negative(text).ok().filter(|number| *number > 0.0).ok_or_else(|| "expected a number above 0".to_owned())
}

fn not_negative(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..1e9).contains(number));
    number.ok_or_else(|| "expected a number, 0 or more".to_owned())
}

fn parse_backlog(text: &str) -> Result<Backlog, String> {
    match text {
        "none" => Ok(Backlog::None),
        "endless" => Ok(Backlog::Endless),
        steps => positive(steps).map(Backlog::PerTask).map_err(|_| "expected steps for each task, endless or none".to_owned()),
    }
}

impl SimulateArgs {
    fn scenario(&self, threads: usize) -> Scenario {
        Scenario {
            seed: self.seed,
            seconds: self.seconds,
            cores: usize::from(self.cores),
            rate: self.rate,
            task_seconds: self.task_us * 1e-6,
            task_spread: self.task_spread,
            elsewhere_seconds: self.elsewhere_us * 1e-6,
            services: usize::from(self.services),
            backlog: self.backlog,
            step_seconds: self.step_us * 1e-6,
            move_seconds: self.move_us * 1e-6,
            interval: self.interval_ms * 1e-3,
            ..paper(threads, false)
        }
    }
}

/// Runs the command. It blocks.
pub(crate) fn run(args: &SimulateArgs) -> Result<(), CliError> {
    let arrivals = if args.closed { Arrivals::Closed } else { Arrivals::Random };
    let mut sink = Sink::stdout();
    let mut grid = grid();
    for threads in args.threads.iter().map(|threads| usize::from(*threads)) {
        let scenario = args.scenario(threads);
        for policy in &args.policy {
            let outcome = simulate_with(&scenario, arrivals, *policy);
            match args.json {
                true => {
                    let closed = arrivals == Arrivals::Closed;
                    let said =
                        json!({ "scenario": scenario, "closed": closed, "policy": policy.to_string(), "outcome": outcome });
                    writeln!(sink, "{said}")?;
                }
                false => grid.push(row(threads, *policy, &outcome, args.seconds)),
            }
        }
    }
    if !args.json {
        grid.write(&mut sink)?;
    }
    sink.finish()
}

fn grid() -> Grid {
    use Align::{Left, Right};
    Grid::of(&[
        ("threads", Right),
        ("policy", Left),
        ("mean", Right),
        ("p50", Right),
        ("p99", Right),
        ("p99.9", Right),
        ("foreground", Right),
        ("background", Right),
        ("busiest", Right),
        ("steps/s", Right),
        ("moves/s", Right),
    ])
}

fn row(threads: usize, policy: BackgroundPolicy, outcome: &Outcome, seconds: f64) -> Vec<String> {
    let mut row = vec![threads.to_string(), policy.to_string()];
    let times = [outcome.mean, outcome.p50, outcome.p99, outcome.p999];
    row.extend(times.map(|seconds| format!("{:.0} µs", seconds * 1e6)));
    let cores = outcome.foreground.len().max(1) as f64;
    let percent = |share: f64| format!("{:.0}%", share * 100.0);
    let mean = |shares: &[f64]| percent(shares.iter().sum::<f64>() / cores);
    row.extend([mean(&outcome.foreground), mean(&outcome.background)]);
    let both = outcome.foreground.iter().zip(&outcome.background).map(|(foreground, background)| foreground + background);
    row.push(percent(both.fold(0.0, f64::max)));
    row.extend([outcome.steps, outcome.moves].map(|count| format!("{:.0}", count as f64 / seconds)));
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_read_as_written() {
        assert_eq!(parse_backlog("none"), Ok(Backlog::None));
        assert_eq!(parse_backlog("endless"), Ok(Backlog::Endless));
        assert_eq!(parse_backlog("0.5"), Ok(Backlog::PerTask(0.5)));
        for wrong in ["0", "-1", "much", "inf", "nan", ""] {
            assert!(parse_backlog(wrong).is_err(), "{wrong}");
        }
    }
}
