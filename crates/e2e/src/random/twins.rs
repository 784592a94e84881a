//! Pairs of texts that look nearly alike and mean different things. A query with one in it is asked with the other right after it, in
//! the same session: what takes one plan for another gives one of them the other's answer.

use crate::random::queries::Output;
use crate::random::scope::{Generator, Item};
use crate::random::values::TypeKind;

impl Generator<'_> {
    /// One of the two; the style says which.
    pub(crate) fn pair(&self, first: impl Into<String>, second: impl Into<String>) -> String {
        if self.style.second { second.into() } else { first.into() }
    }

    /// A whole number.
    pub(crate) fn twin_integer(&mut self, items: &[Item], depth: usize) -> String {
        let form = self.choices.below(8);
        if form >= 6 {
            let text = self.value(TypeKind::Text, items, depth);
            return match form {
                6 => {
                    let list = self.pair("['a', 'b']", "['a, b']");
                    format!("CAST(coalesce(array_position({list}, coalesce({text}, '')), 0) AS BIGINT)")
                }
                _ => {
                    let more = self.pair("'a', 'b'", "'a, b'");
                    format!("CAST(length(concat({text}, {more})) AS BIGINT)")
                }
            };
        }
        let (a, b) = (self.value(TypeKind::Int, items, depth), self.value(TypeKind::Int, items, depth));
        match form {
            0 | 1 => {
                let c = self.value(TypeKind::Int, items, depth);
                let (inner, outer) = (self.choices.pick(&["+", "-"]), self.choices.pick(&["-", "-", "+"]));
                self.pair(format!("({a} {outer} ({b} {inner} {c}))"), format!("({a} {outer} {b} {inner} {c})"))
            }
            2 => self.pair(format!("(({a} * ({b} DIV 7)) % 9973)"), format!("(({a} * {b} DIV 7) % 9973)")),
            3 => self.pair(format!("(({a} * ({b} % 7)) % 9973)"), format!("(({a} * {b} % 7) % 9973)")),
            4 => self.pair(format!("(- ({a} - {b}))"), format!("(- {a} - {b})")),
            _ => self.pair(format!("(({a} + {b}) * 3 % 9973)"), format!("({a} + {b} * 3 % 9973)")),
        }
    }

    /// Text.
    pub(crate) fn twin_text(&mut self, items: &[Item], depth: usize) -> String {
        let text = self.value(TypeKind::Text, items, depth);
        match self.choices.below(6) {
            0 => self.pair(format!("concat({text}, 'a', 'b')"), format!("concat({text}, 'a, b')")),
            1 => self.pair(format!("replace({text}, 'a', 'b')"), format!("replace({text}, 'b', 'a')")),
            2 => self.pair(format!("coalesce({text}, 'NULL')"), format!("coalesce({text}, CAST(NULL AS VARCHAR))")),
            3 => {
                let one = |scale: u8| format!("CAST(CAST('1' AS DECIMAL(5, {scale})) AS VARCHAR)");
                format!("concat({text}, {})", self.pair(one(1), one(2)))
            }
            4 => {
                let other = self.value(TypeKind::Text, items, depth);
                self.pair(format!("concat({text}, {other})"), format!("concat({other}, {text})"))
            }
            _ => {
                let condition = self.predicate(items, 0);
                self.pair(
                    format!("CASE WHEN {condition} THEN {text} ELSE '1' END"),
                    format!("CASE WHEN {condition} THEN '1' ELSE {text} END"),
                )
            }
        }
    }

    /// A float.
    pub(crate) fn twin_float(&mut self, items: &[Item], depth: usize) -> String {
        if self.choices.chance(30) {
            let whole = self.value(TypeKind::Int, items, depth);
            return self.pair(format!("CAST({whole} DIV 2 AS DOUBLE)"), format!("(CAST({whole} AS DOUBLE) / 2e0)"));
        }
        let [a, b, c] = [(); 3].map(|()| self.value(TypeKind::Float, items, depth));
        self.pair(format!("({a} - ({b} + {c}))"), format!("({a} - {b} + {c})"))
    }

    /// A condition.
    pub(crate) fn twin_predicate(&mut self, items: &[Item], depth: usize) -> String {
        match self.choices.below(8) {
            0 | 1 => {
                let [p, q, r] = [(); 3].map(|()| self.predicate(items, depth));
                self.pair(format!("({p} AND ({q} OR {r}))"), format!("(({p} AND {q}) OR {r})"))
            }
            2 => {
                let [p, q] = [(); 2].map(|()| self.predicate(items, depth));
                self.pair(format!("(NOT ({p} OR {q}))"), format!("((NOT {p}) OR {q})"))
            }
            3 | 4 => {
                let [a, b] = [(); 2].map(|()| self.value(TypeKind::Int, items, depth));
                let equal = self.pair("=", "IS NOT DISTINCT FROM");
                format!("({a} {equal} {b})")
            }
            5 => {
                let text = self.value(TypeKind::Text, items, depth);
                let list = self.pair("'a', 'b'", "'a, b'");
                format!("({text} IN ({list}))")
            }
            6 => {
                let text = self.value(TypeKind::Text, items, depth);
                let other = self.pair("CAST(NULL AS VARCHAR)", "'NULL'");
                format!("({text} IS DISTINCT FROM {other})")
            }
            _ => {
                let [a, b, c] = [(); 3].map(|()| self.value(TypeKind::Int, items, depth));
                self.pair(format!("({a} - ({b} - {c}) > 0)"), format!("({a} - {b} - {c} > 0)"))
            }
        }
    }

    /// An aggregate. The values have one type in both.
    pub(crate) fn twin_function(&mut self, items: &[Item]) -> Output {
        let form = self.choices.below(6);
        let (sql, kind) = match form {
            0 | 1 => {
                let sum = self.without_subqueries(|generator| generator.twin_integer(items, 0));
                (format!("sum({sum})"), TypeKind::Int)
            }
            2 => {
                let argument = self.argument(TypeKind::Int, items);
                (self.pair(format!("sum({argument})"), format!("sum(DISTINCT {argument})")), TypeKind::Int)
            }
            3 => {
                let argument = self.argument(TypeKind::Timestamp, items);
                let distinct = self.pair(&argument, format!("CAST({argument} AS DATE)"));
                (format!("count(DISTINCT {distinct})"), TypeKind::Int)
            }
            4 => {
                let argument = self.argument(TypeKind::Int, items);
                let (whole, inner) = (format!("CAST(min({argument}) AS VARCHAR)"), format!("min(CAST({argument} AS VARCHAR))"));
                (self.pair(whole, inner), TypeKind::Text)
            }
            _ => {
                let text = self.plain(TypeKind::Text, items);
                let direction = self.pair("", " DESC");
                (format!("string_agg({text}, ',' ORDER BY {text}{direction})"), TypeKind::Text)
            }
        };
        Output { sql, item: Item::computed(kind) }
    }

    /// A column as it is, or a value.
    fn argument(&mut self, kind: TypeKind, items: &[Item]) -> String {
        match self.item(items, |item| item.kind == kind && item.tame && item.exact && item.stored) {
            Some(item) => self.name(&item),
            None => self.plain(kind, items),
        }
    }
}
