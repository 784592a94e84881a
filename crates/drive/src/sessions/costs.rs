//! [`Costs`]: what operators cost at this drive, learned from its rounds and kept in its directory.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pithead_device::unit_ns;
use pithead_door::CostRate;
use pithead_policy::{CostModel, Features, Prediction};

/// The file that they are kept in.
const FILE: &str = "costs.json";
/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// What the unit of work takes on the machine that the shipped rates were taken on, nanoseconds.
const REFERENCE_UNIT_NS: f64 = 20_000.0;

/// What operators cost at a drive.
#[derive(Debug)]
pub(crate) struct Costs {
    model: Mutex<CostModel>,
    file: PathBuf,
    is_changed: AtomicBool,
}

impl Costs {
    /// The rates in the drive's file, or else those that ship, scaled to this CPU at `share` of its speed. A file that cannot be
    /// read is no reason to fail: the drive learns the rates again.
    pub(crate) fn open(directory: &Path, share: f64) -> Costs {
        let file = directory.join(FILE);
        let known = std::fs::metadata(&file).is_ok_and(|facts| facts.len() <= FILE_BYTES_MAX);
        let text = known.then(|| std::fs::read(&file).ok()).flatten();
        let kept = text.and_then(|text| serde_json::from_slice::<CostsFile>(&text).ok()).filter(|kept| kept.share == share);
        let fresh = || CostModel::new(CostModel::REFERENCE_NS_PER_UNIT * unit_ns() / share / REFERENCE_UNIT_NS);
        let model = kept.map_or_else(fresh, |kept| kept.model);
        Costs { model: Mutex::new(model), file, is_changed: AtomicBool::new(false) }
    }

    /// The expected cost of a slice.
    pub(crate) fn predict(&self, features: &Features) -> Prediction {
        self.model.lock().predict(features)
    }

    /// A slice took this long.
    pub(crate) fn learn(&self, features: &Features, scan_ns: f64, rest_ns: f64) {
        self.model.lock().learn(features, scan_ns, rest_ns);
        self.is_changed.store(true, Ordering::Relaxed);
    }

    /// All of them, for people.
    pub(crate) fn rates(&self) -> Vec<CostRate> {
        let rate = |row: pithead_policy::RateRow| CostRate {
            encoding: row.encoding,
            operator: row.operator.to_string(),
            unit: row.unit,
            ns: row.ns_per_unit,
            learned: row.predictions,
            ratio: row.median_ratio,
        };
        self.model.lock().rates().into_iter().map(rate).collect()
    }

    /// Writes them down if they have changed. Blocks.
    pub(crate) fn keep(&self, share: f64) {
        if !self.is_changed.swap(false, Ordering::Relaxed) {
            return;
        }
        let kept = CostsFile { share, model: self.model.lock().clone() };
        let written = serde_json::to_vec(&kept).map_err(std::io::Error::other).and_then(|text| {
            let beside = self.file.with_extension("new");
            std::fs::write(&beside, text)?;
            std::fs::rename(&beside, &self.file)
        });
        if let Err(error) = written {
            tracing::debug!(%error, "what was learned of costs could not be kept");
        }
    }
}

/// The file's content.
#[derive(serde::Serialize, serde::Deserialize)]
struct CostsFile {
    /// The share of the CPU's speed that the rates were taken at.
    share: f64,
    model: CostModel,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_learned_outlives_the_drive() {
        let folder = tempfile::tempdir().unwrap();
        let costs = Costs::open(folder.path(), 1.0);
        let features = Features { encoding: "vortex".into(), rows: 1e6, decoded_bytes: 8e6, pass: 1.0, ..Features::default() };
        let before = costs.predict(&features).scan_ns;
        for _ in 0..20 {
            costs.learn(&features, before * 3.0, 0.0);
        }
        let after = costs.predict(&features).scan_ns;
        assert!(after > before * 1.5, "{before} {after}");
        costs.keep(1.0);
        assert_eq!(Costs::open(folder.path(), 1.0).predict(&features).scan_ns, after);
        // At another speed they say nothing.
        assert!(Costs::open(folder.path(), 0.5).predict(&features).scan_ns != after);
        std::fs::write(folder.path().join(FILE), "{").unwrap();
        assert_eq!(Costs::open(folder.path(), 1.0).predict(&features).scan_ns, before);
    }
}
