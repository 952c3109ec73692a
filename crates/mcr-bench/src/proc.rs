//! Memory, CPU time and file descriptors of a process, from `/proc`.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result};

/// Memory, CPU time and file descriptors of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// The resident memory now.
    pub rss_kb: f64,
    /// The peak of the resident memory.
    pub peak_kb: f64,
    /// User and system time, ended threads included.
    pub cpu: Duration,
    /// The number of open file descriptors.
    pub fds: f64,
}

impl Usage {
    /// Reads the current usage.
    ///
    /// # Errors
    ///
    /// When there is no such process, or no /proc.
    pub fn of(pid: u32) -> Result<Self> {
        let read = |file: &str| {
            std::fs::read_to_string(format!("/proc/{pid}/{file}")).with_context(|| {
                format!("reading /proc/{pid}/{file} (the process has ended, or this is not Linux)")
            })
        };
        let usage = Self::parse(&read("status")?, &read("stat")?).context("reading /proc")?;
        Ok(Self {
            // The count in ticks leaves out fractions of a tick; the sum over threads leaves out threads that have
            // ended.
            cpu: usage.cpu.max(threads(pid)),
            fds: std::fs::read_dir(format!("/proc/{pid}/fd"))
                .with_context(|| format!("reading the open files of {pid}"))?
                .count() as f64,
            ..usage
        })
    }

    fn parse(status: &str, stat: &str) -> Option<Self> {
        let kilobytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        // The name of the command is in parentheses, and may contain blanks and parentheses.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            rss_kb: kilobytes("VmRSS:")?,
            peak_kb: kilobytes("VmHWM:")?,
            // A tick is 10 ms on every Linux there is (USER_HZ).
            cpu: Duration::from_millis(10 * (ticks(11)? + ticks(12)?)),
            ..Self::default()
        })
    }
}

/// Raises the soft limit of open files of this process, and of those that it starts, to the hard limit. Returns how many files may be
/// open then; `None` if there is no limit.
#[cfg(unix)]
pub fn raise_open_files() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let current = limit.maximum;
    let raised = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
    raised.map_or(limit.current, |()| current)
}

/// There is no such limit here.
#[cfg(not(unix))]
pub fn raise_open_files() -> Option<u64> {
    None
}

/// CPU time of the live threads, in nanoseconds. Zero if the kernel does not count it.
///
/// A thread that is running is counted up to its last tick or switch, so what is read of a busy process
/// lags by up to a tick for each of its threads that has a CPU.
fn threads(pid: u32) -> Duration {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Duration::ZERO;
    };
    threads
        .flatten()
        .filter_map(|thread| of_thread(&thread.path()))
        .sum()
}

/// CPU time of the live threads of this process whose names are wanted. `None` if the kernel does not count it.
pub fn cpu_of_threads(is_wanted: impl Fn(&str) -> bool) -> Option<Duration> {
    let threads = std::fs::read_dir("/proc/self/task").ok()?.flatten();
    let paths = threads.map(|thread| thread.path());
    let wanted = paths.filter(|path| {
        let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        is_wanted(name.trim_end())
    });
    let cpu: Duration = wanted.filter_map(|path| of_thread(&path)).sum();
    (!cpu.is_zero()).then_some(cpu)
}

fn of_thread(thread: &Path) -> Option<Duration> {
    let counted = std::fs::read_to_string(thread.join("schedstat")).ok()?;
    let nanos = counted.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_parentheses_moves_no_field() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        let stat = "7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 1 0";
        let usage = Usage::parse(status, stat).unwrap();
        assert_eq!((usage.rss_kb, usage.peak_kb), (1024.0, 2048.0));
        assert_eq!(usage.cpu, Duration::from_secs(2));
        assert_eq!(Usage::parse("VmRSS: 1 kB\n", stat), None);
    }
}
