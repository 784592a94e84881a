//! The calls that carry much in: OPEN with its shipped inputs, LOAD, and runs that are copied. All are puts: a command in
//! the first message's descriptor, then rows or pieces, and a mark that says that nothing was lost.

use std::collections::VecDeque;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use arrow_flight::{FlightData, FlightDescriptor};
use bytes::Bytes;
use pithead_door::{FunctionModule, LoadModule, check_columns, check_function, check_module, check_module_name};
use pithead_door::{LoadRequest, OpenRequest, PlanBytes, SessionOptions, ShippedInput, SlicePart};
use pithead_model::{COLUMNS_MAX, DatasetName, PLAN_BYTES_MAX, SHIPPED_BYTES_MAX, SliceKey, SliceSpan};
use serde::{Deserialize, Serialize};

use crate::decode::{BatchDecoder, Decoded};
use crate::encode::{BatchEncoder, link_bytes};
use crate::error::WireError;
use crate::json::{check_bound, from_json, json};
use crate::run::{check_name, check_run};

/// Most inputs shipped to one session.
const INPUTS_MAX: usize = 1_024;

/// The command in the descriptor of a put's first message.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PutCommand {
    /// OPEN. A Substrait plan is the message's body.
    Open(Box<OpenHeader>),
    /// LOAD.
    Load(LoadRequest),
    /// A run that another drive has; see [`crate::run`].
    Run(SliceKey),
    /// A module of SSDlets; its bytes are the message's body, and no message follows.
    Module(ModuleHeader),
    /// A module of functions; its bytes are the message's body, and no message follows.
    Function(FunctionHeader),
}

/// OPEN without bytes of plan and rows.
#[derive(Serialize, Deserialize)]
pub(crate) struct OpenHeader {
    plan: PlanHeader,
    manifest_version: u64,
    parts: Vec<SlicePart>,
    inputs: Vec<InputHeader>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    done: Vec<SliceSpan>,
    schema: SchemaRef,
    whole_partition: bool,
    options: SessionOptions,
}

/// A module without its bytes.
#[derive(Serialize, Deserialize)]
pub(crate) struct ModuleHeader {
    name: String,
    #[serde(default)]
    replace: bool,
}

impl ModuleHeader {
    /// The module whose bytes the first message brought.
    pub(crate) fn module(self, first: FlightData) -> LoadModule {
        LoadModule { name: self.name, replace: self.replace, bytes: first.data_body }
    }
}

/// The message that puts a module.
pub(crate) fn encode_module(module: LoadModule) -> Result<FlightData, WireError> {
    check_module(&module)?;
    let LoadModule { name, replace, bytes } = module;
    put_command(&PutCommand::Module(ModuleHeader { name, replace }), bytes)
}

/// A module of functions without its bytes.
#[derive(Serialize, Deserialize)]
pub(crate) struct FunctionHeader {
    domain: String,
}

impl FunctionHeader {
    /// The module whose bytes the first message brought.
    pub(crate) fn module(self, first: FlightData) -> FunctionModule {
        FunctionModule { domain: self.domain, bytes: first.data_body }
    }
}

/// The message that puts a module of functions.
pub(crate) fn encode_function(module: FunctionModule) -> Result<FlightData, WireError> {
    check_function(&module)?;
    put_command(&PutCommand::Function(FunctionHeader { domain: module.domain }), module.bytes)
}

/// The answer to who asks for the module of a function: nothing where it is not there, else a 1 before its bytes.
pub(crate) fn function_answer(module: Option<Bytes>) -> Bytes {
    module.map_or_else(Bytes::new, |module| [&[1], module.as_ref()].concat().into())
}

/// Reads that answer.
pub(crate) fn parse_function_answer(answer: Bytes) -> Result<Option<Bytes>, WireError> {
    match answer.first() {
        None => Ok(None),
        Some(1) => Ok(Some(answer.slice(1..))),
        Some(other) => Err(WireError::malformed("module of a function", format!("it begins with {other}"))),
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PlanHeader {
    Substrait,
    Scan { dataset: DatasetName, columns: Vec<String> },
}

#[derive(Serialize, Deserialize)]
pub(crate) struct InputHeader {
    name: String,
    schema: SchemaRef,
}

/// The metadata of a put's later messages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PutMark {
    /// Rows of OPEN's input of this index.
    Input(usize),
    /// Rows of a load.
    Rows,
    /// The stream is whole. One that ends without was broken off.
    End,
}

impl PutMark {
    pub(crate) fn bytes(self) -> Bytes {
        Bytes::from(serde_json::to_vec(&self).expect("a mark is JSON"))
    }
}

/// The first message of a put.
pub(crate) fn put_command(command: &PutCommand, body: Bytes) -> Result<FlightData, WireError> {
    Ok(FlightData::new().with_descriptor(FlightDescriptor::new_cmd(json(command)?)).with_data_body(body))
}

/// The last message of a put.
pub(crate) fn put_end() -> FlightData {
    FlightData::new().with_app_metadata(PutMark::End.bytes())
}

/// Reads the first message of a put.
pub(crate) fn parse_put(first: &FlightData) -> Result<PutCommand, WireError> {
    let descriptor =
        first.flight_descriptor.as_ref().ok_or_else(|| WireError::malformed("put", "its first message has no descriptor"))?;
    let command: PutCommand = from_json("put", &descriptor.cmd)?;
    match &command {
        PutCommand::Load(request) => {
            check_name(&request.name)?;
            check_columns(&request.schema)?;
        }
        PutCommand::Open(header) => check_open(header)?,
        PutCommand::Run(run) => check_run(run)?,
        PutCommand::Module(header) => check_module_name(&header.name)?,
        // Whoever may keep a module is decided by the domain, whatever its name is.
        PutCommand::Function(_) => {}
    }
    Ok(command)
}

pub(crate) fn check_open(header: &OpenHeader) -> Result<(), WireError> {
    if header.inputs.len() > INPUTS_MAX {
        return Err(WireError::malformed("OPEN", format!("{} inputs; at most {INPUTS_MAX} are allowed", header.inputs.len())));
    }
    if let PlanHeader::Scan { columns, .. } = &header.plan
        && columns.len() > COLUMNS_MAX
    {
        return Err(WireError::malformed("OPEN", format!("{} columns; at most {COLUMNS_MAX} are allowed", columns.len())));
    }
    check_columns(&header.schema)?;
    header.parts.iter().try_for_each(|part| check_columns(&part.schema))?;
    Ok(header.inputs.iter().try_for_each(|input| check_columns(&input.schema))?)
}

/// Reads the mark of a put's later message.
pub(crate) fn parse_put_mark(data: &FlightData) -> Result<Option<PutMark>, WireError> {
    if data.app_metadata.is_empty() {
        return Ok(None);
    }
    from_json("mark", &data.app_metadata).map(Some)
}

/// OPEN as messages.
pub(crate) fn encode_open(request: &OpenRequest) -> Result<Vec<FlightData>, WireError> {
    let (plan, body) = match &request.plan {
        PlanBytes::Substrait(bytes) => (PlanHeader::Substrait, bytes.clone()),
        PlanBytes::Scan { dataset, columns } => {
            (PlanHeader::Scan { dataset: dataset.clone(), columns: columns.clone() }, Bytes::new())
        }
    };
    check_bound("a sub-plan", body.len(), PLAN_BYTES_MAX)?;
    let header = OpenHeader {
        plan,
        manifest_version: request.manifest_version,
        parts: request.parts.clone(),
        inputs: request
            .inputs
            .iter()
            .map(|input| InputHeader { name: input.name.clone(), schema: input.schema.clone() })
            .collect(),
        done: request.done.clone(),
        schema: request.schema.clone(),
        whole_partition: request.whole_partition,
        options: request.options.clone(),
    };
    let mut messages = VecDeque::from([put_command(&PutCommand::Open(Box::new(header)), body)?]);
    let mut encoder = BatchEncoder::new();
    for (index, input) in request.inputs.iter().enumerate() {
        let mark = PutMark::Input(index).bytes();
        input.batches.iter().try_for_each(|batch| encoder.encode(batch, &mark, &mut messages))?;
    }
    let shipped = messages.iter().skip(1).map(|message| link_bytes(message) as usize).sum();
    check_bound("the inputs of one session", shipped, SHIPPED_BYTES_MAX)?;
    messages.push_back(put_end());
    Ok(messages.into())
}

/// Puts OPEN together from its messages.
pub(crate) struct OpenReader {
    request: OpenRequest,
    decoder: BatchDecoder,
    shipped_bytes: usize,
}

impl OpenReader {
    /// Starts from the first message and its command.
    pub(crate) fn new(header: OpenHeader, first: FlightData) -> Result<Self, WireError> {
        let plan = match header.plan {
            PlanHeader::Substrait => PlanBytes::Substrait(first.data_body),
            PlanHeader::Scan { dataset, columns } => PlanBytes::Scan { dataset, columns },
        };
        if let PlanBytes::Substrait(bytes) = &plan {
            check_bound("a sub-plan", bytes.len(), PLAN_BYTES_MAX)?;
        }
        let inputs =
            header.inputs.into_iter().map(|input| ShippedInput { name: input.name, schema: input.schema, batches: Vec::new() });
        let request = OpenRequest {
            plan,
            manifest_version: header.manifest_version,
            parts: header.parts,
            inputs: inputs.collect(),
            done: header.done,
            schema: header.schema,
            whole_partition: header.whole_partition,
            options: header.options,
        };
        Ok(Self { request, decoder: BatchDecoder::default(), shipped_bytes: 0 })
    }

    /// Takes the next message. True once the request is whole.
    pub(crate) fn read(&mut self, data: &FlightData) -> Result<bool, WireError> {
        let mark = parse_put_mark(data)?;
        if mark == Some(PutMark::End) {
            return Ok(true);
        }
        self.shipped_bytes += link_bytes(data) as usize;
        check_bound("the inputs of one session", self.shipped_bytes, SHIPPED_BYTES_MAX)?;
        match (mark, self.decoder.decode(data)?) {
            (None, Decoded::Context) => Ok(false),
            (Some(PutMark::Input(index)), Decoded::Batch(batch)) => self.keep(index, batch).map(|()| false),
            _ => Err(WireError::malformed("OPEN", "expected rows of an input")),
        }
    }

    fn keep(&mut self, index: usize, batch: RecordBatch) -> Result<(), WireError> {
        let inputs = self.request.inputs.len();
        let input = self
            .request
            .inputs
            .get_mut(index)
            .ok_or_else(|| WireError::malformed("OPEN", format!("input {index} of {inputs}")))?;
        input.batches.push(with_schema(batch, &input.schema)?);
        Ok(())
    }

    /// The request.
    pub(crate) fn finish(self) -> OpenRequest {
        self.request
    }
}

/// The same rows under a schema that was announced apart from them.
pub(crate) fn with_schema(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, WireError> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(schema.clone(), batch.columns().to_vec(), &options)
        .map_err(|error| WireError::malformed("rows", error))
}
