//! More engines than one.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
    time::Instant,
};

use mcr_provider_kind::KindProvider;
use mcr_testkit::e2e::{self, E2e};

use crate::{announce, kind::Kind, world::World};

/// A program that claims to be an engine's, whose engine never answers.
fn silent(folder: &Path, name: &str, greeting: &str) {
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = -v ] && echo '{greeting}' && exit\n\
         echo 'Cannot connect to the engine at unix:///nowhere. Is it running?' >&2\nexit 1\n"
    );
    program(folder, name, &script);
}

/// Another file takes the place of the old one, so that no half-written program is started.
fn program(folder: &Path, name: &str, script: &str) {
    let new = folder.join("new");
    fs::write(&new, script).unwrap();
    fs::set_permissions(&new, Permissions::from_mode(0o755)).unwrap();
    fs::rename(new, folder.join(name)).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_engines_the_silent_one_is_explained_and_does_not_stand_in_the_way() {
    let Some(e2e) = E2e::from_env() else { return };
    let kind = Kind::new(&e2e, "two");
    if kind.with.engine != "docker" {
        e2e::skipped(
            "of_two_engines_the_silent_one_is_explained_and_does_not_stand_in_the_way",
            "it is about Docker",
        );
        return;
    }
    kind.create("a").await;
    let silent_ones = tempfile::tempdir().unwrap();
    silent(silent_ones.path(), "podman", "podman version 4.3.1");
    silent(silent_ones.path(), "nerdctl", "nerdctl version 2.0.0");
    let path = std::env::var("PATH").unwrap();
    let before = format!("{}:{path}", silent_ones.path().display());
    let provider = || KindProvider::builder().env("PATH", &before);

    // Docker answers; two others are installed, too, and found earlier.
    let world = World::start(kind, provider());
    let a = world.ready("a").await;
    world.reconciles(&a, "one").await;
    let World { kind, running, .. } = world;
    running.stop().await.unwrap();

    // The one that is chosen does not answer: reported with its name. It starts: found without a word from anybody.
    let real = path.split(':').map(|folder| Path::new(folder).join("docker"));
    let real = real.into_iter().find(|program| program.is_file()).unwrap();
    silent(
        silent_ones.path(),
        "docker",
        "Docker version 28.0.0, build silent",
    );
    let world = World::start(kind, provider());
    let trouble = world.trouble().await;
    announce(&format!("of an engine that does not answer: {trouble}"));
    for word in ["docker", "podman", "nerdctl"] {
        assert!(trouble.contains(word), "{trouble}");
    }
    assert!(world.state("a").is_none());
    let script = format!("#!/bin/sh\nexec {} \"$@\"\n", real.display());
    program(silent_ones.path(), "docker", &script);
    let a = world.ready("a").await;
    world.reconciles(&a, "two").await;
    world.kind.delete("a").await;
    world.gone("a", Instant::now()).await;
    world.stop().await;
}
