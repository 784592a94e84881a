//! Faults that several parts raise in the same words.

use pithead_model::{DatasetName, Fault, FaultKind, near_names};

/// A dataset that no domain has, with the near ones among `names`.
pub fn unknown_dataset<'a>(wanted: &DatasetName, names: impl IntoIterator<Item = &'a str>) -> Fault {
    let wanted = wanted.to_string();
    let near = near_names(&wanted, names);
    let message = match near.is_empty() {
        true => format!("no dataset {wanted}"),
        false => format!("no dataset {wanted}; near: {}", near.join(", ")),
    };
    Fault::invalid(message).of_kind(FaultKind::NoTable).hint("pithead ls")
}

/// A fault of several drives at once: the worst thing is the first one's, the others are named after it.
pub(crate) fn first_of(mut faults: Vec<(String, Fault)>) -> Option<Fault> {
    if faults.is_empty() {
        return None;
    }
    let (label, first) = faults.remove(0);
    let mut fault = first.at_drive(&label);
    if !faults.is_empty() {
        let others: Vec<String> = faults.into_iter().map(|(label, _)| label).collect();
        fault.message = format!("{} (and so for {})", fault.message, others.join(", "));
    }
    Some(fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_come_with_near_ones() {
        let names = ["main.lineitem", "main.orders"];
        let fault = unknown_dataset(&"main.lineitm".parse().unwrap(), names);
        assert_eq!(fault.to_string(), "no dataset main.lineitm; near: main.lineitem\nhint: pithead ls");
    }

    #[test]
    fn a_drive_is_named_once() {
        let fault = Fault::invalid("cannot reach the drive at a:1");
        assert_eq!(fault.at_drive("a:1").message, "cannot reach the drive at a:1");
        let both = first_of(vec![("b:1".into(), Fault::invalid("down")), ("c:1".into(), Fault::invalid("down"))]).unwrap();
        assert_eq!(both.message, "drive b:1: down (and so for c:1)");
    }
}
