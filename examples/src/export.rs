//! The kubeconfig that a program hands out for the API servers it has started.

use std::{fs::File, io::Write, os::unix::fs::OpenOptionsExt, path::Path};

use anyhow::Context;
use mcr_testkit::control_plane::KubeconfigBuilder;

/// Writes a kubeconfig to a new file, which only its owner can read, and returns the line for a shell that selects it:
/// `export KUBECONFIG=…`.
///
/// # Errors
/// If the file exists or can't be written, or its path is not UTF-8.
pub fn export_kubeconfig(path: &Path, kubeconfig: &KubeconfigBuilder) -> anyhow::Result<String> {
    let failed = || format!("can't write {}", path.display());
    let text = path.to_str().with_context(|| {
        format!(
            "{}: the path is not UTF-8; set TMPDIR to another folder",
            path.display()
        )
    })?;
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .with_context(failed)?;
    file.write_all(kubeconfig.to_yaml().as_bytes())
        .with_context(failed)?;
    Ok(format!("export KUBECONFIG={}", quoted(text)))
}

/// The text as one word of a shell.
fn quoted(text: &str) -> String {
    if text
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "/._-+".contains(c))
    {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_path_is_one_word_of_a_shell() {
        assert_eq!(quoted("/tmp/mcr-1.x/kubeconfig"), "/tmp/mcr-1.x/kubeconfig");
        for path in ["/tmp/my files/k", "/tmp/it's $HOME/`k`", "/tmp/a\\b;c"] {
            let script = format!("printf %s {}", quoted(path));
            let announced = std::process::Command::new("sh")
                .args(["-c", &script])
                .output()
                .unwrap();
            assert_eq!(String::from_utf8(announced.stdout).unwrap(), path);
        }
    }
}
