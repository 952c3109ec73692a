use std::{fmt, time::Duration};

use tokio::time::{Instant, sleep_until};

use super::{
    Fault, FaultError, FaultProxy, Rule, RuleId,
    random::{Random, new_seed},
};

/// The environment variable with the seed for the replay of a failing run.
const SEED: &str = "MCR_FAULT_SEED";

/// A series of faults over a number of proxies, made from a seed. The same seed and options give the same series on
/// every machine, and in every version of this crate that has the same faults.
///
/// ```
/// use std::time::Duration;
/// use mcr_testkit::faults::{Fault, Schedule};
///
/// let schedule = Schedule::seeded(7)
///     .proxies(20)
///     .length(Duration::from_secs(60))
///     .faults([Fault::BlackHole, Fault::Reset, Fault::InternalError])
///     .steps(40)
///     .build();
/// println!("{schedule}"); // first line: MCR_FAULT_SEED=0x7 …
/// ```
///
/// A test gets its seed from [`from_env`](Self::from_env) and prints the schedule before it
/// [runs](Self::run) it. Setting the variable to the printed seed repeats a failed run.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Schedule {
    /// The seed of the schedule.
    pub seed: u64,
    /// The faults, in the order in which they begin.
    pub steps: Vec<Step>,
}

/// One fault of a [`Schedule`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Step {
    /// When the fault begins, relative to the start of the run.
    pub at: Duration,
    /// The number of the proxy, from 0.
    pub proxy: usize,
    /// The fault and its conditions.
    pub rule: Rule,
    /// How long the fault lasts.
    pub lasts: Duration,
}

/// Makes a [`Schedule`].
#[derive(Debug, Clone)]
#[must_use]
pub struct ScheduleBuilder {
    seed: u64,
    proxies: usize,
    length: Duration,
    steps: usize,
    lasts: (Duration, Duration),
    rules: Vec<Rule>,
}

impl Schedule {
    /// A schedule from a seed.
    pub fn seeded(seed: u64) -> ScheduleBuilder {
        ScheduleBuilder {
            seed,
            proxies: 1,
            length: Duration::from_secs(30),
            steps: 10,
            lasts: (Duration::from_millis(200), Duration::from_secs(5)),
            rules: Fault::catalogue()
                .into_iter()
                .filter(|fault| !gives_wrong_data(fault))
                .map(Rule::from)
                .collect(),
        }
    }

    /// A schedule from the seed in `MCR_FAULT_SEED`, or from a random seed if the variable is not set.
    ///
    /// # Errors
    /// [`FaultError::Seed`] if the variable is not a number. Then a random seed would be wrong, because the test would
    /// look like a replay.
    pub fn from_env() -> Result<ScheduleBuilder, FaultError> {
        match std::env::var(SEED) {
            Ok(value) => parse(&value).map(Self::seeded).ok_or(FaultError::Seed { value }),
            Err(_) => Ok(Self::seeded(new_seed())),
        }
    }

    /// The time until the last fault has ended.
    pub fn length(&self) -> Duration {
        self.steps
            .iter()
            .map(|step| step.at + step.lasts)
            .max()
            .unwrap_or_default()
    }

    /// Sets and ends the faults at their times. Returns when the last fault has ended. Skips steps for proxies that
    /// are not in `proxies`. Faults that were set by other means are not touched.
    ///
    /// # Cancellation
    /// Dropping the future leaves its current faults set; [`FaultProxy::clear`] ends them.
    pub async fn run(&self, proxies: &[FaultProxy]) {
        let start = Instant::now();
        let mut moments: Vec<(Duration, usize, bool)> = self
            .steps
            .iter()
            .enumerate()
            .flat_map(|(number, step)| [(step.at, number, true), (step.at + step.lasts, number, false)])
            .collect();
        moments.sort();
        let mut ids: Vec<Option<RuleId>> = vec![None; self.steps.len()];
        for (at, number, begins) in moments {
            let step = &self.steps[number];
            let Some(proxy) = proxies.get(step.proxy) else {
                continue;
            };
            sleep_until(start + at).await;
            if begins {
                ids[number] = Some(proxy.add(step.rule.clone()).await);
            } else if let Some(id) = ids[number].take() {
                proxy.remove(id).await;
            }
        }
    }
}

/// Whether a fault can give wrong data to a client, temporarily or for good. Other faults can only withhold data.
fn gives_wrong_data(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::StaleReads | Fault::SkipEvents | Fault::DuplicateEvents
    )
}

fn parse(value: &str) -> Option<u64> {
    let value = value.trim();
    match value.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => value.parse().ok(),
    }
}

impl ScheduleBuilder {
    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Sets the number of proxies. Default: 1.
    pub fn proxies(mut self, count: usize) -> Self {
        self.proxies = count;
        self
    }

    /// Sets the time when the last fault ends. Default: 30 seconds.
    pub fn length(mut self, length: Duration) -> Self {
        self.length = length;
        self
    }

    /// Sets the number of faults. Default: 10.
    pub fn steps(mut self, count: usize) -> Self {
        self.steps = count;
        self
    }

    /// Sets the shortest and the longest duration of a fault. Default: 0.2 to 5 seconds.
    pub fn lasting(mut self, shortest: Duration, longest: Duration) -> Self {
        self.lasts = (shortest, longest);
        self
    }

    /// Sets the faults to choose from. Default: [`Fault::catalogue`] without those that
    /// can give a client wrong data.
    pub fn faults<R: Into<Rule>>(mut self, faults: impl IntoIterator<Item = R>) -> Self {
        self.rules = faults.into_iter().map(Into::into).collect();
        self
    }

    /// Makes the schedule. It is empty if there are no faults to choose from, or no proxies.
    #[must_use]
    pub fn build(self) -> Schedule {
        let mut random = Random::new(self.seed);
        let possible = self.proxies > 0 && !self.rules.is_empty();
        let mut steps: Vec<Step> = (0..if possible { self.steps } else { 0 })
            .map(|_| {
                let lasts = random.between(self.lasts.0, self.lasts.1).min(self.length);
                Step {
                    at: random.between(Duration::ZERO, self.length - lasts),
                    proxy: random.below(self.proxies),
                    rule: self.rules[random.below(self.rules.len())].clone(),
                    lasts,
                }
            })
            .collect();
        steps.sort_by_key(|step| step.at);
        Schedule {
            seed: self.seed,
            steps,
        }
    }
}

/// The seed, then a line for each step.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.length().as_secs_f64();
        write!(
            f,
            "{SEED}={:#x} ({} steps in {seconds:.3} s)",
            self.seed,
            self.steps.len()
        )?;
        for step in &self.steps {
            let (at, lasts) = (step.at.as_secs_f64(), step.lasts.as_secs_f64());
            write!(
                f,
                "\n{at:9.3} s for {lasts:7.3} s  proxy {:<4} {}",
                step.proxy, step.rule.fault
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_schedule() {
        let make = |seed| Schedule::seeded(seed).proxies(5).steps(50).build();
        assert_eq!(make(1), make(1));
        assert_ne!(make(1), make(2));
        let schedule = make(3);
        assert!(schedule.length() <= Duration::from_secs(30));
        assert!(schedule.steps.iter().all(|step| step.proxy < 5));
        assert!(schedule.steps.is_sorted_by_key(|step| step.at));
        assert!(
            make(0x1f)
                .to_string()
                .starts_with("MCR_FAULT_SEED=0x1f (50 steps in ")
        );
    }
}
