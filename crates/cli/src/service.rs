//! `pithead service`: what drives do behind the scenes, and how much of it.

use std::io::Write;
use std::path::Path;

use clap::{Args, Subcommand};
use pithead_embed::{Answers, BackgroundOrder, BackgroundStatus, DedupSettings, ServiceStatus, Target};
use pithead_model::{Blame, Bytes, Fault, parse_bytes};
use serde_json::{Value as Json, json};

use crate::error::{CliError, say};
use crate::interrupt::Interrupts;
use crate::output::{Align, Grid, Sink};
use crate::simulate::{self, SimulateArgs};
use crate::store_keys::key_words;
use crate::target::{TargetArgs, must_exist};
use crate::terminal;

const LS_EXAMPLES: &str = "\
Examples:
  pithead service ls --drives server1:7433,server2:7433
  pithead service ls --json | jq -r '.services[] | .damaged[]?'";

const START_EXAMPLES: &str = "\
Examples:
  pithead service start scrub --drives server1:7433   # and again: without a pause until all is read
  pithead service start dedup --domain main --kinetic --drives server1:7433";

const LIMIT_EXAMPLES: &str = "\
Examples:
  pithead service limit scrub 20MB --drives server1:7433
  pithead service limit scrub none --drives server1:7433";

const POLICY_EXAMPLES: &str = "\
Examples:
  pithead service policy tail:1.5 --drives server1:7433
  pithead service policy none --drives server1:7433   # services run where the foreground does";

const DEDUP: &str = "dedup";
const COMPACTION: &str = "compaction";
/// How values are cut into chunks where nothing else is asked for.
const CHUNKS: &str = "cdc";

/// What can be done with background services.
#[derive(Debug, Subcommand)]
pub(crate) enum ServiceCommand {
    #[command(flatten)]
    Tell(ServiceOrder),
    Simulate(SimulateArgs),
}

/// What drives are told of their services.
#[derive(Debug, Subcommand)]
pub(crate) enum ServiceOrder {
    Ls(ServiceLsArgs),
    Start(StartArgs),
    Pause(PauseArgs),
    Stop(StopArgs),
    Limit(LimitArgs),
    Policy(PolicyArgs),
}

/// Show the background services of drives: what they are at, how fast, and what they have found.
///
/// `scrub` reads every stored value and names damaged ones; `compaction` gives dead room back; `dedup` lets values share the bytes
/// that they have in common. The rate is that of the last five
/// seconds, and the time left is that of the round at this rate. Damaged values are named where you may administer all domains.
#[derive(Debug, Args)]
#[command(after_help = LS_EXAMPLES)]
pub(crate) struct ServiceLsArgs {
    /// One JSON object a drive
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: TargetArgs,
}

/// Let a service go on where it is, or begin anew if it was stopped.
///
/// A scrub that runs already goes on without a pause until it has read everything. Deduplication looks at the domains that are
/// named, each by itself, and at the values of Kinetic clients if told so, and at nothing else any more; without any of these
/// options, at those of last time. What a service is told holds after a restart of the drive, too.
#[derive(Debug, Args)]
#[command(after_help = START_EXAMPLES)]
pub(crate) struct StartArgs {
    /// The service, as `pithead service ls` shows it
    #[arg(value_name = "SERVICE")]
    service: String,
    /// With `dedup`: a domain whose slices share bytes with one another; may be given several times
    #[arg(long, value_name = "DOMAIN")]
    domain: Vec<String>,
    /// With `dedup`: the values of Kinetic clients share bytes with one another
    #[arg(long)]
    kinetic: bool,
    /// With `dedup`: cut values where their content says so (cdc), or each 1KiB or 0.5KiB
    #[arg(long, value_name = "HOW")]
    chunks: Option<String>,
    #[command(flatten)]
    target: TargetArgs,
}

/// Let a service rest where it is.
#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    /// The service, as `pithead service ls` shows it
    #[arg(value_name = "SERVICE")]
    service: String,
    #[command(flatten)]
    target: TargetArgs,
}

/// Let a service rest, and forget where it is and what it has found.
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// The service, as `pithead service ls` shows it
    #[arg(value_name = "SERVICE")]
    service: String,
    #[command(flatten)]
    target: TargetArgs,
}

/// Set how many bytes a second a service may take at most.
#[derive(Debug, Args)]
#[command(after_help = LIMIT_EXAMPLES)]
pub(crate) struct LimitArgs {
    /// The service, as `pithead service ls` shows it
    #[arg(value_name = "SERVICE")]
    service: String,
    /// Bytes a second, such as 20MB, or `none`
    #[arg(value_name = "BYTES", value_parser = parse_limit)]
    bytes_per_second: Limit,
    #[command(flatten)]
    target: TargetArgs,
}

/// Choose cores for the services of running drives by another policy, until they are started again.
///
/// `none`: where the foreground is handled, as its equal. `bts`: on idle cores. `shares:SHARE`: this share of each core. `tail:FACTOR`:
/// on idle cores, and on others as much as keeps the waits of the foreground within this factor of what they are without.
#[derive(Debug, Args)]
#[command(after_help = POLICY_EXAMPLES)]
pub(crate) struct PolicyArgs {
    /// none, bts, shares, shares:SHARE, tail or tail:FACTOR
    #[arg(value_name = "POLICY")]
    policy: String,
    #[command(flatten)]
    target: TargetArgs,
}

/// Bytes a second; none: no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit(Option<u64>);

fn parse_limit(text: &str) -> Result<Limit, String> {
    match (text, parse_bytes(text)) {
        ("none", _) => Ok(Limit(None)),
        (_, Ok(bytes @ 1..)) => Ok(Limit(Some(bytes))),
        _ => Err("expected bytes a second such as 20MB, or none".to_owned()),
    }
}

impl ServiceCommand {
    pub(crate) fn threads(&self) -> Option<usize> {
        match self {
            ServiceCommand::Tell(order) => order.target().threads,
            ServiceCommand::Simulate(_) => Some(1),
        }
    }
}

impl ServiceOrder {
    fn target(&self) -> &TargetArgs {
        match self {
            ServiceOrder::Ls(args) => &args.target,
            ServiceOrder::Start(args) => &args.target,
            ServiceOrder::Pause(args) => &args.target,
            ServiceOrder::Stop(args) => &args.target,
            ServiceOrder::Limit(args) => &args.target,
            ServiceOrder::Policy(args) => &args.target,
        }
    }

    fn order(&self) -> BackgroundOrder {
        match self {
            ServiceOrder::Ls(_) => BackgroundOrder::Look,
            ServiceOrder::Start(args) => BackgroundOrder::Start(args.service.clone()),
            ServiceOrder::Pause(args) => BackgroundOrder::Pause(args.service.clone()),
            ServiceOrder::Stop(args) => BackgroundOrder::Stop(args.service.clone()),
            ServiceOrder::Limit(args) => {
                BackgroundOrder::Limit { service: args.service.clone(), bytes_per_second: args.bytes_per_second.0 }
            }
            ServiceOrder::Policy(args) => BackgroundOrder::Policy(args.policy.clone()),
        }
    }

    /// What each drive is told, in turn. With new settings, it first says what they replace.
    fn orders(&self) -> Result<Vec<BackgroundOrder>, CliError> {
        let settings = self.settings()?.map(BackgroundOrder::Deduplicate);
        let first = settings.into_iter().flat_map(|settings| [BackgroundOrder::Look, settings]);
        Ok(first.chain([self.order()]).collect())
    }

    /// What deduplication is to look at from now on; none: nothing is said of that.
    fn settings(&self) -> Result<Option<DedupSettings>, CliError> {
        let ServiceOrder::Start(args) = self else { return Ok(None) };
        let (domains, kinetic) = (args.domain.clone(), args.kinetic);
        if domains.is_empty() && !kinetic && args.chunks.is_none() {
            return Ok(None);
        }
        if args.service != DEDUP {
            let what = format!("--domain, --kinetic and --chunks are for the service {DEDUP}, not for {}", args.service);
            return Err(Fault::new(Blame::User, what).into());
        }
        let chunks = args.chunks.clone().unwrap_or_else(|| CHUNKS.to_owned());
        Ok(Some(DedupSettings { chunks, domains, kinetic }))
    }

    /// What was done, of a drive.
    fn done(&self) -> String {
        match self {
            ServiceOrder::Ls(_) => String::new(),
            ServiceOrder::Start(args) => format!("started {}", args.service),
            ServiceOrder::Pause(args) => format!("paused {}", args.service),
            ServiceOrder::Stop(args) => format!("stopped {}", args.service),
            ServiceOrder::Limit(args) => match args.bytes_per_second.0 {
                Some(limit) => format!("limited {} to {}/s", args.service, Bytes(limit)),
                None => format!("{} has no limit", args.service),
            },
            ServiceOrder::Policy(args) => format!("cores are chosen by {}", args.policy),
        }
    }
}

/// Runs the command.
pub(crate) async fn run(command: ServiceCommand) -> Result<(), CliError> {
    match command {
        ServiceCommand::Tell(order) => tell(order).await,
        ServiceCommand::Simulate(args) => simulate::run(&args),
    }
}

async fn tell(command: ServiceOrder) -> Result<(), CliError> {
    let answers = ask_in_turn(command.target(), &command.orders()?).await?;
    for (label, answer) in answers.iter().filter(|_| !matches!(command, ServiceOrder::Ls(_))) {
        let Ok(statuses) = answer else { continue };
        terminal::tell(format_args!("{} at {label}", command.done()));
        if let Some(replaced) = replaced(statuses) {
            terminal::tell(replaced);
        }
    }
    let answers = last_of(answers);
    let ServiceOrder::Ls(args) = &command else {
        if let (ServiceOrder::Start(_), Target::Data(data)) = (&command, command.target().target())
            && answers.iter().any(|(_, answer)| answer.is_ok())
        {
            terminal::tell(ends_with_the_command(&data));
        }
        return report(&answers, false);
    };
    let mut sink = Sink::stdout();
    if args.json {
        for answer in &answers {
            writeln!(sink, "{}", background_json(answer))?;
        }
    } else {
        grid(&answers).write(&mut sink)?;
        if let Some(damaged) = damaged_grid(&answers) {
            writeln!(sink)?;
            damaged.write(&mut sink)?;
        }
    }
    sink.finish()?;
    if !args.json
        && answers
            .iter()
            .any(|(_, answer)| answer.iter().flat_map(|status| &status.services).any(|one| !one.damaged.is_empty()))
    {
        let hint = "`pithead repair` writes damaged slices that have another copy anew; a key of Kinetic is written anew by its client";
        terminal::tell(format_args!("hint: {hint}"));
    }
    report(&answers, args.json)
}

/// Tells the drives of a target, and how their services are then.
pub(crate) async fn ask(target: &TargetArgs, order: &BackgroundOrder) -> Result<Answers<BackgroundStatus>, CliError> {
    Ok(last_of(ask_in_turn(target, std::slice::from_ref(order)).await?))
}

/// The same with several orders, and how the services were after each.
async fn ask_in_turn(target: &TargetArgs, orders: &[BackgroundOrder]) -> Result<Answers<Vec<BackgroundStatus>>, CliError> {
    let interrupts = Interrupts::listen();
    let at = target.target();
    must_exist(&at)?;
    if let (Target::Data(_), [.., BackgroundOrder::Policy(_)]) = (&at, orders) {
        let fault = Fault::new(Blame::User, "expected drives that run: a policy holds for as long as they do");
        return Err(fault.hint("name them: --drives HOST:PORT,…").into());
    }
    let options = target.options()?;
    interrupts.cancels(async { Ok(pithead_embed::background_in_turn(&at, &options, orders).await?) }).await
}

/// What becomes of a service that was started in a directory.
fn ends_with_the_command(data: &Path) -> String {
    let drive = data.join("drive-0");
    let serve = format!("`pithead drive serve --data {}`", drive.display());
    format!("hint: drives of a directory end with each command; {serve} goes on with it, and so for the other drives")
}

/// How the services were after the last order.
fn last_of(answers: Answers<Vec<BackgroundStatus>>) -> Answers<BackgroundStatus> {
    let last = |mut statuses: Vec<BackgroundStatus>| statuses.pop().unwrap_or_default();
    answers.into_iter().map(|(label, answer)| (label, answer.map(last))).collect()
}

/// What a drive deduplicated before it got other settings; none: it had none, or they are the same.
fn replaced(statuses: &[BackgroundStatus]) -> Option<String> {
    let (before, after) = (settings_of(statuses.first()?)?, settings_of(statuses.last()?)?);
    (before != after).then(|| format!("it looks at {} now; before, it looked at {}", looks_at(after), looks_at(before)))
}

fn settings_of(status: &BackgroundStatus) -> Option<&DedupSettings> {
    status.services.iter().find_map(|service| service.dedup.as_ref())
}

/// What deduplication looks at, and how.
fn looks_at(settings: &DedupSettings) -> String {
    let domains = settings.domains.iter().map(String::as_str);
    let scopes: Vec<&str> = domains.chain(settings.kinetic.then_some("Kinetic values")).collect();
    format!("{} by {}", scopes.join(", "), settings.chunks)
}

/// What did not answer makes the exit code.
pub(crate) fn report(answers: &Answers<BackgroundStatus>, said: bool) -> Result<(), CliError> {
    let faults: Vec<(&String, &Fault)> =
        answers.iter().filter_map(|(label, answer)| Some((label, answer.as_ref().err()?))).collect();
    if !said {
        for (label, fault) in &faults {
            let fault = (*fault).clone();
            say(&if fault.message.contains(label.as_str()) { fault } else { fault.at(label) });
        }
    }
    match faults.first() {
        Some((_, fault)) => Err(CliError::Said(fault.blame)),
        None => Ok(()),
    }
}

pub(crate) fn background_json((label, answer): &(String, Result<BackgroundStatus, Fault>)) -> Json {
    match answer {
        Ok(status) => {
            let mut object = json!(status);
            object["label"] = json!(label);
            object["up"] = json!(true);
            object
        }
        Err(fault) => json!({ "label": label, "up": false, "error": fault.message }),
    }
}

fn grid(answers: &Answers<BackgroundStatus>) -> Grid {
    use Align::{Left, Right};
    let mut columns = vec![
        ("drive", Left),
        ("service", Left),
        ("state", Left),
        ("done", Right),
        ("of", Right),
        ("rate", Right),
        ("left", Right),
        ("limit", Right),
        ("found", Right),
    ];
    // Empty but for one row in four, so it is there only where that row has something.
    let is_told = answers.iter().flat_map(|(_, answer)| answer).any(|status| settings_of(status).is_some());
    columns.extend(is_told.then_some(("looks at", Left)));
    let mut grid = Grid::of(&columns);
    for (label, answer) in answers {
        for service in answer.iter().flat_map(|status| &status.services) {
            let told = is_told.then(|| service.dedup.as_ref().map_or_else(String::new, looks_at));
            grid.push(row(label, service).into_iter().chain(told).collect());
        }
    }
    grid
}

fn row(label: &str, service: &ServiceStatus) -> Vec<String> {
    let unless_zero = |bytes: u64| if bytes == 0 { String::new() } else { Bytes(bytes).to_string() };
    vec![
        label.to_owned(),
        service.name.clone(),
        service.why.as_ref().map_or_else(|| service.activity.clone(), |why| format!("{}: {why}", service.activity)),
        Bytes(service.done_bytes).to_string(),
        unless_zero(service.total_bytes),
        format!("{}/s", Bytes(service.bytes_per_second as u64)),
        service.left_s.map_or_else(String::new, crate::status::uptime),
        service.limit.map_or_else(|| "none".to_owned(), |limit| format!("{}/s", Bytes(limit))),
        match service.name.as_str() {
            DEDUP => format!("{} saved", Bytes(service.found)),
            COMPACTION => format!("{} given back", Bytes(service.found)),
            _ => service.found.to_string(),
        },
    ]
}

/// Damaged values, a line each; none: none is known of.
fn damaged_grid(answers: &Answers<BackgroundStatus>) -> Option<Grid> {
    use Align::Left;
    let mut grid = Grid::of(&[("drive", Left), ("damaged value", Left), ("what", Left)]);
    let mut is_empty = true;
    for (label, answer) in answers {
        for key in answer.iter().flat_map(|status| &status.services).flat_map(|service| &service.damaged) {
            grid.push(vec![label.clone(), key.clone(), key_words(key).unwrap_or_default()]);
            is_empty = false;
        }
    }
    (!is_empty).then_some(grid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_bytes_or_none() {
        assert_eq!((parse_limit("20MB"), parse_limit("none")), (Ok(Limit(Some(20_000_000))), Ok(Limit(None))));
        assert!(["", "0", "much", "-1"].iter().all(|text| parse_limit(text).is_err()));
    }

    #[test]
    fn new_settings_say_what_they_replace() {
        let status = |dedup: Option<(&str, bool)>| {
            let settings = |(domain, kinetic): (&str, bool)| DedupSettings {
                chunks: "cdc".into(),
                domains: domain.split_terminator(' ').map(str::to_owned).collect(),
                kinetic,
            };
            let dedup = ServiceStatus { name: DEDUP.into(), dedup: dedup.map(settings), ..ServiceStatus::default() };
            BackgroundStatus { services: vec![dedup], ..BackgroundStatus::default() }
        };
        let of = |before, after| replaced(&[status(before), status(after), status(after)]);
        let told = of(Some(("a b", true)), Some(("b", false)));
        assert_eq!(told.unwrap(), "it looks at b by cdc now; before, it looked at a, b, Kinetic values by cdc");
        assert_eq!((of(None, Some(("b", false))), of(Some(("b", true)), Some(("b", true)))), (None, None));
        assert_eq!(replaced(&[status(Some(("a", true)))]), None, "nothing was replaced");
        let answers = |dedup| vec![("a:1".to_owned(), Ok(status(dedup)))];
        let text = |answers: &Answers<BackgroundStatus>| {
            let mut out = Vec::new();
            grid(answers).write(&mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert!(text(&answers(Some(("a b", true)))).contains("| a, b, Kinetic values by cdc"));
        assert!(!text(&answers(None)).contains("looks at"));
    }

    #[test]
    fn a_service_has_a_row_and_damaged_values_are_named() {
        let service = ServiceStatus {
            name: "scrub".into(),
            activity: "running".into(),
            done_bytes: 5_000_000,
            total_bytes: 20_000_000,
            found: 1,
            damaged: vec!["manifest/lab".into()],
            bytes_per_second: 1e6,
            left_s: Some(15),
            limit: Some(2_000_000),
            ..ServiceStatus::default()
        };
        let idle = ServiceStatus {
            name: "compaction".into(),
            activity: "failed".into(),
            why: Some("no".into()),
            ..Default::default()
        };
        let dedup = ServiceStatus { name: "dedup".into(), activity: "idle".into(), found: 7_000_000, ..Default::default() };
        let status = BackgroundStatus { services: vec![service, idle, dedup], ..BackgroundStatus::default() };
        let answers = vec![("a:1".to_owned(), Ok(status))];
        let text = |grid: Grid| {
            let mut out = Vec::new();
            grid.write(&mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let table = text(grid(&answers));
        assert!(table.contains("running    | 5.0 MB | 20.0 MB | 1.0 MB/s | 15 s | 2.0 MB/s |              1"), "{table}");
        assert!(table.contains("|   7.0 MB saved"), "{table}");
        assert!(table.contains("failed: no |    0 B |"), "{table}");
        let damaged = text(damaged_grid(&answers).unwrap());
        assert!(damaged.contains("manifest/lab  | manifest of domain lab"), "{damaged}");
        assert!(damaged_grid(&answers[..0].to_vec()).is_none());
    }
}
