//! Commands of psql, which asks the catalogue: each has an answer, which may be empty.

use std::process::Command;

use pithead_e2e::FrontProcess;
use pithead_e2e::front::{done, five_rows};

/// All that describe something, as psql 15 has them, without their backslashes.
const COMMANDS: &str = "d|d t|d v|d *.*|da|dA|dAc|dAf|dAo|dAp|db|dc|dC|dconfig|dd|ddp|dD|dE|des|det|deu|dew|df|df f|dfa|dfn|dft|dfw|\
    dF|dFd|dFp|dFt|dg|di|dl|dL|dm|dn|do|dO|dp|dP|dPi|dPt|drds|dRp|dRs|ds|dt|dtS|dt main.*|dT|du|dv|dx|dX|dy|l|z|sv v|sf f";
/// Those that have no form with more.
const PLAIN: [&str; 5] = ["ddp", "dp", "z", "drds", "dd"];

#[test]
fn commands_of_psql_are_answered() {
    let folder = five_rows();
    done(folder.path(), &["sql", "--data", "data", "-c", "CREATE VIEW v AS SELECT id FROM t"]);
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let psql = |input: &[&str]| {
        let mut command = Command::new("psql");
        command.args(["-h", "127.0.0.1", "-p", front.port(), "-U", "me", "-d", "pithead", "-X"]);
        command.args(input.iter().flat_map(|line| ["-c", line])).env("PGCONNECT_TIMEOUT", "20").output()
    };
    if psql(&["SELECT 1"]).is_err() {
        eprintln!("skipped: psql is not there");
        return;
    }
    let mut failed = Vec::new();
    let has_more = |command: &&str| !PLAIN.contains(command) && !command.contains(' ');
    let with_more = COMMANDS.split('|').filter(has_more).map(|command| format!("\\{command}+"));
    for command in COMMANDS.split('|').map(|command| format!("\\{command}")).chain(with_more) {
        let output = psql(&[&command]).unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // There is no such function, and psql is told so.
        let is_expected = command == "\\sf f" && said.contains("function \"f\" does not exist");
        if said.contains("ERROR") && !is_expected {
            failed.push(format!("{command}: {said}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let described = String::from_utf8(psql(&["\\d+ t"]).unwrap().stdout).unwrap();
    assert!(described.contains("price") && !described.contains("Replica Identity"), "{described}");
}
