//! What the drives are asked. Each question is SQL over the functions of `pithead_functions`, so that it is cut, pushed down, pushed back
//! and kept as any query is.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures::StreamExt;
use pithead_host::{Host, Parameters, ProfileSnapshot, Session};
use pithead_matrix::{CellTotals, CellsSpec, Correction, GramResult, Method, Test};
use pithead_model::{DatasetName, Fault, boxed};

use crate::fault::{bug, invalid, malformed};
use crate::result::{GenePartials, GroupMoments, MatrixByGene, Outcomes};

/// Genes that a question lists at most. Of more, all are asked for, and the others are left out of the answer.
const LISTED_GENES: usize = 4_096;

/// One dataset of a question, and what the drives must know of its cells ([`CellsSpec`], encoded).
#[derive(Clone, Debug)]
pub struct MatrixPart {
    /// A matrix.
    pub dataset: DatasetName,
    /// Its cells.
    pub cells: Vec<u8>,
}

/// What [`rank_genes`] gives: for each group that was asked for, a value for each gene, group after group.
#[derive(Clone, Debug, Default)]
pub struct Ranked {
    /// The genes: positions, ascending, for one dataset.
    pub genes: Vec<i32>,
    /// Their ids, ascending, for several.
    pub ids: Vec<String>,
    /// t or z.
    pub scores: Vec<f64>,
    /// Two-sided.
    pub p_values: Vec<f64>,
    /// Corrected for the number of genes.
    pub adjusted: Vec<f64>,
    /// log2 of the fold change.
    pub fold_changes: Vec<f64>,
    /// Share of the group's cells whose value is not zero, and of the others'.
    pub shares: [Vec<f64>; 2],
    /// Means of both.
    pub means: [Vec<f64>; 2],
    /// What it cost.
    pub cost: ProfileSnapshot,
}

/// Compares groups of cells gene by gene. Of several datasets the cells are united and genes matched by id; those that one does not have
/// are left out.
#[boxed]
pub async fn rank_genes(
    session: &Session,
    host: &Host,
    parts: &[MatrixPart],
    test: &Test,
    correction: Correction,
    genes: Option<&[i32]>,
) -> Result<Ranked, Fault> {
    let wants_ranks = test.method == Method::Wilcoxon;
    if wants_ranks && parts.len() > 1 {
        let fault = invalid("Wilcoxon's test ranks the cells of one dataset; several were given");
        return Err(fault.hint("test each by itself, or take method=\"t-test\", whose parts can be combined"));
    }
    let asked = GeneQuery::new(host, parts, genes).await?;
    let ranks = if wants_ranks { ", combine(rank_sums({}, {})) AS ranks" } else { "" };
    let over = asked.over(&format!("combine(accumulate({{}}, {{}})) AS partials{ranks}"), "combine(partials) AS partials");
    let json = test.to_json().replace('\'', "''");
    let with = if wants_ranks { ", ranks" } else { "" };
    let sql = format!("SELECT {}, t_stat(partials, '{json}'{with}) AS outcomes FROM ({over}) AS combined", asked.key);
    let mut outcomes = Outcomes::new(test.groups.len());
    let cost = asked.run(session, &sql, |batch| outcomes.add(&batch, genes)).await?;
    Ok(outcomes.ranked(correction, cost))
}

/// The moments of each gene in every group.
#[boxed]
pub async fn moments(
    session: &Session,
    host: &Host,
    parts: &[MatrixPart],
    genes: Option<&[i32]>,
) -> Result<GroupMoments, Fault> {
    let asked = GeneQuery::new(host, parts, genes).await?;
    let sql = asked.over("combine(accumulate({}, {})) AS partials", "combine(partials) AS partials");
    let mut found = GenePartials::default();
    let cost = asked.run(session, &sql, |batch| found.add(&batch, genes)).await?;
    found.moments(cost)
}

/// For each cell that counts, the sum of its values over genes and how many are not zero.
#[boxed]
pub async fn cell_sums(session: &Session, host: &Host, part: &MatrixPart, genes: Option<&[i32]>) -> Result<CellTotals, Fault> {
    let sum = one(session, host, part, genes, "cell_sums(take_cells({}, {}))").await?;
    sum.map_or_else(|| Ok(CellTotals::default()), |bytes| CellTotals::decode(&bytes).map_err(malformed))
}

/// The Gram matrix of the cells that count over these genes, or its product with the basis that `part.cells` hold. None: there are no
/// genes.
#[boxed]
pub async fn gram(
    session: &Session,
    host: &Host,
    part: &MatrixPart,
    genes: Option<&[i32]>,
) -> Result<Option<GramResult>, Fault> {
    let sum = one(session, host, part, genes, "gram(gram_part({}, {}))").await?;
    sum.map(|bytes| GramResult::decode(&bytes).map_err(malformed)).transpose()
}

/// Genes of the cells that count.
#[boxed]
pub async fn take(session: &Session, host: &Host, part: &MatrixPart, genes: Option<&[i32]>) -> Result<MatrixByGene, Fault> {
    let parts = std::slice::from_ref(part);
    let asked = GeneQuery::new(host, parts, genes).await?;
    let sql = format!("SELECT gene, {} AS taken FROM {}", asked.filled("take_cells({}, {})", 0), asked.from(0));
    let mut taken = MatrixByGene::default();
    asked.run(session, &sql, |batch| taken.add(&batch, genes)).await?;
    Ok(taken.in_order())
}

/// One value of bytes over all genes.
async fn one(
    session: &Session,
    host: &Host,
    part: &MatrixPart,
    genes: Option<&[i32]>,
    what: &str,
) -> Result<Option<Vec<u8>>, Fault> {
    if genes.is_some_and(|genes| genes.len() > LISTED_GENES) {
        return Err(invalid(format!("expected at most {LISTED_GENES} genes, or all")));
    }
    let asked = GeneQuery::new(host, std::slice::from_ref(part), genes).await?;
    let sql = format!("SELECT {} AS value FROM {}", asked.filled(what, 0), asked.from(0));
    let mut value = None;
    let keep = |batch: RecordBatch| {
        let column = crate::result::bytes(batch.column(0))?;
        value = column.iter().next().flatten().map(<[u8]>::to_vec).or(value.take());
        Ok(())
    };
    asked.run(session, &sql, keep).await?;
    Ok(value)
}

/// A question over datasets.
struct GeneQuery<'a> {
    parts: &'a [MatrixPart],
    /// What genes are told apart by: `gene`, their position, or over several datasets `id`.
    key: &'static str,
    /// A gene's row of each dataset, as SQL.
    rows: Vec<String>,
    condition: String,
}

impl<'a> GeneQuery<'a> {
    async fn new(host: &Host, parts: &'a [MatrixPart], genes: Option<&[i32]>) -> Result<GeneQuery<'a>, Fault> {
        let snapshot = host.fleet().snapshot().await?;
        let row = |part: &MatrixPart| {
            let name = &part.dataset;
            let (_, dataset) = snapshot.dataset(name).ok_or_else(|| {
                invalid(format!("there is no dataset {name}")).hint("`pithead cell ls` lists the matrices that are there")
            })?;
            let columns: Vec<&str> = dataset.schema.fields().iter().map(|field| field.name().as_str()).collect();
            match columns.as_slice() {
                ["gene", "id", "nonzeros", "expression"] => Ok("expression".to_owned()),
                ["gene", "id", cells @ ..] if cells.first().is_none_or(|first| *first == "c0") => {
                    Ok(format!("dense_row({})", cells.join(", ")))
                }
                _ => Err(invalid(format!("dataset {name} is no expression matrix")).hint("load one with `pithead cell load`")),
            }
        };
        let rows = parts.iter().map(row).collect::<Result<_, _>>()?;
        let key = if parts.len() == 1 { "gene" } else { "id" };
        let mut condition = String::new();
        if let Some(genes) = genes.filter(|genes| genes.len() <= LISTED_GENES && parts.len() == 1) {
            let listed: Vec<String> = genes.iter().map(i32::to_string).collect();
            let list = if listed.is_empty() { "-1".to_owned() } else { listed.join(", ") };
            let _ = write!(condition, " WHERE gene IN ({list})");
        }
        Ok(GeneQuery { parts, key, rows, condition })
    }

    fn from(&self, part: usize) -> String {
        let name = &self.parts[part].dataset;
        format!("{}.{}{}", quoted(&name.domain), quoted(&name.dataset), self.condition)
    }

    /// The text with `{}` filled by a part's row and its cells, in turn.
    fn filled(&self, text: &str, part: usize) -> String {
        let filler = [self.rows[part].clone(), format!("${}", part + 1)];
        let mut pieces = text.split("{}");
        let mut filled = pieces.next().unwrap_or_default().to_owned();
        for (piece, filler) in pieces.zip(filler.iter().cycle()) {
            filled.push_str(filler);
            filled.push_str(piece);
        }
        filled
    }

    /// A row a gene: of one dataset `each`, of several those of each combined by `all`.
    fn over(&self, each: &str, all: &str) -> String {
        let key = self.key;
        let of = |part: usize| format!("SELECT {key}, {} FROM {} GROUP BY {key}", self.filled(each, part), self.from(part));
        if self.parts.len() == 1 {
            return of(0);
        }
        let parts: Vec<String> = (0..self.parts.len()).map(of).collect();
        let count = parts.len();
        format!("SELECT {key}, {all} FROM ({}) AS parts GROUP BY {key} HAVING count(*) = {count}", parts.join(" UNION ALL "))
    }

    fn parameters(&self) -> Result<Parameters, Fault> {
        // As text: see `known_cells` in pithead_functions.
        let column = |part: &MatrixPart| Arc::new(StringArray::from(vec![BASE64_STANDARD.encode(&part.cells)])) as ArrayRef;
        let columns = self.parts.iter().enumerate().map(|(number, part)| (format!("p{number}"), column(part)));
        Parameters::by_place(&RecordBatch::try_from_iter(columns).map_err(bug)?)
    }

    /// Hands on what comes, and keeps none of it.
    async fn run(
        &self,
        session: &Session,
        sql: &str,
        mut take: impl FnMut(RecordBatch) -> Result<(), Fault>,
    ) -> Result<ProfileSnapshot, Fault> {
        let answer = session.run_with(sql, &self.parameters()?).await?;
        let mut rows = answer.rows;
        while let Some(batch) = rows.next().await {
            take(batch?)?;
        }
        Ok(answer.profile.snapshot())
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// What is known of cells, encoded; a user's error if it cannot be.
pub fn encoded(spec: &CellsSpec) -> Result<Vec<u8>, Fault> {
    spec.encode().map_err(|error| invalid(error.to_string()))
}
