//! Bind: the values of a portal.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema};
use pithead_host::Parameters;
use pithead_model::Fault;

use crate::connection::{Halt, Talk};
use crate::decode::parameter;
use crate::error::Complaint;
use crate::portal::{Hold, Portal, PortalState, Prepared};
use crate::rows::formats;
use crate::sql_state::{PROTOCOL_VIOLATION, TOO_LARGE};

/// Most bytes of the values that are bound to the portals of a connection.
const PORTAL_BYTES_MAX: usize = 64 << 20;

/// What Bind brings, beside the names of the portal and of its statement.
pub(crate) struct Bound {
    /// The formats of the values.
    pub(crate) formats: Vec<i16>,
    pub(crate) values: Vec<Option<Vec<u8>>>,
    /// The formats of the results.
    pub(crate) results: Vec<i16>,
}

fn wrong(what: impl Into<String>) -> Halt {
    Complaint::error(PROTOCOL_VIOLATION, what).into()
}

impl Talk {
    pub(crate) async fn bind(&mut self, name: String, statement: &str, bound: Bound) -> Result<(), Halt> {
        let prepared = self.prepared_as(statement)?;
        let Bound { formats: codes, values, results } = bound;
        let (given, wanted) = (values.len(), prepared.types.len());
        if given != wanted {
            return Err(wrong(format!("{given} parameters are given, and the statement has {wanted}")));
        }
        let codes = formats(&codes, given).ok_or_else(|| wrong("the formats of the parameters do not fit them"))?;
        let bytes: usize = values.iter().flatten().map(Vec::len).sum();
        let (known, zone) = (Arc::clone(&prepared), self.settings.zone().0);
        let row = self.aside(bytes, move || read(&known, &values, &codes, &zone)).await??;
        let columns = self.schema_of(&prepared).map_or(0, |schema| schema.fields().len());
        let results: &[i16] = if columns == 0 { &[] } else { &results };
        let binary = formats(results, columns).ok_or_else(|| wrong("the formats of the results do not fit the columns"))?;
        if !name.is_empty() && self.portals.contains_key(&name) {
            return Err(Complaint::error("42P03", format!("portal {name:?} already exists")).into());
        }
        self.check_portals()?;
        self.check_bound(&name, bytes)?;
        let parameters = parameters(row)?;
        self.portals.insert(name, Portal { prepared, parameters, bytes, binary, state: PortalState::New, hold: Hold::No });
        self.link.out.empty(b'2');
        Ok(())
    }

    /// An error where the values of a portal have too many bytes beside those of the others.
    fn check_bound(&self, name: &str, bytes: usize) -> Result<(), Complaint> {
        let others = self.portals.iter().filter(|(known, _)| *known != name);
        match others.map(|(_, portal)| portal.bytes).sum::<usize>() + bytes <= PORTAL_BYTES_MAX {
            true => Ok(()),
            false => {
                let message = format!("the values of a connection's portals have more than {PORTAL_BYTES_MAX} bytes");
                Err(Complaint::error(TOO_LARGE, message).hint("CLOSE those that are not needed"))
            }
        }
    }
}

/// The values of a statement's parameters, each as an array of one; `binary`: their formats.
fn read(prepared: &Prepared, values: &[Option<Vec<u8>>], binary: &[bool], zone: &str) -> Result<Vec<ArrayRef>, Complaint> {
    let given = values.iter().zip(binary).zip(prepared.types.iter().zip(&prepared.inferred));
    let mut row = Vec::with_capacity(values.len());
    for (place, ((value, binary), (oid, inferred))) in given.enumerate() {
        let value = parameter(*oid, inferred.as_ref(), *binary, value.as_deref(), zone);
        row.push(value.map_err(|complaint| Complaint {
            message: format!("parameter ${}: {}", place + 1, complaint.message),
            ..complaint
        })?);
    }
    Ok(row)
}

/// One row of values, the first for `$1`.
pub(crate) fn parameters(row: Vec<ArrayRef>) -> Result<Parameters, Fault> {
    if row.is_empty() {
        return Ok(Parameters::default());
    }
    let fields: Vec<Field> = (1..)
        .zip(&row)
        .map(|(place, value): (usize, _)| Field::new(place.to_string(), value.data_type().clone(), true))
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), row, &options).map_err(Fault::bug)?;
    Parameters::by_place(&batch)
}
