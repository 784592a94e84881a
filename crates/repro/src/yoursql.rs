//! Jo et al. 2016: what the model cannot reach.

use crate::figure::Report;

pub(crate) fn report() -> Report {
    let mut report = Report::new("yoursql", 1);
    let no_baseline = "MySQL joins row by row by index; there is no such engine here to compare with";
    report.missing("TPC-H: eight queries offloaded, the top five 15 times as fast", no_baseline);
    report.missing("TPC-H: 3.6 times in total", no_baseline);
    report.missing("Q2: 3,531,060 reads without an early filter, 144,453 with one", no_baseline);
    report.missing(
        "hardware filter, software filter, bulk prefetch one after another",
        "the slide's chart has no numbers, and its baseline is MySQL",
    );
    report.missing("gain by the host's memory", "the slide's chart has no numbers, and its baseline is MySQL");
    report
}
