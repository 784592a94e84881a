//! [`as_standard`] and [`as_inner`]: the methods in which a function of ours, or its accumulator, is the one of the engine that it
//! stands before.
//!
//! They are named where they are used. Any other method is as its trait has it, and not as the engine's function has it: that may be
//! wrong beside what ours does otherwise, such as a total that is taken from statistics.

/// Methods of a function that are those of its field `standard`.
macro_rules! as_standard {
    ($($method:ident)+) => { $($crate::delegated::as_standard!(@ $method);)+ };
    (@ name) => {
        fn name(&self) -> &str {
            self.standard.name()
        }
    };
    (@ aliases) => {
        fn aliases(&self) -> &[String] {
            self.standard.aliases()
        }
    };
    (@ signature) => {
        fn signature(&self) -> &datafusion::logical_expr::Signature {
            self.standard.signature()
        }
    };
    (@ documentation) => {
        fn documentation(&self) -> Option<&datafusion::logical_expr::Documentation> {
            self.standard.documentation()
        }
    };
    (@ coerce_types) => {
        fn coerce_types(
            &self,
            types: &[arrow::datatypes::DataType],
        ) -> datafusion::common::Result<Vec<arrow::datatypes::DataType>> {
            self.standard.coerce_types(types)
        }
    };
    (@ return_type) => {
        fn return_type(
            &self,
            types: &[arrow::datatypes::DataType],
        ) -> datafusion::common::Result<arrow::datatypes::DataType> {
            self.standard.return_type(types)
        }
    };
    (@ return_field_from_args) => {
        fn return_field_from_args(
            &self,
            args: datafusion::logical_expr::ReturnFieldArgs,
        ) -> datafusion::common::Result<arrow::datatypes::FieldRef> {
            self.standard.return_field_from_args(args)
        }
    };
    (@ output_ordering) => {
        fn output_ordering(
            &self,
            inputs: &[datafusion::logical_expr::sort_properties::ExprProperties],
        ) -> datafusion::common::Result<datafusion::logical_expr::sort_properties::SortProperties> {
            self.standard.output_ordering(inputs)
        }
    };
    (@ default_value) => {
        fn default_value(
            &self,
            of: &arrow::datatypes::DataType,
        ) -> datafusion::common::Result<datafusion::common::ScalarValue> {
            self.standard.default_value(of)
        }
    };
    (@ is_nullable) => {
        fn is_nullable(&self) -> bool {
            self.standard.is_nullable()
        }
    };
    (@ return_field) => {
        fn return_field(
            &self,
            fields: &[arrow::datatypes::FieldRef],
        ) -> datafusion::common::Result<arrow::datatypes::FieldRef> {
            self.standard.return_field(fields)
        }
    };
    (@ state_fields) => {
        fn state_fields(
            &self,
            args: datafusion::logical_expr::function::StateFieldsArgs,
        ) -> datafusion::common::Result<Vec<arrow::datatypes::FieldRef>> {
            self.standard.state_fields(args)
        }
    };
    (@ accumulator) => {
        fn accumulator(
            &self,
            args: datafusion::logical_expr::function::AccumulatorArgs,
        ) -> datafusion::common::Result<Box<dyn datafusion::logical_expr::Accumulator>> {
            self.standard.accumulator(args)
        }
    };
    (@ groups_accumulator_supported) => {
        fn groups_accumulator_supported(&self, args: datafusion::logical_expr::function::AccumulatorArgs) -> bool {
            self.standard.groups_accumulator_supported(args)
        }
    };
    (@ create_groups_accumulator) => {
        fn create_groups_accumulator(
            &self,
            args: datafusion::logical_expr::function::AccumulatorArgs,
        ) -> datafusion::common::Result<Box<dyn datafusion::logical_expr::GroupsAccumulator>> {
            self.standard.create_groups_accumulator(args)
        }
    };
    (@ reverse_expr) => {
        fn reverse_expr(&self) -> datafusion::logical_expr::ReversedUDAF {
            self.standard.reverse_expr()
        }
    };
    (@ supports_null_handling_clause) => {
        fn supports_null_handling_clause(&self) -> bool {
            self.standard.supports_null_handling_clause()
        }
    };
}

/// Methods of an accumulator of one value or of groups that are those of the one in a field.
macro_rules! as_inner {
    ($field:tt: $($method:ident)+) => { $($crate::delegated::as_inner!(@ $field $method);)+ };
    (@ $field:tt update_batch) => {
        fn update_batch(&mut self, values: &[arrow::array::ArrayRef]) -> datafusion::common::Result<()> {
            self.$field.update_batch(values)
        }
    };
    (@ $field:tt merge_batch) => {
        fn merge_batch(&mut self, states: &[arrow::array::ArrayRef]) -> datafusion::common::Result<()> {
            self.$field.merge_batch(states)
        }
    };
    (@ $field:tt retract_batch) => {
        fn retract_batch(&mut self, values: &[arrow::array::ArrayRef]) -> datafusion::common::Result<()> {
            self.$field.retract_batch(values)
        }

        fn supports_retract_batch(&self) -> bool {
            self.$field.supports_retract_batch()
        }
    };
    (@ $field:tt state) => {
        fn state(&mut self) -> datafusion::common::Result<Vec<datafusion::common::ScalarValue>> {
            self.$field.state()
        }
    };
    (@ $field:tt size) => {
        fn size(&self) -> usize {
            size_of_val(self) + self.$field.size()
        }
    };
    (@ $field:tt update_groups) => {
        fn update_batch(
            &mut self,
            values: &[arrow::array::ArrayRef],
            group_indices: &[usize],
            filter: Option<&arrow::array::BooleanArray>,
            groups: usize,
        ) -> datafusion::common::Result<()> {
            self.$field.update_batch(values, group_indices, filter, groups)
        }
    };
    (@ $field:tt merge_groups) => {
        fn merge_batch(
            &mut self,
            states: &[arrow::array::ArrayRef],
            group_indices: &[usize],
            groups: usize,
        ) -> datafusion::common::Result<()> {
            self.$field.merge_batch(states, group_indices, groups)
        }
    };
    (@ $field:tt state_of_groups) => {
        fn state(
            &mut self,
            emit_to: datafusion::logical_expr::EmitTo,
        ) -> datafusion::common::Result<Vec<arrow::array::ArrayRef>> {
            self.$field.state(emit_to)
        }

        fn convert_to_state(
            &self,
            values: &[arrow::array::ArrayRef],
            filter: Option<&arrow::array::BooleanArray>,
        ) -> datafusion::common::Result<Vec<arrow::array::ArrayRef>> {
            self.$field.convert_to_state(values, filter)
        }
    };
}

pub(crate) use {as_inner, as_standard};
