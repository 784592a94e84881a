//! An application of SSDlets on the link: one DoExchange. Batches go into its inputs on the way in and come from its outputs on
//! the way out, each a message; the order within a port is that of the messages.

use arrow_flight::{FlightData, FlightDescriptor};
use bytes::Bytes;
use futures::stream::{self, BoxStream, Stream, StreamExt};
use pithead_door::{ApplicationEvent, ApplicationRun, HostPort, PORT_BATCH_BYTES_MAX, PortInput, PortInputs, RunApplication};
use pithead_model::{Fault, SessionId};
use serde::{Deserialize, Serialize};

use crate::error::WireError;
use crate::exchange::ExchangeCommand;
use crate::json::{check_bound, from_json, json};
use crate::sending::Failed;

/// The metadata of later messages in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum InMark {
    /// A batch for an input.
    Batch(u32),
    /// The end of an input.
    PortEnd(u32),
    /// The host has taken so many bytes of an output.
    Taken(u32, u64),
    /// The host reads an output no more.
    Unread(u32),
    /// The end of all inputs. A stream that ends without was broken off.
    End,
}

/// The metadata of messages out.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OutMark {
    /// The application runs: the first message.
    Started(Started),
    /// A batch of an output.
    Batch(u32),
    /// The end of an output.
    PortEnd(u32),
    /// So many bytes of an input were taken.
    Taken(u32, u64),
    /// Nobody reads an input any more.
    Unread(u32),
    /// After so many inputs, no SSDlet can go on by itself: who waits for what.
    Idle(u64, String),
    /// All is well, and took so many nanoseconds of processor time: the last message.
    Finished(u64),
}

/// What a host is told of an application that was started.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Started {
    session: SessionId,
    inputs: Vec<HostPort>,
    outputs: Vec<HostPort>,
}

/// The first message in.
fn command(request: RunApplication) -> Result<FlightData, WireError> {
    Ok(FlightData::new().with_descriptor(FlightDescriptor::new_cmd(json(&ExchangeCommand::Run(request))?)))
}

/// Reads a later message in. None: all inputs are at their end.
pub(crate) fn parse_input(message: FlightData) -> Result<Option<PortInput>, WireError> {
    Ok(match from_json("mark", &message.app_metadata)? {
        InMark::Batch(port) => Some(PortInput::Batch { port, bytes: batch(message.data_body)? }),
        InMark::PortEnd(port) => Some(PortInput::End { port }),
        InMark::Taken(port, bytes) => Some(PortInput::Taken { port, bytes }),
        InMark::Unread(port) => Some(PortInput::Unread { port }),
        InMark::End => None,
    })
}

fn batch(bytes: Bytes) -> Result<Bytes, WireError> {
    check_bound("a batch", bytes.len(), PORT_BATCH_BYTES_MAX)?;
    Ok(bytes)
}

fn marked(mark: &impl Serialize, body: Bytes) -> Result<FlightData, WireError> {
    Ok(FlightData::new().with_app_metadata(json(mark)?).with_data_body(body))
}

fn input_message(input: PortInput) -> Result<FlightData, WireError> {
    match input {
        PortInput::Batch { port, bytes } => marked(&InMark::Batch(port), batch(bytes)?),
        PortInput::End { port } => marked(&InMark::PortEnd(port), Bytes::new()),
        PortInput::Taken { port, bytes } => marked(&InMark::Taken(port, bytes), Bytes::new()),
        PortInput::Unread { port } => marked(&InMark::Unread(port), Bytes::new()),
    }
}

/// All messages in. A fault of an input goes to `failed`, and ends the stream without its end mark.
pub(crate) fn run_messages(
    request: RunApplication,
    inputs: PortInputs,
    failed: Failed,
) -> Result<impl Stream<Item = FlightData> + Send + 'static, WireError> {
    let first = command(request)?;
    let end = marked(&InMark::End, Bytes::new())?;
    let later = inputs.map(|input| Ok(input_message(input?)?)).chain(stream::iter([Ok(end)]));
    let later = later.scan(failed, |failed, message: Result<FlightData, Fault>| {
        let message = message.map_err(|fault| failed.set(fault)).ok();
        std::future::ready(message)
    });
    Ok(stream::iter([first]).chain(later))
}

/// The inputs of an application from the messages in, as `next` yields them.
pub(crate) fn port_inputs<S>(messages: S) -> PortInputs
where
    S: Stream<Item = Result<FlightData, Fault>> + Send + Unpin + 'static,
{
    stream::unfold(Some(messages), |messages| async move {
        let mut messages = messages?;
        let message = messages.next().await.unwrap_or_else(|| Err(WireError::BrokenOff.into()));
        match message.and_then(|message| Ok(parse_input(message)?)).transpose()? {
            Ok(input) => Some((Ok(input), Some(messages))),
            Err(fault) => Some((Err(fault), None)),
        }
    })
    .boxed()
}

/// All messages out.
pub(crate) fn event_messages(run: ApplicationRun) -> BoxStream<'static, Result<FlightData, Fault>> {
    let ApplicationRun { session, inputs, outputs, events } = run;
    let started = marked(&OutMark::Started(Started { session, inputs, outputs }), Bytes::new()).map_err(Fault::from);
    let later = events.map(|event| {
        Ok(match event? {
            ApplicationEvent::Batch { port, bytes } => marked(&OutMark::Batch(port), bytes)?,
            ApplicationEvent::End { port } => marked(&OutMark::PortEnd(port), Bytes::new())?,
            ApplicationEvent::Taken { port, bytes } => marked(&OutMark::Taken(port, bytes), Bytes::new())?,
            ApplicationEvent::Unread { port } => marked(&OutMark::Unread(port), Bytes::new())?,
            ApplicationEvent::Idle { received, waits } => marked(&OutMark::Idle(received, waits), Bytes::new())?,
            ApplicationEvent::Finished { run_ns } => marked(&OutMark::Finished(run_ns), Bytes::new())?,
        })
    });
    stream::iter([started]).chain(later).boxed()
}

/// Reads the first message out.
pub(crate) fn parse_started(message: &FlightData) -> Result<Started, WireError> {
    match from_json("mark", &message.app_metadata)? {
        OutMark::Started(started) => Ok(started),
        other => Err(WireError::malformed("answer to a run", format!("expected its start, got {other:?}"))),
    }
}

/// Reads a later message out.
pub(crate) fn parse_event(message: FlightData) -> Result<ApplicationEvent, WireError> {
    Ok(match from_json("mark", &message.app_metadata)? {
        OutMark::Batch(port) => ApplicationEvent::Batch { port, bytes: batch(message.data_body)? },
        OutMark::PortEnd(port) => ApplicationEvent::End { port },
        OutMark::Taken(port, bytes) => ApplicationEvent::Taken { port, bytes },
        OutMark::Unread(port) => ApplicationEvent::Unread { port },
        OutMark::Idle(received, waits) => ApplicationEvent::Idle { received, waits },
        OutMark::Finished(run_ns) => ApplicationEvent::Finished { run_ns },
        OutMark::Started(_) => return Err(WireError::malformed("answer to a run", "it starts twice")),
    })
}

/// What a host makes of the messages out. `named` puts the drive's name to what is wrong; what was wrong with the inputs goes
/// before what the drive says of it.
pub(crate) fn application_run<S>(
    started: Started,
    messages: S,
    failed: Failed,
    named: impl Fn(WireError) -> Fault + Send + 'static,
) -> ApplicationRun
where
    S: Stream<Item = Result<FlightData, Fault>> + Send + Unpin + 'static,
{
    let events = stream::unfold(Some((messages, failed, named)), |state| async move {
        let (mut messages, failed, named) = state?;
        let event = match messages.next().await {
            Some(Ok(message)) => parse_event(message).map_err(&named),
            Some(Err(fault)) => Err(failed.get().cloned().unwrap_or(fault)),
            None => Err(named(WireError::BrokenOff)),
        };
        let more = matches!(&event, Ok(event) if !matches!(event, ApplicationEvent::Finished { .. }));
        Some((event, more.then_some((messages, failed, named))))
    });
    let Started { session, inputs, outputs } = started;
    ApplicationRun { session, inputs, outputs, events: events.boxed() }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use futures::stream::TryStreamExt;
    use pithead_door::{PortAt, SsdletSpec};
    use pithead_model::Blame;

    use super::*;
    use crate::exchange::parse_exchange;

    fn request() -> RunApplication {
        let ssdlets = vec![SsdletSpec { module: "m".into(), ssdlet: None, arguments: vec![] }];
        RunApplication { name: "a".into(), ssdlets, connections: vec![], memory: 1, run_ms: Some(5), window: Some(7) }
    }

    fn inputs() -> Vec<PortInput> {
        let batch = PortInput::Batch { port: 1, bytes: Bytes::from_static(b"rows") };
        let (taken, unread) = (PortInput::Taken { port: 2, bytes: 1 << 40 }, PortInput::Unread { port: 2 });
        vec![batch, taken, unread, PortInput::End { port: 1 }]
    }

    fn sent(inputs: Vec<Result<PortInput, Fault>>) -> (Vec<FlightData>, Failed) {
        let failed = Failed::default();
        let messages = run_messages(request(), stream::iter(inputs).boxed(), failed.clone()).unwrap();
        (block_on(messages.collect()), failed)
    }

    fn received(messages: Vec<FlightData>) -> Result<Vec<PortInput>, Fault> {
        block_on(port_inputs(stream::iter(messages.into_iter().skip(1).map(Ok))).try_collect())
    }

    #[test]
    fn what_goes_in_arrives_whole_or_as_a_fault() {
        let (messages, _) = sent(inputs().into_iter().map(Ok).collect());
        assert!(matches!(parse_exchange(&messages[0]).unwrap(), ExchangeCommand::Run(run) if run == request()));
        assert_eq!(received(messages.clone()).unwrap(), inputs());
        let cut = messages[..messages.len() - 1].to_vec();
        assert_eq!(received(cut).unwrap_err().blame, Blame::Cancelled);
        let fault = Fault::new(Blame::User, "no number");
        let (messages, failed) = sent(vec![Ok(inputs()[0].clone()), Err(fault.clone()), Ok(inputs()[1].clone())]);
        assert_eq!((messages.len(), failed.get()), (2, Some(&fault)));
        assert!(parse_exchange(&FlightData::new()).is_err() && parse_input(FlightData::new()).is_err());
        let large = PortInput::Batch { port: 0, bytes: vec![0; PORT_BATCH_BYTES_MAX + 1].into() };
        assert!(input_message(large).is_err());
    }

    #[test]
    fn what_comes_out_arrives_whole_or_as_a_fault() {
        let port = HostPort { at: PortAt { ssdlet: 0, port: 1 }, signature: "string,u32".into() };
        let all = vec![
            ApplicationEvent::Batch { port: 0, bytes: Bytes::from_static(b"rows") },
            ApplicationEvent::Taken { port: 3, bytes: 5 },
            ApplicationEvent::Unread { port: 3 },
            ApplicationEvent::Idle { received: 4, waits: "idA for rows in in(0)".into() },
            ApplicationEvent::End { port: 0 },
            ApplicationEvent::Finished { run_ns: 7 },
        ];
        let events = stream::iter(all.clone().into_iter().map(Ok)).boxed();
        let run = ApplicationRun { session: SessionId(9), inputs: vec![], outputs: vec![port.clone()], events };
        let messages: Vec<FlightData> = block_on(event_messages(run).try_collect()).unwrap();
        let read = |messages: &[FlightData]| {
            let started = parse_started(&messages[0]).unwrap();
            let later: Vec<Result<FlightData, Fault>> = messages[1..].iter().cloned().map(Ok).collect();
            application_run(started, stream::iter(later), Failed::default(), Fault::from)
        };
        let run = read(&messages);
        assert_eq!((run.session, &run.outputs), (SessionId(9), &vec![port]));
        assert_eq!(block_on(run.events.collect::<Vec<_>>()), all.into_iter().map(Ok).collect::<Vec<_>>());
        let cut: Vec<_> = block_on(read(&messages[..3]).events.collect());
        assert!(matches!(&cut[..], [Ok(_), Ok(_), Err(_)]), "{cut:?}");
        assert!(parse_started(&messages[1]).is_err());
    }
}
