//! Faults that several parts of the host raise in the same words.

use std::fmt::Display;

use arrow::datatypes::Schema;
use pithead_model::{Blame, DatasetName, Fault, near_names};

/// A fault by the request.
pub(crate) fn invalid(message: impl Into<String>) -> Fault {
    Fault::new(Blame::User, message)
}

/// A column that the schema lacks, with the near ones, or all of a few.
pub(crate) fn unknown_column(wanted: &str, schema: &Schema) -> Fault {
    const SHOWN_MAX: usize = 12;
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let near = near_names(wanted, names.iter().copied());
    let rest = match (near.is_empty(), names.len()) {
        (false, _) => format!("near: {}", near.join(", ")),
        (true, count) if count <= SHOWN_MAX => format!("the columns are {}", names.join(", ")),
        (true, count) => format!("there are {count}, the first {SHOWN_MAX} of them {}", names[..SHOWN_MAX].join(", ")),
    };
    invalid(format!("no column {wanted}; {rest}"))
}

/// A dataset that no domain has, with the near ones among `names`.
pub(crate) fn unknown_dataset<'a>(wanted: &DatasetName, names: impl IntoIterator<Item = &'a str>) -> Fault {
    let wanted = wanted.to_string();
    let near = near_names(&wanted, names);
    let message = match near.is_empty() {
        true => format!("no dataset {wanted}"),
        false => format!("no dataset {wanted}; near: {}", near.join(", ")),
    };
    invalid(message).hint("pithead ls")
}

/// The fault with the drive named, unless it already is.
pub(crate) fn at_drive(fault: Fault, label: &str) -> Fault {
    match fault.message.contains(label) {
        true => fault,
        false => fault.at(format_args!("drive {label}")),
    }
}

/// A fault of several drives at once: the worst thing is the first one's, the others are named after it.
pub(crate) fn first_of(mut faults: Vec<(String, Fault)>) -> Option<Fault> {
    if faults.is_empty() {
        return None;
    }
    let (label, first) = faults.remove(0);
    let mut fault = at_drive(first, &label);
    if !faults.is_empty() {
        let others: Vec<String> = faults.into_iter().map(|(label, _)| label).collect();
        fault.message = format!("{} (and so for {})", fault.message, others.join(", "));
    }
    Some(fault)
}

/// Something that our own code or a library should not have done.
pub(crate) fn bug(what: impl Display) -> Fault {
    Fault::new(Blame::Bug, what.to_string())
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};

    use super::*;

    #[test]
    fn unknown_names_come_with_near_ones() {
        let names = ["main.lineitem", "main.orders"];
        let fault = unknown_dataset(&"main.lineitm".parse().unwrap(), names);
        assert_eq!(fault.to_string(), "no dataset main.lineitm; near: main.lineitem\nhint: pithead ls");
        let schema =
            Schema::new(vec![Field::new("l_orderkey", DataType::Int64, false), Field::new("x", DataType::Int64, false)]);
        assert_eq!(unknown_column("l_orderky", &schema).message, "no column l_orderky; near: l_orderkey");
        assert_eq!(unknown_column("zzzz", &schema).message, "no column zzzz; the columns are l_orderkey, x");
    }

    #[test]
    fn a_drive_is_named_once() {
        let fault = invalid("cannot reach the drive at a:1");
        assert_eq!(at_drive(fault.clone(), "a:1").message, "cannot reach the drive at a:1");
        let both = first_of(vec![("b:1".into(), invalid("down")), ("c:1".into(), invalid("down"))]).unwrap();
        assert_eq!(both.message, "drive b:1: down (and so for c:1)");
    }
}
