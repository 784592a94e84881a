//! [`Labelled`]: metrics that differ in one label, whose values are known beforehand.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};

/// A label and its value.
type Labels = [(&'static str, &'static str); 1];

/// Metrics with one name, one for each value of a label. All are there from the start, so that the rate of an event
/// that has not happened yet is 0 and not missing. Looking a metric up takes no lock.
#[derive(Debug)]
pub struct Labelled<M> {
    members: Vec<(&'static str, M)>,
}

impl<M: Clone + Default + Metric> Labelled<M> {
    /// Registers the metrics `name{label="…"}` for these values, of which there must be at least one.
    pub fn register(registry: &mut Registry, name: &str, help: &str, label: &'static str, values: &[&'static str]) -> Self
    where
        Family<Labels, M>: Metric,
    {
        let family = Family::<Labels, M>::default();
        let members = values.iter().map(|value| (*value, family.get_or_create_owned(&[(label, *value)]))).collect();
        registry.register(name, help, family);
        Self { members }
    }

    /// The metric for a label's value; none if no such value was registered.
    pub fn get(&self, value: &str) -> Option<&M> {
        self.members.iter().find(|(known, _)| *known == value).map(|(_, member)| member)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &(&'static str, M)> {
        self.members.iter()
    }
}

/// Seconds from 1 ms to about two minutes, each bucket up to twice the one before.
pub fn seconds_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 18))
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    #[test]
    fn every_value_is_there_before_anything_happens() {
        let mut registry = Registry::with_prefix("p");
        let ends = Labelled::<Counter>::register(&mut registry, "ends", "Ends", "cause", &["good", "bad"]);
        ends.get("bad").unwrap().inc();
        assert!(ends.get("ugly").is_none());
        let text = crate::text(&registry);
        assert!(text.contains("p_ends_total{cause=\"good\"} 0") && text.contains("p_ends_total{cause=\"bad\"} 1"), "{text}");
    }
}
