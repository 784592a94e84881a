//! Whole queries: what is selected, grouped, ordered and put together.

use crate::random::choices::{Choices, Trace};
use crate::random::expressions::COMPUTED;
use crate::random::scope::{Generator, Item, Relation};
use crate::random::tables::Database;
use crate::random::values::Kind;

/// A query.
#[derive(Clone)]
pub(crate) struct Query {
    /// With `DIV` for the division of whole numbers.
    pub(crate) sql: String,
    /// The order of its rows is total.
    pub(crate) ordered: bool,
    /// DuckDB means the same by it.
    pub(crate) duckdb: bool,
    /// How it was made.
    pub(crate) trace: Trace,
}

/// A query without ORDER BY, as part of others.
pub(crate) struct Body {
    pub(crate) sql: String,
    /// Its columns, by their bare names.
    pub(crate) items: Vec<Item>,
    pub(crate) rows: f64,
}

/// A column of a SELECT.
pub(crate) struct Output {
    pub(crate) sql: String,
    pub(crate) item: Item,
}

/// A query made by these decisions.
pub(crate) fn query(choices: Choices, database: &Database) -> Query {
    let mut generator = Generator::new(choices, database);
    let (sql, ordered) = generator.statement();
    let duckdb = generator.duckdb;
    Query { sql, ordered, duckdb, trace: generator.choices.into_trace() }
}

impl Generator<'_> {
    fn statement(&mut self) -> (String, bool) {
        let mut with = Vec::new();
        for _ in 0..2 {
            let start = self.choices.begin();
            let common = self.choices.chance(8);
            if common {
                let body = self.body(None, 1);
                let name = self.fresh("w");
                with.push(format!("{name} AS ({})", body.sql));
                self.commons.push(Relation { sql: name, items: body.items, rows: body.rows });
            }
            self.choices.end("common", start);
        }
        let body = self.body(None, 2);
        let order = self.order(&body.items);
        let with = if with.is_empty() { String::new() } else { format!("WITH {} ", with.join(", ")) };
        (format!("{with}{}{order}", body.sql), !order.is_empty())
    }

    /// ORDER BY all columns, so that equal rows are alike, and often LIMIT; or nothing.
    fn order(&mut self, items: &[Item]) -> String {
        if !items.iter().all(|item| item.exact && !item.negative_zero) || !self.choices.chance(35) {
            return String::new();
        }
        let first = self.choices.below(items.len());
        let places = (0..items.len()).map(|place| (first + place) % items.len() + 1);
        let places: Vec<String> = places
            .map(|place| {
                let direction = self.choices.pick(&["", " DESC"]);
                format!("{place}{direction} NULLS {}", self.choices.pick(&["LAST", "FIRST"]))
            })
            .collect();
        let limit = match self.choices.below(4) {
            0 => String::new(),
            1 => format!(" LIMIT {} OFFSET {}", self.choices.pick(&["3", "10", "100"]), self.choices.pick(&["1", "5", "50"])),
            _ => format!(" LIMIT {}", self.choices.pick(&["1", "5", "20", "0"])),
        };
        format!(" ORDER BY {}{limit}", places.join(", "))
    }

    /// A SELECT, or several put together. With `kinds`: columns of computed values of these kinds.
    pub(crate) fn body(&mut self, kinds: Option<&[Kind]>, depth: usize) -> Body {
        let start = self.choices.begin();
        let body = match kinds.is_none() && depth > 0 && self.choices.chance(14) {
            true => self.set_operation(depth - 1),
            false => self.select(kinds, depth),
        };
        self.choices.end("body", start);
        body
    }

    fn set_operation(&mut self, depth: usize) -> Body {
        let count = self.choices.below(3) + 1;
        let kinds: Vec<Kind> = (0..count).map(|_| COMPUTED[self.choices.below(COMPUTED.len())]).collect();
        let first = self.body(Some(&kinds), depth);
        let second = self.body(Some(&kinds), depth);
        let word = self.choices.pick(&["UNION ALL", "UNION", "INTERSECT", "EXCEPT"]);
        let alias = [self.fresh("r"), self.fresh("r")];
        // In parentheses and under a name: engines differ in what an ORDER BY within may do.
        let sql =
            format!("SELECT * FROM ({}) AS {} {word} SELECT * FROM ({}) AS {}", first.sql, alias[0], second.sql, alias[1]);
        Body { sql, items: first.items, rows: first.rows + second.rows }
    }

    fn select(&mut self, kinds: Option<&[Kind]>, depth: usize) -> Body {
        let from = self.from([2, 3, 5][depth.min(2)], depth);
        let filter = self.filter(&from.items);
        let form = match kinds {
            Some(_) => 0,
            None => self.choices.weighted(&[45, 10, 40, 10]),
        };
        let (distinct, outputs, tail) = match form {
            1 => ("DISTINCT ", self.columns(&from.items, kinds), String::new()),
            2 => {
                let (outputs, tail) = self.aggregate(&from.items);
                ("", outputs, tail)
            }
            3 => ("", self.windows(&from.items), String::new()),
            _ => ("", self.columns(&from.items, kinds), String::new()),
        };
        let mut items = Vec::new();
        let mut list = Vec::new();
        for output in outputs {
            let name = self.output_name(&items);
            list.push(format!("{} AS {name}", output.sql));
            items.push(Item { sql: name, ..output.item });
        }
        let sql = format!("SELECT {distinct}{} FROM {}{filter}{tail}", list.join(", "), from.sql);
        Body { sql, items, rows: from.rows }
    }

    fn output_name(&mut self, taken: &[Item]) -> String {
        // Names that tables have, too.
        let name = self.choices.pick(&["", "k", "id", "a", "b", "c", "d", "e"]);
        let known = taken.iter().any(|item| item.sql == name);
        if name.is_empty() || known { format!("x{}", taken.len()) } else { name.to_owned() }
    }

    fn filter(&mut self, items: &[Item]) -> String {
        let mut conditions = Vec::new();
        for _ in 0..3 {
            let start = self.choices.begin();
            if self.choices.chance(40) {
                conditions.push(self.predicate(items, 2));
            }
            self.choices.end("condition", start);
        }
        if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) }
    }

    fn columns(&mut self, items: &[Item], kinds: Option<&[Kind]>) -> Vec<Output> {
        if let Some(kinds) = kinds {
            return kinds.iter().map(|kind| self.computed(*kind, items)).collect();
        }
        let mut outputs = vec![self.any_column(items)];
        for _ in 0..4 {
            let start = self.choices.begin();
            if self.choices.chance(50) {
                outputs.push(self.any_column(items));
            }
            self.choices.end("column", start);
        }
        outputs
    }

    fn any_column(&mut self, items: &[Item]) -> Output {
        if self.choices.chance(35) {
            let kind = COMPUTED[self.choices.below(COMPUTED.len())];
            return self.computed(kind, items);
        }
        match self.raw(items) {
            Some((sql, item)) => Output { sql, item },
            None => self.computed(Kind::Int, items),
        }
    }

    pub(crate) fn computed(&mut self, kind: Kind, items: &[Item]) -> Output {
        Output { sql: self.value(kind, items, 2), item: Item::computed(kind) }
    }
}

impl Item {
    /// A computed value of a kind.
    pub(crate) fn computed(kind: Kind) -> Item {
        Item {
            sql: String::new(),
            kind,
            tame: true,
            exact: true,
            stored: false,
            negative_zero: false,
            distinct: 10.0,
            samples: vec![],
        }
    }
}
