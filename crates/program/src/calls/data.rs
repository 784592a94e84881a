//! Host calls for key-values and datasets.

use std::sync::Arc;

use wasmtime::{Caller, Linker};

use super::files::refused;
use super::{MODULE, answer, copied, text};
use crate::ServiceError;
use crate::budget::fault;
use crate::guest::{Guest, GuestRange, OpenDataset, Opened, bytes};
use crate::limits::NAME_BYTES_MAX;

const MISSING: i64 = -1;

pub(super) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    linker.func_wrap_async(
        MODULE,
        "value_get",
        |caller: Caller<'_, Guest>, (key, bytes, pointer, length): (u32, u32, u32, u32)| {
            Box::new(value(caller, GuestRange { pointer: key, bytes }, GuestRange { pointer, bytes: length }))
        },
    )?;
    linker.func_wrap_async(
        MODULE,
        "dataset_open",
        |caller: Caller<'_, Guest>, (name, bytes, columns, length): (u32, u32, u32, u32)| {
            Box::new(open(caller, GuestRange { pointer: name, bytes }, GuestRange { pointer: columns, bytes: length }))
        },
    )?;
    linker.func_wrap_async(
        MODULE,
        "dataset_get",
        |caller: Caller<'_, Guest>, (handle, pointer, length): (u32, u32, u32)| {
            Box::new(next(caller, handle, GuestRange { pointer, bytes: length }))
        },
    )?;
    Ok(())
}

/// Writes the value of a key if there is room, and returns its length.
async fn value(mut caller: Caller<'_, Guest>, key: GuestRange, place: GuestRange) -> wasmtime::Result<i64> {
    let key = copied(&mut caller, "value_get", key, NAME_BYTES_MAX)?;
    bytes(&mut caller, "value_get", place)?;
    let services = Arc::clone(&caller.data().services);
    let Some(value) = services.value(&key).await.map_err(refused)? else { return Ok(MISSING) };
    let (into, _) = bytes(&mut caller, "value_get", place)?;
    Ok(answer(&value, into) as i64)
}

/// Opens columns of a dataset, whose names have line feeds between them; no name stands for all.
async fn open(mut caller: Caller<'_, Guest>, name: GuestRange, columns: GuestRange) -> wasmtime::Result<i32> {
    let name = text(copied(&mut caller, "dataset_open", name, NAME_BYTES_MAX)?, "dataset_open")?;
    let columns = text(copied(&mut caller, "dataset_open", columns, NAME_BYTES_MAX)?, "dataset_open")?;
    let columns: Vec<&str> = columns.split('\n').filter(|column| !column.is_empty()).collect();
    let services = Arc::clone(&caller.data().services);
    match services.dataset(&name, &columns).await {
        Ok(dataset) => {
            let opened = OpenDataset { dataset, waiting: None, held: None };
            caller.data_mut().keep(Opened::Dataset(opened)).map(|handle| handle as i32)
        }
        Err(ServiceError::NotFound(_)) => Ok(MISSING as i32),
        Err(error) => Err(refused(error)),
    }
}

/// Writes the next record batch if there is room, and returns its length; 0 is the end.
async fn next(mut caller: Caller<'_, Guest>, handle: u32, place: GuestRange) -> wasmtime::Result<u32> {
    let (into, guest) = bytes(&mut caller, "dataset_get", place)?;
    let budget = Arc::clone(guest.meter.budget());
    let Some(Some(Opened::Dataset(OpenDataset { dataset, waiting, held }))) = guest.open.get_mut(handle as usize) else {
        return Err(fault(format!("it passed dataset_get the handle {handle}, which is no open dataset")));
    };
    let batch = match waiting.take() {
        Some((batch, _)) => Some(batch),
        None => {
            let batch = dataset.next().await.map_err(refused)?;
            *held = None;
            let taken = budget.hold(dataset.held_bytes());
            *held = Some(taken.map_err(|none| fault(format!("it read a dataset, a part of which is in memory, and {none}")))?);
            batch
        }
    };
    let Some(batch) = batch else { return Ok(0) };
    let length = u32::try_from(batch.len()).map_err(|_| fault("a batch of the dataset is larger than a guest's memory"))?;
    if answer(&batch, into) > into.len() {
        let room = budget.hold(batch.len()).map_err(|none| fault(format!("it read a batch of a dataset, and {none}")))?;
        *waiting = Some((batch, room));
    }
    Ok(length)
}
