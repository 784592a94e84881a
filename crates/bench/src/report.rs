//! Tables on a terminal.

use comfy_table::{CellAlignment, Table, presets};

/// A table with its first column to the left and the others to the right.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(header.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    for row in rows {
        table.add_row(row.clone());
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// Bytes as megabytes, with three digits.
pub(crate) fn megabytes(bytes: u64) -> String {
    let size = bytes as f64 / 1e6;
    match size {
        size if size >= 99.95 => format!("{size:.0}"),
        size if size >= 9.995 => format!("{size:.1}"),
        size if size >= 0.9995 => format!("{size:.2}"),
        size => format!("{size:.3}"),
    }
}

/// Seconds, to the millisecond.
pub(crate) fn seconds(seconds: f64) -> String {
    format!("{seconds:.3}")
}

/// A ratio, with about three digits.
pub(crate) fn ratio(ratio: f64) -> String {
    if ratio >= 99.5 {
        format!("{ratio:.0}×")
    } else if ratio >= 9.95 {
        format!("{ratio:.1}×")
    } else {
        format!("{ratio:.2}×")
    }
}
