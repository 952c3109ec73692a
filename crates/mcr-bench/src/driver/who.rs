//! Which programs are measured, and where they are.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

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
}

impl Subject {
    /// All of them.
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
            Self::KubeRs => "kube-rs",
            Self::KubeRsTuned => "kube-rs-tuned",
            Self::GoSerial => "go-serial",
            Self::GoConcurrent => "go-concurrent",
        }
    }

    /// Whether it is the Go program.
    pub fn is_go(self) -> bool {
        matches!(self, Self::GoSerial | Self::GoConcurrent)
    }

    /// The program and its arguments.
    pub(super) fn command(
        self,
        programs: &Programs,
        kubeconfig: &Path,
        expect: usize,
    ) -> Result<(PathBuf, Vec<String>)> {
        let file = kubeconfig.display().to_string();
        let expect = expect.to_string();
        if self.is_go() {
            let go = programs
                .go
                .clone()
                .context("the Go program is not built: it needs Go, see `go version`")?;
            let mode = if self == Self::GoSerial {
                "serial"
            } else {
                "concurrent"
            };
            let args = ["-mode", mode, "-kubeconfig", &file, "-expect", &expect];
            return Ok((go, args.map(str::to_owned).to_vec()));
        }
        let args = ["subject", self.name(), "--kubeconfig", &file, "--expect", &expect];
        Ok((programs.rust.clone(), args.map(str::to_owned).to_vec()))
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
