//! `\l`: the domains, by what is in them.

use std::collections::BTreeMap;
use std::io::Write;

use pithead_host::Host;
use pithead_model::{Bytes, Dataset, DatasetName, View};

use crate::error::CliError;
use crate::output::{Align, Grid, Sink};
use crate::terminal::grouped;

/// What is in a domain.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    datasets: u64,
    rows: u64,
    bytes: u64,
    views: u64,
}

/// Writes a table of domains.
pub(crate) async fn list(host: &Host, out: &mut Sink) -> Result<(), CliError> {
    grid(&host.fleet().datasets().await?, &host.fleet().views().await?).write(out)?;
    Ok(out.flush()?)
}

fn grid(datasets: &[(DatasetName, Dataset)], views: &[(DatasetName, View)]) -> Grid {
    use Align::{Left, Right};
    let mut domains: BTreeMap<&str, Held> = BTreeMap::new();
    for (name, dataset) in datasets {
        let held = domains.entry(&name.domain).or_default();
        held.datasets += 1;
        held.rows += dataset.rows();
        held.bytes += dataset.bytes();
    }
    for (name, _) in views {
        domains.entry(&name.domain).or_default().views += 1;
    }
    let mut grid = Grid::of(&[("domain", Left), ("datasets", Right), ("rows", Right), ("stored", Right), ("views", Right)]);
    for (domain, held) in domains {
        let Held { datasets, rows, bytes, views } = held;
        grid.push(vec![domain.to_owned(), grouped(datasets), grouped(rows), Bytes(bytes).to_string(), grouped(views)]);
    }
    grid
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, Schema};
    use pithead_model::{ColumnSummary, DatasetId, DriveId, LoadId, Partition, Partitioning, Run};

    use super::*;

    #[test]
    fn a_domain_is_listed_whatever_is_in_it() {
        let schema = Arc::new(Schema::new(vec![Field::new("day", DataType::Date32, true)]));
        let run = Run { load: LoadId(1), slices: 2, rows: 1_000, bytes: 64_000 };
        let dataset = Dataset {
            id: DatasetId(1),
            schema: Arc::clone(&schema),
            metadata: BTreeMap::new(),
            partitioning: Partitioning::RoundRobin,
            sort: vec![],
            encoding: "vortex".into(),
            slice_rows: 512,
            slice_bytes: None,
            copies: 1,
            merged: 0,
            partitions: vec![Partition { copies: vec![DriveId(1)], runs: vec![run], columns: vec![ColumnSummary::default()] }],
        };
        let view = View { sql: "SELECT day FROM lab.t".into(), domain: "main".into(), columns: vec![], schema };
        let datasets = [("lab.t".parse().unwrap(), dataset.clone()), ("lab.u".parse().unwrap(), dataset)];
        let views = ["lab.v", "reports.daily"].map(|name| (name.parse().unwrap(), view.clone()));
        let mut out = Vec::new();
        grid(&datasets, &views).write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("lab     |        2 | 2,000 | 128 kB |     1"), "{text}");
        assert!(text.contains("reports |        0 |     0 |    0 B |     1"), "{text}");
    }
}
