//! Ports of SSDlets as the ends of connections.

use std::sync::Arc;

use super::{Input, Output, Ssdlet};
use crate::channel::{Channel, Reader, Writer};
use crate::graph::{Graph, Phase};
use crate::links::End;
use crate::{ProgramError, Signature};

impl Output {
    /// What goes through the port. Fails if the SSDlet has no such port.
    pub fn signature(&self) -> Result<Signature, ProgramError> {
        let graph = self.ssdlet.graph.lock();
        let declared = graph.nodes[self.ssdlet.node].declared();
        declared
            .outputs
            .get(self.port)
            .cloned()
            .ok_or_else(|| no_port(&declared.name, "outputs", declared.outputs.len(), self.port))
    }

    /// The connection that it has, if it may still be connected.
    pub(super) fn channel(&self) -> Result<Option<Arc<Channel>>, ProgramError> {
        self.signature()?;
        let graph = self.ssdlet.graph.lock();
        check_building(&graph)?;
        Ok(graph.nodes[self.ssdlet.node].outputs[self.port].as_ref().map(|writer| Arc::clone(writer.channel())))
    }

    pub(super) fn join(&self, channel: &Arc<Channel>) -> Result<(), ProgramError> {
        let mut graph = self.ssdlet.graph.lock();
        // Looked at again: it may have been started meanwhile.
        check_building(&graph)?;
        let place = &mut graph.nodes[self.ssdlet.node].outputs[self.port];
        if place.is_none() {
            *place = Some(Writer::new(Arc::clone(channel)));
            graph.written.push(Arc::clone(channel));
        }
        Ok(())
    }

    /// The port as an end of a connection.
    pub(super) fn end(&self) -> End {
        self.ssdlet.end(self.port, self.to_string())
    }
}

impl Input {
    /// What goes through the port. Fails if the SSDlet has no such port.
    pub fn signature(&self) -> Result<Signature, ProgramError> {
        let graph = self.ssdlet.graph.lock();
        let declared = graph.nodes[self.ssdlet.node].declared();
        declared
            .inputs
            .get(self.port)
            .cloned()
            .ok_or_else(|| no_port(&declared.name, "inputs", declared.inputs.len(), self.port))
    }

    pub(super) fn channel(&self) -> Result<Option<Arc<Channel>>, ProgramError> {
        self.signature()?;
        let graph = self.ssdlet.graph.lock();
        check_building(&graph)?;
        Ok(graph.nodes[self.ssdlet.node].inputs[self.port].as_ref().map(|reader| Arc::clone(reader.channel())))
    }

    pub(super) fn join(&self, channel: &Arc<Channel>) -> Result<(), ProgramError> {
        let mut graph = self.ssdlet.graph.lock();
        check_building(&graph)?;
        let place = &mut graph.nodes[self.ssdlet.node].inputs[self.port];
        place.get_or_insert_with(|| Reader::new(Arc::clone(channel)));
        Ok(())
    }

    /// The port as an end of a connection.
    pub(super) fn end(&self) -> End {
        self.ssdlet.end(self.port, self.to_string())
    }
}

impl Ssdlet {
    fn end(&self, port: usize, name: String) -> End {
        End { owner: self.graph.lock().owner, ssdlet: self.node, port, name }
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.out({})", self.ssdlet.graph.lock().nodes[self.ssdlet.node].declared().name, self.port)
    }
}

impl std::fmt::Display for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.in({})", self.ssdlet.graph.lock().nodes[self.ssdlet.node].declared().name, self.port)
    }
}

fn check_building(graph: &Graph) -> Result<(), ProgramError> {
    match graph.phase {
        Phase::Building => Ok(()),
        Phase::Running | Phase::Ended => Err(ProgramError::usage("ports cannot be connected after the start")),
    }
}

fn no_port(ssdlet: &str, kind: &str, count: usize, port: usize) -> ProgramError {
    ProgramError::usage(format!("{ssdlet} has no port {port} among its {count} {kind}; they are counted from 0"))
}
