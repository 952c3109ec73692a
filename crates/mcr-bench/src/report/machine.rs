use std::{path::Path, process::Command};

/// The machine and the versions for which the figures are valid.
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
    /// The versions of the measured software, by name.
    pub versions: Vec<(String, String)>,
    /// The day.
    pub date: String,
}

impl Machine {
    /// Reads the data of this machine, and the versions from the workspace in `root`.
    pub fn observe(root: &Path) -> Self {
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
        let file = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
        let modules = file("crates/mcr-bench/go/go.mod");
        let module = |name: &str| {
            let found = modules.lines().find_map(|line| line.trim().strip_prefix(name));
            let version = found.and_then(|rest| rest.split_whitespace().next());
            version.unwrap_or("?").to_owned()
        };
        let release = read("/proc/sys/kernel/osrelease");
        let release = release.split(['-', '\n']).next().unwrap_or_default();
        let rustc = output_of("rustc", &["--version"]);
        let versions = [
            ("mcr", env!("CARGO_PKG_VERSION").to_owned()),
            ("kube-rs", locked(&file("Cargo.lock"), "kube")),
            ("rustc", rustc.trim_start_matches("rustc ").to_owned()),
            ("Go", output_of("go", &["env", "GOVERSION"])),
            ("controller-runtime", module("sigs.k8s.io/controller-runtime ")),
            ("client-go", module("k8s.io/client-go ")),
            ("kube-apiserver", api_server()),
        ];
        Self {
            processor: field(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gb: (kilobytes / 1e6).round(),
            kernel: format!("{} {release}", std::env::consts::OS),
            versions: versions.map(|(name, version)| (name.to_owned(), version)).into(),
            date: jiff::Zoned::now().date().to_string(),
        }
    }
}

fn output_of(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    let output = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    output
        .ok()
        .filter(|output| !output.is_empty())
        .unwrap_or_else(|| "not there".to_owned())
}

/// The version of a crate in a lock file.
pub(super) fn locked(lock: &str, name: &str) -> String {
    let mut lines = lock
        .lines()
        .skip_while(|line| *line != format!("name = {name:?}"));
    let version = lines.nth(1).and_then(|line| line.strip_prefix("version = "));
    version.map_or_else(|| "?".to_owned(), |version| version.trim_matches('"').to_owned())
}

fn api_server() -> String {
    let binaries = mcr_testkit::control_plane::Binaries::find();
    let program = binaries.map(|binaries| binaries.folder().join("kube-apiserver").display().to_string());
    let output = program.map_or_else(
        |_| "not there".to_owned(),
        |program| output_of(&program, &["--version"]),
    );
    output.trim_start_matches("Kubernetes ").to_owned()
}
