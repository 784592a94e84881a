//! What an expression can refer to, and the state of the generator.

use crate::random::choices::Choices;
use crate::random::style::Style;
use crate::random::tables::{Database, Table};
use crate::random::values::TypeKind;

/// A column that can be named.
#[derive(Clone)]
pub(crate) struct Item {
    /// Its name, qualified where it can be.
    pub(crate) sql: String,
    pub(crate) kind: TypeKind,
    /// Arithmetic and functions can take it without failing.
    pub(crate) tame: bool,
    /// Does not hang on the order in which floats were added.
    pub(crate) exact: bool,
    /// Straight from a table.
    pub(crate) stored: bool,
    /// The column that most tables are partitioned by.
    pub(crate) key: bool,
    /// Distinct values, about.
    pub(crate) distinct: f64,
    /// Literals to compare it with.
    pub(crate) samples: Vec<String>,
}

impl Item {
    /// Its name alone.
    pub(crate) fn bare(&self) -> &str {
        self.sql.rsplit('.').next().unwrap_or_default()
    }

    /// The name of its relation.
    pub(crate) fn relation(&self) -> &str {
        self.sql.split('.').next().unwrap_or_default()
    }
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
    /// Derived tables of the statement, which may stand in it again.
    pub(crate) derived: Vec<Relation>,
    /// Columns of queries around this one, that a subquery may name.
    pub(crate) outer: Vec<Item>,
    /// Subqueries that may still be made.
    pub(crate) subqueries: usize,
    /// How the decisions are written.
    pub(crate) style: Style,
    /// What comes next is the outermost SELECT.
    pub(crate) outermost: bool,
    /// The table that was named last.
    last: Option<usize>,
    names: usize,
}

impl<'a> Generator<'a> {
    pub(crate) fn new(choices: Choices, database: &'a Database, style: Style) -> Generator<'a> {
        Generator {
            choices,
            database,
            commons: vec![],
            derived: vec![],
            outer: vec![],
            subqueries: 3,
            style,
            outermost: false,
            last: None,
            names: 0,
        }
    }

    /// A name that is not taken.
    pub(crate) fn fresh(&mut self, prefix: &str) -> String {
        self.names += 1;
        if self.style.renamed { format!("other_{prefix}{}", self.names + 40) } else { format!("{prefix}{}", self.names) }
    }

    /// Names an item.
    pub(crate) fn name(&self, item: &Item) -> String {
        item.sql.clone()
    }

    /// What is made without subqueries.
    pub(crate) fn without_subqueries<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> T {
        let subqueries = std::mem::replace(&mut self.subqueries, 0);
        let made = make(self);
        self.subqueries = subqueries;
        made
    }

    /// One of the items that the test lets through; none if none does.
    pub(crate) fn item(&mut self, items: &[Item], test: impl Fn(&Item) -> bool) -> Option<Item> {
        let fit: Vec<&Item> = items.iter().filter(|item| test(item)).collect();
        if fit.is_empty() { None } else { Some(self.choices.pick(&fit).clone()) }
    }

    /// One of the tables under an alias, and often the one that was named last.
    pub(crate) fn table(&mut self) -> Relation {
        let again = self.choices.chance(30);
        let place = self.choices.below(self.database.tables.len());
        let place = self.last.filter(|_| again).unwrap_or(place);
        self.last = Some(place);
        let alias = self.fresh("r");
        Relation::of(&self.database.tables[place], &alias)
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
            key: column.name == "k",
            distinct: column.distinct as f64,
            samples: column.samples.clone(),
        });
        Relation { sql: format!("{} AS {alias}", table.name), items: items.collect(), rows: table.rows.num_rows() as f64 }
    }

    /// The same under another alias.
    pub(crate) fn aliased(&self, alias: &str) -> Relation {
        let items = self.items.iter().map(|item| Item { sql: format!("{alias}.{}", item.bare()), ..item.clone() }).collect();
        Relation { sql: format!("{} AS {alias}", self.sql), items, rows: self.rows }
    }
}
