//! The three clusters: made at once, written down, and removed whatever happens.

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

/// kind takes a quarter of a minute on two cores, and minutes where Pods have to run first.
const CREATE: Rules = Rules::within(Duration::from_secs(240));
const CREATE_WITH_PODS: Rules = Rules::within(Duration::from_secs(420));
const READY: Duration = Duration::from_secs(180);
/// A controller manager that has just been started waits for its API server first.
const CONTROLLERS: Duration = Duration::from_secs(60);
const QUESTION: Rules = Rules::within(Duration::from_secs(30));
const CLEAN_UP: Rules = Rules::in_any_case(Duration::from_secs(180));

/// The clusters of a run. Dropped, they are removed, unless they are to be kept.
pub(super) struct Clusters<'a> {
    engine: &'a Engine,
    nodes: &'a Nodes,
    assets: &'a Path,
    /// Kubeconfigs and the note.
    folder: PathBuf,
    note: Note,
    /// Whether nothing is left to be removed.
    done: bool,
    _lock: File,
}

impl<'a> Clusters<'a> {
    /// Makes them, or takes those that an earlier run kept; `folder` is theirs.
    pub(super) fn make(
        folder: &Path,
        engine: &'a Engine,
        nodes: &'a Nodes,
        assets: &'a Path,
    ) -> Result<Self> {
        private(folder)?;
        let lock = lock(folder)?;
        let noted = Note::read(folder)?;
        let mut clusters = Self {
            engine,
            nodes,
            assets,
            folder: folder.to_path_buf(),
            note: noted.clone().unwrap_or_else(|| note(nodes)),
            // Until it is known whose they are.
            done: true,
            _lock: lock,
        };
        let (reuse, remove) = match Plan::of(noted.as_ref(), &clusters.present(QUESTION)?, nodes.name()) {
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
        if reuse && clusters.works() {
            eprintln!("e2e: the clusters that an earlier run kept are used again");
            clusters.note.prefix = prefix();
            clusters.note.kept = false;
            clusters.note.write(folder)?;
            return Ok(clusters);
        }
        if reuse {
            eprintln!("e2e: the clusters that an earlier run kept don't work, and are made anew");
            clusters.delete(&CLUSTERS.map(str::to_owned))?;
        }
        clusters.note = note(nodes);
        clusters.note.write(folder)?;
        clusters.create()?;
        Ok(clusters)
    }

    /// Tells a command where everything is.
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

    /// Waits until each answers and has made what every namespace has.
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

    /// Leaves them, and says what can be done with them.
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

    /// Removes them, and what suites made and left.
    pub(super) fn remove(&mut self) -> Result<()> {
        self.engine.revive()?;
        let ours = self.note.ours(&self.present(CLEAN_UP)?);
        self.delete(&ours)?;
        let left = self.note.ours(&self.present(CLEAN_UP)?);
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
        // At once: most of the time kind waits for an API server.
        let failed: Vec<(&str, anyhow::Error)> = thread::scope(|scope| {
            let threads = CLUSTERS.map(|cluster| (cluster, scope.spawn(|| self.create_one(cluster))));
            let ended = threads.map(|(cluster, thread)| (cluster, thread.join()));
            let made =
                ended.map(|(cluster, ended)| (cluster, ended.unwrap_or_else(|_| bail!("a thread panicked"))));
            made.into_iter()
                .filter_map(|(cluster, made)| Some((cluster, made.err()?)))
                .collect()
        });
        // A container engine fails now and then, and the suites are about other things than engines: one more try.
        for (cluster, why) in failed {
            interrupt::check()?;
            eprintln!(
                "e2e: {cluster} could not be made and is made once more: {why:#}\n{}",
                self.evidence(cluster)
            );
            self.delete(&[cluster.to_owned()])?;
            self.create_one(cluster)
                .with_context(|| format!("the second attempt failed too; {}", self.evidence(cluster)))?;
        }
        for made in self.present(QUESTION)? {
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
        // kind adds to what is there.
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
        process::must(&mut create, rules)
            .map(drop)
            .with_context(|| format!("making {cluster}"))
    }

    /// The processes and the last log lines of a node that kind has left half-made, for the report of the failure.
    fn evidence(&self, cluster: &str) -> String {
        let node = format!("{cluster}-control-plane");
        let mut look = self.engine.command();
        look.args(["exec", &node, "sh", "-c", "ps; date; tail -n 25 /var/log/*.log"]);
        match process::run(&mut look, QUESTION) {
            Ok(seen) => format!("{node}: {}\n{}", seen.why(), seen.output.trim_end()),
            Err(error) => format!("{node} can't be examined: {error:#}"),
        }
    }

    /// One kubeconfig with a context for each member of the fleet.
    fn merge(&self) -> Result<()> {
        let members = ["fleet-alpha", "fleet-beta"].map(|cluster| self.kubeconfig(cluster));
        let mut view = self.kubectl();
        view.args(["config", "view", "--flatten"])
            .env("KUBECONFIG", std::env::join_paths(members)?);
        let merged = process::must(&mut view, QUESTION)?;
        private_file(&self.kubeconfig("all"), &merged)
    }

    /// Whether all of them do, now.
    fn works(&self) -> bool {
        let files = CLUSTERS.iter().chain(&["all"]);
        let works = |cluster: &&str| self.ready(cluster).and_then(|()| self.controllers_work(cluster));
        files.into_iter().all(|file| self.kubeconfig(file).is_file())
            && CLUSTERS.iter().all(|cluster| works(cluster).is_ok())
    }

    /// Sees that the cluster does something by itself: an API server may answer where all else is gone.
    fn controllers_work(&self, cluster: &str) -> Result<()> {
        let namespace = format!("e2e-probe-{}", std::process::id());
        let ask = |args: &[&str]| {
            let mut kubectl = self.kubectl();
            kubectl
                .arg("--kubeconfig")
                .arg(self.kubeconfig(cluster))
                .arg("--request-timeout=10s");
            process::must(kubectl.args(args), QUESTION)
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
            process::must(ask.args(question), QUESTION)?;
        }
        Ok(())
    }

    fn delete_those_of_suites(&self) -> Result<()> {
        let mut ours = self.note.ours(&self.present(CLEAN_UP)?);
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
        // kind wants to take the clusters out of a kubeconfig, and the user's is none of our business.
        delete.env("KUBECONFIG", self.folder.join("none.kubeconfig"));
        process::must(&mut delete, CLEAN_UP).map(drop)
    }

    /// The clusters in the engine, half-made and stopped ones too.
    fn present(&self, rules: Rules) -> Result<Vec<Present>> {
        let listed = process::must(self.kind().args(["get", "clusters", "--quiet"]), rules)?;
        let mut present = Vec::new();
        for name in listed.lines().filter(|name| !name.trim().is_empty()) {
            let mut list = self.engine.command();
            list.args(["ps", "--all", "--quiet", "--no-trunc", "--filter"])
                .arg(format!("label=io.x-k8s.kind.cluster={name}"));
            present.push(Present {
                name: name.to_owned(),
                node: process::must(&mut list, rules)?
                    .split_whitespace()
                    .collect::<Vec<_>>()
                    .join(","),
            });
        }
        Ok(present)
    }

    /// Some of what suites find in their environment, for a shell.
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

/// For the clusters that suites make themselves: nobody else's begin with this.
fn prefix() -> String {
    format!("mcr-e2e-{}-", std::process::id())
}

/// One run at a time for each engine.
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

/// A folder that nobody else looks into: kubeconfigs of administrators are in it.
#[cfg(unix)]
fn private(folder: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    Ok(())
}

#[cfg(not(unix))]
fn private(folder: &Path) -> Result<()> {
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
