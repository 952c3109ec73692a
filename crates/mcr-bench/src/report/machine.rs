use std::{path::Path, process::Command};

/// What the figures are of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// The processor.
    pub processor: String,
    /// How many cores.
    pub cores: usize,
    /// Its memory, in GB.
    pub memory_gb: f64,
    /// The kernel.
    pub kernel: String,
    /// Versions of what is measured, by name.
    pub versions: Vec<(String, String)>,
    /// The day.
    pub date: String,
}

impl Machine {
    /// Looks at this one. `go` is the folder of the Go program.
    pub fn look(go: &Path) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|line| Some(line.split_once(':')?.1.trim().to_owned()))
                .unwrap_or_default()
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let kilobytes: f64 = memory
            .split(' ')
            .next()
            .and_then(|number| number.parse().ok())
            .unwrap_or_default();
        let modules = std::fs::read_to_string(go.join("go.mod")).unwrap_or_default();
        let module = |name: &str| {
            let found = modules.lines().find_map(|line| line.trim().strip_prefix(name));
            found
                .and_then(|rest| rest.split_whitespace().next())
                .unwrap_or("?")
                .to_owned()
        };
        Self {
            processor: field(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gb: (kilobytes / 1e6).round(),
            kernel: format!(
                "{} {}",
                std::env::consts::OS,
                read("/proc/sys/kernel/osrelease").trim()
            ),
            versions: vec![
                ("mcr".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
                ("kube-rs".to_owned(), "5.0".to_owned()),
                ("rustc".to_owned(), said_by("rustc", &["--version"])),
                ("Go".to_owned(), said_by("go", &["env", "GOVERSION"])),
                (
                    "controller-runtime".to_owned(),
                    module("sigs.k8s.io/controller-runtime "),
                ),
                ("client-go".to_owned(), module("k8s.io/client-go ")),
                ("kube-apiserver".to_owned(), "1.36.1".to_owned()),
            ],
            date: jiff::Zoned::now().date().to_string(),
        }
    }
}

fn said_by(program: &str, args: &[&str]) -> String {
    let said = Command::new(program).args(args).output();
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    said.ok()
        .filter(|said| !said.is_empty())
        .unwrap_or_else(|| "not there".to_owned())
}
