//! FROM clauses and subqueries.

use crate::random::scope::{Generator, Item, Relation};
use crate::random::values::Kind;

/// A join that is expected to give more rows takes other keys.
const JOIN_ROWS_MAX: f64 = 8_000.0;

impl Generator<'_> {
    /// What stands after FROM, with so many relations at most.
    pub(crate) fn from(&mut self, relations_max: usize, depth: usize) -> Relation {
        let mut all = self.relation(depth);
        for _ in 1..relations_max {
            let start = self.choices.begin();
            let more = self.choices.chance(45);
            if more {
                let right = self.relation(depth);
                all = self.join(all, right);
            }
            self.choices.end("join", start);
        }
        all
    }

    fn relation(&mut self, depth: usize) -> Relation {
        let start = self.choices.begin();
        let relation = match self.choices.weighted(&[70, 20, 15]) {
            1 if depth > 0 => self.derived(depth - 1),
            2 if !self.commons.is_empty() => {
                let place = self.choices.below(self.commons.len());
                let alias = self.fresh("r");
                self.commons[place].aliased(&alias)
            }
            _ => self.table(),
        };
        self.choices.end("relation", start);
        relation
    }

    fn derived(&mut self, depth: usize) -> Relation {
        // Derived tables see nothing of the queries around them.
        let outer = std::mem::take(&mut self.outer);
        let body = self.body(None, depth);
        self.outer = outer;
        let alias = self.fresh("r");
        Relation { sql: format!("({})", body.sql), items: body.items, rows: body.rows }.aliased(&alias)
    }

    fn join(&mut self, left: Relation, right: Relation) -> Relation {
        const WORDS: [&str; 7] =
            ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN", "CROSS JOIN"];
        let mut word = WORDS[self.choices.weighted(&[50, 20, 10, 8, 5, 5, 4])];
        if word == "CROSS JOIN" && left.rows * right.rows > JOIN_ROWS_MAX / 4.0 {
            word = "JOIN";
        }
        let one_sided = word.starts_with("LEFT SEMI") || word.starts_with("LEFT ANTI");
        let (condition, rows) = match word {
            "CROSS JOIN" => (String::new(), left.rows * right.rows),
            _ => self.condition(&left, &right),
        };
        let sql = format!("{} {word} {}{condition}", left.sql, right.sql);
        match one_sided {
            true => Relation { sql, ..left },
            false => Relation { sql, rows: rows.max(left.rows).max(right.rows), items: [left.items, right.items].concat() },
        }
    }

    /// ON, and about how many rows it lets through.
    fn condition(&mut self, left: &Relation, right: &Relation) -> (String, f64) {
        let rows = |l: &Item, r: &Item| left.rows * right.rows / l.distinct.max(r.distinct).max(1.0);
        let mut pairs: Vec<(&Item, &Item)> = Vec::new();
        for l in left.items.iter().filter(|item| item.exact) {
            let fits = |r: &&Item| r.exact && r.kind == l.kind && r.tame == l.tame && rows(l, r) <= JOIN_ROWS_MAX;
            pairs.extend(right.items.iter().filter(fits).map(|r| (l, r)));
        }
        if pairs.is_empty() {
            return (" ON false".to_owned(), 0.0);
        }
        // Partition keys are joined more often than chance would have it.
        let key = |(l, r): &&(&Item, &Item)| l.sql.ends_with(".k") && r.sql.ends_with(".k");
        let keys: Vec<(&Item, &Item)> = pairs.iter().filter(key).copied().collect();
        let from = if !keys.is_empty() && !self.choices.chance(40) { &keys } else { &pairs };
        let (l, r) = from[self.choices.below(from.len())];
        let mut sql = format!(" ON {} = {}", self.name(l), self.name(r));
        if self.choices.chance(20) {
            let (l, r) = pairs[self.choices.below(pairs.len())];
            sql += &format!(" AND {} = {}", self.name(l), self.name(r));
        }
        if self.choices.chance(20) {
            let both = [left.items.clone(), right.items.clone()].concat();
            let subqueries = std::mem::replace(&mut self.subqueries, 0);
            sql += &format!(" AND {}", self.predicate(&both, 1));
            self.subqueries = subqueries;
        }
        (sql, rows(l, r))
    }

    /// A subquery that gives one value of a kind.
    pub(crate) fn scalar_subquery(&mut self, kind: Kind, items: &[Item]) -> String {
        self.subqueries -= 1;
        let start = self.choices.begin();
        let inner = self.table();
        let condition = self.correlation(&inner, items, 40);
        let argument = self.plain(kind, &inner.items);
        let function = match kind {
            Kind::Int => ["max(#)", "min(#)", "count(*)", "count(#)", "sum(#) % 9973"][self.choices.below(5)],
            _ => ["max(#)", "min(#)"][self.choices.below(2)],
        };
        let cast = if kind == Kind::Int { "CAST(# AS BIGINT)" } else { "#" };
        let function = cast.replace('#', &function.replace('#', &argument));
        self.choices.end("subquery", start);
        format!("(SELECT {function} FROM {}{condition})", inner.sql)
    }

    /// EXISTS, IN, or a comparison with a scalar subquery.
    pub(crate) fn subquery_predicate(&mut self, items: &[Item]) -> String {
        self.subqueries -= 1;
        let start = self.choices.begin();
        let not = self.choices.pick(&["", "NOT "]);
        let sql = match self.choices.below(4) {
            0 => {
                let inner = self.table();
                let condition = self.correlation(&inner, items, 85);
                format!("({not}EXISTS (SELECT 1 FROM {}{condition}))", inner.sql)
            }
            1 | 2 => self.in_subquery(items, not),
            _ => {
                let kind = [Kind::Int, Kind::Text, Kind::Date, Kind::Float][self.choices.below(4)];
                let value = self.value(kind, items, 0);
                self.subqueries += 1;
                format!("({value} {} {})", self.choices.pick(&["=", "<", ">"]), self.scalar_subquery(kind, items))
            }
        };
        self.choices.end("subquery", start);
        sql
    }

    fn in_subquery(&mut self, items: &[Item], not: &str) -> String {
        let inner = self.table();
        let Some(item) = self.item(items, |item| item.exact && item.tame) else { return "true".to_owned() };
        let Some(other) = self.item(&inner.items, |other| other.kind == item.kind && other.tame) else {
            return "true".to_owned();
        };
        let condition = self.correlation(&inner, items, 25);
        format!("({} {not}IN (SELECT {} FROM {}{condition}))", self.name(&item), self.name(&other), inner.sql)
    }

    /// WHERE of a subquery, which in so many of a hundred cases names columns of the query around it.
    fn correlation(&mut self, inner: &Relation, items: &[Item], percent: u32) -> String {
        let mut conditions = Vec::new();
        if self.choices.chance(percent) {
            let keys = |item: &Item| item.kind == Kind::Int && item.tame && item.exact;
            let pair = (self.item(items, keys), self.item(&inner.items, keys));
            if let (Some(outer), Some(inner)) = pair {
                conditions.push(format!("{} = {}", self.name(&inner), self.name(&outer)));
            }
        }
        if self.choices.chance(40) {
            let subqueries = std::mem::replace(&mut self.subqueries, 0);
            conditions.push(self.predicate(&inner.items, 1));
            self.subqueries = subqueries;
        }
        if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) }
    }
}
