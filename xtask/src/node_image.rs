//! `cargo xtask node-image`: a node image for kind where none can be pulled.
//!
//! kind's own images come from a registry. Where there is none, this makes one that has what a control plane needs and
//! nothing else: etcd, kube-apiserver and kube-controller-manager as processes, the PKI of the real kubeadm, no kubelet. kind
//! makes, stops, starts and deletes clusters of it as of any other. Files: `entrypoint.sh` is a node's first process,
//! `kubeadm.sh` is what kind calls as `kubeadm`, `recipe.rs` says what goes where, `tar.rs` writes the archive.

mod recipe;
mod tar;

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::assets;
use recipe::Parts;

/// Arguments of `cargo xtask node-image`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The container engine's program: docker or podman
    #[arg(long, default_value = "docker")]
    engine: String,
    /// Make the image even if the engine has it
    #[arg(long)]
    force: bool,
}

/// Prints `MCR_KIND` and `MCR_NODE_IMAGE` with their values on stdout, fit for a shell; progress goes to stderr.
pub(crate) fn run(args: &Args) -> Result<()> {
    if !cfg!(target_os = "linux") {
        bail!(
            "a node image is made on Linux only, from this machine's own programs; elsewhere let kind pull its own"
        );
    }
    // First, as all else takes minutes.
    reach(&args.engine)?;
    let cache = assets::user_cache()?.join("mcr").join("node-image");
    std::fs::create_dir_all(&cache)?;
    let _lock = assets::lock(&cache)?;
    let kind = kind(&cache)?;
    let image = image(args, &cache)?;
    println!("MCR_KIND={}\nMCR_NODE_IMAGE={image}", kind.display());
    Ok(())
}

fn image(args: &Args, cache: &Path) -> Result<String> {
    let folder = assets::ensure(&assets::Args::default())?;
    let kubeadm = kubeadm(cache)?;
    let parts = Parts::find(&folder, &kubeadm)?;
    let image = parts.image()?;
    if !args.force && quiet(&args.engine, &["image", "inspect", &image]) {
        eprintln!("node-image: {} has {image} already", args.engine);
        return Ok(image);
    }
    import(&args.engine, &image, &parts)?;
    Ok(image)
}

/// Streams the image to the engine: nothing of it is written to the disk twice.
fn import(engine: &str, image: &str, parts: &Parts) -> Result<()> {
    eprintln!("node-image: making {image} in {engine}");
    let started = Instant::now();
    let mut command = Command::new(engine);
    command.arg("import");
    for change in Parts::CHANGES {
        command.args(["--change", change]);
    }
    let mut child = command
        .args(["-", image])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("starting `{engine} import`"))?;
    let stdin = child.stdin.take().context("the engine takes an archive")?;
    let written = write(stdin, parts);
    let status = child.wait()?;
    // An engine that gave up closes its end; why is what it said, above.
    if !status.success() {
        bail!("`{engine} import` failed ({status})");
    }
    let size = written?;
    eprintln!(
        "node-image: {image} made in {} s from {} MB",
        started.elapsed().as_secs(),
        size >> 20
    );
    Ok(())
}

fn write(to: impl Write, parts: &Parts) -> Result<u64> {
    let mut archive = tar::Archive::new(BufWriter::with_capacity(1 << 20, to));
    let mut size = 0;
    for folder in Parts::FOLDERS {
        archive.folder(folder)?;
    }
    for (path, executable, text) in Parts::texts() {
        archive.file(path, executable, text.as_bytes())?;
    }
    for (from, path) in &parts.programs {
        let content = std::fs::read(from).with_context(|| format!("reading {}", from.display()))?;
        size += content.len() as u64;
        archive.file(path, true, &content)?;
    }
    for applet in parts.applets.iter().map(String::as_str).chain(["bash"]) {
        if applet != "busybox" {
            archive.link(&format!("bin/{applet}"), "/bin/busybox")?;
        }
    }
    archive.finish()?;
    Ok(size)
}

/// The real kubeadm, which makes the PKI.
fn kubeadm(cache: &Path) -> Result<PathBuf> {
    let folder = cache.join(recipe::kubeadm_folder());
    let path = folder.join("kubeadm");
    if path.is_file() {
        return Ok(path);
    }
    need_go("kubeadm")?;
    std::fs::create_dir_all(&folder)?;
    eprintln!(
        "node-image: building kubeadm {} (once per machine, about half a minute)",
        assets::KUBERNETES
    );
    assets::build_one("xtask/assets/node-image", &folder, "kubeadm")?;
    Ok(path)
}

/// kind's command: the one on PATH if it is the right one, else one that is built into the cache.
fn kind(cache: &Path) -> Result<PathBuf> {
    let version = recipe::KIND;
    let is_right = |program: &Path| {
        let output = Command::new(program)
            .arg("--version")
            .stderr(Stdio::null())
            .output();
        output.is_ok_and(|output| {
            String::from_utf8_lossy(&output.stdout).contains(version.trim_start_matches('v'))
        })
    };
    if is_right(Path::new("kind")) {
        return Ok("kind".into());
    }
    let folder = cache.join(format!("kind-{version}"));
    let path = folder.join("kind");
    if is_right(&path) {
        return Ok(path);
    }
    need_go("kind")?;
    eprintln!("node-image: building kind {version} (once per machine, some seconds)");
    std::fs::create_dir_all(&folder)?;
    let output = Command::new("go")
        .args(["install", &format!("sigs.k8s.io/kind@{version}")])
        .env("GOBIN", &folder)
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "-trimpath")
        .output()
        .context("starting `go install`")?;
    if !output.status.success() {
        bail!(
            "`go install` of kind failed ({}):\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
    }
    Ok(path)
}

fn need_go(what: &str) -> Result<()> {
    if !assets::go_is_installed() {
        bail!(
            "{what} has to be built, and Go is not installed: install Go {} or newer (https://go.dev/doc/install)",
            assets::GO_VERSION
        );
    }
    Ok(())
}

fn reach(engine: &str) -> Result<()> {
    let output = Command::new(engine)
        .args(["ps", "-q"])
        .stdin(Stdio::null())
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => bail!(
            "{engine} can't be started ({error}): install it (Debian: apt-get install docker.io), or name another engine with --engine"
        ),
    };
    if !output.status.success() {
        bail!(
            "{engine} can't reach its engine: {}. Start it, or set DOCKER_HOST; where no init system runs, `.ci/engine start` \
             starts one",
            String::from_utf8_lossy(&output.stderr)
                .trim()
                .trim_end_matches(['?', '.'])
        );
    }
    Ok(())
}

fn quiet(program: &str, args: &[&str]) -> bool {
    let status = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}
