//! An SSDlet with two outputs. `ports.cpp` beside it reads them.

use pithead_ssdlet::{Output, Ssdlet, register};

/// Puts out `count` and as many numbers more, then lines, more of both than a connection holds.
struct TwoOut;

impl Ssdlet for TwoOut {
    type Inputs = ();
    type Outputs = (Output<String>, Output<i64>);
    type Arguments = (i64,);

    fn run((): (), (mut lines, mut numbers): Self::Outputs, (count,): (i64,)) -> Result<(), String> {
        for number in (0..=count).rev() {
            numbers.put(&number);
        }
        for line in 0..100_000 {
            lines.put(&format!("line {line}"));
        }
        Ok(())
    }
}

register!(idTwoOut => TwoOut);
