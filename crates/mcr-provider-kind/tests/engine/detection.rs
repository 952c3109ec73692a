//! Tests which engine the provider uses.

use mcr_provider_kind::{Engine, KindProvider, KindProviderBuilder};

use crate::support::{Received, ScriptedEngine};

/// Looks for programs in the engine's folder only, and ignores the variable of the environment.
fn builder(engine: &ScriptedEngine) -> KindProviderBuilder {
    KindProvider::builder()
        .env("PATH", engine.folder())
        .env("KIND_EXPERIMENTAL_PROVIDER", "")
}

async fn error(builder: KindProviderBuilder) -> String {
    Received::of(&builder.build().unwrap()).error().await
}

/// The engine in the properties of the announced cluster.
async fn found_in(builder: KindProviderBuilder) -> String {
    let announced = Received::of(&builder.build().unwrap()).until("synced").await;
    announced[0]
        .split(" in ")
        .nth(1)
        .unwrap()
        .split(')')
        .next()
        .unwrap()
        .to_owned()
}

/// A half-made node: its announcement names the engine.
fn half_made(engine: &ScriptedEngine) {
    engine.put("a1", &crate::support::container("a", "a1", "running", 1));
}

#[tokio::test]
async fn the_first_in_kinds_order_is_chosen_unless_somebody_chooses() {
    let engine = ScriptedEngine::start();
    half_made(&engine);
    engine.install("podman");
    assert_eq!(found_in(builder(&engine)).await, "docker");
    engine.install("nerdctl");
    std::fs::remove_file(engine.at("docker")).unwrap();
    assert_eq!(found_in(builder(&engine)).await, "nerdctl");
    assert_eq!(found_in(builder(&engine).engine(Engine::Podman)).await, "podman");
    assert_eq!(
        found_in(builder(&engine).env("KIND_EXPERIMENTAL_PROVIDER", "podman")).await,
        "podman"
    );
    assert_eq!(
        found_in(builder(&engine).program(engine.at("podman"))).await,
        "podman"
    );
    assert_eq!(
        found_in(builder(&engine).program("podman").engine(Engine::Docker)).await,
        "docker"
    );
}

#[tokio::test]
async fn a_docker_that_is_podman_in_disguise_is_podman() {
    let engine = ScriptedEngine::start();
    half_made(&engine);
    let podman = engine.install("podman");
    std::fs::remove_file(engine.at("docker")).unwrap();
    std::fs::write(
        engine.at("docker"),
        format!("#!/bin/sh\nexec {} \"$@\"\n", podman.display()),
    )
    .unwrap();
    let executable = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    std::fs::set_permissions(engine.at("docker"), executable).unwrap();
    assert_eq!(found_in(builder(&engine)).await, "podman");
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let engine = ScriptedEngine::start();
    std::fs::remove_file(engine.at("docker")).unwrap();
    assert_eq!(
        error(builder(&engine)).await,
        "none of docker, nerdctl and podman is on PATH; install one of them, or name its program with `program`"
    );
    assert_eq!(
        error(builder(&engine).engine(Engine::Nerdctl)).await,
        "nerdctl is not installed (chosen by the option `engine`); install it, or choose another engine with `engine`"
    );
    let unknown = error(builder(&engine).env("KIND_EXPERIMENTAL_PROVIDER", "lxc")).await;
    assert!(
        unknown.starts_with("KIND_EXPERIMENTAL_PROVIDER is \"lxc\", which is no engine"),
        "{unknown}"
    );
    std::fs::write(engine.at("docker"), "not executable").unwrap();
    let error = error(builder(&engine).engine(Engine::Docker)).await;
    assert!(error.starts_with("docker can't be started: "), "{error}");
}
