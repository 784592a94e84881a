//! Quantities as people read them.

/// A value with the unit that its name ends in.
pub fn quantity_text(name: &str, value: f64) -> String {
    let unit = |unit: &str| prefixed(value, unit);
    match name {
        name if name.ends_with("bytes_per_s") => unit("B/s"),
        name if name.ends_with("_hz") => unit("Hz"),
        name if name.ends_with("_bytes") => bytes(value),
        name if name.ends_with("_w") => format!("{value} W"),
        name if name.ends_with("_cycles") => format!("{value} cycles"),
        name if name.ends_with("_s") => seconds(value),
        _ => format!("{value}"),
    }
}

fn prefixed(value: f64, unit: &str) -> String {
    let (scale, prefix) = match value {
        value if value >= 1e9 => (1e9, "G"),
        value if value >= 1e6 => (1e6, "M"),
        value if value >= 1e3 => (1e3, "k"),
        _ => (1.0, ""),
    };
    format!("{} {prefix}{unit}", rounded(value / scale))
}

/// Memory comes in powers of two.
fn bytes(value: f64) -> String {
    let (scale, unit) = match value {
        value if value >= 1_073_741_824.0 => (1_073_741_824.0, "GiB"),
        value if value >= 1_048_576.0 => (1_048_576.0, "MiB"),
        value if value >= 1024.0 => (1024.0, "KiB"),
        _ => (1.0, "B"),
    };
    format!("{} {unit}", rounded(value / scale))
}

fn seconds(value: f64) -> String {
    match value {
        0.0 => "0 s".to_owned(),
        value if value < 1e-3 => format!("{:.1} µs", value * 1e6),
        value if value < 1.0 => format!("{:.1} ms", value * 1e3),
        value => format!("{value:.1} s"),
    }
}

fn rounded(value: f64) -> String {
    format!("{}", (value * 100.0).round() / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_follow_from_names() {
        let cases = [
            ("bus_bytes_per_s", 1.56e9, "1.56 GB/s"),
            ("clock_hz", 4e8, "400 MHz"),
            ("page_bytes", 8192.0, "8 KiB"),
            ("sram_bytes", 0.0, "0 B"),
            ("poll_s", 0.01, "10.0 ms"),
            ("latency_s", 0.0, "0 s"),
            ("read_latency_s", 7.5e-5, "75.0 µs"),
            ("idle_w", 4.5, "4.5 W"),
            ("page_cycles", 20.0, "20 cycles"),
            ("cores", 2.0, "2"),
        ];
        for (name, value, expected) in cases {
            assert_eq!(quantity_text(name, value), expected);
        }
    }
}
