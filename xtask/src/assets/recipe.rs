//! What is built, in which version and with which flags: everything that affects the binaries.

use sha2::{Digest, Sha256};

/// The Kubernetes release that is built. Must be equal to the version in `xtask/assets/go/go.mod`.
pub(crate) const KUBERNETES: &str = "1.36.1";
/// The oldest version of Go that can build it.
pub(crate) const GO_VERSION: &str = "1.26";

/// The binaries without which no API server can be started.
pub(super) const REQUIRED: &[&str] = &["etcd", "kube-apiserver"];
/// All binaries that tests can use.
pub(super) const ALL: &[&str] = &["etcd", "kube-apiserver", "kube-controller-manager", "kubectl"];

/// The envtest archive: the published patch release that is closest to [`KUBERNETES`] (there is no 1.36.1).
pub(super) const ENVTEST: &str = "1.36.2";
/// Where envtest publishes its archives.
pub(super) const ENVTEST_URL: &str = "https://github.com/kubernetes-sigs/controller-tools/releases/download";
/// SHA-512 by platform, from `envtest-releases.yaml` of kubernetes-sigs/controller-tools.
pub(super) const ENVTEST_SUMS: &[(&str, &str)] = &[
    (
        "linux-amd64",
        "ea743186c8a799f5cf8faf16969f86189d003cb7d130e0ac4b58789f1e5748dcf30ebe91c837a10d5ac415383da3e10b9e64d65785c938c23e739781cfb76f08",
    ),
    (
        "linux-arm64",
        "2d72ee985a8e262a3c57dc9f7f0fd891f6a8c7bf7ebaa2db6dc6d8eac8ae28181afe51c1f368b67756cdb40b10de9b205609e1726e5f27f7c6d824dd9c6649ac",
    ),
    (
        "darwin-amd64",
        "b4fe9f973cd1992e3880f8b230ed32c0c243b83371591e3e3315f4404df2cdbef8ee94eeb9bb245b7e5feb987d5c4a76c43e0877654ab73f00d7bbc2b9984514",
    ),
    (
        "darwin-arm64",
        "9278f9e5af556b2f1f2d139769c1f0d717c7b4426917fdebdba898bcb725a916e4910d6160886194ff9be9589ea7c5c32c2b8ae0754703874b7c8ba8ddfc41ce",
    ),
];

/// The package of each command.
pub(super) fn package(command: &str) -> String {
    match command {
        "etcd" => "go.etcd.io/etcd/server/v3".to_owned(),
        _ => format!("k8s.io/kubernetes/cmd/{command}"),
    }
}

/// The linker flags. Without the version, the API server reports `v0.0.0-master` at `/version`, and everything that
/// compares versions (kubectl's skew check, feature detection) misbehaves.
pub(crate) fn linker_flags() -> String {
    let mut parts = KUBERNETES.split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let mut flags = "-s -w".to_owned();
    for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
        flags.push_str(&format!(
            " -X {package}.gitVersion=v{KUBERNETES} -X {package}.gitMajor={major} \
             -X {package}.gitMinor={minor} -X {package}.gitTreeState=clean",
        ));
    }
    flags
}

/// The name that Go and envtest use for this platform.
pub(super) fn platform() -> String {
    let os = match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    };
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{os}-{arch}")
}

/// The name of the cache folder. It changes with everything that affects the binaries. So a cache is never stale, and
/// two checkouts with different recipes do not conflict.
pub(super) fn folder_name() -> String {
    let mut hash = Sha256::new();
    for part in [
        include_str!("../../assets/go/go.mod"),
        include_str!("../../assets/go/go.sum"),
        &linker_flags(),
        ENVTEST,
    ] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    format!("{KUBERNETES}-{}-{}", platform(), &hex(&hash.finalize())[..10])
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
