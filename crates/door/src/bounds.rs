//! Bounds of OPEN, the same at every CSE.

use std::collections::HashSet;

use pithead_model::{Blame, CalledFunction, Fault, PLAN_BYTES_MAX, RUNS_USER_FUNCTIONS, SHIPPED_BYTES_MAX, SliceSpan};

use crate::columns::same_columns;
use crate::compact::batch_bytes;
use crate::open::{OpenRequest, PlanBytes, ShippedInput, SlicePart};

/// Rows of a batch at most; a poll covers one.
const BATCH_ROWS_MAX: usize = 1 << 16;
/// Functions that one sub-plan names at most.
const EXTENSIONS_MAX: usize = 256;
/// Parts of one sub-plan at most.
const PARTS_MAX: usize = 64;

/// Bytes of the rows that are sent along.
pub fn input_bytes(inputs: &[ShippedInput]) -> usize {
    inputs.iter().flat_map(|input| &input.batches).map(batch_bytes).sum()
}

/// Refuses what can be refused without looking at the plan. `extensions`: functions that the CSE has, `name/version`.
pub fn check_open(request: &OpenRequest, extensions: &[String]) -> Result<(), Fault> {
    let user = |what: String| Err(Fault::new(Blame::User, what));
    if let PlanBytes::Substrait(bytes) = &request.plan {
        check_plan_bytes(bytes)?;
    }
    if request.parts.is_empty() || request.parts.len() > PARTS_MAX {
        return user(format!("expected 1 to {PARTS_MAX} datasets, got {}", request.parts.len()));
    }
    let rows = request.options.batch_rows;
    if rows == 0 || rows > BATCH_ROWS_MAX {
        return user(format!("expected batches of 1 to {BATCH_ROWS_MAX} rows, got {rows}"));
    }
    if request.whole_partition && !request.done.is_empty() {
        return user("a sub-plan that needs the whole partition in one round cannot leave slices out".to_owned());
    }
    let mut seen = HashSet::new();
    if let Some(part) = request.parts.iter().find(|part| !seen.insert(&part.name)) {
        return user(format!("{} is named twice", part.name));
    }
    for part in &request.parts {
        check_runs(part)?;
    }
    check_extensions(&request.options.extensions, extensions)?;
    check_inputs(&request.inputs)
}

/// Refuses a sub-plan that is too large to be read.
pub fn check_plan_bytes(plan: &[u8]) -> Result<(), Fault> {
    match plan.len() > PLAN_BYTES_MAX {
        true => {
            let what = format!("a sub-plan of {} bytes is over the bound of {PLAN_BYTES_MAX}", plan.len());
            Err(Fault::new(Blame::Limit, what))
        }
        false => Ok(()),
    }
}

/// Refuses slices that cannot be `what`, such as done: they have to rise, none twice, none past the end.
pub fn check_spans(what: &str, spans: &[SliceSpan], slices: u32) -> Result<(), Fault> {
    let mut end = 0;
    for SliceSpan { first, count } in spans {
        match first.checked_add(*count).filter(|last| *last <= slices) {
            Some(last) if *count > 0 && *first >= end => end = last,
            _ => {
                let what = format!("{count} slices from {first} on cannot be {what}: expected rising spans of {slices} slices");
                return Err(Fault::new(Blame::User, what));
            }
        }
    }
    Ok(())
}

fn check_runs(part: &SlicePart) -> Result<(), Fault> {
    let slices = part.runs.iter().try_fold(0_u32, |sum, (_, count)| sum.checked_add(*count));
    let mut seen = HashSet::new();
    match part.runs.iter().all(|(load, _)| seen.insert(load)) && slices.is_some() {
        true => Ok(()),
        false => Err(Fault::new(Blame::User, format!("the runs of {} repeat a load, or have too many slices", part.name))),
    }
}

fn check_extensions(wanted: &[String], there: &[String]) -> Result<(), Fault> {
    if wanted.len() > EXTENSIONS_MAX {
        let what = format!("a sub-plan names {} functions; at most {EXTENSIONS_MAX} are allowed", wanted.len());
        return Err(Fault::new(Blame::Limit, what));
    }
    let runs_users = there.iter().any(|there| there == RUNS_USER_FUNCTIONS);
    let is_there = |wanted: &String| there.contains(wanted) || (runs_users && CalledFunction::is(wanted));
    let Some(missing) = wanted.iter().find(|wanted| !is_there(wanted)) else { return Ok(()) };
    let what = format!("the drive has no function {missing}; it has {}", there.join(", "));
    Err(Fault::new(Blame::Unsupported, what).hint("run the same release at host and drive"))
}

fn check_inputs(inputs: &[ShippedInput]) -> Result<(), Fault> {
    let mut seen = HashSet::new();
    for input in inputs {
        if !seen.insert(&input.name) {
            return Err(Fault::new(Blame::User, format!("two inputs are named {:?}", input.name)));
        }
        if input.batches.iter().any(|batch| !same_columns(batch.schema_ref(), &input.schema)) {
            return Err(Fault::new(Blame::User, format!("rows of input {:?} have other columns than it says", input.name)));
        }
    }
    match input_bytes(inputs) {
        bytes if bytes > SHIPPED_BYTES_MAX => {
            Err(Fault::new(Blame::Limit, format!("inputs of {bytes} bytes are over the bound of {SHIPPED_BYTES_MAX}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_that_are_done_rise_and_are_there() {
        let span = |first, count| SliceSpan { first, count };
        assert!(check_spans("done", &[span(0, 2), span(3, 1)], 4).is_ok());
        for wrong in [vec![span(0, 0)], vec![span(2, 1), span(0, 1)], vec![span(3, 2)], vec![span(1, u32::MAX)]] {
            assert_eq!(check_spans("done", &wrong, 4).unwrap_err().blame, Blame::User, "{wrong:?}");
        }
    }
}
