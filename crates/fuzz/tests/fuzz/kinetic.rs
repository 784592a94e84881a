//! What Kinetic clients send: frames, and the commands within them.

use pithead_fuzz::{Bound, Outcome, Parts, Seed, Target};
use pithead_kinetic::fuzz;

pub const NAMES: [&str; 2] = ["kinetic_frames", "kinetic_command"];

/// A list of two bytes an element is one of structures that take a hundred times as many, in a vector that has doubled.
const BOUND: Bound = Bound { bytes: 512 << 10, factor: 1_024 };

pub fn targets() -> Vec<Target> {
    let target =
        |name, seeds, run: fn(&[u8]) -> Outcome| Target { name, seeds, parts: Parts::WHOLE, bound: BOUND, run: Box::new(run) };
    vec![
        target("kinetic_frames", frame_seeds(), |bytes| judged(fuzz::frames(bytes))),
        target("kinetic_command", command_seeds(), |bytes| judged(fuzz::command(bytes))),
    ]
}

fn judged<T>(read: Result<T, String>) -> Outcome {
    if read.is_ok() { Outcome::Accepted } else { Outcome::Refused }
}

fn frame_seeds() -> Vec<Seed> {
    let frames = fuzz::example_frames();
    let all = frames.concat();
    let mut seeds: Vec<Seed> =
        (0..).zip(&frames).map(|(number, frame)| Seed::valid(format!("frame-{number}"), frame.clone())).collect();
    seeds.push(Seed::valid("all", all));
    seeds.push(Seed::hostile("four-gibibytes", *b"F\xff\xff\xff\xff\xff\xff\xff\xff"));
    seeds.push(Seed::hostile("as-long-as-allowed", *b"F\0\x10\0\0\0\x10\0\0"));
    seeds.push(Seed::hostile("another-magic", *b"G\0\0\0\0\0\0\0\0"));
    seeds
}

fn command_seeds() -> Vec<Seed> {
    let commands = fuzz::example_commands();
    let mut seeds: Vec<Seed> =
        (0..).zip(commands).map(|(number, command)| Seed::valid(format!("command-{number}"), command)).collect();
    // A push of so many entries that are empty.
    let entries = [0x12, 0].repeat(2_000);
    let push = [&[0x22][..], &varint(entries.len()), &entries].concat();
    seeds.push(Seed::valid("empty-entries", [&[0x12][..], &varint(push.len()), &push].concat()));
    // Pushes within pushes, deeper than anybody means.
    let deep = (0..300).fold(Vec::new(), |inner: Vec<u8>, _| {
        let operation = [&[0x42][..], &varint(inner.len()), &inner].concat();
        [&[0x12][..], &varint(operation.len()), &operation].concat()
    });
    let push = [&[0x22][..], &varint(deep.len()), &deep].concat();
    seeds.push(Seed::hostile("deep", [&[0x12][..], &varint(push.len()), &push].concat()));
    seeds
}

fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}
