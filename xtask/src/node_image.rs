//! `cargo xtask node-image`: makes a node image for kind if none can be pulled.
//!
//! kind's own images come from a registry. If none can be reached, this task makes an image with nothing but a control
//! plane: etcd, kube-apiserver and kube-controller-manager as processes, and the PKI of the real kubeadm, without a
//! kubelet. kind creates, stops, starts and deletes clusters from this image as from any other. Files: `entrypoint.sh`
//! is the first process of a node, `kubeadm.sh` is what kind calls as `kubeadm`, `recipe.rs` defines the contents, and
//! `tar.rs` writes the archive.

mod recipe;
mod tar;

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::assets;
use crate::engine::Engine;
use crate::process::{self, Rules};
use recipe::Parts;

/// Arguments of `cargo xtask node-image`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The program of the container engine: docker or podman [default: the first that answers]
    #[arg(long)]
    engine: Option<String>,
    /// Build the image even if the engine has it
    #[arg(long)]
    force: bool,
}

/// Prints `MCR_KIND` and `MCR_NODE_IMAGE` with their values on stdout, in a form for shells. Progress goes to stderr.
pub(crate) fn run(args: &Args) -> Result<()> {
    // The engine is checked first, because everything else takes minutes.
    let engine = Engine::find(args.engine.as_deref())?;
    let image = image(&engine, args.force)?;
    println!("MCR_KIND={}\nMCR_NODE_IMAGE={image}", kind()?.display());
    Ok(())
}

/// The default node image of the version of kind that is used here.
pub(crate) const DEFAULT: &str =
    "kindest/node:v1.37.0@sha256:a1ed56cfb0e7b93589bdf97c8cd566405a265939e3620fc4f5de89adff580ae5";

/// The beginning of the names of images that this task makes.
pub(crate) const NAME: &str = "mcr-node:";

/// The path of kind: the program on PATH if it has the right version, otherwise one that is built into the cache.
pub(crate) fn kind() -> Result<PathBuf> {
    let cache = cache()?;
    let _lock = assets::lock(&cache)?;
    kind_in(&cache)
}

/// The name of the image in the engine. If the image is missing, or if `anew` is set, makes it first.
pub(crate) fn image(engine: &Engine, anew: bool) -> Result<String> {
    if !cfg!(target_os = "linux") {
        bail!(
            "a node image is made on Linux only, from this machine's own programs; elsewhere let kind pull its own"
        );
    }
    let cache = cache()?;
    let _lock = assets::lock(&cache)?;
    let folder = assets::ensure(&assets::Args::default())?;
    let kubeadm = kubeadm(&cache)?;
    let parts = Parts::find(&folder, &kubeadm)?;
    let image = parts.image()?;
    if !anew && has(engine, &image)? {
        eprintln!("node-image: {} has {image} already", engine.program());
        return Ok(image);
    }
    import(engine, &image, &parts)?;
    Ok(image)
}

/// Whether the engine has an image.
pub(crate) fn has(engine: &Engine, image: &str) -> Result<bool> {
    let mut inspect = engine.command();
    inspect.args(["image", "inspect", image]);
    Ok(process::run(&mut inspect, Rules::within(Duration::from_secs(60)))?.is_success())
}

fn cache() -> Result<PathBuf> {
    let cache = assets::user_cache()?.join("mcr").join("node-image");
    std::fs::create_dir_all(&cache)?;
    Ok(cache)
}

/// Streams the image to the engine, so that it is not written to the disk an additional time.
fn import(engine: &Engine, image: &str, parts: &Parts) -> Result<()> {
    let program = engine.program();
    eprintln!("node-image: making {image} in {program}");
    let started = Instant::now();
    let mut command = engine.command();
    command.arg("import");
    for change in Parts::CHANGES {
        command.args(["--change", change]);
    }
    let mut child = command
        .args(["-", image])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("starting `{program} import`"))?;
    let stdin = child.stdin.take().context("the engine takes an archive")?;
    let written = write(stdin, parts);
    let status = child.wait()?;
    // An engine that fails closes its end of the pipe. It has printed the reason above.
    if !status.success() {
        bail!("`{program} import` failed ({status})");
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

/// The path of the real kubeadm, which creates the PKI.
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

fn kind_in(cache: &Path) -> Result<PathBuf> {
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
