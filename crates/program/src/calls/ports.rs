//! Host calls for ports. Getting and putting never wait, so that guests can send what they hold before they do.

use std::sync::Arc;

use wasmtime::{Caller, Linker};

use super::MODULE;
use crate::budget::fault;
use crate::channel::{Channel, Got, Put, Side};
use crate::graph::Wait;
use crate::guest::{Guest, GuestRange, Ports, bytes};
use crate::limits::BATCH_BYTES_MAX;

/// Nothing is there yet, or no room: the guest is to wait.
const AGAIN: i32 = -2;
/// The stream was cut off.
const CUT: i32 = -3;

pub(super) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    linker.func_wrap(MODULE, "input_get", |mut caller: Caller<'_, Guest>, port: u32, pointer: u32, length: u32| {
        get(&mut caller, port, GuestRange { pointer, bytes: length })
    })?;
    linker.func_wrap(MODULE, "output_put", |mut caller: Caller<'_, Guest>, port: u32, pointer: u32, length: u32| {
        put(&mut caller, port, GuestRange { pointer, bytes: length })
    })?;
    linker.func_wrap_async(MODULE, "input_wait", |mut caller: Caller<'_, Guest>, (port,): (u32,)| {
        Box::new(async move {
            let channel = caller.data().ports.input("input_wait", port)?.map(Arc::clone);
            wait(&mut caller.data_mut().ports, port, channel, Side::Read).await
        })
    })?;
    linker.func_wrap_async(MODULE, "output_wait", |mut caller: Caller<'_, Guest>, (port, length): (u32, u32)| {
        Box::new(async move {
            let channel = caller.data().ports.output("output_wait", port)?.map(Arc::clone);
            wait(&mut caller.data_mut().ports, port, channel, Side::Write { bytes: length as usize }).await
        })
    })?;
    linker.func_wrap(MODULE, "input_close", |mut caller: Caller<'_, Guest>, port: u32| {
        caller.data().ports.input("input_close", port)?;
        caller.data_mut().ports.inputs[port as usize] = None;
        wasmtime::Result::Ok(())
    })?;
    linker.func_wrap(MODULE, "output_close", |mut caller: Caller<'_, Guest>, port: u32| {
        caller.data().ports.output("output_close", port)?;
        if let Some(writer) = caller.data_mut().ports.outputs[port as usize].take() {
            writer.finish();
        }
        wasmtime::Result::Ok(())
    })?;
    Ok(())
}

fn get(caller: &mut Caller<'_, Guest>, port: u32, place: GuestRange) -> wasmtime::Result<i32> {
    let (into, guest) = bytes(caller, "input_get", place)?;
    let Some(channel) = guest.ports.input("input_get", port)? else { return Ok(0) };
    Ok(match channel.try_get(into.len()) {
        Got::Batch(batch) => {
            into[..batch.len()].copy_from_slice(&batch);
            batch.len() as i32
        }
        Got::Larger(length) => length as i32,
        Got::Empty => AGAIN,
        Got::End => 0,
        Got::Cut(why) => {
            guest.ports.cut = Some(why);
            CUT
        }
    })
}

fn put(caller: &mut Caller<'_, Guest>, port: u32, place: GuestRange) -> wasmtime::Result<i32> {
    let (batch, guest) = bytes(caller, "output_put", place)?;
    let put = put_batch(guest, port, batch)?;
    guest.ports.full.retain(|(output, _)| *output != port);
    if put == AGAIN {
        guest.ports.full.push((port, batch.len()));
    }
    Ok(put)
}

fn put_batch(guest: &Guest, port: u32, batch: &[u8]) -> wasmtime::Result<i32> {
    let budget = Arc::clone(guest.meter.budget());
    let Some(channel) = guest.ports.output("output_put", port)? else {
        return Err(fault(format!("it put into out({port}), which it had closed")));
    };
    if batch.len() > BATCH_BYTES_MAX {
        return Err(fault(format!(
            "it put {} bytes into out({port}) at once; a batch has at most {BATCH_BYTES_MAX}",
            batch.len()
        )));
    }
    if !channel.is_ready(Side::Write { bytes: batch.len() }) {
        return Ok(AGAIN);
    }
    let wrong = |what| fault(format!("it put what is no batch of {} into out({port}): {what}", channel.signature));
    channel.check(batch).map_err(wrong)?;
    let none = |none| fault(format!("it put a batch into out({port}), and {none}"));
    Ok(match channel.try_put(batch.to_vec(), &budget).map_err(none)? {
        Put::Done => 1,
        Put::Full(_) => AGAIN,
        Put::Closed => 0,
    })
}

/// Waits until a port can go on, or there is room in an output that had none for what the guest holds.
async fn wait(ports: &mut Ports, port: u32, channel: Option<Arc<Channel>>, side: Side) -> wasmtime::Result<()> {
    let (Some(channel), Some((graph, node))) = (channel, ports.graph.clone()) else { return Ok(()) };
    if channel.is_ready(side) {
        return Ok(());
    }
    let others = ports.refused(port, side).map(|(_, channel, side)| (channel, side)).collect();
    let wait = Wait { port: port as usize, channel, side, others };
    if !wait.is_ready() {
        graph.lock().wait(node, wait.clone())?;
        wait.ready().await;
        graph.lock().woke(node);
    }
    // Each of them is told once: a guest that does not mind them waits for its port alone.
    let told = ports.refused(port, side).filter(|(_, channel, side)| channel.is_ready(*side));
    let told: Vec<u32> = told.map(|(output, ..)| output).collect();
    ports.full.retain(|(output, _)| !told.contains(output));
    Ok(())
}

impl Ports {
    /// Outputs that had no room, but for one that is waited for itself.
    fn refused(&self, port: u32, side: Side) -> impl Iterator<Item = (u32, Arc<Channel>, Side)> {
        let others = self.full.iter().filter(move |(output, _)| side == Side::Read || *output != port);
        others.filter_map(move |(output, bytes)| {
            let writer = self.outputs.get(*output as usize)?.as_ref()?;
            Some((*output, Arc::clone(writer.channel()), Side::Write { bytes: *bytes }))
        })
    }

    /// The connection of an input, None if it was closed.
    fn input(&self, call: &str, port: u32) -> wasmtime::Result<Option<&Arc<Channel>>> {
        let inputs = self.inputs.get(port as usize);
        let input =
            inputs.ok_or_else(|| fault(format!("it passed {call} the port in({port}); it has {}", self.inputs.len())))?;
        Ok(input.as_ref().map(|reader| reader.channel()))
    }

    fn output(&self, call: &str, port: u32) -> wasmtime::Result<Option<&Arc<Channel>>> {
        let outputs = self.outputs.get(port as usize);
        let output =
            outputs.ok_or_else(|| fault(format!("it passed {call} the port out({port}); it has {}", self.outputs.len())))?;
        Ok(output.as_ref().map(|writer| writer.channel()))
    }
}
