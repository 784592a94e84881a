//! [`Matcher`]: all predicates on one column of texts or binary values, as patterns of bytes.

use super::pattern::BytePattern;
use super::rows::RowSet;
use crate::{Compare, Predicate};

/// Patterns, and how rows follow from them.
#[derive(Debug)]
pub(crate) struct Matcher {
    patterns: Vec<BytePattern>,
    tree: Tree,
    is_exact: bool,
}

/// What holds of a row. NULL satisfies none of it, so rows that are NULL are never asked for.
#[derive(Debug)]
enum Tree {
    Pattern { index: usize, negated: bool },
    All(Vec<Tree>),
    Any(Vec<Tree>),
}

impl Matcher {
    /// The patterns of predicates that read one column and all have to hold. None if nothing of them is a pattern.
    pub(crate) fn of(predicates: &[&Predicate]) -> Option<Self> {
        let mut made = Self { patterns: Vec::new(), tree: Tree::All(Vec::new()), is_exact: true };
        made.tree = made.all(predicates.iter().copied())?;
        Some(made)
    }

    pub(crate) fn patterns(&self) -> &[BytePattern] {
        &self.patterns
    }

    /// Whether every row that the patterns let through satisfies the predicates. Otherwise some may not. All that satisfy
    /// them are let through in either case.
    pub(crate) fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// The rows among `wanted`, of which none is NULL, that are let through. `matching` gives those among some rows that
    /// match the pattern of an index.
    pub(crate) fn search(&self, wanted: RowSet, matching: &mut dyn FnMut(usize, &RowSet) -> RowSet) -> RowSet {
        self.tree.search(wanted, matching)
    }

    fn all<'a>(&mut self, predicates: impl Iterator<Item = &'a Predicate>) -> Option<Tree> {
        let mut parts: Vec<Tree> = Vec::new();
        for predicate in predicates {
            match (predicate, self.tree_of(predicate)) {
                (_, Some(tree)) => self.add(tree, &mut parts),
                // Rows that are NULL match no pattern.
                (Predicate::IsNotNull(_), None) => {}
                (_, None) => self.is_exact = false,
            }
        }
        // Comparisons with `<>` leave most rows.
        parts.sort_by_key(|part| matches!(part, Tree::Pattern { negated: true, .. }));
        (!parts.is_empty()).then_some(Tree::All(parts))
    }

    /// Adds a part to those that have to hold; a bound becomes one range with a bound on the other side.
    fn add(&mut self, tree: Tree, parts: &mut Vec<Tree>) {
        if let (Tree::Pattern { index, negated: false }, Some(Tree::Pattern { index: before, negated: false })) =
            (&tree, parts.last())
            && index - 1 == *before
            && let [.., one, other] = self.patterns.as_slice()
            && let Some(both) = one.between(other)
        {
            self.patterns.truncate(*before);
            self.patterns.push(both);
            return;
        }
        parts.push(tree);
    }

    fn tree_of(&mut self, predicate: &Predicate) -> Option<Tree> {
        let (pattern, negated) = match predicate {
            Predicate::Compare { op, value, .. } => (BytePattern::compare(*op, value)?, *op == Compare::Ne),
            Predicate::In { values, .. } => (BytePattern::one_of(values)?, false),
            Predicate::Like { pattern, negated, .. } => (BytePattern::like(pattern), *negated),
            Predicate::Any(parts) => {
                return parts.iter().map(|part| self.tree_of(part)).collect::<Option<_>>().map(Tree::Any);
            }
            Predicate::All(parts) => return self.all(parts.iter()),
            Predicate::IsNull(_) | Predicate::IsNotNull(_) => return None,
        };
        self.patterns.push(pattern);
        Some(Tree::Pattern { index: self.patterns.len() - 1, negated })
    }
}

impl Tree {
    fn search(&self, wanted: RowSet, matching: &mut dyn FnMut(usize, &RowSet) -> RowSet) -> RowSet {
        match self {
            Self::Pattern { index, negated: false } => matching(*index, &wanted),
            Self::Pattern { index, negated: true } => {
                let found = matching(*index, &wanted);
                wanted.and_not(&found)
            }
            Self::All(parts) => parts.iter().fold(wanted, |left, part| match left.is_empty() {
                true => left,
                false => part.search(left, matching),
            }),
            Self::Any(parts) => parts.iter().fold(RowSet::none(wanted.rows()), |found, part| {
                let left = wanted.clone().and_not(&found);
                found.or(&part.search(left, matching))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use pithead_model::Value;
    use proptest::prelude::*;

    use super::super::like::tests::is_like;
    use super::*;

    fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    fn predicates() -> impl Strategy<Value = Predicate> {
        let op = prop_oneof![
            Just(Compare::Eq),
            Just(Compare::Ne),
            Just(Compare::Lt),
            Just(Compare::Le),
            Just(Compare::Gt),
            Just(Compare::Ge)
        ];
        let leaf = prop_oneof![
            3 => (op, "[ab]{0,3}").prop_map(|(op, value)| Predicate::Compare { column: 0, op, value: text(&value) }),
            2 => prop::collection::vec("[ab]{0,3}", 0..4)
                .prop_map(|values| Predicate::In { column: 0, values: values.iter().map(|value| text(value)).collect() }),
            3 => ("[ab_%]{0,5}", any::<bool>()).prop_map(|(pattern, negated)| Predicate::Like { column: 0, pattern, negated }),
            1 => Just(Predicate::IsNotNull(0)),
            1 => Just(Predicate::IsNull(0)),
        ];
        leaf.prop_recursive(2, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 1..4).prop_map(Predicate::Any),
                prop::collection::vec(inner, 1..4).prop_map(Predicate::All),
            ]
        })
    }

    fn holds(predicate: &Predicate, value: Option<&str>) -> bool {
        match (predicate, value) {
            (Predicate::Any(parts), _) => parts.iter().any(|part| holds(part, value)),
            (Predicate::All(parts), _) => parts.iter().all(|part| holds(part, value)),
            (Predicate::IsNull(_), _) => value.is_none(),
            (Predicate::Compare { op, value: Value::Text(bound), .. }, Some(value)) => match op {
                Compare::Eq => value == bound,
                Compare::Ne => value != bound,
                Compare::Lt => value < bound.as_str(),
                Compare::Le => value <= bound.as_str(),
                Compare::Gt => value > bound.as_str(),
                Compare::Ge => value >= bound.as_str(),
            },
            (Predicate::In { values, .. }, Some(value)) => values.contains(&text(value)),
            (Predicate::Like { pattern, negated, .. }, Some(value)) => is_like(value, pattern) != *negated,
            (Predicate::IsNotNull(_), Some(_)) => true,
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn no_row_that_satisfies_is_lost(
            predicates in prop::collection::vec(predicates(), 1..4),
            rows in prop::collection::vec(prop::option::of("[ab]{0,4}"), 0..80),
        ) {
            let predicates: Vec<&Predicate> = predicates.iter().collect();
            let Some(matcher) = Matcher::of(&predicates) else { return Ok(()) };
            let valid = RowSet::collect(rows.len(), |row| rows[row].is_some());
            let found = matcher.search(valid, &mut |index, wanted| {
                RowSet::collect(rows.len(), |row| {
                    wanted.contains(row) && rows[row].as_ref().is_some_and(|text| matcher.patterns()[index].matches(text.as_bytes()))
                })
            });
            for (row, value) in rows.iter().enumerate() {
                let expected = predicates.iter().all(|predicate| holds(predicate, value.as_deref()));
                prop_assert!(!expected || found.contains(row) || value.is_none(), "{value:?} is lost");
                prop_assert!(!matcher.is_exact() || expected == found.contains(row), "{value:?} is let through: {predicates:?}");
            }
        }
    }

    #[test]
    fn two_bounds_are_one_range() {
        let compare = |op, value| Predicate::Compare { column: 0, op, value: text(value) };
        let matcher = Matcher::of(&[&compare(Compare::Ge, "abc"), &compare(Compare::Lt, "abd")]).unwrap();
        assert!(matches!(matcher.patterns(), [BytePattern::Between { low: Some(_), high: Some(_) }]) && matcher.is_exact());
        let matcher = Matcher::of(&[&compare(Compare::Ge, "abc"), &compare(Compare::Gt, "abd")]).unwrap();
        assert_eq!(matcher.patterns().len(), 2);
        assert!(!Matcher::of(&[&compare(Compare::Ge, "abc"), &Predicate::IsNull(0)]).unwrap().is_exact());
        assert!(Matcher::of(&[&Predicate::IsNotNull(0)]).is_none());
    }
}
