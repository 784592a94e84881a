//! Which ports of an application are connected with which, while it is built.

use pithead_door::PortAt;
use pithead_model::Fault;

use crate::join::Join;
use crate::state::ApplicationState;

impl ApplicationState {
    /// How messages name an output.
    pub fn output_name(&self, at: PortAt) -> String {
        format!("{}.out({})", self.ssdlets[at.ssdlet].name, at.port)
    }

    /// How messages name an input.
    pub fn input_name(&self, at: PortAt) -> String {
        format!("{}.in({})", self.ssdlets[at.ssdlet].name, at.port)
    }

    /// Connects an output to an input.
    pub fn connect(&mut self, from: PortAt, to: PortAt, signature: &str) -> Result<(), Fault> {
        let names = (self.output_name(from), self.input_name(to));
        if self.joins.iter().any(|join| join.links.contains(&(from, to))) {
            return Err(connected_already(&names.0, &names.1));
        }
        let number = self.one_of(&[self.from(from), self.to(to)], signature).ok_or_else(|| {
            let what = format!("{} and {} are both connected elsewhere, one of them to the host program", names.0, names.1);
            Fault::invalid(what).hint("give one of them a port of its own")
        })?;
        let join = &mut self.joins[number];
        join.add(Some(from), Some(to));
        join.links.push((from, to));
        Ok(())
    }

    /// The one connection of ports that have these, or a new one. Several become one. None where the host program has an end of one of
    /// several, which would not be connected to what the others have.
    pub fn one_of(&mut self, known: &[Option<usize>], signature: &str) -> Option<usize> {
        let mut numbers: Vec<usize> = known.iter().flatten().copied().collect();
        numbers.sort_unstable();
        numbers.dedup();
        let Some((first, others)) = numbers.split_first() else {
            self.joins.push(Join::new(signature.to_owned()));
            return Some(self.joins.len() - 1);
        };
        if !others.is_empty() && numbers.iter().any(|number| self.joins[*number].is_hosts()) {
            return None;
        }
        for other in others {
            // What is left of it has no ports. Its number stays, as the host program's ends know theirs by their numbers.
            let Join { outputs, inputs, links, .. } = std::mem::take(&mut self.joins[*other]);
            let join = &mut self.joins[*first];
            outputs.into_iter().for_each(|output| join.add(Some(output), None));
            inputs.into_iter().for_each(|input| join.add(None, Some(input)));
            join.links.extend(links);
        }
        Some(*first)
    }

    /// Fails where ports share a connection and are not connected: what is put into a connection reaches all who read from it.
    pub fn check_complete(&self) -> Result<(), Fault> {
        let Some((from, to)) = self.joins.iter().find_map(|join| self.lacking(join)) else { return Ok(()) };
        let what = format!("{from} and {to} share a connection by way of other ports, but are not connected");
        Err(Fault::invalid(what).hint("connect them, too, or give one of them a port of its own"))
    }

    /// The names of two ends that are not connected, one that puts out and one that reads.
    fn lacking(&self, join: &Join) -> Option<(String, String)> {
        let ports = || {
            if join.links.len() == join.outputs.len() * join.inputs.len() {
                return None;
            }
            let mut pairs = join.outputs.iter().flat_map(|from| join.inputs.iter().map(move |to| (*from, *to)));
            let (from, to) = pairs.find(|pair| !join.links.contains(pair))?;
            Some((self.output_name(from), self.input_name(to)))
        };
        let read = || {
            join.host_reads.iter().find_map(|end| {
                let output = join.outputs.iter().find(|output| !end.ports.contains(output))?;
                Some((self.output_name(*output), end.name.clone()))
            })
        };
        let written = || {
            join.host_writes.iter().find_map(|end| {
                let input = join.inputs.iter().find(|input| !end.ports.contains(input))?;
                Some((end.name.clone(), self.input_name(*input)))
            })
        };
        let hosts = || Some((join.host_writes.first()?.name.clone(), join.host_reads.first()?.name.clone()));
        ports().or_else(read).or_else(written).or_else(hosts)
    }
}

pub(crate) fn connected_already(from: &str, to: &str) -> Fault {
    Fault::invalid(format!("{from} and {to} are connected already"))
}

#[cfg(test)]
mod tests {
    use pithead_door::{DeclaredSsdlet, SsdletSpec};

    use super::*;
    use crate::join::HostEnd;
    use crate::state::Placed;

    /// Of four SSDlets the output 0, or the input 0: two put out, and two read.
    const S: PortAt = port(0);
    const S2: PortAt = port(1);
    const W: PortAt = port(2);
    const W2: PortAt = port(3);

    const fn port(ssdlet: usize) -> PortAt {
        PortAt { ssdlet, port: 0 }
    }

    fn state() -> ApplicationState {
        let mut state = ApplicationState::new();
        for name in ["s", "s2", "w", "w2"] {
            let ports = || vec!["i64".to_owned()];
            let declared = DeclaredSsdlet { name: "idPass".into(), arguments: vec![], inputs: ports(), outputs: ports() };
            let spec = SsdletSpec { module: "pass".into(), ssdlet: None, arguments: vec![] };
            state.ssdlets.push(Placed { drive: 0, spec, declared, name: name.into() });
        }
        state
    }

    fn connected(pairs: &[(PortAt, PortAt)]) -> ApplicationState {
        let mut state = state();
        pairs.iter().for_each(|(from, to)| state.connect(*from, *to, "i64").unwrap());
        state
    }

    fn lacks(state: &ApplicationState) -> String {
        state.check_complete().unwrap_err().message
    }

    /// Where pairs were connected one by one, the last of them was said to be connected already.
    #[test]
    fn each_writer_is_connected_to_each_reader_in_any_order() {
        for pairs in [[(S, W), (S, W2), (S2, W), (S2, W2)], [(S, W), (S2, W2), (S, W2), (S2, W)]] {
            let mut state = connected(&pairs);
            assert_eq!(state.check_complete(), Ok(()));
            let twice = state.connect(S2, W, "i64").unwrap_err();
            assert_eq!(twice.message, "s2.out(0) and w.in(0) are connected already");
            let join = &state.joins[state.from(S).unwrap()];
            assert_eq!((join.outputs.len(), join.inputs.len(), join.links.len()), (2, 2, 4));
            assert!([S, S2].map(|at| state.from(at)) == [W, W2].map(|at| state.to(at)), "they share one connection");
        }
    }

    /// Rows of s2 came to w, to which it was not connected, as both shared the connection of s and w2.
    #[test]
    fn ports_that_share_a_connection_are_connected_or_the_start_is_refused() {
        let share =
            |from: &str, to: &str| format!("{from} and {to} share a connection by way of other ports, but are not connected");
        let state = connected(&[(S, W), (S, W2), (S2, W2)]);
        assert_eq!(lacks(&state), share("s2.out(0)", "w.in(0)"));

        // The host program's ends are ends like others.
        let end = |ports: &[PortAt]| HostEnd { name: "the host".into(), ports: ports.to_vec() };
        let mut state = connected(&[(S, W), (S2, W)]);
        let number = state.from(S).unwrap();
        state.joins[number].host_reads.push(end(&[S]));
        assert_eq!(lacks(&state), share("s2.out(0)", "the host"));
        state.joins[number].host_reads = vec![end(&[S, S2])];
        assert_eq!(state.check_complete(), Ok(()));
        state.joins[number].host_writes.push(end(&[W]));
        assert_eq!(lacks(&state), share("the host", "the host"), "what the host program sends would come back to it");
        state.joins[number].host_reads.clear();
        assert_eq!(state.check_complete(), Ok(()));
        state.connect(S, W2, "i64").unwrap();
        state.connect(S2, W2, "i64").unwrap();
        assert_eq!(lacks(&state), share("the host", "w2.in(0)"));
    }

    #[test]
    fn connections_of_the_host_program_stay_apart() {
        let mut state = connected(&[(S, W), (S2, W2)]);
        let number = state.from(S).unwrap();
        state.joins[number].host_reads.push(HostEnd { name: "the host".into(), ports: vec![S] });
        let crossed = state.connect(S2, W, "i64").unwrap_err();
        assert!(crossed.message.starts_with("s2.out(0) and w.in(0) are both connected elsewhere"), "{crossed}");
        assert_eq!(state.one_of(&[state.from(S), state.from(S2)], "i64"), None);
        assert_eq!((state.check_complete(), state.joins.len()), (Ok(()), 2), "nothing has changed");
    }
}
