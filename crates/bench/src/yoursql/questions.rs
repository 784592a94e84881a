//! Queries over the films whose predicates bounds mislead about, each in every order of its joins.

use std::fmt::Write;

/// A relation: its alias and its table.
type Relation = (&'static str, &'static str);

const T: Relation = ("t", "title");
const P: Relation = ("p", "person");
const C: Relation = ("c", "company");
const K: Relation = ("k", "keyword");
const CI: Relation = ("ci", "cast_info");
const MC: Relation = ("mc", "movie_company");
const MK: Relation = ("mk", "movie_keyword");

/// The relations of a query. They are joined by every equality of [`KEYS`] between two of them.
const SHAPES: [&[Relation]; 6] = [&[T, CI, P], &[T, MC, C], &[T, MK, K], &[T, CI, P, MC], &[T, MC, C, MK], &[CI, P, T, MK, K]];
const KEYS: [(&str, &str, &str); 6] = [
    ("t", "ci", "t.id = ci.title_id"),
    ("p", "ci", "p.id = ci.person_id"),
    ("t", "mc", "t.id = mc.title_id"),
    ("c", "mc", "c.id = mc.company_id"),
    ("t", "mk", "t.id = mk.title_id"),
    ("k", "mk", "k.id = mk.keyword_id"),
];
/// Predicates that are in turn far rarer and far more common than they look. The alias that each is of comes first.
const PREDICATES: [&[(&str, &str)]; 6] = [
    &[("t", "t.name LIKE '%quartz%'")],
    &[("t", "t.kind = 7 AND t.year >= 2000"), ("ci", "ci.note LIKE '%(voice)%'"), ("mc", "mc.note LIKE '%co-production%'")],
    &[
        ("t", "t.name LIKE '%the%'"),
        ("p", "p.about LIKE '%harbour%'"),
        ("c", "c.name LIKE '%pictures%'"),
        ("k", "k.word LIKE '%love%'"),
    ],
    &[("t", "t.kind = 7 AND t.year < 2000"), ("ci", "ci.note LIKE '%as%'")],
    &[("t", "length(t.name) < 12"), ("p", "p.country = 0 AND p.gender = 'm'"), ("mc", "mc.note LIKE '%as%'")],
    &[
        ("t", "t.year > 1950"),
        ("ci", "ci.note LIKE '%(uncredited)%(voice)%'"),
        ("p", "p.about LIKE '%the%'"),
        ("mc", "length(mc.note) > 20"),
    ],
];

/// A query.
pub(super) struct Question {
    pub(super) name: String,
    relations: &'static [Relation],
    predicates: Vec<(&'static str, &'static str)>,
}

/// All of them.
pub(super) fn questions() -> Vec<Question> {
    let mut questions = Vec::new();
    for (shape, relations) in SHAPES.iter().enumerate() {
        for (choice, predicates) in PREDICATES.iter().enumerate() {
            let is_there = |(alias, _): &&(&str, &str)| relations.iter().any(|(there, _)| there == alias);
            let predicates = predicates.iter().filter(is_there).copied().collect();
            questions.push(Question {
                name: format!("{}{}", ["a", "b", "c", "d", "e", "f"][shape], choice + 1),
                relations,
                predicates,
            });
        }
    }
    questions
}

impl Question {
    /// The query as it is written, and in such a way that nobody has seen it before: `run` tells one from another.
    pub(super) fn sql(&self, run: usize) -> String {
        self.in_order(&(0..self.relations.len()).collect::<Vec<_>>(), run)
    }

    /// Every order of the joins in which each relation is joined to one before it.
    pub(super) fn orders(&self) -> Vec<Vec<usize>> {
        let mut orders: Vec<Vec<usize>> = (0..self.relations.len()).map(|first| vec![first]).collect();
        for _ in 1..self.relations.len() {
            let longer = |order: Vec<usize>| {
                let next = (0..self.relations.len()).filter(|next| !order.contains(next));
                let next: Vec<usize> = next.filter(|next| !self.keys(&order, *next).is_empty()).collect();
                next.into_iter().map(move |next| [order.clone(), vec![next]].concat()).collect::<Vec<_>>()
            };
            orders = orders.into_iter().flat_map(longer).collect();
        }
        orders
    }

    /// The query with its joins in an order.
    pub(super) fn in_order(&self, order: &[usize], run: usize) -> String {
        let mut sql = "SELECT count(*) AS n, min(t.year) AS first, max(t.id) AS last FROM ".to_owned();
        for (place, relation) in order.iter().enumerate() {
            let (alias, table) = self.relations[*relation];
            let keys = self.keys(&order[..place], *relation);
            let _ = match place {
                0 => write!(sql, "{table} AS {alias}"),
                _ => write!(sql, " JOIN {table} AS {alias} ON {}", keys.join(" AND ")),
            };
        }
        // A condition that every row meets, and that makes a predicate another one.
        let unseen = |(alias, predicate): &(&str, &str)| {
            let key = if matches!(*alias, "t" | "p" | "c" | "k") { "id" } else { "title_id" };
            format!("{predicate} AND {alias}.{key} > -{}", run + 1)
        };
        let predicates: Vec<String> = self.predicates.iter().map(unseen).collect();
        sql + " WHERE " + &predicates.join(" AND ")
    }

    fn keys(&self, before: &[usize], next: usize) -> Vec<&'static str> {
        let is_before = |alias: &str| before.iter().any(|relation| self.relations[*relation].0 == alias);
        let next = self.relations[next].0;
        let joins = |(a, b, _): &&(&str, &str, &str)| (*a == next && is_before(b)) || (*b == next && is_before(a));
        KEYS.iter().filter(joins).map(|(_, _, key)| *key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_question_has_predicates_and_orders() {
        let questions = questions();
        assert!(questions.len() >= 30);
        for question in &questions {
            assert!(!question.predicates.is_empty(), "{}", question.name);
            let orders = question.orders();
            assert!(orders.len() >= 4 && orders.contains(&(0..question.relations.len()).collect()), "{}", question.name);
            assert_ne!(question.sql(1), question.sql(2));
        }
    }
}
