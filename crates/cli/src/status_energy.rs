//! `pithead status --device`: what the work of drives would take on drives of a profile.

use std::io::Write;

use pithead_emulate::{Fleet, ModelError, Prediction, Profile, predict_levels, quantity_text};
use pithead_model::Bytes;
use serde_json::json;

use crate::error::CliError;
use crate::output::{Align, Grid, Sink};
use crate::status::Answer;

const CLOCK: &str = "emulated, virtual time";

/// A drive's label, and what its work would take; none: it has done none. Drives that are down are left out.
fn predictions<'a>(profile: &Profile, answers: &'a [Answer]) -> Result<Vec<(&'a str, Option<Prediction>)>, ModelError> {
    let up = answers.iter().filter_map(|(label, answer)| Some((label.as_str(), answer.as_ref().ok()?)));
    up.map(|(label, status)| Ok((label, predict_levels(profile, &status.work, Fleet::even(1))?))).collect()
}

/// Writes a table, or one JSON object a drive.
pub(crate) fn write_energy(profile: &Profile, answers: &[Answer], json: bool, sink: &mut Sink) -> Result<(), CliError> {
    let predictions = predictions(profile, answers).map_err(|error| CliError::user(error.to_string()))?;
    if json {
        for (label, prediction) in &predictions {
            writeln!(sink, "{}", object(profile, label, prediction.as_ref()))?;
        }
        return Ok(());
    }
    writeln!(sink, "{CLOCK}; the work of each drive since it started, on one {} with a host of its own\n", profile.name)?;
    Ok(grid(&predictions).write(sink)?)
}

fn grid(predictions: &[(&str, Option<Prediction>)]) -> Grid {
    use Align::{Left, Right};
    let mut grid = Grid::of(&[
        ("drive", Left),
        ("time", Right),
        ("from media", Right),
        ("over links", Right),
        ("system", Right),
        ("host CPU", Right),
        ("drive CPU", Right),
        ("medium", Right),
        ("link", Right),
        ("drive on", Right),
        ("host on", Right),
    ]);
    let joules = |joules: f64| format!("{joules:.3} J");
    for (label, prediction) in predictions {
        let mut row = vec![(*label).to_owned()];
        match prediction {
            Some(Prediction { elapsed_s, medium_bytes, link_bytes, energy, .. }) => row.extend([
                quantity_text("elapsed_s", *elapsed_s),
                Bytes(*medium_bytes).to_string(),
                Bytes(*link_bytes).to_string(),
                joules(energy.system_j()),
                joules(energy.host_cpu_j),
                joules(energy.device_cpu_j),
                joules(energy.medium_j),
                joules(energy.link_j),
                joules(energy.device_idle_j),
                joules(energy.host_idle_j),
            ]),
            None => row.extend(std::iter::once("no work".to_owned()).chain((0..9).map(|_| String::new()))),
        }
        grid.push(row);
    }
    grid
}

fn object(profile: &Profile, label: &str, prediction: Option<&Prediction>) -> serde_json::Value {
    let mut object = json!({ "drive": label, "clock": CLOCK, "profile": profile.name });
    if let Some(Prediction { elapsed_s, medium_bytes, link_bytes, energy, .. }) = prediction {
        object["elapsed_s"] = json!(elapsed_s);
        object["medium_bytes"] = json!(medium_bytes);
        object["link_bytes"] = json!(link_bytes);
        object["system_joules"] = json!(energy.system_j());
        object["host_cpu_joules"] = json!(energy.host_cpu_j);
        object["drive_cpu_joules"] = json!(energy.device_cpu_j);
        object["medium_joules"] = json!(energy.medium_j);
        object["link_joules"] = json!(energy.link_j);
        object["drive_on_joules"] = json!(energy.device_idle_j);
        object["host_on_joules"] = json!(energy.host_idle_j);
    }
    object
}

#[cfg(test)]
mod tests {
    use pithead_emulate::find;
    use pithead_model::{ByLevel, Counts};

    use super::*;

    #[test]
    fn parts_add_up_to_the_system_and_idle_drives_have_a_row() {
        let profile = find("smart-ssd").unwrap();
        let counts =
            Counts { rows: 1000, read_bytes: 80_000, passed_rows: 10, out_rows: 10, out_bytes: 80, ..Counts::default() };
        let work = ByLevel { whole: counts, ..ByLevel::default() };
        let prediction = predict_levels(&profile, &work, Fleet::even(1)).unwrap();
        let shown = object(&profile, "a:1", prediction.as_ref());
        let parts = ["host_cpu", "drive_cpu", "medium", "link", "drive_on", "host_on"];
        let sum: f64 = parts.iter().map(|part| shown[format!("{part}_joules")].as_f64().unwrap()).sum();
        assert!((sum - shown["system_joules"].as_f64().unwrap()).abs() < 1e-9 && sum > 0.0, "{shown}");
        let mut out = Vec::new();
        grid(&[("a:1", prediction), ("b:2", None)]).write(&mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().contains("b:2   | no work"));
    }
}
