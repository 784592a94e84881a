//! COPY … FROM STDIN: rows from a client into a dataset, by a load: they become visible together at the end, or not at all.
//!
//! The task of the connection only takes messages. What is in them is read where statements run ([`CopyLoad`]).

use std::sync::Arc;

use pithead_host::{Commitment, Deadline, LoadReport, Right};
use pithead_model::{Dataset, DatasetName, Fault};
use tokio::sync::mpsc;

use crate::cancel::Cancel;
use crate::connection::{Halt, Talk, answering, cancelled, during, flush, too_large};
use crate::copy::{Copy, CopyFormat, Source};
use crate::copy_binary::BinaryReader;
use crate::copy_load::{CopyLoad, Part};
use crate::copy_rows::ReadRows;
use crate::copy_text::RowReader;
use crate::deadline::passed;
use crate::error::Complaint;
use crate::lexer::{TokenKind, tokens};
use crate::link::{Link, Read};
use crate::message::Message;
use crate::work::in_own_task;

/// Parts that wait to be read.
const PARTS_MAX: usize = 2;
/// What takes too long, where it does.
const COPY: &str = "COPY";
/// Bytes of small messages that are put together.
const GATHERED_BYTES: usize = 64 << 10;

/// A dataset, its columns, and which of them a row's fields are for.
type CopyTarget = (DatasetName, Arc<Dataset>, Vec<usize>);

impl Talk {
    pub(crate) async fn copy_in(&mut self, copy: &Copy) -> Result<(), Halt> {
        self.check_writes(true)?;
        self.before_statement("").await?;
        let target = self.target(copy).await?;
        let columns: Vec<String> = target.2.iter().map(|place| target.1.schema.field(*place).name().clone()).collect();
        match copy.options.format {
            CopyFormat::Binary => self.load(target, true, BinaryReader::new(columns.len())).await,
            CopyFormat::Text | CopyFormat::Csv => {
                self.load(target, false, RowReader::new(copy.options.clone(), &columns)).await
            }
        }
    }

    async fn load<R: ReadRows + 'static>(&mut self, target: CopyTarget, is_binary: bool, reader: R) -> Result<(), Halt> {
        let (name, dataset, places) = target;
        self.link.out.copy(b'G', is_binary, places.len());
        flush(&mut self.link, &self.place.cancel).await?;
        let commitment = Arc::<Commitment>::default();
        let (host, zone) = (self.front.host.clone(), self.settings.zone().0);
        let load = CopyLoad { host, name, dataset, places, zone, commitment: Arc::clone(&commitment) };
        let loaded = self.loaded(load, reader).await;
        // Of a load that has failed nobody may know whether its rows are there.
        if commitment.is_sent() {
            self.transaction.wrote();
        }
        let report = loaded?;
        self.front.metrics.copied_rows.inc_by(report.rows);
        self.link.out.complete(&format!("COPY {}", report.rows));
        Ok(())
    }

    /// Takes what the client sends until it has all been loaded, or the load has failed, which ends the taking, too.
    async fn loaded<R: ReadRows + 'static>(&mut self, load: CopyLoad, reader: R) -> Result<LoadReport, Halt> {
        let deadline = Deadline::after(self.session.statement_timeout());
        let (threads, commitment) = (self.entrance.work.clone(), Arc::clone(&load.commitment));
        let (parts, received) = mpsc::channel(PARTS_MAX);
        let mut work = std::pin::pin!(in_own_task(&threads, load.run(reader, received)));
        let taken = tokio::select! {
            biased;
            taken = forward(&mut self.link, &self.place.cancel, &parts) => taken.map(|()| None),
            early = &mut work => Ok(Some(early)),
            fault = passed(deadline, COPY) => Err(fault.into()),
        };
        if let Some(early) = taken? {
            return Ok(early??);
        }
        let ending = async {
            tokio::select! {
                biased;
                done = &mut work => done,
                fault = passed(deadline, COPY) => match commitment.cancel(fault.clone()) {
                    true => Err(fault),
                    // Its rows may be there already: it goes on to its outcome.
                    false => (&mut work).await,
                },
            }
        };
        Ok(answering(&mut self.link, &self.place.cancel, &commitment, None, ending).await???)
    }

    /// The dataset, its columns, and which of them a row's fields are for.
    async fn target(&mut self, copy: &Copy) -> Result<CopyTarget, Halt> {
        let Source::Table { name, columns } = &copy.source else { return Err(Fault::bug("COPY reads into no table").into()) };
        let name = dataset_name(name, |bare| self.session.domain_of(bare))?;
        self.session.check(Right::Write, &name.domain)?;
        let host = self.front.host.clone();
        let snapshot = during(&mut self.link, &self.place.cancel, host.fleet().snapshot()).await??;
        let dataset = Arc::clone(snapshot.readable(&name)?.dataset());
        let schema = &dataset.schema;
        let place = |column: &String| {
            let found = schema.fields().iter().position(|field| field.name() == column);
            found.ok_or_else(|| Complaint::error("42703", format!("column {column:?} of {name} does not exist")))
        };
        let places = match columns.as_slice() {
            [] => (0..schema.fields().len()).collect(),
            some => some.iter().map(place).collect::<Result<Vec<_>, _>>()?,
        };
        let twice = (1..places.len()).find(|place| places[..*place].contains(&places[*place]));
        match twice {
            Some(place) => Err(Complaint::error("42701", format!("column {:?} is named twice", columns[place])).into()),
            None => Ok((name, dataset, places)),
        }
    }
}

/// Hands on what a client sends, until it says that this is all.
async fn forward(link: &mut Link, cancel: &Cancel, parts: &mpsc::Sender<Part>) -> Result<(), Halt> {
    let mut gathered = Vec::new();
    loop {
        let read = tokio::select! {
            biased;
            () = cancel.asked() => return Err(cancelled(cancel)),
            read = link.next() => read,
        };
        let message = match read {
            Read::Message(tag, body) => {
                Message::read(tag, body).map_err(|what| Halt::Last(Complaint::fatal("08P01", what.to_string())))?
            }
            Read::TooLarge { bytes, busy: true, .. } => return Err(too_large(bytes, true).into()),
            Read::TooLarge { bytes, busy: false, .. } => {
                return Err(too_large(bytes, false).hint("send the rows in smaller messages").into());
            }
            Read::Malformed(what) => return Err(Halt::Last(Complaint::fatal("08P01", what))),
            Read::Gone => return Err(Halt::Gone),
        };
        match message {
            Message::CopyData(bytes) => {
                let room = link.take_room();
                if gathered.len() + bytes.len() > GATHERED_BYTES && !gathered.is_empty() {
                    hand_on(link, cancel, parts, Part::Bytes(std::mem::take(&mut gathered), None)).await?;
                }
                match room {
                    Some(room) => hand_on(link, cancel, parts, Part::Bytes(bytes, Some(room))).await?,
                    None => gathered.extend_from_slice(&bytes),
                }
            }
            Message::CopyDone => {
                hand_on(link, cancel, parts, Part::Bytes(gathered, None)).await?;
                return hand_on(link, cancel, parts, Part::End).await;
            }
            Message::CopyFail(why) => {
                return Err(Complaint::error("57014", format!("COPY from stdin failed: {why}")).into());
            }
            Message::Flush | Message::Sync => {}
            Message::Terminate => return Err(Halt::Gone),
            _ => return Err(Complaint::error("08P01", "a message that does not belong into COPY").into()),
        }
    }
}

async fn hand_on(link: &mut Link, cancel: &Cancel, parts: &mpsc::Sender<Part>, part: Part) -> Result<(), Halt> {
    if during(link, cancel, parts.send(part)).await?.is_err() {
        // Where nobody takes it, the load has failed and says why.
        std::future::pending::<()>().await;
    }
    Ok(())
}

/// The name of a dataset as SQL writes it; `domain_of` gives the domain of a bare one.
fn dataset_name(text: &str, domain_of: impl Fn(&str) -> String) -> Result<DatasetName, Fault> {
    let mut parts = Vec::new();
    for token in tokens(text) {
        match token.kind {
            TokenKind::Word(words) => parts.extend(words.split('.').filter(|word| !word.is_empty()).map(str::to_owned)),
            TokenKind::Name(name) => parts.push(name),
            _ => return Err(Fault::invalid(format!("expected [domain.]dataset, got {text}"))),
        }
    }
    match parts.as_slice() {
        [name] => DatasetName::new(domain_of(name), name.as_str()),
        [.., domain, name] => DatasetName::new(domain.as_str(), name.as_str()),
        [] => Err(Fault::invalid("expected [domain.]dataset")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_sql() {
        let name = |text: &str| dataset_name(text, |_| "main".to_owned()).map(|name| name.to_string()).unwrap();
        assert_eq!([name("T"), name("lab.t"), name("lab.\"T t\""), name("\"A\".\"B\"")], ["main.t", "lab.t", "lab.T t", "A.B"]);
    }
}
