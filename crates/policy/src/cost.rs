//! The cost model: what a slice costs before any slice was measured. It has rates for each encoding and operator, which
//! a CSE keeps and corrects by what it measures.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::fluid::sane;
use crate::rates::{Operator, Rate};
use crate::snapshot::{ByLevel, SliceCosts};

/// The number of encodings that a model has rates for. Further encodings use the rates that the release ships with.
const ENCODINGS_MAX: usize = 16;
/// The cost of looking up a row's group, in units of a simple aggregate function.
const GROUP_UNITS: f64 = 14.0;
/// Copying out this many bytes costs as much as an expression.
const BYTES_AN_EXPRESSION: f64 = 16.0;
/// The least cost of a slice, even if it is empty.
const SLICE_NS: f64 = 20_000.0;
/// The cost of handing bytes to the link, and of receiving them, in nanoseconds a byte.
const SEND_NS: f64 = 0.05;
const RECEIVE_NS: f64 = 0.1;

/// What a sub-plan does with one slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Features {
    /// The name of the slice's encoding.
    pub encoding: String,
    /// Rows in the slice, without those of pages that are skipped by their bounds.
    pub rows: f64,
    /// Bytes that level 0 would send.
    pub stored_bytes: f64,
    /// Bytes that level 1 would send, as far as is known.
    pub hint_bytes: f64,
    /// Bytes of the columns read, as Arrow.
    pub decoded_bytes: f64,
    /// Simple comparisons for each row. A LIKE or a regular expression counts as ten to twenty.
    pub predicates: f64,
    /// The expected share of rows that pass, from 0 to 1.
    pub pass: f64,
    /// Bytes of a row after projection.
    pub out_bytes_per_row: f64,
    /// The expected number of groups. 0: there is no grouping.
    pub groups: f64,
    /// Aggregate functions.
    pub functions: f64,
    /// Joins that the rows probe.
    pub joins: f64,
    /// Expressions that are computed for rows that pass.
    pub expressions: f64,
    /// Whether the result is only the first rows in an order.
    pub top_k: bool,
    /// Nanoseconds of a core of this CSE that users' functions take: for each row that is filtered, and for each that passes.
    #[serde(default)]
    pub scan_calls_ns: f64,
    /// See `scan_calls_ns`.
    #[serde(default)]
    pub rest_calls_ns: f64,
    /// Rows that level 3 yields.
    pub result_rows: f64,
    /// Bytes that level 3 sends.
    pub result_bytes: f64,
}

impl Features {
    /// Nanoseconds that users' functions take in all: below level 2, and above it.
    fn calls_ns(&self) -> (f64, f64) {
        let rows = sane(self.rows);
        (rows * sane(self.scan_calls_ns), rows * sane(self.pass).min(1.0) * sane(self.rest_calls_ns))
    }

    /// The amount of work for `operator`, in its unit.
    fn units(&self, operator: Operator) -> f64 {
        let rows = sane(self.rows);
        let passing = rows * sane(self.pass).min(1.0);
        match operator {
            Operator::Scan => sane(self.decoded_bytes),
            Operator::Filter => rows * sane(self.predicates),
            Operator::Project => passing * (sane(self.expressions) + sane(self.out_bytes_per_row) / BYTES_AN_EXPRESSION),
            Operator::Aggregate => {
                let grouping = if sane(self.groups) > 0.0 { GROUP_UNITS } else { 0.0 };
                passing * (sane(self.functions) + grouping)
            }
            Operator::Join => passing * sane(self.joins),
            Operator::TopK => passing * f64::from(u8::from(self.top_k)),
        }
    }
}

/// The expected cost of one slice at this CSE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// CPU time for level 2.
    pub scan_ns: f64,
    /// CPU time that level 3 needs in addition.
    pub rest_ns: f64,
    /// CPU time to find the pages that may match by their bounds, and to hand over what is stored of them.
    pub hint_ns: f64,
    /// CPU time to hand over the stored bytes.
    pub carry_ns: f64,
    /// Bytes on the link.
    pub link_bytes: ByLevel<f64>,
}

impl Prediction {
    /// The costs at this CSE and at a host that needs `host_over_drive` times its time for the same work.
    pub fn costs(&self, host_over_drive: f64) -> SliceCosts {
        let ratio = if host_over_drive.is_finite() && host_over_drive > 0.0 { host_over_drive } else { 1.0 };
        let take = |bytes: f64| bytes * RECEIVE_NS * ratio;
        SliceCosts {
            drive_ns: ByLevel {
                whole: self.scan_ns + self.rest_ns,
                filtered: self.scan_ns,
                hints: self.hint_ns,
                bytes: self.carry_ns,
            },
            host_ns: ByLevel {
                whole: take(self.link_bytes.whole),
                filtered: self.rest_ns * ratio + take(self.link_bytes.filtered),
                hints: (self.scan_ns + self.rest_ns) * ratio + take(self.link_bytes.hints),
                bytes: (self.scan_ns + self.rest_ns) * ratio + take(self.link_bytes.bytes),
            },
            link_bytes: self.link_bytes,
        }
    }
}

/// A rate in a form for people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateRow {
    /// The slices' encoding.
    pub encoding: String,
    /// The kind of work.
    pub operator: Operator,
    /// The unit of work that the rate is for.
    pub unit: String,
    /// Nanoseconds of one core for one unit.
    pub ns_per_unit: f64,
    /// How often the rate was used for a prediction that a measurement then followed.
    pub predictions: u64,
    /// The median of predicted over actual cost; `None` before the first measurement.
    pub median_ratio: Option<f64>,
}

/// The rates of one CSE. Measurements move them up and down, and a CSE can store them on its disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostModel {
    /// The time that this CSE takes for a unit of the calibration loop, over that of the machine on which the shipped
    /// rates were measured.
    scale: f64,
    learnt: BTreeMap<String, BTreeMap<Operator, Rate>>,
}

impl CostModel {
    /// The time that a unit of the calibration loop took on the machine on which the shipped rates were measured, in
    /// nanoseconds.
    pub const REFERENCE_NS_PER_UNIT: f64 = 1.0;

    /// The shipped rates, scaled to a CSE that needs `ns_per_unit` nanoseconds for a unit of the calibration loop.
    pub fn new(ns_per_unit: f64) -> CostModel {
        let scale = ns_per_unit / CostModel::REFERENCE_NS_PER_UNIT;
        let scale = if scale.is_finite() && scale > 0.0 { scale.clamp(1e-3, 1e3) } else { 1.0 };
        CostModel { scale, learnt: BTreeMap::new() }
    }

    /// The expected cost of a slice.
    pub fn predict(&self, features: &Features) -> Prediction {
        let sum = |scan: bool| -> f64 {
            let operators = Operator::ALL.into_iter().filter(|operator| operator.is_scan() == scan);
            operators.map(|operator| self.part(features, operator)).sum()
        };
        let passing = sane(features.rows) * sane(features.pass).min(1.0);
        let stored = sane(features.stored_bytes);
        let hinted = sane(features.hint_bytes);
        let (scan_calls_ns, rest_calls_ns) = features.calls_ns();
        Prediction {
            scan_ns: sum(true) + scan_calls_ns + SLICE_NS * self.scale(),
            rest_ns: sum(false) + rest_calls_ns,
            hint_ns: (2.0 * SLICE_NS + hinted * SEND_NS) * self.scale(),
            carry_ns: (SLICE_NS + stored * SEND_NS) * self.scale(),
            link_bytes: ByLevel {
                whole: sane(features.result_bytes),
                filtered: passing * sane(features.out_bytes_per_row),
                hints: hinted,
                bytes: stored,
            },
        }
    }

    /// Corrects the rates by the measured cost of a slice like `features`. Ignores figures that are not a number or not
    /// positive.
    pub fn learn(&mut self, features: &Features, scan_ns: f64, rest_ns: f64) {
        let fixed = SLICE_NS * self.scale();
        let known = self.learnt.contains_key(&features.encoding);
        if !known && self.learnt.len() >= ENCODINGS_MAX {
            return;
        }
        let (scan_calls_ns, rest_calls_ns) = features.calls_ns();
        for (scan, actual) in [(true, scan_ns - fixed - scan_calls_ns), (false, rest_ns - rest_calls_ns)] {
            let operators = Operator::ALL.into_iter().filter(|operator| operator.is_scan() == scan);
            let parts: Vec<(Operator, f64)> =
                operators.map(|operator| (operator, self.part(features, operator))).filter(|(_, ns)| *ns > 0.0).collect();
            let predicted: f64 = parts.iter().map(|(_, ns)| ns).sum();
            let measured = actual.is_finite() && actual > 0.0 && predicted.is_finite();
            for (operator, ns) in parts.into_iter().filter(|_| measured) {
                let rates = self.learnt.entry(features.encoding.clone()).or_default();
                rates.entry(operator).or_default().learn(predicted, actual, ns / predicted);
            }
        }
    }

    /// All rates that were learned, by encoding and operator.
    pub fn rates(&self) -> Vec<RateRow> {
        let mut rows = Vec::new();
        for (encoding, rates) in &self.learnt {
            for (operator, rate) in rates {
                rows.push(RateRow {
                    encoding: encoding.clone(),
                    operator: *operator,
                    unit: operator.unit().to_owned(),
                    ns_per_unit: self.rate(encoding, *operator),
                    predictions: rate.predictions,
                    median_ratio: rate.median_ratio(),
                });
            }
        }
        rows
    }

    fn part(&self, features: &Features, operator: Operator) -> f64 {
        features.units(operator) * self.rate(&features.encoding, operator)
    }

    fn rate(&self, encoding: &str, operator: Operator) -> f64 {
        let learnt = self.learnt.get(encoding).and_then(|rates| rates.get(&operator)).map_or(1.0, Rate::factor);
        operator.default_ns(encoding) * self.scale() * learnt
    }

    /// The bytes come from a disk, and may be anything.
    fn scale(&self) -> f64 {
        if self.scale.is_finite() && self.scale > 0.0 { self.scale } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features() -> Features {
        Features {
            encoding: "vortex".to_owned(),
            rows: 100_000.0,
            stored_bytes: 500_000.0,
            decoded_bytes: 1_600_000.0,
            predicates: 1.0,
            pass: 0.5,
            out_bytes_per_row: 16.0,
            groups: 10.0,
            functions: 2.0,
            ..Features::default()
        }
    }

    #[test]
    fn what_is_measured_is_predicted_next_time() {
        let mut model = CostModel::new(1.0);
        let before = model.predict(&features());
        for _ in 0..60 {
            model.learn(&features(), before.scan_ns * 3.0, before.rest_ns / 2.0);
        }
        let after = model.predict(&features());
        assert!((after.scan_ns / before.scan_ns / 3.0 - 1.0).abs() < 0.05, "{after:?}");
        assert!((after.rest_ns / before.rest_ns * 2.0 - 1.0).abs() < 0.05, "{after:?}");
        let rates = model.rates();
        let scan = rates.iter().find(|row| row.operator == Operator::Scan).expect("it was learnt");
        assert!(scan.predictions == 60 && (scan.median_ratio.unwrap_or(0.0) - 1.0).abs() < 0.1, "{scan:?}");
        let other = Features { encoding: "arrow".to_owned(), ..features() };
        assert_eq!(model.predict(&other), CostModel::new(1.0).predict(&other));
    }

    #[test]
    fn a_slow_engine_is_predicted_slow() {
        let (fast, slow) = (CostModel::new(1.0).predict(&features()), CostModel::new(15.0).predict(&features()));
        assert!((slow.scan_ns / fast.scan_ns - 15.0).abs() < 1e-6 && slow.link_bytes == fast.link_bytes);
    }

    #[test]
    fn absurd_measurements_and_files_are_survived() {
        let mut model = CostModel::new(f64::NAN);
        for ns in [f64::NAN, f64::INFINITY, 0.0, -1.0, 1e300, 1e-300] {
            model.learn(&features(), ns, ns);
        }
        let wild = Features { rows: f64::INFINITY, pass: f64::NAN, decoded_bytes: -5.0, ..features() };
        model.learn(&wild, 1.0, 1.0);
        let prediction = model.predict(&wild);
        assert!(prediction.scan_ns.is_finite() && prediction.scan_ns > 0.0, "{prediction:?}");
        (0..100).for_each(|n| model.learn(&Features { encoding: format!("e{n}"), ..features() }, 1e6, 1e6));
        assert!(model.learnt.len() <= ENCODINGS_MAX);
        let text = serde_json::to_string(&model).expect("it can be written");
        let read: CostModel = serde_json::from_str(&text).expect("it can be read");
        assert_eq!(read.rates().len(), model.rates().len());
        let hostile = r#"{"scale":-1.0,"learnt":{"vortex":{"scan":{"log_factor":1e300}}}}"#;
        let hostile: CostModel = serde_json::from_str(hostile).expect("its form is right");
        assert!(hostile.predict(&features()).scan_ns.is_finite());
    }
}
