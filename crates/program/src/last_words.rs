//! [`LastWords`]: what a guest wrote as errors, so that what made it give up can be said.

use std::collections::VecDeque;

/// As many of its last lines are kept.
const LINES_MAX: usize = 4;

/// How runtimes begin the line that says why they give up. Go writes the stacks of all goroutines behind it.
const CAUSES: [&str; 2] = ["panic:", "fatal error:"];

/// The last lines of a guest, and the first one that says why it gives up.
#[derive(Debug, Default)]
pub(crate) struct LastWords {
    cause: Option<String>,
    lines: VecDeque<String>,
}

impl LastWords {
    pub fn hear(&mut self, line: String) {
        if self.cause.is_none() && CAUSES.iter().any(|cause| line.starts_with(cause)) {
            self.cause = Some(line);
            return;
        }
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// What was heard, the cause first.
    pub fn take(&mut self) -> Vec<String> {
        self.cause.take().into_iter().chain(self.lines.drain(..)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(lines: &[&str]) -> Vec<String> {
        let mut words = LastWords::default();
        lines.iter().for_each(|line| words.hear((*line).to_owned()));
        words.take()
    }

    /// Of what a module in Go wrote when it gave up, only the end of the stacks was told.
    #[test]
    fn the_cause_is_told_before_the_last_lines() {
        let stack = ["panic: oh no", "", "goroutine 1 [running]:", "main.run()", "\tmain.go:7 +0x2", "panic: again", "exit"];
        assert_eq!(heard(&stack), ["panic: oh no", "main.run()", "\tmain.go:7 +0x2", "panic: again", "exit"]);
        assert_eq!(heard(&["fatal error: all goroutines are asleep - deadlock!"]).len(), 1);
        assert_eq!(heard(&["1", "2", "3", "4", "5"]), ["2", "3", "4", "5"]);
    }
}
