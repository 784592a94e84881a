//! `pithead program run`: an application at drives, its ports bound to standard input and output.

use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use futures::future::try_join_all;
use futures::stream::{SelectAll, StreamExt, unfold};
use pithead_embed::{ApplicationEvent, ApplicationRun, Door, PortInput, PortInputs, ReadsAll, RunApplication};
use pithead_model::{Blame, Fault, parse_bytes};
use pithead_span::Bounds;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::graph::Graph;
use super::lines::{LineFormat, Lines};
use super::spread;
use super::versions::check_alike;
use crate::error::CliError;
use crate::output::Sink;
use crate::target::TargetArgs;
use crate::terminal;

const EXAMPLES: &str = "\
Examples:
  seq 3 | pithead program run doubler
  pithead program run wordcount:idCounter trips.note    # one SSDlet of a module, with an argument
  pithead program run --graph words.toml --drives server1:7433,server2:7433
  pithead program run search needle --at server1:7433 --format json";

/// Rows of standard input are gathered to batches of so many bytes while more of them are there.
const BATCH_BYTES: usize = 64 << 10;
/// Batches that wait for a drive.
const WAITING_MAX: usize = 4;

/// Run SSDlets at drives.
///
/// Lines of standard input are rows of the input, and rows of the output are lines of standard output. Where an application has
/// several inputs or outputs that nothing is connected to, each line begins with the port's number and a tab. The application runs
/// at each drive by itself; every one of them gets all of standard input. But where a file says at which drives its SSDlets lie, it is
/// one application over all drives.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    /// The SSDlet: MODULE, or MODULE:SSDLET where the module has several
    #[arg(value_name = "MODULE[:SSDLET]", required_unless_present = "graph")]
    program: Option<String>,
    /// Its arguments
    #[arg(value_name = "ARGUMENT")]
    arguments: Vec<String>,
    /// Run the application that a file describes: SSDlets and their connections
    #[arg(long, value_name = "FILE", conflicts_with_all = ["program", "arguments"])]
    graph: Option<PathBuf>,
    /// Only at this drive, as --drives names it; for drives of a directory its path [default: at each]
    #[arg(long, value_name = "DRIVE")]
    at: Option<String>,
    /// How lines and rows become each other
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    format: LineFormat,
    /// Memory of the SSDlets at each drive, which may grant less
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "256MiB")]
    grant: u64,
    /// End it when its SSDlets have taken so much processor time at a drive
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    limit: Option<f64>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=1e6).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds, such as 0.5 or 60".to_owned()),
    }
}

/// Runs the command.
pub(super) async fn run(args: &RunArgs, doors: Vec<Arc<dyn Door>>) -> Result<(), CliError> {
    let graph = match (&args.graph, &args.program) {
        (Some(path), _) => Graph::read(path)?,
        (None, program) => Graph::of_one(program.as_deref().unwrap_or_default(), &args.arguments),
    };
    match &graph.places {
        None => {
            let doors = chosen(args, doors)?;
            check_alike(&doors, graph.ssdlets.iter().map(|ssdlet| ssdlet.module.as_str())).await?;
            run_at_each(args, graph, doors).await
        }
        Some(_) if args.at.is_some() => {
            Err(CliError::user("the file says at which drives its SSDlets lie; --at cannot say it, too"))
        }
        Some(places) => {
            let bounds = Bounds { memory: args.grant, run_ms: run_ms(args) };
            let (sender, input) = channel(WAITING_MAX);
            let run = spread::start(&graph, places, doors, bounds, received(input)).await?;
            let ports = Ports::of(args.format, std::slice::from_ref(&run))?;
            feed(ports.inputs, vec![sender]);
            show(vec![run], &ports.outputs).await
        }
    }
}

fn run_ms(args: &RunArgs) -> Option<u64> {
    args.limit.map(|seconds| (seconds * 1e3) as u64)
}

/// The application at each drive by itself.
async fn run_at_each(args: &RunArgs, graph: Graph, doors: Vec<Arc<dyn Door>>) -> Result<(), CliError> {
    let name = graph.ssdlets.first().map(|ssdlet| ssdlet.module.clone()).unwrap_or_default();
    let request = RunApplication {
        name,
        ssdlets: graph.ssdlets,
        connections: graph.connections,
        memory: args.grant,
        run_ms: run_ms(args),
        window: None,
    };
    let (senders, inputs): (Vec<_>, Vec<_>) = doors.iter().map(|_| channel(WAITING_MAX)).unzip();
    let started = doors.iter().zip(inputs).map(|(door, input)| {
        let request = request.clone();
        async move {
            let run = door.run_application(request, received(input), Arc::new(ReadsAll)).await;
            run.map_err(|fault| fault.at_drive(door.label()))
        }
    });
    let runs = try_join_all(started).await?;
    let ports = Ports::of(args.format, &runs)?;
    feed(ports.inputs, senders);
    show(runs, &ports.outputs).await
}

/// The drives that are meant.
fn chosen(args: &RunArgs, doors: Vec<Arc<dyn Door>>) -> Result<Vec<Arc<dyn Door>>, CliError> {
    let Some(at) = &args.at else { return Ok(doors) };
    let labels: Vec<String> = doors.iter().map(|door| door.label().to_owned()).collect();
    let found: Vec<Arc<dyn Door>> = doors.into_iter().filter(|door| door.label() == at).collect();
    match found.is_empty() {
        false => Ok(found),
        true => Err(CliError::user(format!("no drive is {at:?}; the drives are {}", labels.join(", ")))),
    }
}

/// The lines of an application's ports, the same at each drive.
struct Ports {
    inputs: Vec<Lines>,
    outputs: Vec<Lines>,
}

impl Ports {
    fn of(format: LineFormat, runs: &[ApplicationRun]) -> Result<Self, Fault> {
        let lines = |ports: &[pithead_embed::HostPort]| -> Result<Vec<Lines>, Fault> {
            ports.iter().map(|port| Lines::of(format, &port.signature)).collect()
        };
        let Some(first) = runs.first() else { return Ok(Self { inputs: vec![], outputs: vec![] }) };
        if runs.iter().any(|run| (&run.inputs, &run.outputs) != (&first.inputs, &first.outputs)) {
            let fault = Fault::new(Blame::User, "the drives have different modules under the same name");
            return Err(fault.hint("load the module again with --replace, or run at one drive: --at DRIVE"));
        }
        Ok(Self { inputs: lines(&first.inputs)?, outputs: lines(&first.outputs)? })
    }
}

type Inputs = Sender<Result<PortInput, Fault>>;

/// What a drive gets. It ends when nobody can send any more.
fn received(receiver: Receiver<Result<PortInput, Fault>>) -> PortInputs {
    unfold(receiver, |mut receiver| async move { receiver.recv().await.map(|input| (input, receiver)) }).boxed()
}

/// Reads standard input, if anything wants it, on a thread that may wait for it. A line that is no row ends all.
fn feed(inputs: Vec<Lines>, drives: Vec<Inputs>) {
    if inputs.is_empty() {
        return;
    }
    if std::io::stdin().is_terminal() {
        terminal::tell("reading rows from the terminal: a line each, Ctrl-D ends them");
    }
    std::thread::spawn(move || {
        if let Err(fault) = read_lines(&inputs, &drives, BufReader::with_capacity(BATCH_BYTES, std::io::stdin())) {
            send(&drives, &Err(fault));
        }
    });
}

/// Each batch goes to every drive. What was read is sent before the next read that may wait.
fn read_lines(inputs: &[Lines], drives: &[Inputs], mut from: impl BufReadAhead) -> Result<(), Fault> {
    let mut batches = vec![Vec::new(); inputs.len()];
    let mut line = String::new();
    loop {
        line.clear();
        let read = from.read_line(&mut line).map_err(|error| Fault::new(Blame::User, format!("standard input: {error}")))?;
        if read == 0 {
            flush(&mut batches, drives);
            return Ok(());
        }
        let (port, row) = port_of(line.trim_end_matches(['\n', '\r']), inputs.len())?;
        inputs[port].read(row, &mut batches[port])?;
        let bytes: usize = batches.iter().map(Vec::len).sum();
        if bytes >= BATCH_BYTES || !from.has_more() {
            flush(&mut batches, drives);
        }
    }
}

/// A reader that knows whether a read would have to wait.
trait BufReadAhead: BufRead {
    fn has_more(&self) -> bool;
}

impl<R: std::io::Read> BufReadAhead for BufReader<R> {
    fn has_more(&self) -> bool {
        self.buffer().contains(&b'\n')
    }
}

/// The input that a line is for, and its row.
fn port_of(line: &str, inputs: usize) -> Result<(usize, &str), Fault> {
    if inputs == 1 {
        return Ok((0, line));
    }
    let port = line.split_once('\t').and_then(|(port, row)| Some((port.parse().ok()?, row)));
    port.filter(|(port, _)| *port < inputs).ok_or_else(|| {
        let what = format!("the line {line:?} names none of the {inputs} inputs");
        Fault::new(Blame::User, what).hint("begin each line with the input's number, from 0 on, and a tab")
    })
}

fn flush(batches: &mut [Vec<u8>], drives: &[Inputs]) {
    for (port, batch) in (0..).zip(batches) {
        if !batch.is_empty() {
            let bytes = std::mem::take(batch).into();
            send(drives, &Ok(PortInput::Batch { port, bytes }));
        }
    }
}

/// A drive that takes no more has its reasons, which its events tell.
fn send(drives: &[Inputs], input: &Result<PortInput, Fault>) {
    for drive in drives {
        let _ = drive.blocking_send(input.clone());
    }
}

/// Writes what comes out until all have ended.
async fn show(runs: Vec<ApplicationRun>, outputs: &[Lines]) -> Result<(), CliError> {
    let mut events: SelectAll<_> = runs.into_iter().map(|run| run.events).collect();
    let mut sink = Sink::stdout();
    while let Some(event) = events.next().await {
        let ApplicationEvent::Batch { port, bytes } = event? else { continue };
        let unknown = || Fault::new(Blame::Device, format!("the drive sent rows of an output {port} that it did not announce"));
        let lines = outputs.get(port as usize).ok_or_else(unknown)?;
        let prefix = if outputs.len() == 1 { String::new() } else { format!("{port}\t") };
        lines.write(&prefix, &bytes, &mut sink)?;
        // Somebody may wait for this answer before the next question.
        sink.flush()?;
    }
    sink.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(signatures: &[&str], text: &str) -> (Result<(), Fault>, Vec<PortInput>) {
        let inputs: Vec<Lines> = signatures.iter().map(|text| Lines::of(LineFormat::Text, text).unwrap()).collect();
        let (sender, mut receiver) = channel(100);
        let read = read_lines(&inputs, &[sender], BufReader::new(text.as_bytes()));
        let mut sent = Vec::new();
        while let Ok(input) = receiver.try_recv() {
            sent.push(input.unwrap());
        }
        (read, sent)
    }

    #[test]
    fn lines_are_gathered_while_more_are_there() {
        let (read, sent) = fed(&["u8"], "1\n2\r\n3");
        assert_eq!(read, Ok(()));
        let bytes: Vec<u8> = sent
            .iter()
            .flat_map(|input| match input {
                PortInput::Batch { port: 0, bytes } => bytes.to_vec(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(bytes == [1, 2, 3] && sent.len() == 2, "{sent:?}");
    }

    #[test]
    fn several_inputs_are_told_apart() {
        let (read, sent) = fed(&["u8", "string"], "1\tx\n0\t7\n");
        assert_eq!(read, Ok(()));
        assert!(sent.contains(&PortInput::Batch { port: 0, bytes: bytes::Bytes::from_static(&[7]) }), "{sent:?}");
        let fault = fed(&["u8", "string"], "2\t7\n").0.unwrap_err();
        assert!(fault.message.contains("names none of the 2 inputs"), "{fault}");
        assert!(fed(&["u8"], "1\nx\n").0.is_err());
    }
}
