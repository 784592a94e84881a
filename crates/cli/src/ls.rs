//! `pithead ls`: what datasets there are, and what is known of one.

use std::collections::BTreeSet;
use std::io::Write;

use clap::Args;
use pithead_host::Host;
use pithead_model::{
    Blame, Bytes, ColumnSummary, Dataset, DatasetName, DriveId, Fault, Partition, Partitioning, SortKey, View, near_names,
};
use serde_json::{Value as Json, json};

use crate::error::CliError;
use crate::interrupt::Interrupts;
use crate::output::{Align, Grid, Sink};
use crate::target::{TargetArgs, connected};
use crate::terminal::grouped;
use crate::value_text::{nulls_text, value_text};

const EXAMPLES: &str = "\
Examples:
  pithead ls                  # all datasets and views
  pithead ls tpch             # those of a domain
  pithead ls tpch.lineitem    # the columns of one
  pithead ls --json | jq .name";

/// List datasets, or the columns of one.
///
/// All that is shown comes from the manifests; no slice is read. Distinct counts are estimates.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LsArgs {
    /// A domain, or a dataset as NAME or DOMAIN.NAME
    #[arg(value_name = "DOMAIN|DATASET")]
    name: Option<String>,
    /// One JSON object a dataset, or for one dataset its columns too
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

/// What a name selects.
enum Selected {
    Datasets(Vec<(DatasetName, Dataset)>, Vec<(DatasetName, View)>),
    One(Box<(DatasetName, Dataset)>),
    View(Box<(DatasetName, View)>),
}

/// Runs the command.
pub(crate) async fn run(args: LsArgs) -> Result<(), CliError> {
    let interrupts = Interrupts::listen();
    connected(&args.target, &interrupts, async |engine| {
        let mut sink = Sink::stdout();
        interrupts
            .cancels(async {
                match args.json {
                    true => list_json(&engine.host, args.name.as_deref(), &mut sink).await,
                    false => list(&engine.host, args.name.as_deref(), &mut sink).await,
                }
            })
            .await?;
        sink.finish()
    })
    .await
}

/// Writes a table of datasets, or what is known of one.
pub(crate) async fn list(host: &Host, name: Option<&str>, out: &mut Sink) -> Result<(), CliError> {
    let selected = selected(host, name).await?;
    let drives = host.fleet().connected();
    let is_nowhere = |id| drives.is_nowhere(id);
    match selected {
        Selected::Datasets(datasets, views) => {
            if !datasets.is_empty() || views.is_empty() {
                datasets_grid(&datasets, &is_nowhere).write(out)?;
            }
            if !views.is_empty() {
                views_grid(&views).write(out)?;
            }
        }
        Selected::View(one) => write_view(&one.0, &one.1, out)?,
        Selected::One(one) => {
            let (name, dataset) = *one;
            write_facts(&name, &dataset, &is_nowhere, out)?;
            columns_grid(&dataset).write(out)?;
        }
    }
    Ok(out.flush()?)
}

/// Writes a table of views.
pub(crate) async fn views(host: &Host, out: &mut Sink) -> Result<(), CliError> {
    views_grid(&host.fleet().views().await?).write(out)?;
    Ok(out.flush()?)
}

/// What a name selects of what there is; none: all.
async fn selected(host: &Host, name: Option<&str>) -> Result<Selected, CliError> {
    select(host.fleet().datasets().await?, host.fleet().views().await?, name)
}

async fn list_json(host: &Host, name: Option<&str>, out: &mut Sink) -> Result<(), CliError> {
    let selected = selected(host, name).await?;
    let drives = host.fleet().connected();
    let is_nowhere = |id| drives.is_nowhere(id);
    match selected {
        Selected::Datasets(datasets, views) => {
            for (name, dataset) in &datasets {
                writeln!(out, "{}", dataset_json(name, dataset, &is_nowhere))?;
            }
            for (name, view) in &views {
                writeln!(out, "{}", view_json(name, view))?;
            }
        }
        Selected::View(one) => writeln!(out, "{}", view_json(&one.0, &one.1))?,
        Selected::One(one) => {
            let mut object = dataset_json(&one.0, &one.1, &is_nowhere);
            object["columns"] = columns_json(&one.1);
            object["metadata"] = json!(one.1.metadata);
            writeln!(out, "{object}")?;
        }
    }
    Ok(())
}

/// A dataset or a view goes before a domain of the same name.
fn select(
    datasets: Vec<(DatasetName, Dataset)>,
    views: Vec<(DatasetName, View)>,
    wanted: Option<&str>,
) -> Result<Selected, CliError> {
    let Some(wanted) = wanted else { return Ok(Selected::Datasets(datasets, views)) };
    let name: DatasetName = wanted.parse()?;
    if let Some(one) = datasets.iter().find(|(other, _)| *other == name) {
        return Ok(Selected::One(Box::new(one.clone())));
    }
    if let Some(one) = views.iter().find(|(other, _)| *other == name) {
        return Ok(Selected::View(Box::new(one.clone())));
    }
    let (inside, outside): (Vec<_>, Vec<_>) = datasets.into_iter().partition(|(other, _)| other.domain == wanted);
    let (views, others): (Vec<_>, Vec<_>) = views.into_iter().partition(|(other, _)| other.domain == wanted);
    if inside.is_empty() && views.is_empty() {
        let names = outside.iter().map(|(name, _)| name).chain(others.iter().map(|(name, _)| name));
        return Err(unknown(wanted, names).into());
    }
    Ok(Selected::Datasets(inside, views))
}

fn unknown<'a>(wanted: &str, names: impl Iterator<Item = &'a DatasetName>) -> Fault {
    let names: BTreeSet<String> = names
        .flat_map(|name| match name.domain == DatasetName::DEFAULT_DOMAIN {
            true => vec![name.dataset.clone()],
            false => vec![name.to_string(), name.domain.clone()],
        })
        .collect();
    let near = near_names(wanted, names.iter().map(String::as_str));
    let fault = Fault::new(Blame::User, format!("there is no dataset or domain {wanted:?}"));
    match near.as_slice() {
        [] => fault.hint("`pithead ls` lists all"),
        near => fault.hint(format!("did you mean {}?", near.join(" or "))),
    }
}

fn views_grid(views: &[(DatasetName, View)]) -> Grid {
    use Align::{Left, Right};
    let mut grid = Grid::of(&[("view", Left), ("columns", Right), ("query", Left)]);
    for (name, view) in views {
        grid.push(vec![name.to_string(), view.schema.fields().len().to_string(), one_line(&view.sql)]);
    }
    grid
}

/// A query in one line, and not a long one.
fn one_line(sql: &str) -> String {
    const CHARACTERS_MAX: usize = 80;
    let line = sql.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn write_view(name: &DatasetName, view: &View, out: &mut Sink) -> Result<(), CliError> {
    writeln!(out, "{name}: a view, whose bare names are of domain {}", view.domain)?;
    writeln!(out, "{}", view.sql)?;
    let mut grid = Grid::of(&[("column", Align::Left), ("type", Align::Left)]);
    for field in view.schema.fields() {
        grid.push(vec![field.name().clone(), field.data_type().to_string()]);
    }
    Ok(grid.write(out)?)
}

fn view_json(name: &DatasetName, view: &View) -> Json {
    let columns = view.schema.fields().iter();
    let columns = columns.map(|field| json!({"name": field.name(), "type": field.data_type().to_string()}));
    json!({
        "name": name.to_string(),
        "view": view.sql,
        "domain": view.domain,
        "columns": columns.collect::<Vec<_>>(),
    })
}

fn datasets_grid(datasets: &[(DatasetName, Dataset)], is_nowhere: &impl Fn(DriveId) -> bool) -> Grid {
    use Align::{Left, Right};
    let mut grid = Grid::of(&[
        ("dataset", Left),
        ("rows", Right),
        ("slices", Right),
        ("stored", Right),
        ("partitions", Right),
        ("copies", Right),
        ("partitioned by", Left),
        ("sorted by", Left),
        ("encoding", Left),
    ]);
    for (name, dataset) in datasets {
        grid.push(vec![
            name.to_string(),
            grouped(dataset.rows()),
            grouped(dataset.slices()),
            Bytes(dataset.bytes()).to_string(),
            dataset.partitions.len().to_string(),
            copies_text(dataset, is_nowhere),
            partitioning_text(&dataset.partitioning),
            sort_text(&dataset.sort),
            dataset.encoding.clone(),
        ]);
    }
    grid
}

fn write_facts(
    name: &DatasetName,
    dataset: &Dataset,
    is_nowhere: &impl Fn(DriveId) -> bool,
    out: &mut Sink,
) -> Result<(), CliError> {
    writeln!(
        out,
        "{name}: {} rows in {} slices, {} stored as {} in {} partitions by {}, copies: {}",
        grouped(dataset.rows()),
        grouped(dataset.slices()),
        Bytes(dataset.bytes()),
        dataset.encoding,
        dataset.partitions.len(),
        partitioning_text(&dataset.partitioning),
        copies_text(dataset, is_nowhere),
    )?;
    if !dataset.sort.is_empty() {
        writeln!(out, "sorted by {}", sort_text(&dataset.sort))?;
    }
    if dataset.partitioning.may_part_zeros() {
        writeln!(
            out,
            "note: loaded by a release that placed 0.0 and -0.0 apart, so drives do not group and join by its ranges; load it \
             anew with --replace"
        )?;
    }
    for (key, value) in &dataset.metadata {
        writeln!(out, "{}: {}", key.escape_debug(), value.escape_debug())?;
    }
    Ok(())
}

fn columns_grid(dataset: &Dataset) -> Grid {
    use Align::{Left, Right};
    let columns = [("column", Left), ("type", Left), ("nulls", Right), ("min", Left), ("max", Left), ("distinct", Right)];
    let mut grid = Grid::of(&columns);
    let summaries = summaries(dataset);
    for (field, summary) in dataset.schema.fields().iter().zip(&summaries) {
        let bound = |value: &Option<pithead_model::Value>| value.as_ref().map(|value| value_text(value, field.data_type()));
        grid.push(vec![
            field.name().clone(),
            format!("{}{}", field.data_type(), if field.is_nullable() { "" } else { " not null" }),
            nulls_text(summary),
            bound(&summary.min).unwrap_or_default(),
            bound(&summary.max).unwrap_or_default(),
            if summary.distinct == 0 { String::new() } else { format!("~{}", grouped(summary.distinct)) },
        ]);
    }
    grid
}

/// One summary a column, also for a dataset into which nothing was loaded.
fn summaries(dataset: &Dataset) -> Vec<ColumnSummary> {
    let mut summaries = dataset.columns();
    summaries.resize(dataset.schema.fields().len(), ColumnSummary::default());
    summaries
}

fn partitioning_text(partitioning: &Partitioning) -> String {
    match partitioning {
        Partitioning::RoundRobin => "round-robin".to_owned(),
        Partitioning::Hash { columns } => format!("hash({})", columns.join(", ")),
        Partitioning::Range { column, .. } => format!("range({column})"),
    }
}

/// How many copies there are, and of how many that is too few.
fn copies_text(dataset: &Dataset, is_nowhere: &impl Fn(DriveId) -> bool) -> String {
    let there = copies_there(dataset, is_nowhere);
    if there < dataset.copies { format!("{there} of {}", dataset.copies) } else { dataset.copies.to_string() }
}

/// The copies that each partition has at least. Those on drives in whose place others answer are none any more.
fn copies_there(dataset: &Dataset, is_nowhere: &impl Fn(DriveId) -> bool) -> usize {
    let there = |partition: &Partition| partition.copies.iter().filter(|id| !is_nowhere(**id)).count();
    dataset.partitions.iter().map(there).min().unwrap_or(dataset.copies)
}

fn sort_text(sort: &[SortKey]) -> String {
    let keys = sort.iter().map(|key| format!("{}{}", key.column, if key.descending { " desc" } else { "" }));
    keys.collect::<Vec<_>>().join(", ")
}

fn dataset_json(name: &DatasetName, dataset: &Dataset, is_nowhere: &impl Fn(DriveId) -> bool) -> Json {
    json!({
        "name": name.to_string(),
        "rows": dataset.rows(),
        "slices": dataset.slices(),
        "stored_bytes": dataset.bytes(),
        "partitions": dataset.partitions.len(),
        "copies": dataset.copies,
        "copies_there": copies_there(dataset, is_nowhere),
        "partitioned_by": partitioning_text(&dataset.partitioning),
        "sorted_by": sort_text(&dataset.sort),
        "encoding": dataset.encoding,
    })
}

fn columns_json(dataset: &Dataset) -> Json {
    let summaries = summaries(dataset);
    let columns = dataset.schema.fields().iter().zip(&summaries).map(|(field, summary)| {
        let bound = |value: &Option<pithead_model::Value>| value.as_ref().map(|value| value_text(value, field.data_type()));
        json!({
            "name": field.name(),
            "type": field.data_type().to_string(),
            "nullable": field.is_nullable(),
            "nulls": (!summary.nulls_unknown).then_some(summary.nulls),
            "min": bound(&summary.min),
            "max": bound(&summary.max),
            "bounds_exact": summary.exact,
            "distinct_estimate": summary.distinct,
        })
    });
    Json::Array(columns.collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, Schema};
    use pithead_model::{DatasetId, LoadId, Run, Value};

    use super::*;

    fn dataset() -> Dataset {
        let summary = ColumnSummary {
            min: Some(Value::Int(0)),
            max: Some(Value::Int(364)),
            exact: true,
            nulls: 3,
            nulls_unknown: false,
            distinct: 365,
        };
        let run = Run { load: LoadId(1), slices: 2, rows: 1_000, bytes: 64_000 };
        Dataset {
            id: DatasetId(1),
            schema: Arc::new(Schema::new(vec![Field::new("day", DataType::Date32, true)])),
            metadata: [("source".to_owned(), "city\nhall".to_owned())].into(),
            partitioning: Partitioning::Hash { columns: vec!["day".into()] },
            sort: vec![SortKey { column: "day".into(), descending: true }],
            encoding: "vortex".into(),
            slice_rows: 512,
            slice_bytes: None,
            copies: 2,
            merged: 0,
            partitions: vec![Partition { copies: vec![DriveId(1)], runs: vec![run], columns: vec![summary] }],
        }
    }

    fn shown(grid: &Grid) -> String {
        let mut out = Vec::new();
        grid.write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn datasets_and_columns_make_tables() {
        let all = shown(&datasets_grid(&[("lab.t".parse().unwrap(), dataset())], &|_| false));
        assert!(
            all.contains("lab.t   | 1,000 |      2 | 64.0 kB |          1 | 1 of 2 | hash(day)      | day desc  | vortex"),
            "{all}"
        );
        let one = shown(&columns_grid(&dataset()));
        assert!(one.contains("day    | Date32 |     3 | 1970-01-01 | 1970-12-31 |     ~365"), "{one}");
    }

    #[test]
    fn copies_on_drives_that_were_replaced_are_none() {
        let mut dataset = dataset();
        dataset.partitions[0].copies = vec![DriveId(1), DriveId(2)];
        assert_eq!(copies_text(&dataset, &|_| false), "2");
        assert_eq!(copies_text(&dataset, &|id| id == DriveId(2)), "1 of 2");
        assert_eq!(copies_text(&dataset, &|_| true), "0 of 2");
    }

    #[test]
    fn a_name_selects_a_dataset_or_a_domain() {
        let all = || vec![("main.t".parse().unwrap(), dataset()), ("lab.t".parse().unwrap(), dataset())];
        assert!(matches!(select(all(), vec![], Some("t")), Ok(Selected::One(one)) if one.0.domain == "main"));
        assert!(matches!(select(all(), vec![], Some("lab.t")), Ok(Selected::One(one)) if one.0.domain == "lab"));
        assert!(matches!(select(all(), vec![], Some("lab")), Ok(Selected::Datasets(datasets, _)) if datasets.len() == 1));
        assert!(matches!(select(all(), vec![], None), Ok(Selected::Datasets(datasets, _)) if datasets.len() == 2));
        let Err(CliError::Fault(fault)) = select(all(), vec![], Some("la.t")) else { panic!("there is no la.t") };
        assert_eq!((fault.blame, fault.hint.as_deref()), (Blame::User, Some("did you mean lab.t or lab?")));
    }
}
