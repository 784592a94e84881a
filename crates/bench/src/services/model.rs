//! The same measurements by the scheduler's simulator.
//!
//! It is told what the machine, its medium, the store and deduplication take by themselves, and what puts alone take of cores and
//! medium. Two figures are chosen for each number of threads such that puts alone are as they were. What comes beside deduplication,
//! under each policy, is the simulator's own.

use pithead_policy::background::BackgroundPolicy;
use pithead_policy::background::sim::{Arrivals, Backlog, Medium, Outcome, Scenario, Writes, paper, simulate_with};
use serde::Serialize;

use super::costs::{Costs, READ_BYTES};
use super::{Alone, Measured, VALUE_BYTES, policy_of};

/// What the first step on another core takes besides: what fits in the nearest caches is read again.
const MOVE_SECONDS: f64 = 5e-6;
/// The interval of a drive's decisions.
const INTERVAL: f64 = 0.02;
/// When the store makes its index durable, and flushes its log; the same numbers as there.
const ROUND_BYTES: f64 = 1_048_576.0;
const ROUND_PAUSE: f64 = 0.05;
const BEHIND_BYTES_MAX: f64 = 67_108_864.0;
const LOG_PAUSE: f64 = 1.0;
/// The share of a put's time on its core that comes before the commit: the request has the value, and the answer has none.
const SHARE_BEFORE: f64 = 0.75;
/// What a put takes of its core at least, whatever was measured of it.
const CORE_SECONDS_MIN: f64 = 10e-6;
const SPREAD: f64 = 0.5;
/// How often both figures are chosen anew, as each depends on the other one, and halvings for the second one.
const TUNINGS: usize = 5;
const HALVINGS: usize = 14;

/// What the simulator knows of a drive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    pub(super) costs: Costs,
    /// What the drive takes of cores while nobody asks anything of it.
    pub(super) rest_cores: f64,
    pub(super) cores: usize,
    /// Seconds of each measurement, and how many there are, the median of which counts.
    pub(super) seconds: f64,
    pub(super) runs: usize,
    pub(super) rate: f64,
}

/// Puts alone, as the simulator has them.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Tuned {
    pub(super) chunks: &'static str,
    pub(super) threads: usize,
    /// What a put takes of the drive's cores and of its client at full speed, against what was measured of it. Chosen such that cores
    /// are as busy as they were.
    pub(super) speed: f64,
    /// The share of its time on its core that comes after the answer, and microseconds on no core; one of them is 0. Chosen such that
    /// puts take the time that they took.
    pub(super) after: f64,
    pub(super) elsewhere_us: f64,
    pub(super) simulated_us: f64,
    pub(super) real_us: f64,
}

/// Puts beside deduplication, by the simulator and by the drive.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Simulated {
    pub(super) chunks: &'static str,
    pub(super) policy: &'static str,
    pub(super) threads: usize,
    pub(super) simulated_us: f64,
    pub(super) real_us: f64,
    /// What deduplication looked at meanwhile.
    pub(super) simulated_mb_s: f64,
    pub(super) real_mb_s: f64,
}

impl Simulated {
    pub(super) fn ratio(&self) -> f64 {
        self.simulated_us / self.real_us
    }
}

impl Model {
    /// Chooses what puts alone are to be like.
    pub(super) fn tune(&self, alone: &Measured) -> Tuned {
        let real_us = alone.latencies.mean_us;
        let (chunks, threads) = (alone.chunks, alone.threads);
        let mut tuned = Tuned { chunks, threads, speed: 1.0, after: 0.0, elsewhere_us: 0.0, simulated_us: 0.0, real_us };
        for _ in 0..TUNINGS {
            let outcome = self.puts_alone(alone, &tuned);
            let busy = outcome.foreground.iter().sum::<f64>() * self.seconds / (outcome.tasks as f64).max(1.0);
            let fixed = self.commit_seconds();
            let scaled = |busy: f64| (busy - fixed).max(CORE_SECONDS_MIN);
            tuned.speed = (tuned.speed * scaled(self.busy_seconds(alone)) / scaled(busy)).clamp(0.05, 1.0);
            self.tune_way(alone, &mut tuned);
        }
        tuned
    }

    /// Below 0, a part of a put's time comes after its answer; above, a part of its latency is on no core.
    fn tune_way(&self, alone: &Measured, tuned: &mut Tuned) {
        let (mut low, mut high) = (-1.0_f64, 1.0_f64);
        for _ in 0..HALVINGS {
            let way = (low + high) / 2.0;
            (tuned.after, tuned.elsewhere_us) = ((-way).max(0.0), way.max(0.0) * tuned.real_us);
            tuned.simulated_us = self.puts_alone(alone, tuned).mean * 1e6;
            if tuned.simulated_us < tuned.real_us {
                low = way;
            } else {
                high = way;
            }
        }
    }

    fn puts_alone(&self, alone: &Measured, tuned: &Tuned) -> Outcome {
        self.median(&Scenario { backlog: Backlog::None, ..self.scenario(alone, tuned) }, BackgroundPolicy::None)
    }

    /// What puts come to beside deduplication that always has more to do.
    pub(super) fn predict(&self, alone: &Measured, tuned: &Tuned, dedup: &Alone, real: &Measured) -> Option<Simulated> {
        let (policy, wait) = (real.policy?, 1.0 / dedup.steps_s - dedup.step_cpu_us * 1e-6);
        let reads = READ_BYTES as f64 / dedup.step_read_bytes;
        let read_seconds = READ_BYTES as f64 / (self.costs.read_mb_s * 1e6) + self.costs.read_latency_us * 1e-6;
        let scenario = Scenario {
            services: 1,
            backlog: Backlog::Endless,
            step_seconds: dedup.step_cpu_us * 1e-6,
            step_bytes: dedup.step_read_bytes,
            read_elsewhere_seconds: if reads.is_finite() { (wait * reads - read_seconds).max(0.0) } else { 0.0 },
            ..self.scenario(alone, tuned)
        };
        let outcome = self.median(&scenario, policy_of(policy));
        Some(Simulated {
            chunks: real.chunks,
            policy,
            threads: real.threads,
            simulated_us: outcome.mean * 1e6,
            real_us: real.latencies.mean_us,
            simulated_mb_s: outcome.steps as f64 / self.seconds * dedup.mb_s / dedup.steps_s,
            real_mb_s: real.dedup_mb_s,
        })
    }

    /// The run with the median of means, as of the drive.
    fn median(&self, scenario: &Scenario, policy: BackgroundPolicy) -> Outcome {
        let run = |seed| simulate_with(&Scenario { seed, ..scenario.clone() }, Arrivals::Queued, policy);
        let mut outcomes: Vec<Outcome> = (1..=self.runs.max(1) as u64).map(run).collect();
        outcomes.sort_by(|a, b| a.mean.total_cmp(&b.mean));
        outcomes.swap_remove(outcomes.len() / 2)
    }

    /// Seconds of cores for a put, at the drive and at its client.
    fn busy_seconds(&self, alone: &Measured) -> f64 {
        alone.cpu_us * 1e-6 + (alone.client_cores - self.rest_cores) / alone.puts_s
    }

    /// Those of them that the store takes.
    fn commit_seconds(&self) -> f64 {
        let rounds = (self.costs.prepare_us_mb + self.costs.round_us_mb) * VALUE_BYTES as f64 / 1e6;
        (self.costs.commit_us + self.costs.commit_put_us + rounds) * 1e-6
    }

    fn scenario(&self, alone: &Measured, tuned: &Tuned) -> Scenario {
        let client_seconds = alone.client_cores / alone.puts_s;
        let core_seconds =
            (self.busy_seconds(alone) - client_seconds - self.commit_seconds()).max(CORE_SECONDS_MIN) * tuned.speed;
        let on_the_way = core_seconds * (1.0 - tuned.after);
        Scenario {
            seconds: self.seconds,
            cores: self.cores,
            beside_speed: self.costs.beside_speed,
            rate: self.rate,
            task_seconds: on_the_way * SHARE_BEFORE,
            task_spread: SPREAD,
            elsewhere_seconds: tuned.elsewhere_us * 1e-6,
            move_seconds: MOVE_SECONDS,
            medium: Some(Medium {
                read_bytes_per_second: self.costs.read_mb_s * 1e6,
                write_bytes_per_second: self.costs.write_mb_s * 1e6,
                latency_seconds: self.costs.read_latency_us * 1e-6,
            }),
            writes: Some(Writes {
                client_seconds: client_seconds * tuned.speed,
                answer_seconds: on_the_way * (1.0 - SHARE_BEFORE),
                after_seconds: core_seconds * tuned.after,
                ..self.writes(alone)
            }),
            interval: INTERVAL,
            ..paper(alone.threads, false)
        }
    }

    /// What the store does with puts.
    fn writes(&self, alone: &Measured) -> Writes {
        let task_bytes = VALUE_BYTES as f64;
        // Each value is written to the log once.
        let amplification = (alone.written_bytes / task_bytes - 1.0).max(0.0);
        let round_seconds = self.costs.round_us_mb * 1e-12;
        Writes {
            task_bytes,
            client_seconds: 0.0,
            commit_seconds: self.costs.commit_us * 1e-6,
            commit_task_seconds: self.costs.commit_put_us * 1e-6,
            answer_seconds: 0.0,
            after_seconds: 0.0,
            round_bytes: ROUND_BYTES,
            round_pause: ROUND_PAUSE,
            prepare_seconds: self.costs.prepare_us_mb * 1e-12,
            write_seconds: if amplification > 0.0 { round_seconds / amplification } else { 0.0 },
            amplification,
            behind_bytes_max: BEHIND_BYTES_MAX,
            log_bytes: task_bytes,
            log_pause: LOG_PAUSE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::puts::Latencies;

    fn measured(policy: Option<&'static str>, threads: usize, mean_us: f64) -> Measured {
        Measured {
            chunks: "1KiB",
            policy,
            threads,
            rate: Some(300.0),
            latencies: Latencies { mean_us, ..Latencies::default() },
            puts_s: 300.0 * threads as f64,
            dedup_mb_s: 0.0,
            foreground: vec![0.1; 2],
            background: vec![0.0; 2],
            cpu_us: 300.0,
            written_bytes: 65_536.0,
            client_cores: 0.03 * threads as f64,
        }
    }

    const COSTS: Costs = Costs {
        beside_speed: 0.7,
        read_mb_s: 800.0,
        write_mb_s: 400.0,
        read_latency_us: 60.0,
        commit_us: 30.0,
        commit_put_us: 50.0,
        prepare_us_mb: 1_000.0,
        round_us_mb: 1_000.0,
    };

    fn model() -> Model {
        Model { costs: COSTS, rest_cores: 0.01, cores: 2, seconds: 2.0, runs: 3, rate: 300.0 }
    }

    #[test]
    fn puts_alone_are_as_they_were() {
        // Less than what the cores take for a put, and more.
        for (threads, mean_us) in [(1, 250.0), (1, 900.0), (4, 500.0)] {
            let alone = measured(None, threads, mean_us);
            let tuned = model().tune(&alone);
            assert!((tuned.simulated_us / mean_us - 1.0).abs() < 0.03, "{tuned:?}");
            let outcome = model().puts_alone(&alone, &tuned);
            let busy = outcome.foreground.iter().sum::<f64>() * 2.0 / outcome.tasks as f64;
            assert!((busy / model().busy_seconds(&alone) - 1.0).abs() < 0.05, "{busy} {tuned:?}");
            assert_eq!(tuned.after * tuned.elsewhere_us, 0.0, "{tuned:?}");
        }
    }

    #[test]
    fn deduplication_costs_puts_time_and_what_is_predicted_does_not_depend_on_what_was_measured_of_it() {
        let alone = measured(None, 2, 400.0);
        let dedup = Alone {
            chunks: "1KiB",
            mb_s: 400.0,
            step_us: 90.0,
            steps_s: 6_000.0,
            step_cpu_us: 70.0,
            step_read_bytes: 32_768.0,
        };
        let tuned = model().tune(&alone);
        let predict = |mean_us: f64| {
            let real = Measured { latencies: Latencies { mean_us, ..Latencies::default() }, ..measured(Some("none"), 2, 0.0) };
            model().predict(&alone, &tuned, &dedup, &real).unwrap()
        };
        let [one, other] = [predict(500.0), predict(5_000.0)];
        assert!((410.0..800.0).contains(&one.simulated_us), "{one:?}");
        assert_eq!(one.simulated_us, other.simulated_us);
        assert!((200.0..401.0).contains(&one.simulated_mb_s), "{one:?}");
        assert_eq!((one.ratio() / other.ratio()).round(), 10.0);
        assert!(model().predict(&alone, &tuned, &dedup, &alone).is_none());
    }
}
