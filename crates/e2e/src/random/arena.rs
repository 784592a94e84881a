//! One database in several arrangements, and what they answer to a script.

use std::collections::{BTreeSet, HashMap};

use pithead_host::Session;
use pithead_model::{Blame, Fault};
use tempfile::TempDir;

use crate::compare::{Table, bag_difference, row_difference};
use crate::random::opinion::Opinion;
use crate::random::queries::{Ask, Query};
use crate::random::report::{Difference, OTHER_ROWS, Report, gist};
use crate::random::script::{Load, Step};
use crate::random::tables::{Database, LoadStep, write_rows};
use crate::random::voices::{RunSite, VOICES, Voice, Who, ask, one_zero};
use crate::{Setup, load};

/// One of so many databases is also asked through arrays, which have to be started as processes.
const ARRAYS_ONE_IN: u64 = 8;

/// A database that is loaded, and changes as loads of a script come.
pub(crate) struct Arena {
    database: Database,
    setups: Vec<(RunSite, Setup)>,
    voices: Vec<(&'static Voice, Session)>,
    /// DuckDB has the tables, too.
    duckdb: bool,
    /// What the first voice has said since the last load that changed a table.
    said: HashMap<String, Table>,
    /// Loads so far.
    loads: usize,
    files: TempDir,
}

pub(crate) const DUCKDB: &str = "DuckDB";

impl Arena {
    /// Loads a database. The error says what could not be loaded.
    pub(crate) async fn load(
        database: &Database,
        seed: u64,
        opinion: Option<&mut Opinion>,
        who: Who<'_>,
    ) -> Result<Arena, String> {
        let files = TempDir::new().expect("a temporary directory");
        let mut setups: Vec<(RunSite, Setup)> = Vec::new();
        let mut voices = Vec::new();
        let present = |voice: &&Voice| match who {
            Who::Only(name) => voice.name == name || voice.name == VOICES[0].name,
            Who::Turn(_) => voice.place != RunSite::Arrays || seed.is_multiple_of(ARRAYS_ONE_IN),
        };
        for voice in VOICES.iter().filter(present) {
            if setups.iter().all(|(place, _)| *place != voice.place) {
                setups.push((voice.place, voice.place.setup(seed).await));
            }
            let (_, setup) = setups.iter().find(|(place, _)| *place == voice.place).expect("it was just made");
            voices.push((voice, voice.session(setup).await));
        }
        let duckdb = opinion.is_some() && who.asks_named(DUCKDB);
        let arena = Arena { database: database.clone(), setups, voices, duckdb, said: HashMap::new(), loads: 0, files };
        for table in &database.tables {
            for part in table.write(arena.files.path()) {
                arena.take(&table.name, &part).await?;
            }
        }
        if let Some(opinion) = opinion.filter(|_| duckdb) {
            opinion.load(database, arena.files.path())?;
        }
        Ok(arena)
    }

    /// Does a step of a script. Returns the first difference.
    pub(crate) async fn step(
        &mut self,
        step: &Step,
        opinion: Option<&mut Opinion>,
        who: Option<Who<'_>>,
        report: &mut Report,
    ) -> Option<Difference> {
        match step {
            Step::Ask(query) => self.judge(query, opinion, who.unwrap_or(Who::Turn(query.turn)), report).await,
            Step::Load(load) => {
                report.loads += 1;
                let told = self.change(load, opinion).await.err()?;
                let gist = gist(&told);
                Some(Difference { voice: "load".to_owned(), told, gist, sql: format!("-- a load of {}", load.table) })
            }
        }
    }

    async fn change(&mut self, load: &Load, opinion: Option<&mut Opinion>) -> Result<(), String> {
        self.loads += 1;
        let path = self.files.path().join(format!("load-{}.parquet", self.loads));
        write_rows(&path, &load.rows);
        let part = LoadStep { path, mode: load.mode, then: Vec::new() };
        self.take(&load.table, &part).await?;
        if let Some(opinion) = opinion.filter(|_| self.duckdb) {
            opinion.change(&load.table, load.mode, &part.path)?;
        }
        if !load.changes_nothing() {
            self.said.clear();
        }
        Ok(())
    }

    async fn take(&self, name: &str, part: &LoadStep) -> Result<(), String> {
        let Some(table) = self.database.tables.iter().find(|table| table.name == name) else { return Ok(()) };
        for (_, setup) in &self.setups {
            let spec = table.spec(part, setup.mode.encoding, setup.mode.drives);
            load(&setup.engine, spec).await.map_err(|fault| format!("loading {name}: {}: {fault}", fault.blame))?;
            let session = setup.engine.host.session();
            for sql in &part.then {
                session.run(sql).await.map_err(|fault| format!("{sql}: {}: {fault}", fault.blame))?;
            }
        }
        Ok(())
    }

    async fn judge(
        &mut self,
        query: &Query,
        mut opinion: Option<&mut Opinion>,
        who: Who<'_>,
        report: &mut Report,
    ) -> Option<Difference> {
        let layouts = self.layouts(&query.asks[0].sql);
        let mut answers: Vec<Option<Table>> = Vec::new();
        for ask in &query.asks {
            report.statements += 1;
            *report.relations.entry(ask.relation).or_default() += 1;
            let asking = opinion.as_deref_mut().filter(|_| self.duckdb);
            let asked = StatementTrial { ask, who, layouts: &layouts };
            match self.one(&asked, asking, report).await {
                Err(difference) => return Some(difference),
                Ok(answer) => answers.push(answer),
            }
            let before = ask.same_as.and_then(|place| answers[place].as_ref());
            if let (Some(before), Some(Some(answer))) = (before, answers.last()) {
                report.compared(&layouts, ask.relation);
                let told = ask.difference(answer, before);
                if let Some(told) = told.filter(|_| who.asks_named(ask.relation)) {
                    let first = &query.asks[ask.same_as.unwrap_or_default()].sql.replace("DIV", "/");
                    let told = format!("{} against what it must equal,\n{first}\n{told}", ask.relation);
                    return Some(asked.difference(ask.relation, told, OTHER_ROWS));
                }
            }
        }
        None
    }

    /// Asks one statement. The answer is the first voice's; none if all refuse.
    async fn one(
        &mut self,
        asked: &StatementTrial<'_>,
        mut opinion: Option<&mut Opinion>,
        report: &mut Report,
    ) -> Result<Option<Table>, Difference> {
        let ours = asked.ask.sql.replace("DIV", "/");
        let posted = opinion.as_mut().is_some_and(|opinion| opinion.post(&asked.ask.sql.replace("DIV", "//")).is_ok());
        let found = self.voices(&ours, asked, report).await;
        let theirs = opinion.filter(|_| posted).map(|opinion| opinion.answer().map(one_zero));
        let expected = match found? {
            Ok(expected) => expected,
            Err(fault) if fault.blame == Blame::Bug => {
                let name = VOICES[0].name;
                return Err(asked.difference(name, format!("{name} has a bug: {fault}"), &fault.to_string()));
            }
            Err(fault) => {
                report.refuse(&format!("{}: {fault}", fault.blame), &ours);
                return Ok(None);
            }
        };
        report.answered += 1;
        match theirs {
            None => {}
            // What it cannot do, it has no opinion on.
            Some(Err(error)) => report.hear_nothing(&error),
            Some(Ok(theirs)) => {
                report.duckdb += 1;
                report.compared(asked.layouts, DUCKDB);
                if let Some(told) = asked.ask.difference(&expected, &theirs) {
                    let told = format!("{} against {DUCKDB}: {told}", VOICES[0].name);
                    return Err(asked.difference(DUCKDB, told, OTHER_ROWS));
                }
            }
        }
        Ok(Some(expected))
    }

    /// What the first voice says, to whom all that are asked agree.
    async fn voices(
        &mut self,
        sql: &str,
        asked: &StatementTrial<'_>,
        report: &mut Report,
    ) -> Result<Result<Table, Fault>, Difference> {
        let ((first, session), others) = self.voices.split_first().expect("there are voices");
        let expected = ask(session, sql).await;
        for (place, (voice, session)) in others.iter().enumerate() {
            if !asked.who.asks(voice, place + 1, self.voices.len()) {
                continue;
            }
            report.compared(asked.layouts, voice.name);
            let got = ask(session, sql).await;
            let (told, gist) = match (&got, &expected) {
                (Ok(got), Ok(expected)) => (asked.ask.difference(got, expected), OTHER_ROWS.to_owned()),
                (Err(_), Err(_)) => (None, String::new()),
                (Err(fault), Ok(_)) => (Some(format!("refuses: {}: {fault}", fault.blame)), fault.to_string()),
                (Ok(_), Err(fault)) => (Some(format!("answers; {} refuses: {fault}", first.name)), fault.to_string()),
            };
            if let Some(told) = told {
                return Err(asked.difference(voice.name, format!("{} against {}: {told}", voice.name, first.name), &gist));
            }
        }
        if let Ok(expected) = &expected {
            let before = self.said.get(sql).and_then(|before| asked.ask.difference(expected, before));
            if let Some(told) = before.filter(|_| asked.who.asks_named("again")) {
                return Err(asked.difference("again", format!("asked again, with nothing new: {told}"), OTHER_ROWS));
            }
            self.said.insert(sql.to_owned(), expected.clone());
        }
        Ok(expected)
    }

    /// How the tables are laid out that a statement names.
    fn layouts(&self, sql: &str) -> BTreeSet<&'static str> {
        let named = self.database.tables.iter().filter(|table| table.is_named(sql));
        named.flat_map(|table| table.layout.names()).collect()
    }

    /// Ends the drives.
    pub(crate) async fn shutdown(self) {
        drop(self.voices);
        for (_, setup) in self.setups {
            setup.shutdown().await;
        }
    }
}

/// A statement, who is asked, and what for.
struct StatementTrial<'a> {
    ask: &'a Ask,
    who: Who<'a>,
    layouts: &'a BTreeSet<&'static str>,
}

impl StatementTrial<'_> {
    fn difference(&self, voice: &str, told: String, how: &str) -> Difference {
        Difference { voice: voice.to_owned(), told, gist: gist(how), sql: self.ask.sql.clone() }
    }
}

impl Ask {
    /// What is different between an answer of ours and what is expected.
    fn difference(&self, got: &Table, expected: &Table) -> Option<String> {
        if self.ordered { row_difference(got, expected) } else { bag_difference(got, expected) }
    }
}
