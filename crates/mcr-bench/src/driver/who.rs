//! The measured programs and their paths.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::{kind::Kind, subject::Gzip};

/// A program that is measured.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// mcr: manager, file provider, controller
    Mcr,
    /// kube-rs, as its examples have it
    KubeRs,
    /// kube-rs, by someone who has measured
    KubeRsTuned,
    /// controller-runtime, clusters engaged one after the other, as multicluster-runtime does
    GoSerial,
    /// controller-runtime, all clusters engaged at once, by someone who has measured
    GoConcurrent,
    /// No controller: a TLS session, a LIST and a WATCH for each context, which nobody can save. For `fleet` and
    /// `update`
    Floor,
}

impl Subject {
    /// All controllers.
    pub const ALL: [Self; 5] = [
        Self::Mcr,
        Self::KubeRs,
        Self::KubeRsTuned,
        Self::GoSerial,
        Self::GoConcurrent,
    ];

    /// The best of each family.
    pub const SIDE_BY_SIDE: [Self; 3] = [Self::Mcr, Self::KubeRsTuned, Self::GoConcurrent];

    /// As it is written in rows and arguments.
    pub fn name(self) -> String {
        crate::names::name(&self)
    }

    /// Whether it is the Go program.
    pub fn is_go(self) -> bool {
        self.program().is_none()
    }

    /// Its program, if it is written in Rust.
    fn program(self) -> Option<&'static str> {
        match self {
            Self::Mcr => Some("mcr-bench-mcr"),
            Self::KubeRs | Self::KubeRsTuned => Some("mcr-bench-kube-rs"),
            Self::Floor => Some("mcr-bench-floor"),
            Self::GoSerial | Self::GoConcurrent => None,
        }
    }

    /// The program and its arguments.
    pub(super) fn command(self, programs: &Programs, job: &Job<'_>) -> Result<(PathBuf, Vec<String>)> {
        let file = job.kubeconfig.display().to_string();
        let expect = job.expect.to_string();
        let mut options = vec![("kubeconfig", file), ("expect", expect)];
        options.extend(job.workers.map(|workers| ("workers", workers.to_string())));
        options.extend(job.threads.map(|threads| ("threads", threads.to_string())));
        options.extend(job.work.map(|work| ("work", work.as_micros().to_string())));
        if job.kinds != [Kind::ConfigMaps] {
            options.push(("kinds", Kind::list(job.kinds)));
        }
        options.extend(job.round.map(|round| ("round", round.to_string())));
        options.extend(job.gzip.map(|gzip| ("gzip", crate::names::name(&gzip))));
        let Some(program) = self.program() else {
            let go = programs.go.clone();
            let go = go.context("the Go program is not built: it needs Go, see `go version`")?;
            let mode = if self == Self::GoSerial {
                "serial"
            } else {
                "concurrent"
            };
            options.push(("mode", mode.to_owned()));
            let args = options.iter().map(|(name, value)| format!("-{name}={value}"));
            return Ok((go, args.collect()));
        };
        let program = match self {
            Self::Mcr if job.heap => programs.beside("mcr-bench-heap")?,
            _ if job.heap => bail!("no program counts the allocations of {}", self.name()),
            _ => programs.beside(program)?,
        };
        let args = options.iter().map(|(name, value)| format!("--{name}={value}"));
        let args = [self.name()].into_iter().chain(args);
        Ok((program, args.collect()))
    }
}

/// The job of a subject.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// Its clusters.
    pub kubeconfig: &'a Path,
    /// How many objects they hold together.
    pub expect: usize,
    /// How many reconciles run at once, if not the default number.
    pub workers: Option<usize>,
    /// How long each reconcile takes.
    pub work: Option<Duration>,
    /// How many threads it works with, if not one for each core.
    pub threads: Option<NonZeroUsize>,
    /// The kinds that it watches.
    pub kinds: &'a [Kind],
    /// The round of suite `work`, in which objects are applied.
    pub round: Option<u64>,
    /// Whether lists are compressed, if not as by default.
    pub gzip: Option<Gzip>,
    /// Whether to count allocated bytes. For mcr only.
    pub heap: bool,
}

impl<'a> Job<'a> {
    /// To see all objects of the clusters of a kubeconfig.
    pub fn new(kubeconfig: &'a Path, expect: usize) -> Self {
        Self {
            kubeconfig,
            expect,
            workers: None,
            work: None,
            threads: None,
            kinds: &[Kind::ConfigMaps],
            round: None,
            gzip: None,
            heap: false,
        }
    }
}

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct Programs {
    /// This one: the driver, the simulator, and mcr alone. The subjects in Rust are beside it.
    pub bench: PathBuf,
    /// The Go program, if it is built.
    pub go: Option<PathBuf>,
}

impl Programs {
    /// Another program of this package.
    ///
    /// # Errors
    ///
    /// When it is not beside this one.
    pub fn beside(&self, name: &str) -> Result<PathBuf> {
        let program = self.bench.with_file_name(name);
        if !program.is_file() {
            bail!("{name} is not beside mcr-bench: `cargo build --release -p mcr-bench` builds all of them");
        }
        Ok(program)
    }

    /// This program. `go` is where `cargo xtask bench` has built the Go program.
    ///
    /// # Errors
    ///
    /// When the system does not know which program this is.
    pub fn find(go: Option<PathBuf>) -> Result<Self> {
        Ok(Self {
            bench: std::env::current_exe().context("finding this program")?,
            go: go.filter(|path| path.is_file()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_families_are_programs_of_their_own_and_what_is_not_built_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let programs = Programs {
            bench: folder.path().join("mcr-bench"),
            go: None,
        };
        let command = |subject: Subject, heap| {
            let job = Job {
                heap,
                ..Job::new(Path::new("file"), 7)
            };
            subject.command(&programs, &job)
        };
        let missing = command(Subject::Mcr, false).unwrap_err().to_string();
        assert!(missing.starts_with("mcr-bench-mcr is not beside"), "{missing}");
        for name in ["mcr", "kube-rs", "floor", "heap"] {
            std::fs::write(folder.path().join(format!("mcr-bench-{name}")), "").unwrap();
        }
        for (subject, heap, program) in [
            (Subject::Mcr, false, "mcr-bench-mcr"),
            (Subject::KubeRsTuned, false, "mcr-bench-kube-rs"),
            (Subject::Mcr, true, "mcr-bench-heap"),
        ] {
            let (path, args) = command(subject, heap).unwrap();
            assert_eq!(path, folder.path().join(program));
            assert_eq!(args, [&subject.name(), "--kubeconfig=file", "--expect=7"]);
        }
        let job = Job {
            threads: NonZeroUsize::new(3),
            kinds: &[Kind::Pods, Kind::RoleBindings],
            ..Job::new(Path::new("file"), 7)
        };
        let (_, args) = Subject::Floor.command(&programs, &job).unwrap();
        assert_eq!(args[3..], ["--threads=3", "--kinds=pods,rolebindings"]);
        // An error is better than a figure without meaning.
        assert!(command(Subject::KubeRs, true).is_err());
    }
}
