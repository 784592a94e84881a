//! What a [`ScanRequest`] needs, and the same request to a slice of fewer columns.

use crate::prune::columns_of;
use crate::{Predicate, ScanRequest};

impl ScanRequest {
    /// The columns that the scan gives or compares, each once, in their order.
    pub fn needs(&self) -> Vec<usize> {
        let mut columns = self.columns.clone();
        self.predicates.iter().for_each(|predicate| columns_of(predicate, &mut columns));
        columns.extend(self.keys.iter().map(|(column, _)| *column));
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// The same request to a slice of the same rows that has only these columns, in this order; none: it needs others.
    #[must_use]
    pub fn among(&self, columns: &[usize]) -> Option<ScanRequest> {
        let place = |column: usize| columns.iter().position(|other| *other == column);
        let mut request = self.clone();
        request.columns = self.columns.iter().map(|column| place(*column)).collect::<Option<_>>()?;
        request.predicates = self.predicates.iter().map(|predicate| predicate.among(&place)).collect::<Option<_>>()?;
        for (column, _) in &mut request.keys {
            *column = place(*column)?;
        }
        Some(request)
    }
}

impl Predicate {
    /// The same of columns at other places; none: it is about one that has none.
    pub(crate) fn among(&self, place: &dyn Fn(usize) -> Option<usize>) -> Option<Predicate> {
        let all = |parts: &[Predicate]| parts.iter().map(|part| part.among(place)).collect::<Option<Vec<_>>>();
        let mut moved = self.clone();
        match &mut moved {
            Predicate::Any(parts) | Predicate::All(parts) => *parts = all(parts)?,
            Predicate::IsNull(column) | Predicate::IsNotNull(column) => *column = place(*column)?,
            Predicate::Compare { column, .. } | Predicate::In { column, .. } | Predicate::Like { column, .. } => {
                *column = place(*column)?;
            }
        }
        Some(moved)
    }
}

#[cfg(test)]
mod tests {
    use pithead_model::Value;

    use super::*;
    use crate::Compare;

    #[test]
    fn columns_are_counted_anew_among_fewer() {
        let compare = |column| Predicate::Compare { column, op: Compare::Eq, value: Value::Int(1) };
        let predicates = |columns: [usize; 3]| {
            let [one, two, three] = columns;
            vec![compare(one), Predicate::Any(vec![Predicate::IsNull(two), Predicate::All(vec![compare(three)])])]
        };
        let request = ScanRequest { predicates: predicates([7, 3, 9]), ..ScanRequest::all_rows(vec![5, 3, 5]) };
        assert_eq!(request.needs(), [3, 5, 7, 9]);
        let among = request.among(&[9, 3, 5, 7]).unwrap();
        assert_eq!((among.columns, among.predicates), (vec![2, 1, 2], predicates([3, 1, 0])));
        assert!(request.among(&[3, 5, 7]).is_none());
        assert!(request.among(&[9, 5, 7]).is_none());
    }
}
