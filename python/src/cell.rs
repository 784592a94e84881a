//! `_pithead.cell`: what `pithead.cell` needs of the engine. Arrays come as buffers and go as bytes.

use pithead_cell::{GroupMoments, MatrixPart, Ranked};
use pithead_matrix::{CellsSpec, Correction, FoldChange, Method, Test};
use pithead_model::near_names;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::buffers::{bytes_of, exactly};
use crate::connection::Connection;
use crate::errors;
use crate::runtime::nothing;
use crate::types;
use crate::writer::Writer;

/// Adds the submodule.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let cell = PyModule::new(module.py(), "cell")?;
    cell.add_class::<Writer>()?;
    for function in [
        wrap_pyfunction!(encode_cells, &cell)?,
        wrap_pyfunction!(rank_genes, &cell)?,
        wrap_pyfunction!(moments, &cell)?,
        wrap_pyfunction!(cell_sums, &cell)?,
        wrap_pyfunction!(take, &cell)?,
        wrap_pyfunction!(gram, &cell)?,
        wrap_pyfunction!(adjust, &cell)?,
        wrap_pyfunction!(rankings, &cell)?,
    ] {
        cell.add_function(function)?;
    }
    module.add_submodule(&cell)
}

/// What the drives must know of the cells.
#[pyfunction]
#[pyo3(signature = (n_cells, *, groups = None, n_groups = 0, exclude = None, totals = None, target_sum = None, log1p = false,
    base = None, reference = None, expm1 = false, basis = None, center = false, scale = false))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments")]
fn encode_cells<'py>(
    py: Python<'py>,
    n_cells: usize,
    groups: Option<Bound<'py, PyAny>>,
    n_groups: usize,
    exclude: Option<Bound<'py, PyAny>>,
    totals: Option<Bound<'py, PyAny>>,
    target_sum: Option<f64>,
    log1p: bool,
    base: Option<f64>,
    reference: Option<usize>,
    expm1: bool,
    basis: Option<Bound<'py, PyAny>>,
    center: bool,
    scale: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let groups: Vec<i32> = groups.map_or_else(|| Ok(Vec::new()), |groups| exactly(&groups, "groups", "int32"))?;
    let exclude: Vec<u8> = exclude.map_or_else(|| Ok(Vec::new()), |exclude| exactly(&exclude, "exclude", "uint8"))?;
    let totals: Vec<f64> = match (totals, target_sum) {
        (Some(totals), Some(_)) => exactly(&totals, "totals", "float64")?,
        _ => Vec::new(),
    };
    let none = n_groups.min(usize::from(u16::MAX) - 1) as u16;
    let mut codes: Vec<u16> =
        groups.iter().map(|group| u16::try_from(*group).ok().filter(|group| *group < none).unwrap_or(none)).collect();
    if !exclude.is_empty() {
        codes.resize(n_cells, none);
        codes.iter_mut().zip(&exclude).filter(|(_, out)| **out != 0).for_each(|(code, _)| *code = none + 1);
    }
    let spec = CellsSpec {
        n_cells,
        n_groups,
        codes,
        totals,
        target_sum: target_sum.unwrap_or(1.0),
        log1p,
        base,
        sum_expm1: expm1,
        reference,
        centered: center,
        unit_variance: scale,
        basis: basis.map_or_else(|| Ok(Vec::new()), |basis| exactly(&basis, "basis", "float32"))?,
    };
    let bytes = py.detach(|| pithead_cell::encoded(&spec)).map_err(errors::to_python)?;
    Ok(PyBytes::new(py, &bytes))
}

fn parts(parts: Vec<(String, Vec<u8>)>) -> PyResult<Vec<MatrixPart>> {
    let part = |(name, cells): (String, Vec<u8>)| Ok(MatrixPart { dataset: name.parse().map_err(errors::to_python)?, cells });
    parts.into_iter().map(part).collect()
}

fn ascending(genes: Option<Vec<i32>>) -> Option<Vec<i32>> {
    genes.map(|mut genes| {
        genes.sort_unstable();
        genes.dedup();
        genes
    })
}

/// Compares groups of cells, gene by gene.
#[pyfunction(name = "rank_genes")]
#[pyo3(signature = (conn, parts, *, method, groups, reference = None, corr_method = "benjamini-hochberg", tie_correct = false,
    fold_change = "scanpy", base = None, genes = None))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments")]
fn rank_genes(
    py: Python<'_>,
    conn: &Connection,
    parts: Vec<(String, Vec<u8>)>,
    method: &str,
    groups: Vec<usize>,
    reference: Option<usize>,
    corr_method: &str,
    tie_correct: bool,
    fold_change: &str,
    base: Option<f64>,
    genes: Option<Vec<i32>>,
) -> PyResult<Py<PyDict>> {
    let methods = [
        ("t-test", Method::Welch),
        ("student", Method::Student),
        ("t-test_overestim_var", Method::Overestimated),
        ("wilcoxon", Method::Wilcoxon),
    ];
    let changes = [("scanpy", FoldChange::Scanpy), ("seurat", FoldChange::Seurat), ("seurat_v4", FoldChange::SeuratV4)];
    let method = named("method", method, &methods)?;
    let fold_change = named("fold_change", fold_change, &changes)?;
    let correction = correction(corr_method)?;
    let test = Test { method, groups, reference, fold_change, base, tie_correct };
    let (parts, genes) = (self::parts(parts)?, ascending(genes));
    let (host, session) = (conn.host()?, conn.session()?);
    let ranked = conn.run(py, nothing, async move {
        pithead_cell::rank_genes(&session, &host, &parts, &test, correction, genes.as_deref()).await
    })?;
    let Ranked { genes, ids, scores, p_values, adjusted, fold_changes, shares, means, cost } = ranked;
    let answer = PyDict::new(py);
    keys(&answer, &genes, ids)?;
    let ([share, share_other], [mean, mean_other]) = (shares, means);
    let arrays = [
        ("scores", scores),
        ("pvals", p_values),
        ("pvals_adj", adjusted),
        ("logfoldchanges", fold_changes),
        ("pts", share),
        ("pts_rest", share_other),
        ("means", mean),
        ("means_rest", mean_other),
    ];
    // Each goes when it has been copied.
    for (name, values) in arrays {
        answer.set_item(name, bytes_of(py, &values))?;
    }
    answer.set_item("profile", types::costs(py, &cost)?)?;
    Ok(answer.unbind())
}

/// Moments of each gene in every group.
#[pyfunction]
#[pyo3(signature = (conn, parts, *, genes = None))]
fn moments(py: Python<'_>, conn: &Connection, parts: Vec<(String, Vec<u8>)>, genes: Option<Vec<i32>>) -> PyResult<Py<PyDict>> {
    let (parts, genes) = (self::parts(parts)?, ascending(genes));
    let (host, session) = (conn.host()?, conn.session()?);
    let found = conn.run(py, nothing, async move { pithead_cell::moments(&session, &host, &parts, genes.as_deref()).await })?;
    let GroupMoments { genes, ids, sizes, means, m2, nonzeros, sums_expm1, cost } = found;
    let answer = PyDict::new(py);
    let count = genes.len().max(ids.len());
    keys(&answer, &genes, ids)?;
    let sizes: Vec<f64> = sizes.iter().map(|size| *size as f64).collect();
    let expm1_means: Vec<f64> = sums_expm1.iter().enumerate().map(|(place, sum)| sum / sizes[place / count.max(1)]).collect();
    for (name, values) in [("n", &sizes), ("mean", &means), ("m2", &m2), ("nonzeros", &nonzeros), ("expm1_mean", &expm1_means)]
    {
        answer.set_item(name, bytes_of(py, values))?;
    }
    answer.set_item("profile", types::costs(py, &cost)?)?;
    Ok(answer.unbind())
}

/// Sums over genes of each cell that counts.
#[pyfunction]
#[pyo3(signature = (conn, dataset, cells, genes = None))]
fn cell_sums(
    py: Python<'_>,
    conn: &Connection,
    dataset: String,
    cells: Vec<u8>,
    genes: Option<Vec<i32>>,
) -> PyResult<Py<PyDict>> {
    let part = parts(vec![(dataset, cells)])?.remove(0);
    let (host, session, genes) = (conn.host()?, conn.session()?, ascending(genes));
    let totals =
        conn.run(py, nothing, async move { pithead_cell::cell_sums(&session, &host, &part, genes.as_deref()).await })?;
    let answer = PyDict::new(py);
    let nonzeros: Vec<u32> = totals.nonzeros.iter().map(|count| *count as u32).collect();
    answer.set_item("sum", bytes_of(py, &totals.sums))?;
    answer.set_item("nonzeros", bytes_of(py, &nonzeros))?;
    Ok(answer.unbind())
}

/// Part of a matrix, in CSC.
#[pyfunction]
#[pyo3(signature = (conn, dataset, cells, genes = None))]
fn take(py: Python<'_>, conn: &Connection, dataset: String, cells: Vec<u8>, genes: Option<Vec<i32>>) -> PyResult<Py<PyDict>> {
    let part = parts(vec![(dataset, cells)])?.remove(0);
    let (host, session, genes) = (conn.host()?, conn.session()?, ascending(genes));
    let taken = conn.run(py, nothing, async move { pithead_cell::take(&session, &host, &part, genes.as_deref()).await })?;
    let answer = PyDict::new(py);
    answer.set_item("genes", bytes_of(py, &taken.genes))?;
    answer.set_item("indptr", bytes_of(py, &taken.starts))?;
    answer.set_item("indices", bytes_of(py, &taken.cells))?;
    answer.set_item("data", bytes_of(py, &taken.values))?;
    Ok(answer.unbind())
}

/// The Gram matrix of the cells that count, or its product with the basis that the cells bring; float64, row by row.
#[pyfunction]
#[pyo3(signature = (conn, dataset, cells, genes = None))]
fn gram<'py>(
    py: Python<'py>,
    conn: &Connection,
    dataset: String,
    cells: Vec<u8>,
    genes: Option<Vec<i32>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let part = parts(vec![(dataset, cells)])?.remove(0);
    let (host, session, genes) = (conn.host()?, conn.session()?, ascending(genes));
    let found = conn.run(py, nothing, async move { pithead_cell::gram(&session, &host, &part, genes.as_deref()).await })?;
    Ok(bytes_of(py, &found.map(|found| found.values).unwrap_or_default()))
}

/// p-values corrected for their number.
#[pyfunction]
fn adjust<'py>(py: Python<'py>, pvals: Bound<'py, PyAny>, method: &str) -> PyResult<Bound<'py, PyBytes>> {
    let values: Vec<f64> = exactly(&pvals, "pvals", "float64")?;
    Ok(bytes_of(py, &pithead_matrix::adjust(&values, correction(method)?)))
}

/// For each row of `width` values, positions from the largest to the smallest, or by how far values are from 0; int32. Equal ones keep
/// their order.
#[pyfunction]
fn rankings<'py>(py: Python<'py>, values: Bound<'py, PyAny>, width: usize, absolute: bool) -> PyResult<Bound<'py, PyBytes>> {
    let values: Vec<f64> = exactly(&values, "values", "float64")?;
    let order = py.detach(|| pithead_cell::rankings(&values, width, absolute));
    Ok(bytes_of(py, &order))
}

fn correction(name: &str) -> PyResult<Correction> {
    let known = [("benjamini-hochberg", Correction::BenjaminiHochberg), ("bonferroni", Correction::Bonferroni)];
    named("corr_method", name, &known)
}

pub(crate) fn named<T: Copy>(argument: &str, name: &str, known: &[(&str, T)]) -> PyResult<T> {
    if let Some((_, value)) = known.iter().find(|(known, _)| *known == name) {
        return Ok(*value);
    }
    let names: Vec<String> = known.iter().map(|(known, _)| format!("{known:?}")).collect();
    let near = near_names(name, known.iter().map(|(known, _)| *known));
    let hint =
        if near.is_empty() { "see help(pithead.cell)".to_owned() } else { format!("did you mean {}?", near.join(" or ")) };
    Err(errors::user(format!("{argument}: expected one of {}, got {name:?}", names.join(", ")), &hint))
}

fn keys(answer: &Bound<'_, PyDict>, genes: &[i32], ids: Vec<String>) -> PyResult<()> {
    answer.set_item("genes", bytes_of(answer.py(), genes))?;
    answer.set_item("ids", ids)
}
