//! `combine` for many groups. A group is usually a gene that comes once, and then its bytes are only passed on.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BinaryViewBuilder, BooleanArray};
use datafusion::common::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};

use crate::aggregates::add;
use crate::blobs::Blobs;

/// The combined bytes of each group; empty if the group had none.
#[derive(Debug, Default)]
pub(crate) struct CombineGroups {
    groups: Vec<Vec<u8>>,
    bytes: usize,
}

impl CombineGroups {
    fn add(&mut self, column: &ArrayRef, indices: &[usize], filter: Option<&BooleanArray>, groups: usize) -> Result<()> {
        self.groups.resize(groups, Vec::new());
        let blobs = Blobs::of(column, "combine")?;
        for (row, group) in indices.iter().enumerate() {
            let counts = filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
            let Some(bytes) = blobs.get(row).filter(|_| counts) else { continue };
            let own = &mut self.groups[*group];
            self.bytes -= own.capacity();
            let added = add(own, bytes);
            self.bytes += own.capacity();
            added?;
        }
        Ok(())
    }

    fn take(&mut self, emit_to: EmitTo) -> ArrayRef {
        let groups = emit_to.take_needed(&mut self.groups);
        let mut builder = BinaryViewBuilder::with_capacity(groups.len());
        for bytes in groups {
            self.bytes -= bytes.capacity();
            builder.append_option(Some(bytes).filter(|bytes| !bytes.is_empty()));
        }
        Arc::new(builder.finish())
    }
}

impl GroupsAccumulator for CombineGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.add(&values[0], group_indices, filter, total_num_groups)
    }

    fn merge_batch(&mut self, values: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> Result<()> {
        self.add(&values[0], group_indices, None, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        Ok(self.take(emit_to))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.take(emit_to)])
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let blobs = Blobs::of(&values[0], "combine")?;
        let mut builder = BinaryViewBuilder::with_capacity(blobs.len());
        for row in 0..blobs.len() {
            let counts = filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
            builder.append_option(blobs.get(row).filter(|_| counts));
        }
        Ok(vec![Arc::new(builder.finish())])
    }

    fn size(&self) -> usize {
        self.groups.capacity() * size_of::<Vec<u8>>() + self.bytes
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray, BinaryViewArray, RecordBatch};
    use arrow::datatypes::{Float64Type, Schema};
    use datafusion::common::ScalarValue;
    use datafusion::execution::context::SessionContext;
    use pithead_matrix::{CellTotals, CellsSpec, Codec, GramResult, Row, Values};
    use std::sync::Arc;

    use pithead_functions::{EngineOptions, Registry, session_state};

    /// Two genes. The cells of the second are in two rows, as in two datasets.
    fn context() -> SessionContext {
        let row = |cells: &[u32], counts: &[u32]| {
            let mut bytes = Vec::new();
            Row { n_cells: 4, cells, values: Values::Counts(counts) }.encode(Codec::Zstd, &mut bytes);
            bytes
        };
        let rows = BinaryViewArray::from_iter_values([row(&[0, 1, 3], &[2, 2, 8]), row(&[1], &[5]), row(&[2, 3], &[1, 7])]);
        let genes = arrow::array::Int32Array::from(vec![0, 1, 1]);
        let fields = [("gene", arrow::datatypes::DataType::Int32), ("expression", rows.data_type().clone())];
        let schema = Schema::new(fields.map(|(name, data_type)| arrow::datatypes::Field::new(name, data_type, true)).to_vec());
        let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(genes), Arc::new(rows)]).unwrap();
        let functions = Arc::new(Registry::new(crate::matrix_functions()).unwrap());
        let context = SessionContext::new_with_state(session_state(&EngineOptions { functions, ..EngineOptions::default() }));
        context.register_batch("m", batch).unwrap();
        context
    }

    fn cells() -> Vec<ScalarValue> {
        let spec = CellsSpec { n_cells: 4, n_groups: 2, codes: vec![0, 0, 1, 2], ..CellsSpec::default() };
        vec![ScalarValue::Binary(Some(spec.encode().unwrap()))]
    }

    async fn first(sql: &str) -> RecordBatch {
        let frame = context().sql(sql).await.unwrap().with_param_values(cells()).unwrap();
        frame.collect().await.unwrap().remove(0)
    }

    #[tokio::test]
    async fn partials_are_combined_and_tested() {
        let sql = "SELECT gene, t_stat(combine(accumulate(expression, $1)), '{\"method\": \"t-test\", \"groups\": [0, 1]}') AS t \
                   FROM m GROUP BY gene ORDER BY gene";
        let batch = first(sql).await;
        let of = |gene: usize, name: &str| {
            let list = batch.column(1).as_list::<i32>().value(gene);
            list.as_struct().column_by_name(name).unwrap().as_primitive::<Float64Type>().values().to_vec()
        };
        assert_eq!((of(0, "mean"), of(0, "mean_other")), (vec![2.0, 0.0], vec![4.0, 4.0]));
        assert_eq!((of(1, "mean"), of(1, "share")), (vec![1.25, 0.5], vec![0.25, 0.5]));
    }

    #[tokio::test]
    async fn cells_are_summed_and_multiplied() {
        let batch = first(
            "SELECT cell_sums(take_cells(expression, $1)) AS s, gram(gram_part(expression, $1)) AS g, combine(accumulate(expression, $1)) FROM m",
        )
        .await;
        let totals = CellTotals::decode(batch.column(0).as_binary_view().value(0)).unwrap();
        assert_eq!((totals.sums, totals.nonzeros), (vec![2.0, 7.0, 1.0, 15.0], vec![1.0, 2.0, 1.0, 2.0]));
        let gram = GramResult::decode(batch.column(1).as_binary_view().value(0)).unwrap();
        assert_eq!((gram.rows, gram.values[0], gram.values[3]), (4, 4.0, 16.0));
    }

    #[tokio::test]
    async fn cells_may_be_text() {
        use base64::Engine;
        let ScalarValue::Binary(Some(bytes)) = cells().remove(0) else { panic!("bytes") };
        let text = base64::prelude::BASE64_STANDARD.encode(bytes);
        let sql = format!("SELECT bool_and(accumulate(expression, '{text}') = accumulate(expression, $1)) FROM m");
        assert!(first(&sql).await.column(0).as_boolean().value(0));
    }

    #[tokio::test]
    async fn columns_for_cells_make_a_row() {
        let sql = "SELECT accumulate(dense_row(2, 2.0, NULL::float, 8), $1) = accumulate(expression, $1) FROM m WHERE gene = 0";
        assert!(first(sql).await.column(0).as_boolean().value(0));
    }

    #[tokio::test]
    async fn what_is_no_row_is_told() {
        let run = |sql: &'static str| async move {
            let frame = context().sql(sql).await.unwrap().with_param_values(cells()).unwrap();
            frame.collect().await.unwrap_err().to_string()
        };
        assert!(run("SELECT accumulate(X'00', $1) FROM m").await.contains("a gene's row"));
        assert!(run("SELECT accumulate(expression, X'0102030405060708090a') FROM m").await.contains("description of cells"));
        assert!(run("SELECT combine(rank_sums(expression, $1)) FROM m GROUP BY gene").await.contains("Wilcoxon"));
    }
}
