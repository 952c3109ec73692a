//! Creates the three kind clusters, notes them in a file, and removes them in any case.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::nodes::Nodes;
use super::note::{CLUSTERS, Note, Plan, Present};
use crate::engine::Engine;
use crate::interrupt;
use crate::process::{self, Rules};

/// kind needs a quarter of a minute on two cores, or minutes if Pods must run.
const CREATE: Rules = Rules::within(Duration::from_secs(240));
const CREATE_WITH_PODS: Rules = Rules::within(Duration::from_secs(420));
const READY: Duration = Duration::from_secs(180);
/// A controller manager that was just started waits for its API server first.
const CONTROLLERS: Duration = Duration::from_secs(60);
const QUESTION: Rules = Rules::within(Duration::from_secs(30));
const CLEAN_UP: Rules = Rules::in_any_case(Duration::from_secs(180));

/// The clusters of a run. When this is dropped, they are removed, unless they are to be kept.
pub(super) struct Clusters<'a> {
    engine: &'a Engine,
    nodes: &'a Nodes,
    assets: &'a Path,
    /// The folder for the kubeconfigs and the note.
    folder: PathBuf,
    note: Note,
    /// Whether there is nothing left to remove.
    done: bool,
    _lock: File,
}

impl<'a> Clusters<'a> {
    /// Creates the clusters, or reuses those that an earlier run has kept. Their files are in `folder`.
    pub(super) fn make(
        folder: &Path,
        engine: &'a Engine,
        nodes: &'a Nodes,
        assets: &'a Path,
    ) -> Result<Self> {
        make_private_folder(folder)?;
        let lock = lock(folder)?;
        let noted = Note::read(folder)?;
        let mut clusters = Self {
            engine,
            nodes,
            assets,
            folder: folder.to_path_buf(),
            note: noted.clone().unwrap_or_else(|| note(nodes)),
            // Nothing may be removed until it is known who owns the clusters.
            done: true,
            _lock: lock,
        };
        let (reuse, remove) = match Plan::of(
            noted.as_ref(),
            &clusters.existing_clusters(QUESTION)?,
            nodes.name(),
        ) {
            Plan::Make { remove } => (false, remove),
            Plan::Reuse { remove } => (true, remove),
            Plan::Refuse(names) => bail!(
                "there are clusters named {} already, and not from here. To remove them: kind delete clusters {}",
                names.join(", "),
                names.join(" ")
            ),
        };
        clusters.done = false;
        clusters.delete(&remove)?;
        if reuse && clusters.all_work() {
            eprintln!("e2e: the clusters that an earlier run kept are used again");
            clusters.note.prefix = prefix();
            clusters.note.kept = false;
            clusters.note.write(folder)?;
            return Ok(clusters);
        }
        if reuse {
            eprintln!("e2e: the clusters that an earlier run kept don't work, and are created again");
            clusters.delete(&CLUSTERS.map(str::to_owned))?;
        }
        clusters.note = note(nodes);
        clusters.note.write(folder)?;
        clusters.create()?;
        Ok(clusters)
    }

    /// Passes the environment of the clusters to a command.
    pub(super) fn describe(&self, command: &mut Command) {
        command
            .envs(self.engine.env())
            .env("MCR_E2E", &self.folder)
            .env("MCR_KIND", &self.nodes.kind)
            .env("MCR_E2E_PREFIX", &self.note.prefix)
            .env("KUBEBUILDER_ASSETS", self.assets)
            .env_remove("MCR_NODE_IMAGE")
            .env_remove("MCR_E2E_PODS");
        if let Some(image) = &self.nodes.image {
            command.env("MCR_NODE_IMAGE", image);
        }
        if self.nodes.pods {
            command.env("MCR_E2E_PODS", "1");
        }
    }

    /// Waits until each cluster answers, and has created what every namespace contains.
    pub(super) fn wait_until_ready(&self) -> Result<()> {
        let started = Instant::now();
        for cluster in CLUSTERS {
            loop {
                let Err(why) = self.ready(cluster) else { break };
                interrupt::check()?;
                if started.elapsed() > READY {
                    bail!("{cluster} does not get ready: {why:#}");
                }
                thread::sleep(Duration::from_millis(300));
            }
        }
        Ok(())
    }

    /// Keeps the clusters, and prints how to use and remove them.
    pub(super) fn keep(&mut self) -> Result<()> {
        self.delete_those_of_suites()?;
        self.wait_until_ready()?;
        for cluster in CLUSTERS {
            self.controllers_work(cluster)?;
        }
        self.note.kept = true;
        self.note.write(&self.folder)?;
        self.done = true;
        let folder = self.folder.display();
        eprintln!("The clusters stay. To use them, also for one suite alone:");
        for (name, value) in self.variables() {
            eprintln!("  export {name}={value}");
        }
        eprintln!("  export KUBECONFIG={folder}/all.kubeconfig   # or fleet-hub.kubeconfig");
        eprintln!(
            "To remove them: `cargo xtask e2e` without --keep, or\n  {} delete clusters {}",
            self.nodes.kind.display(),
            CLUSTERS.join(" ")
        );
        Ok(())
    }

    /// Removes the clusters, and clusters that suites have left.
    pub(super) fn remove(&mut self) -> Result<()> {
        self.engine.restart_if_stopped()?;
        let ours = self.note.ours(&self.existing_clusters(CLEAN_UP)?);
        self.delete(&ours)?;
        let left = self.note.ours(&self.existing_clusters(CLEAN_UP)?);
        if !left.is_empty() {
            bail!("{} still there", left.join(", "));
        }
        for cluster in CLUSTERS.iter().chain(&["all"]) {
            let _ = fs::remove_file(self.kubeconfig(cluster));
        }
        Note::erase(&self.folder)?;
        self.done = true;
        Ok(())
    }

    fn create(&mut self) -> Result<()> {
        let started = Instant::now();
        eprintln!("e2e: making {}", CLUSTERS.join(", "));
        // In parallel, because kind mostly waits for API servers.
        let failed: Vec<(&str, anyhow::Error)> = thread::scope(|scope| {
            let threads = CLUSTERS.map(|cluster| (cluster, scope.spawn(|| self.create_one(cluster))));
            let ended = threads.map(|(cluster, thread)| (cluster, thread.join()));
            let made =
                ended.map(|(cluster, ended)| (cluster, ended.unwrap_or_else(|_| bail!("a thread panicked"))));
            made.into_iter()
                .filter_map(|(cluster, made)| Some((cluster, made.err()?)))
                .collect()
        });
        // A container engine fails sometimes, and the suites do not test engines. So each cluster gets a second
        // attempt.
        for (cluster, why) in failed {
            interrupt::check()?;
            eprintln!(
                "e2e: creating {cluster} has failed and is tried again: {why:#}\n{}",
                self.evidence(cluster)
            );
            self.delete(&[cluster.to_owned()])?;
            self.create_one(cluster)
                .with_context(|| format!("the second attempt failed too; {}", self.evidence(cluster)))?;
        }
        for made in self.existing_clusters(QUESTION)? {
            if CLUSTERS.contains(&made.name.as_str()) {
                self.note.nodes.insert(made.name, made.node);
            }
        }
        self.note.write(&self.folder)?;
        self.merge()?;
        self.wait_until_ready()?;
        eprintln!("e2e: made in {:.1} s", started.elapsed().as_secs_f64());
        Ok(())
    }

    fn create_one(&self, cluster: &str) -> Result<()> {
        let kubeconfig = self.kubeconfig(cluster);
        // kind adds to an existing file.
        let _ = fs::remove_file(&kubeconfig);
        let mut create = self.kind();
        create
            .args(["create", "cluster", "--name", cluster, "--kubeconfig"])
            .arg(&kubeconfig);
        if let Some(image) = &self.nodes.image {
            create.args(["--image", image]);
        }
        if self.nodes.pods {
            create.args(["--wait", "3m"]);
        }
        let rules = if self.nodes.pods { CREATE_WITH_PODS } else { CREATE };
        process::run_checked(&mut create, rules)
            .map(drop)
            .with_context(|| format!("making {cluster}"))
    }

    /// The processes and the last log lines of a half-created node, for the report of the failure.
    fn evidence(&self, cluster: &str) -> String {
        let node = format!("{cluster}-control-plane");
        let mut look = self.engine.command();
        look.args(["exec", &node, "sh", "-c", "ps; date; tail -n 25 /var/log/*.log"]);
        match process::run(&mut look, QUESTION) {
            Ok(seen) => format!("{node}: {}\n{}", seen.why(), seen.output.trim_end()),
            Err(error) => format!("{node} can't be examined: {error:#}"),
        }
    }

    /// Writes one kubeconfig with a context for each member of the fleet.
    fn merge(&self) -> Result<()> {
        let members = ["fleet-alpha", "fleet-beta"].map(|cluster| self.kubeconfig(cluster));
        let mut view = self.kubectl();
        view.args(["config", "view", "--flatten"])
            .env("KUBECONFIG", std::env::join_paths(members)?);
        let merged = process::run_checked(&mut view, QUESTION)?;
        private_file(&self.kubeconfig("all"), &merged)
    }

    /// Whether all clusters work now.
    fn all_work(&self) -> bool {
        let files = CLUSTERS.iter().chain(&["all"]);
        let works = |cluster: &&str| self.ready(cluster).and_then(|()| self.controllers_work(cluster));
        files.into_iter().all(|file| self.kubeconfig(file).is_file())
            && CLUSTERS.iter().all(|cluster| works(cluster).is_ok())
    }

    /// Checks that the controllers of the cluster work, because an API server may answer although nothing else runs.
    fn controllers_work(&self, cluster: &str) -> Result<()> {
        let namespace = format!("e2e-probe-{}", std::process::id());
        let ask = |args: &[&str]| {
            let mut kubectl = self.kubectl();
            kubectl
                .arg("--kubeconfig")
                .arg(self.kubeconfig(cluster))
                .arg("--request-timeout=10s");
            process::run_checked(kubectl.args(args), QUESTION)
        };
        ask(&["create", "namespace", &namespace])?;
        let started = Instant::now();
        let made = loop {
            let made = ask(&["get", "serviceaccount", "default", "--namespace", &namespace]);
            if made.is_ok() || started.elapsed() > CONTROLLERS || interrupt::received() {
                break made;
            }
            thread::sleep(Duration::from_millis(300));
        };
        ask(&["delete", "namespace", &namespace, "--wait=false"])?;
        made.map(drop)
            .with_context(|| format!("the controllers of {cluster} don't work"))
    }

    fn ready(&self, cluster: &str) -> Result<()> {
        let kubeconfig = self.kubeconfig(cluster);
        for question in [
            &["get", "--raw", "/readyz"][..],
            &["get", "serviceaccount", "default", "--namespace", "default"],
        ] {
            let mut ask = self.kubectl();
            ask.arg("--kubeconfig")
                .arg(&kubeconfig)
                .arg("--request-timeout=10s");
            process::run_checked(ask.args(question), QUESTION)?;
        }
        Ok(())
    }

    fn delete_those_of_suites(&self) -> Result<()> {
        let mut ours = self.note.ours(&self.existing_clusters(CLEAN_UP)?);
        ours.retain(|name| !CLUSTERS.contains(&name.as_str()));
        self.delete(&ours)
    }

    fn delete(&self, names: &[String]) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        eprintln!("e2e: removing {}", names.join(", "));
        let mut delete = self.kind();
        delete.args(["delete", "clusters"]).args(names);
        // kind removes the clusters from a kubeconfig. That must not be the user's file.
        delete.env("KUBECONFIG", self.folder.join("none.kubeconfig"));
        process::run_checked(&mut delete, CLEAN_UP).map(drop)
    }

    /// The clusters in the engine, including half-created and stopped ones.
    fn existing_clusters(&self, rules: Rules) -> Result<Vec<Present>> {
        let listed = process::run_checked(self.kind().args(["get", "clusters", "--quiet"]), rules)?;
        let mut present = Vec::new();
        for name in listed.lines().filter(|name| !name.trim().is_empty()) {
            let mut list = self.engine.command();
            list.args(["ps", "--all", "--quiet", "--no-trunc", "--filter"])
                .arg(format!("label=io.x-k8s.kind.cluster={name}"));
            present.push(Present {
                name: name.to_owned(),
                node: process::run_checked(&mut list, rules)?
                    .split_whitespace()
                    .collect::<Vec<_>>()
                    .join(","),
            });
        }
        Ok(present)
    }

    /// The environment variables that a shell needs to run a suite.
    fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = vec![
            ("MCR_E2E", self.folder.display().to_string()),
            ("MCR_KIND", self.nodes.kind.display().to_string()),
            ("KUBEBUILDER_ASSETS", self.assets.display().to_string()),
        ];
        if let Some(image) = &self.nodes.image {
            variables.push(("MCR_NODE_IMAGE", image.clone()));
        }
        if self.nodes.pods {
            variables.push(("MCR_E2E_PODS", "1".to_owned()));
        }
        for (name, value) in self.engine.env() {
            variables.push((name, value.to_string_lossy().into_owned()));
        }
        variables
    }

    fn kubeconfig(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.kubeconfig"))
    }

    fn kind(&self) -> Command {
        let mut kind = Command::new(&self.nodes.kind);
        kind.envs(self.engine.env());
        kind
    }

    fn kubectl(&self) -> Command {
        Command::new(self.assets.join("kubectl"))
    }
}

impl Drop for Clusters<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        if let Err(error) = self.remove() {
            eprintln!("e2e: clusters stay, and the next `cargo xtask e2e` removes them: {error:#}");
        }
    }
}

fn note(nodes: &Nodes) -> Note {
    Note {
        image: nodes.name().to_owned(),
        prefix: prefix(),
        kept: false,
        nodes: Default::default(),
    }
}

/// The name prefix of clusters that suites create themselves. Nobody else uses it.
fn prefix() -> String {
    format!("mcr-e2e-{}-", std::process::id())
}

/// Allows only one run at a time for each engine.
fn lock(folder: &Path) -> Result<File> {
    let file = File::create(folder.join(".lock"))?;
    let mut reported = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error).context("locking the clusters' folder"),
        }
        interrupt::check()?;
        if !std::mem::replace(&mut reported, true) {
            eprintln!("e2e: waiting for another `cargo xtask e2e`");
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// Makes a folder that only this user can read, because it contains kubeconfigs of administrators.
#[cfg(unix)]
fn make_private_folder(folder: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    Ok(())
}

#[cfg(not(unix))]
fn make_private_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))
}

fn private_file(path: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    let _ = fs::remove_file(path);
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options
        .open(path)
        .with_context(|| format!("making {}", path.display()))?;
    file.write_all(text.as_bytes())?;
    Ok(())
}
