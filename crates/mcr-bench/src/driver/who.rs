//! Which programs are measured, and where they are.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};

/// A program that is measured.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// mcr: manager, file provider, controller
    Mcr,
    /// mcr with packed stores. For `fleet`
    McrPacked,
    /// kube-rs, as its examples have it
    KubeRs,
    /// kube-rs, by someone who has measured
    KubeRsTuned,
    /// controller-runtime, clusters engaged one after the other, as multicluster-runtime does
    GoSerial,
    /// controller-runtime, all clusters engaged at once, by someone who has measured
    GoConcurrent,
    /// No controller: a TLS session, a LIST and a WATCH for each context, which nobody can save. For `fleet`
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

    /// As it is written in rows and arguments.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mcr => "mcr",
            Self::McrPacked => "mcr-packed",
            Self::KubeRs => "kube-rs",
            Self::KubeRsTuned => "kube-rs-tuned",
            Self::GoSerial => "go-serial",
            Self::GoConcurrent => "go-concurrent",
            Self::Floor => "floor",
        }
    }

    /// Whether it is the Go program.
    pub fn is_go(self) -> bool {
        matches!(self, Self::GoSerial | Self::GoConcurrent)
    }

    /// The program and its arguments.
    pub(super) fn command(self, programs: &Programs, job: &Job<'_>) -> Result<(PathBuf, Vec<String>)> {
        let file = job.kubeconfig.display().to_string();
        let expect = job.expect.to_string();
        let mut options = vec![("kubeconfig", file), ("expect", expect)];
        options.extend(job.workers.map(|workers| ("workers", workers.to_string())));
        options.extend(job.work.map(|work| ("work", work.as_micros().to_string())));
        if self.is_go() {
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
        }
        let rust = if job.heap {
            programs.heap()?
        } else {
            programs.rust.clone()
        };
        let subject = ["subject".to_owned(), self.name().to_owned()];
        let args = options.iter().map(|(name, value)| format!("--{name}={value}"));
        Ok((rust, subject.into_iter().chain(args).collect()))
    }
}

/// What a subject is to do.
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
    /// Whether what is allocated is to be counted.
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
            heap: false,
        }
    }
}

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct Programs {
    /// This one, which is all subjects in Rust.
    pub rust: PathBuf,
    /// The same with an allocator that counts, if it is beside this one.
    pub heap: Option<PathBuf>,
    /// The Go program, if it is built.
    pub go: Option<PathBuf>,
}

impl Programs {
    /// The program with the allocator that counts.
    ///
    /// # Errors
    ///
    /// When it is not beside this one.
    pub fn heap(&self) -> Result<PathBuf> {
        self.heap.clone().context(
            "mcr-bench-heap is not beside mcr-bench: `cargo build --release -p mcr-bench` builds both",
        )
    }

    /// This program, and what lies beside it. `go` is where `cargo xtask bench` has built the Go program.
    ///
    /// # Errors
    ///
    /// When the system does not say which program this is.
    pub fn find(go: Option<PathBuf>) -> Result<Self> {
        let rust = std::env::current_exe().context("finding this program")?;
        let heap = rust.with_file_name("mcr-bench-heap");
        Ok(Self {
            heap: heap.is_file().then_some(heap),
            rust,
            go: go.filter(|path| path.is_file()),
        })
    }
}
