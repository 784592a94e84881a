//! `pithead status --cores`: how busy the cores of drives are, and what they give to background work.

use std::io::Write;

use pithead_embed::{Answers, BackgroundOrder, BackgroundStatus, CoreStatus};

use crate::error::CliError;
use crate::output::{Align, Grid, Sink};
use crate::service::{ask, background_json, report};
use crate::target::TargetArgs;
use crate::terminal;

/// Shows the cores of a target's drives.
pub(crate) async fn cores(target: &TargetArgs, json: bool) -> Result<(), CliError> {
    let answers = ask(target, &BackgroundOrder::Look).await?;
    let mut sink = Sink::stdout();
    match json {
        true => {
            for answer in &answers {
                writeln!(sink, "{}", background_json(answer))?;
            }
        }
        false => grid(&answers).write(&mut sink)?,
    }
    sink.finish()?;
    if !json {
        tell_stalls(&answers);
    }
    report(&answers, json)
}

fn grid(answers: &Answers<BackgroundStatus>) -> Grid {
    use Align::{Left, Right};
    let mut grid = Grid::of(&[
        ("drive", Left),
        ("policy", Left),
        ("core", Right),
        ("foreground", Right),
        ("background", Right),
        ("queue delay", Right),
        ("gives", Right),
        ("steps", Right),
        ("moves", Right),
        ("stalls", Right),
    ]);
    for (label, answer) in answers {
        let Ok(status) = answer else { continue };
        for (number, core) in status.cores.iter().enumerate() {
            let mut row = vec![label.clone(), status.policy.clone(), number.to_string()];
            row.extend(figures(core));
            grid.push(row);
        }
    }
    grid
}

fn figures(core: &CoreStatus) -> Vec<String> {
    let percent = |share: f64| format!("{:.0}%", share * 100.0);
    let gives = if core.share > 0.0 && core.share < 0.1 { format!("{:.1}%", core.share * 100.0) } else { percent(core.share) };
    vec![
        percent(core.foreground),
        percent(core.background),
        format!("{:.0} µs", core.queue_delay_us),
        gives,
        terminal::grouped(core.steps),
        terminal::grouped(core.moves),
        core.stalls.to_string(),
    ]
}

/// Names the last task that held each core for too long.
fn tell_stalls(answers: &Answers<BackgroundStatus>) {
    for (label, answer) in answers {
        for (number, core) in answer.iter().flat_map(|status| status.cores.iter().enumerate()) {
            if let Some(task) = &core.stalled {
                terminal::tell(format_args!("note: core {number} of {label} was last held for too long by {task}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_has_a_row() {
        let core =
            CoreStatus { foreground: 0.25, background: 0.5, queue_delay_us: 17.4, share: 0.005, ..CoreStatus::default() };
        let status = BackgroundStatus { policy: "tail:1.2".into(), cores: vec![core], services: vec![] };
        let mut out = Vec::new();
        grid(&vec![("a:1".to_owned(), Ok(status))]).write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("tail:1.2 |    0 |        25% |        50% |       17 µs |  0.5% |     0"), "{text}");
    }
}
