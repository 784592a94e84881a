//! An SSDlet: takes numbers, puts out their doubles. Build it with `cargo build --release`.

use pithead_ssdlet::{Input, Output, Ssdlet, register};

struct Doubler;

impl Ssdlet for Doubler {
    type Inputs = (Input<i64>,);
    type Outputs = (Output<i64>,);
    type Arguments = ();

    fn run((mut input,): Self::Inputs, (mut output,): Self::Outputs, (): ()) -> Result<(), String> {
        while let Some(value) = input.get() {
            output.put(&(2 * value));
        }
        Ok(())
    }
}

register!(idDoubler => Doubler);
