//! Makes a script and its data small while the same two still differ.

use crate::random::arena::{Arena, DUCKDB};
use crate::random::choices::Choices;
use crate::random::opinion::Opinion;
use crate::random::queries::{Ask, Query, query};
use crate::random::report::{Difference, Report};
use crate::random::script::{Load, Step};
use crate::random::tables::{Database, Table};
use crate::random::voices::Who;

/// Databases loaded at most.
const DATABASES_MAX: usize = 400;
/// Queries tried at most.
const QUERIES_MAX: usize = 5_000;

/// A failure: the last step of the script has the difference.
pub(crate) struct Failure {
    pub(crate) database: Database,
    pub(crate) seed: u64,
    pub(crate) script: Vec<Step>,
    pub(crate) difference: Difference,
    /// Whether it came again on fresh drives, if that was tried.
    pub(crate) repeated: Option<bool>,
}

/// What shrinking works with.
struct Bench<'a> {
    seed: u64,
    opinion: &'a mut Option<Opinion>,
    wanted: Difference,
    databases: usize,
    queries: usize,
    /// Only the voice that differs is asked, besides the first one.
    alone: bool,
    /// Drives that lone statements are asked of while only these change; none: fresh ones for each.
    kept: Option<Box<Arena>>,
}

impl Failure {
    /// Drops steps, then makes queries simpler, then takes rows and columns away, each time on fresh drives: what was asked before
    /// matters.
    pub(crate) async fn shrink(mut self, opinion: &mut Option<Opinion>) -> Failure {
        let wanted = self.difference.clone();
        let mut bench = Bench { seed: self.seed, opinion, wanted, databases: 0, queries: 0, alone: true, kept: None };
        let last = self.script[self.script.len() - 1..].to_vec();
        let mut repeated = self.accept(&mut bench, self.database.clone(), last).await
            || self.accept(&mut bench, self.database.clone(), self.script.clone()).await;
        if !repeated {
            bench.alone = false;
            repeated = self.accept(&mut bench, self.database.clone(), self.script.clone()).await;
        }
        self.repeated = Some(repeated);
        if repeated {
            self.drop_steps(&mut bench).await;
            self.drop_asks(&mut bench).await;
            self.halve_data(&mut bench).await;
            self.shrink_lone(&mut bench).await;
            self.shrink_queries(&mut bench).await;
            self.shrink_data(&mut bench).await;
        }
        self
    }

    /// Takes over what is simpler, if it still differs.
    async fn accept(&mut self, bench: &mut Bench<'_>, database: Database, script: Vec<Step>) -> bool {
        let Some((steps, difference)) = bench.run(&database, &script).await else { return false };
        (self.database, self.difference) = (database, difference);
        self.script = script[..steps].to_vec();
        true
    }

    async fn drop_steps(&mut self, bench: &mut Bench<'_>) {
        let mut size = self.script.len() / 2;
        while size > 0 {
            let mut start = 0;
            while start + size < self.script.len() && bench.may_load() {
                let script = [&self.script[..start], &self.script[start + size..]].concat();
                if !self.accept(bench, self.database.clone(), script).await {
                    start += size;
                }
            }
            size /= 2;
        }
    }

    /// A query may be asked in fewer ways.
    async fn drop_asks(&mut self, bench: &mut Bench<'_>) {
        for place in 0..self.script.len() {
            let Some(Step::Ask(query)) = self.script.get(place) else { continue };
            if query.asks.len() < 2 {
                continue;
            }
            for kept in 0..query.asks.len() {
                let Some(Step::Ask(query)) = self.script.get(place).cloned() else { continue };
                let Some(ask) = query.asks.get(kept).filter(|_| query.asks.len() > 1) else { continue };
                let lone = Query { asks: vec![Ask { same_as: None, ..ask.clone() }], ..query.clone() };
                let mut script = self.script.clone();
                script[place] = Step::Ask(lone);
                self.accept(bench, self.database.clone(), script).await;
            }
        }
    }

    /// Takes away rows while they are many.
    async fn halve_data(&mut self, bench: &mut Bench<'_>) {
        for place in 0..self.database.tables.len() {
            let mut again = true;
            while again && bench.may_load() {
                again = false;
                for fewer in fewer_rows(&self.database.tables[place]).into_iter().take(2) {
                    again |= self.accept(bench, self.database.with(place, fewer), self.script.clone()).await;
                }
            }
        }
    }

    /// Makes a lone statement simpler over the same drives, which is faster than over fresh ones; what it was asked as before may still
    /// matter, so the last one has to stand the test of fresh drives.
    async fn shrink_lone(&mut self, bench: &mut Bench<'_>) {
        let lone = matches!(&self.script[..], [Step::Ask(query)] if query.asks.len() == 1);
        if !lone || !bench.keep(&self.database).await {
            return;
        }
        let before = self.script.clone();
        self.shrink_queries(bench).await;
        bench.release().await;
        if !self.accept(bench, self.database.clone(), self.script.clone()).await {
            self.script = before;
        }
    }

    async fn shrink_queries(&mut self, bench: &mut Bench<'_>) {
        let mut again = true;
        while again && bench.may_ask() {
            again = false;
            for place in (0..self.script.len()).rev() {
                again |= self.shrink_query(bench, place).await;
            }
        }
    }

    /// Makes the query at a place simpler, and those that are the same as it. Returns whether it did.
    async fn shrink_query(&mut self, bench: &mut Bench<'_>, place: usize) -> bool {
        let Some(Step::Ask(present)) = self.script.get(place).cloned() else { return false };
        for taken in present.trace.simpler() {
            let smaller = present.made_again(taken, &self.database);
            if !smaller.trace.is_below(&present.trace) || smaller.asks == present.asks {
                continue;
            }
            if !bench.may_ask() {
                return false;
            }
            let same = |step: &Step| match step {
                Step::Ask(query) if query.asks == present.asks => Step::Ask(smaller.clone()),
                other => other.clone(),
            };
            let script = self.script.iter().map(same).collect();
            if self.accept(bench, self.database.clone(), script).await {
                return true;
            }
        }
        false
    }

    async fn shrink_data(&mut self, bench: &mut Bench<'_>) {
        let mut again = true;
        while again && bench.may_load() {
            again = false;
            for (database, script) in simpler(&self.database, &self.script) {
                if bench.may_load() && self.accept(bench, database, script).await {
                    again = true;
                    break;
                }
            }
        }
    }
}

impl Query {
    /// A query of other decisions, asked in as many ways as this one still is.
    fn made_again(&self, taken: Vec<u32>, database: &Database) -> Query {
        let mut again = query(Choices::given(taken), database, self.turn);
        if let [only] = &self.asks[..] {
            let place = again.asks.iter().position(|ask| ask.relation == only.relation).unwrap_or_default();
            again.asks = vec![again.asks.swap_remove(place)];
            again.asks[0].same_as = None;
        }
        again
    }
}

impl Bench<'_> {
    fn may_load(&self) -> bool {
        self.databases < DATABASES_MAX
    }

    fn may_ask(&self) -> bool {
        self.queries < QUERIES_MAX && self.may_load()
    }

    /// Loads drives that are kept for what follows.
    async fn keep(&mut self, database: &Database) -> bool {
        let who = Who::Only(&self.wanted.voice);
        let opinion = if self.wanted.voice == DUCKDB { self.opinion.as_mut() } else { None };
        self.kept = Arena::load(database, self.seed, opinion, who).await.ok().filter(|_| self.alone).map(Box::new);
        self.kept.is_some()
    }

    async fn release(&mut self) {
        if let Some(kept) = self.kept.take() {
            kept.shutdown().await;
        }
    }

    /// Runs a script on fresh drives, unless others are kept, up to a difference like the one that is wanted: after how many steps it came.
    async fn run(&mut self, database: &Database, script: &[Step]) -> Option<(usize, Difference)> {
        self.queries += script.len();
        let who = if self.alone { Who::Only(&self.wanted.voice) } else { Who::Turn(0) };
        if let (Some(kept), [step]) = (self.kept.as_mut(), script) {
            let told = kept.step(step, self.opinion.as_mut(), Some(who), &mut Report::default()).await;
            return told.filter(|told| told.is_like(&self.wanted)).map(|told| (1, told));
        }
        self.databases += 1;
        let opinion = if self.wanted.voice == DUCKDB || !self.alone { self.opinion.as_mut() } else { None };
        let mut arena = Arena::load(database, self.seed, opinion, who).await.ok()?;
        let mut report = Report::default();
        let mut found = None;
        for (place, step) in script.iter().enumerate() {
            let only = self.alone.then_some(who);
            let told = arena.step(step, self.opinion.as_mut(), only, &mut report).await;
            if let Some(difference) = told.filter(|told| told.is_like(&self.wanted)) {
                found = Some((place + 1, difference));
                break;
            }
        }
        arena.shutdown().await;
        found
    }
}

/// Databases and scripts with less in them: without tables and columns that nothing names, then with fewer rows.
fn simpler(database: &Database, script: &[Step]) -> Vec<(Database, Vec<Step>)> {
    let mut all = Vec::new();
    let texts: Vec<&str> = script.iter().flat_map(Step::texts).collect();
    for (place, table) in database.tables.iter().enumerate() {
        if !texts.iter().any(|sql| table.is_named(sql)) {
            let mut tables = database.tables.clone();
            tables.remove(place);
            let kept = |step: &&Step| !matches!(step, Step::Load(load) if load.table == table.name);
            all.push((Database { tables, ..database.clone() }, script.iter().filter(kept).cloned().collect()));
            continue;
        }
        let fewer = fewer_rows(table).into_iter().map(|smaller| (database.with(place, smaller), script.to_vec()));
        all.extend(fewer);
        all.extend(unnamed(table, &texts).into_iter().map(|name| {
            let without = |step: &Step| step.without(&table.name, name);
            (database.with(place, table.without(name)), script.iter().map(without).collect())
        }));
    }
    for (place, step) in script.iter().enumerate() {
        let Step::Load(load) = step else { continue };
        all.extend(load.fewer_rows().into_iter().map(|load| {
            let mut script = script.to_vec();
            script[place] = Step::Load(load);
            (database.clone(), script)
        }));
    }
    all
}

fn fewer_rows(table: &Table) -> Vec<Table> {
    kept_rows(table.rows.num_rows() as u64).into_iter().map(|kept| table.with_rows(&kept)).collect()
}

/// Half of the rows, or all but one if they are few.
fn kept_rows(rows: u64) -> Vec<Vec<u64>> {
    let parts = if rows > 12 { 2 } else { rows };
    (0..parts).map(|part| (0..rows).filter(|row| row * parts / rows.max(1) != part).collect()).collect()
}

/// Columns that neither a query nor the layout names.
fn unnamed<'a>(table: &'a Table, texts: &[&str]) -> Vec<&'a str> {
    let mut layout: Vec<String> = format!("{:?}", table.layout).split('"').map(str::to_owned).collect();
    layout.push("id".to_owned());
    let named =
        |name: &str| texts.iter().any(|sql| sql.contains(&format!(".{name}"))) || layout.iter().any(|word| word == name);
    table.columns.iter().map(|column| column.name.as_str()).filter(|name| !named(name)).collect()
}

impl Step {
    fn texts(&self) -> Vec<&str> {
        match self {
            Step::Ask(query) => query.asks.iter().map(|ask| ask.sql.as_str()).collect(),
            Step::Load(_) => vec![],
        }
    }

    /// The same if a table has no such column.
    fn without(&self, table: &str, name: &str) -> Step {
        match self {
            Step::Load(load) if load.table == table => {
                let schema = load.rows.schema();
                let kept: Vec<usize> = (0..schema.fields().len()).filter(|place| schema.field(*place).name() != name).collect();
                Step::Load(Load { rows: load.rows.project(&kept).expect("columns of the load"), ..load.clone() })
            }
            other => other.clone(),
        }
    }
}

impl Load {
    fn fewer_rows(&self) -> Vec<Load> {
        kept_rows(self.rows.num_rows() as u64).into_iter().map(|kept| self.with_rows(&kept)).collect()
    }
}
