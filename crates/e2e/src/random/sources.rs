//! FROM clauses and subqueries.

use crate::random::scope::{Generator, Item, Relation};
use crate::random::values::TypeKind;

/// A join that is expected to give more rows takes other keys.
const JOIN_ROWS_MAX: f64 = 3_000.0;
/// A join that matches NULL with NULL is of so many pairs of rows at most.
const NULL_PAIRS_MAX: f64 = 3_000.0;
/// A subquery over more rows is bound to the query around it by equality alone.
const CORRELATED_ROWS_MAX: f64 = 250.0;
/// Lists stand beside so many rows at most.
const LIST_ROWS_MAX: f64 = 1_000.0;

impl Generator<'_> {
    /// What stands after FROM, with so many relations at most.
    pub(crate) fn from(&mut self, relations_max: usize, depth: usize) -> Relation {
        if relations_max > 2 && self.choices.chance(5) {
            return self.full_joins();
        }
        let mut all = self.relation(relations_max, depth);
        for _ in 1..relations_max {
            let start = self.choices.begin();
            let more = self.choices.chance(45);
            if more {
                let right = self.relation(relations_max, depth);
                all = self.join(all, right);
            }
            self.choices.end("join", start);
        }
        let start = self.choices.begin();
        let is_beside = self.choices.chance(7);
        let all = if is_beside { self.beside(all) } else { all };
        self.choices.end("join", start);
        all
    }

    fn relation(&mut self, relations_max: usize, depth: usize) -> Relation {
        let start = self.choices.begin();
        let relation = match self.choices.weighted(&[62, 18, 15, 8, 16, 6]) {
            1 if depth > 0 => self.derived(depth - 1),
            2 if !self.commons.is_empty() => {
                let place = self.choices.below(self.commons.len());
                let alias = self.fresh("r");
                self.commons[place].aliased(&alias)
            }
            3 if !self.derived.is_empty() => {
                let place = self.choices.below(self.derived.len());
                let alias = self.fresh("r");
                self.derived[place].aliased(&alias)
            }
            4 if relations_max > 2 => {
                let (left, right) = (self.relation(0, 0), self.relation(0, 0));
                let both = self.join(left, right);
                Relation { sql: format!("({})", both.sql), ..both }
            }
            5 => self.made_up(),
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
        let relation = Relation { sql: format!("({})", body.sql), items: body.items, rows: body.rows };
        let aliased = relation.aliased(&alias);
        self.derived.push(relation);
        aliased
    }

    /// Two FULL joins on keys, joined on keys: what is known of the place of rows below an outer join is not so above it.
    fn full_joins(&mut self) -> Relation {
        let [left, right] = [(); 2].map(|()| {
            let (left, right) = (self.table(), self.table());
            let both = self.join_by("FULL JOIN", left, right, 5);
            Relation { sql: format!("({})", both.sql), ..both }
        });
        let word = self.choices.pick(&["FULL JOIN", "LEFT JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN", "JOIN"]);
        self.join_by(word, left, right, 5)
    }

    fn join(&mut self, left: Relation, right: Relation) -> Relation {
        const WORDS: [&str; 9] = [
            "JOIN",
            "LEFT JOIN",
            "RIGHT JOIN",
            "FULL JOIN",
            "LEFT SEMI JOIN",
            "LEFT ANTI JOIN",
            "CROSS JOIN",
            "SEMI JOIN",
            "ANTI JOIN",
        ];
        let mut word = WORDS[self.choices.weighted(&[40, 16, 10, 24, 2, 2, 4, 6, 6])];
        if word == "CROSS JOIN" && left.rows * right.rows > JOIN_ROWS_MAX / 4.0 {
            word = "JOIN";
        }
        self.join_by(word, left, right, 40)
    }

    /// A relation, each of whose rows is there for each value of a list that is made of it.
    fn beside(&mut self, left: Relation) -> Relation {
        let number = self.item(&left.items, |item| item.kind == TypeKind::Int && item.tame);
        let Some(number) = number.filter(|_| left.rows <= LIST_ROWS_MAX) else { return left };
        let number = format!("CAST({} AS BIGINT)", self.name(&number));
        let lists = ["[#, # + 1, 3]", "range(abs(#) % 4)", "[# % 5, NULL]", "CASE WHEN # % 2 = 0 THEN [#, 7] END", "[0, 1]"];
        let list = self.choices.pick(&lists).replace('#', &number);
        let alias = self.fresh("r");
        let joins = [("CROSS JOIN", ""), ("LEFT JOIN", " ON true"), ("JOIN", " ON #.x > 1")];
        let (word, condition) = joins[self.choices.below(joins.len())];
        let sql = format!("{} {word} unnest({list}) AS {alias}(x){}", left.sql, condition.replace('#', &alias));
        let samples = ["0", "1", "3", "7"].map(str::to_owned).to_vec();
        let value = Item { sql: format!("{alias}.x"), samples, ..Item::computed(TypeKind::Int) };
        Relation { sql, rows: left.rows * 2.0, items: [left.items, vec![value]].concat() }
    }

    /// A join of a kind; in so many of a hundred cases not on keys.
    fn join_by(&mut self, word: &str, left: Relation, right: Relation, percent: u32) -> Relation {
        let one_sided = word.contains("SEMI") || word.contains("ANTI");
        let (condition, rows) = match word {
            "CROSS JOIN" => (String::new(), left.rows * right.rows),
            _ => self.condition(&left, &right, percent),
        };
        let sql = format!("{} {word} {}{condition}", left.sql, right.sql);
        match one_sided {
            true => Relation { sql, ..left },
            false => Relation { sql, rows: rows.max(left.rows).max(right.rows), items: [left.items, right.items].concat() },
        }
    }

    /// ON, and about how many rows it lets through.
    fn condition(&mut self, left: &Relation, right: &Relation, percent: u32) -> (String, f64) {
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
        let keys: Vec<(&Item, &Item)> = pairs.iter().filter(|(l, r)| l.key && r.key).copied().collect();
        let from = if !keys.is_empty() && !self.choices.chance(percent) { &keys } else { &pairs };
        let (l, r) = from[self.choices.below(from.len())];
        let is_one = |relation: &Relation| relation.items.iter().all(|item| item.relation() == relation.items[0].relation());
        // Decided alike under all names, so that the decisions that follow are the same.
        if is_one(left) && is_one(right) && l.stored && r.stored && self.choices.chance(15) {
            let condition = match l.bare() == r.bare() {
                true => format!(" USING ({})", l.bare()),
                false => format!(" ON ({} = {})", l.sql, r.sql),
            };
            return (condition, rows(l, r));
        }
        let nulls_meet = left.rows * right.rows <= NULL_PAIRS_MAX;
        let mut sql = format!(" ON {}", self.equality(l, r, nulls_meet));
        if self.choices.chance(40) {
            let (l, r) = pairs[self.choices.below(pairs.len())];
            sql += &format!(" AND {}", self.equality(l, r, true));
        }
        if self.choices.chance(20) {
            let both = [left.items.clone(), right.items.clone()].concat();
            let predicate = self.without_subqueries(|generator| generator.predicate(&both, 1));
            sql += &format!(" AND {predicate}");
        }
        (sql, rows(l, r))
    }

    /// Two columns are equal; or also both NULL, if NULLs may meet. One of them may be cast.
    fn equality(&mut self, l: &Item, r: &Item, nulls_meet: bool) -> String {
        let whole = l.kind == TypeKind::Int && l.tame && l.stored;
        let left = match self.choices.weighted(&[80, 10, 10]) {
            1 if whole => format!("CAST({} AS INT)", self.name(l)),
            2 if whole => format!("CAST({} AS BIGINT)", self.name(l)),
            _ => self.name(l),
        };
        let operator = match self.choices.weighted(&[65, 15, 20]) {
            1 if nulls_meet => "IS NOT DISTINCT FROM".to_owned(),
            2 if nulls_meet => self.pair("=", "IS NOT DISTINCT FROM"),
            _ => "=".to_owned(),
        };
        // DataFusion reads an AND after IS NOT DISTINCT FROM as a part of what stands there.
        format!("({left} {operator} {})", self.name(r))
    }

    /// What a subquery reads: a table, or two that are joined and may be the same.
    pub(crate) fn inner(&mut self) -> Relation {
        let table = self.table();
        match self.choices.chance(25) {
            true => {
                let other = self.table();
                self.join_by("JOIN", table, other, 20)
            }
            false => table,
        }
    }

    /// A subquery that gives one value of a kind.
    pub(crate) fn scalar_subquery(&mut self, kind: TypeKind, items: &[Item]) -> String {
        self.subqueries -= 1;
        let start = self.choices.begin();
        let inner = self.inner();
        let condition = self.correlation(&inner, items, 40);
        let argument = self.plain(kind, &inner.items);
        let function = match kind {
            TypeKind::Int => ["max(#)", "min(#)", "count(*)", "count(#)", "sum(#) % 9973"][self.choices.below(5)],
            _ => ["max(#)", "min(#)"][self.choices.below(2)],
        };
        let cast = if kind == TypeKind::Int { "CAST(# AS BIGINT)" } else { "#" };
        let function = cast.replace('#', &function.replace('#', &argument));
        self.choices.end("subquery", start);
        format!("(SELECT {function} FROM {}{condition})", inner.sql)
    }

    /// EXISTS, IN, or a comparison with a scalar subquery.
    pub(crate) fn subquery_predicate(&mut self, items: &[Item]) -> String {
        self.subqueries -= 1;
        let start = self.choices.begin();
        let not = self.choices.pick(&["", "NOT "]);
        let sql = match self.choices.below(6) {
            0 => {
                let inner = self.inner();
                let condition = self.correlation(&inner, items, 85);
                format!("({not}EXISTS (SELECT 1 FROM {}{condition}))", inner.sql)
            }
            1 | 2 => self.in_subquery(items, not),
            3 if self.database.without.makes("quantified") => self.quantified(items),
            3 | 4 => self.above_mean(items),
            _ => {
                let kind = [TypeKind::Int, TypeKind::Text, TypeKind::Date, TypeKind::Float][self.choices.below(4)];
                let value = self.value(kind, items, 0);
                self.subqueries += 1;
                format!("({value} {} {})", self.choices.pick(&["=", "<", ">"]), self.scalar_subquery(kind, items))
            }
        };
        self.choices.end("subquery", start);
        sql
    }

    fn in_subquery(&mut self, items: &[Item], not: &str) -> String {
        let inner = self.inner();
        let Some(item) = self.item(items, |item| item.exact && item.tame) else { return "true".to_owned() };
        let Some(other) = self.item(&inner.items, |other| other.kind == item.kind && other.tame) else {
            return "true".to_owned();
        };
        let condition = self.correlation(&inner, items, 25);
        format!("({} {not}IN (SELECT {} FROM {}{condition}))", self.name(&item), self.name(&other), inner.sql)
    }

    /// A comparison with all values of a subquery, or with any.
    fn quantified(&mut self, items: &[Item]) -> String {
        let inner = self.table();
        let Some(item) = self.item(items, |item| item.exact && item.tame && !item.kind.nested()) else {
            return "true".to_owned();
        };
        let Some(other) = self.item(&inner.items, |other| other.kind == item.kind && other.tame) else {
            return "true".to_owned();
        };
        let condition = self.correlation(&inner, items, 15);
        let operator = self.choices.pick(&[">=", ">", "<", "<=", "=", "<>"]);
        let word = self.choices.pick(&["ALL", "ANY"]);
        format!("({} {operator} {word} (SELECT {} FROM {}{condition}))", self.name(&item), self.name(&other), inner.sql)
    }

    /// A comparison with the mean of related rows.
    fn above_mean(&mut self, items: &[Item]) -> String {
        let inner = self.inner();
        let value = self.value(TypeKind::Int, items, 0);
        let condition = self.correlation(&inner, items, 85);
        let argument = self.plain(TypeKind::Int, &inner.items);
        format!("({value} > (SELECT avg({argument}) FROM {}{condition}))", inner.sql)
    }

    /// WHERE of a subquery, which in so many of a hundred cases names columns of the query around it.
    pub(crate) fn correlation(&mut self, inner: &Relation, items: &[Item], percent: u32) -> String {
        let few = inner.rows <= CORRELATED_ROWS_MAX;
        let mut conditions = Vec::new();
        let pairs = if self.choices.chance(percent) { 1 + usize::from(self.choices.chance(30)) } else { 0 };
        for _ in 0..pairs {
            let keys = |item: &Item| item.kind == TypeKind::Int && item.tame && item.exact;
            let pair = (self.item(items, keys), self.item(&inner.items, keys));
            if let (Some(outer), Some(inner)) = pair {
                let (inner, outer) = (self.name(&inner), self.name(&outer));
                let forms = ["# = $", "# < $", "# >= $", "# <> $", "# = $ + 1", "# + $ = 3", "# IS NOT DISTINCT FROM $"];
                // Other than by equality only where the pairs of rows are few.
                let form = self.choices.weighted(if few { &[60, 8, 6, 4, 6, 4, 4] } else { &[1] });
                conditions.push(forms[form].replace('#', &inner).replace('$', &outer));
            }
        }
        if self.choices.chance(40) {
            conditions.push(self.without_subqueries(|generator| generator.predicate(&inner.items, 1)));
        }
        if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) }
    }
}
