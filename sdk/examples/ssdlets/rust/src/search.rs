//! String search: the lines of a file that hold a text.

use pithead_ssdlet::{Bytes, File, Output, Ssdlet};

/// Takes a file and a text; puts out the offset of each line that holds the text, and the line.
pub struct Search;

impl Ssdlet for Search {
    type Inputs = ();
    type Outputs = (Output<(u64, Bytes)>,);
    type Arguments = (File, String);

    fn run((): (), (mut output,): Self::Outputs, (file, text): Self::Arguments) -> Result<(), String> {
        let mut end = 0;
        for hit in file.find(&[text.as_bytes()]) {
            // Hits behind the first one of a line are of the same line.
            if hit.offset < end {
                continue;
            }
            let line = line_around(&file, hit.offset);
            end = line.0 + line.1.0.len() as u64 + 1;
            if !output.put(&line) {
                break;
            }
        }
        Ok(())
    }
}

const PART_BYTES: u64 = 4096;

/// The line that holds a place, and where it begins.
fn line_around(file: &File, place: u64) -> (u64, Bytes) {
    let begin = line_begin(file, place);
    let mut line = Vec::new();
    let mut part = vec![0; PART_BYTES as usize];
    loop {
        let length = file.read_at(begin + line.len() as u64, &mut part);
        match part[..length].iter().position(|byte| *byte == b'\n') {
            Some(feed) => line.extend_from_slice(&part[..feed]),
            None if length == 0 => {}
            None => {
                line.extend_from_slice(&part[..length]);
                continue;
            }
        }
        return (begin, Bytes(line));
    }
}

fn line_begin(file: &File, place: u64) -> u64 {
    let mut end = place;
    let mut part = vec![0; PART_BYTES as usize];
    while end > 0 {
        let begin = end.saturating_sub(PART_BYTES);
        let length = file.read_at(begin, &mut part[..(end - begin) as usize]);
        if let Some(feed) = part[..length].iter().rposition(|byte| *byte == b'\n') {
            return begin + feed as u64 + 1;
        }
        end = begin;
    }
    0
}
