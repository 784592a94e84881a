//! Writers are killed at random moments. What they logged as acknowledged must be in the store.
//!
//! Each writer thread executes steps that follow from the seed, its number and the step's number (`plan`). It logs when
//! it starts a step and when the store has acknowledged it (`writer`). After each kill, the store must have the state
//! after some number of steps: all that were acknowledged as durable, and none that was not started (`judge`).
//!
//! `PITHEAD_KILLS` sets the number of kills (20), and `PITHEAD_SEED` the seed.

mod judge;
mod plan;
mod writer;

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::judge::Judge;
use crate::writer::{Orders, READY};

const SIGKILL: i32 = 9;

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let clock = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64);
    let seed = number("PITHEAD_SEED").unwrap_or_else(clock);
    let kills = number("PITHEAD_KILLS").unwrap_or(20);
    println!("PITHEAD_SEED={seed} PITHEAD_KILLS={kills}");
    let dir = tempfile::tempdir().unwrap();
    let mut rng = StdRng::seed_from_u64(seed);
    let mut judge = Judge::new(dir.path(), seed);
    for kill in 0..kills {
        let orders = Orders { dir: dir.path().to_path_buf(), seed, from: judge.next_steps() };
        run_and_kill(&orders, &mut rng);
        if let Err(what) = judge.round() {
            let kept = dir.keep();
            panic!("after kill {kill} of seed {seed}: {what}\nthe store and the logs are in {}", kept.display());
        }
    }
    println!("{}", judge.summary());
    judge.assert_worked();
}

#[test]
#[ignore = "the process that the other test kills"]
fn writer() {
    if let Some(orders) = Orders::from_env() {
        writer::run(&orders);
    }
}

fn run_and_kill(orders: &Orders, rng: &mut StdRng) {
    let mut child = start(orders);
    if rng.random_bool(0.15) {
        // The writer may be opening the store.
        std::thread::sleep(Duration::from_millis(rng.random_range(0..30)));
    } else {
        wait_until_ready(&mut child, &orders.dir);
        std::thread::sleep(Duration::from_millis(rng.random_range(20..400)));
    }
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(SIGKILL), "the writer ended by itself ({status}); what it says is above");
}

fn start(orders: &Orders) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "--nocapture", "writer"]).stdout(Stdio::piped());
    orders.to_env(&mut command);
    command.spawn().unwrap()
}

fn wait_until_ready(child: &mut Child, dir: &Path) {
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains(READY) {
        line.clear();
        let bytes = out.read_line(&mut line).unwrap();
        assert!(bytes > 0, "the writer ended before it was ready ({}); what it says is above", dir.display());
    }
    // The pipe stays open, so that the writer never writes to a closed one.
    child.stdout = Some(out.into_inner());
}
