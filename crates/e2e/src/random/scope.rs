//! What an expression can refer to, and the state of the generator.

use crate::random::choices::Choices;
use crate::random::tables::{Database, Table};
use crate::random::values::Kind;

/// A column that can be named.
#[derive(Clone)]
pub(crate) struct Item {
    /// Its name, qualified where it can be.
    pub(crate) sql: String,
    pub(crate) kind: Kind,
    /// Arithmetic and functions can take it without failing.
    pub(crate) tame: bool,
    /// Does not hang on the order in which floats were added.
    pub(crate) exact: bool,
    /// Straight from a table.
    pub(crate) stored: bool,
    pub(crate) negative_zero: bool,
    /// Distinct values, about.
    pub(crate) distinct: f64,
    /// Literals to compare it with.
    pub(crate) samples: Vec<String>,
}

/// Something to select from.
#[derive(Clone)]
pub(crate) struct Relation {
    /// As FROM names it.
    pub(crate) sql: String,
    pub(crate) items: Vec<Item>,
    /// Rows, about.
    pub(crate) rows: f64,
}

/// Makes a query from decisions.
pub(crate) struct Generator<'a> {
    pub(crate) choices: Choices,
    pub(crate) database: &'a Database,
    /// Common table expressions of the statement.
    pub(crate) commons: Vec<Relation>,
    /// Columns of queries around this one, that a subquery may name.
    pub(crate) outer: Vec<Item>,
    /// Whether DuckDB can be asked, too.
    pub(crate) duckdb: bool,
    /// Subqueries that may still be made.
    pub(crate) subqueries: usize,
    names: usize,
}

impl<'a> Generator<'a> {
    pub(crate) fn new(choices: Choices, database: &'a Database) -> Generator<'a> {
        Generator { choices, database, commons: vec![], outer: vec![], duckdb: true, subqueries: 3, names: 0 }
    }

    /// A name that is not taken.
    pub(crate) fn fresh(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    /// Names an item.
    pub(crate) fn name(&mut self, item: &Item) -> String {
        self.duckdb &= !item.negative_zero;
        item.sql.clone()
    }

    /// One of the items that the test lets through; none if none does.
    pub(crate) fn item(&mut self, items: &[Item], test: impl Fn(&Item) -> bool) -> Option<Item> {
        let fit: Vec<&Item> = items.iter().filter(|item| test(item)).collect();
        if fit.is_empty() { None } else { Some(self.choices.pick(&fit).clone()) }
    }

    /// One of the tables under an alias.
    pub(crate) fn table(&mut self) -> Relation {
        let table = &self.database.tables[self.choices.below(self.database.tables.len())];
        let alias = self.fresh("r");
        Relation::of(table, &alias)
    }
}

impl Relation {
    fn of(table: &Table, alias: &str) -> Relation {
        let items = table.columns.iter().map(|column| Item {
            sql: format!("{alias}.{}", column.name),
            kind: column.kind,
            tame: column.tame,
            exact: true,
            stored: true,
            negative_zero: column.negative_zero,
            distinct: column.distinct as f64,
            samples: column.samples.clone(),
        });
        Relation { sql: format!("{} AS {alias}", table.name), items: items.collect(), rows: table.rows.num_rows() as f64 }
    }

    /// The same under another alias.
    pub(crate) fn aliased(&self, alias: &str) -> Relation {
        let bare = |item: &Item| item.sql.rsplit('.').next().unwrap_or_default().to_owned();
        let items = self.items.iter().map(|item| Item { sql: format!("{alias}.{}", bare(item)), ..item.clone() }).collect();
        Relation { sql: format!("{} AS {alias}", self.sql), items, rows: self.rows }
    }
}
