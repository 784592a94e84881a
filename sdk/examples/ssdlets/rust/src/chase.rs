//! Pointer chasing: walks through a graph in which each step depends on the one before.

use pithead_ssdlet::{File, Input, Output, Ssdlet};

/// Takes a graph and a number of steps, then nodes to start from; puts out each of them with the node where its walk ended.
///
/// The graph is a file of little-endian `u64`: the number of nodes n, then n + 1 places in the list of neighbours, then that list. The
/// neighbours of a node are those between its place and the next.
pub struct Chase;

impl Ssdlet for Chase {
    type Inputs = (Input<u64>,);
    type Outputs = (Output<(u64, u64)>,);
    type Arguments = (File, u64);

    fn run((starts,): Self::Inputs, (mut output,): Self::Outputs, (file, steps): Self::Arguments) -> Result<(), String> {
        let graph = Graph::open(file)?;
        for start in starts {
            if !output.put(&(start, graph.walk(start, steps)?)) {
                break;
            }
        }
        Ok(())
    }
}

struct Graph {
    file: File,
    nodes: u64,
}

impl Graph {
    fn open(file: File) -> Result<Self, String> {
        let mut graph = Self { file, nodes: 0 };
        [graph.nodes] = graph.numbers(0)?;
        Ok(graph)
    }

    /// Goes to the neighbour whose number is the step's, modulo their count, until the steps are over or a node has no neighbour.
    fn walk(&self, start: u64, steps: u64) -> Result<u64, String> {
        let mut node = start;
        for step in 0..steps {
            if node >= self.nodes {
                return Err(format!("the graph has {} nodes and no node {node}", self.nodes));
            }
            let [first, end] = self.numbers(1 + node)?;
            if first == end {
                break;
            }
            [node] = self.numbers(1 + self.nodes + 1 + first + step % (end - first))?;
        }
        Ok(node)
    }

    fn numbers<const N: usize>(&self, place: u64) -> Result<[u64; N], String> {
        let mut bytes = [0; 16];
        let bytes = &mut bytes[..8 * N];
        if self.file.read_at(place * 8, bytes) < bytes.len() {
            return Err("the graph ends before its lists do".to_owned());
        }
        let number = |index: usize| u64::from_le_bytes(std::array::from_fn(|at| bytes[8 * index + at]));
        Ok(std::array::from_fn(number))
    }
}
