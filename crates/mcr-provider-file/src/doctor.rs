//! What `mcr doctor` checks of kubeconfig files.

use std::{io::ErrorKind, path::Path, sync::Arc};

use mcr_core::doctor::{Advice, Described, Doctor, Fault, Finding, Fix, Level, Values};

use crate::{
    config::Config,
    search::{Environment, split},
};

pub(crate) struct FileDoctor(pub(crate) Arc<Config>);

const ADVICE: &[Advice] = &[
    Advice::new(Fault::NoClusters, "", "", "kubectl config get-contexts"),
    Advice::new(Fault::Description, "", "correct {file}", ""),
    Advice::new(
        Fault::Credentials,
        "",
        "renew the credentials in {file}, then try them",
        "kubectl --kubeconfig {file} --context {context} auth whoami",
    ),
    // A token that is valid only for hours is normal: some process renews it.
    Advice::new(Fault::Expiring, "", "", ""),
    // With kubectl, because the kubeconfig contains the certificate authority, and curl would not use that.
    Advice::new(
        Fault::Request,
        "",
        "",
        "kubectl --kubeconfig {file} --context {context} get --raw {request}",
    ),
];

impl Doctor for FileDoctor {
    fn advice(&self) -> &'static [Advice] {
        ADVICE
    }

    fn values(&self, cluster: Option<&Described<'_>>) -> Values {
        let Some(cluster) = cluster else {
            return Values::new();
        };
        let properties = ["file", "context"].map(|key| Some((key, cluster.properties.get(key)?.clone())));
        let mut values: Values = properties.into_iter().flatten().collect();
        // A cluster that was never usable has no properties, but the announcement names the file.
        let file = values.entry("file").or_default();
        if file.is_empty() {
            *file = file_of(cluster.broken.unwrap_or(cluster.name)).to_owned();
        }
        values
    }

    /// The files and folders of the options, or otherwise those of `$KUBECONFIG`, some of which may be missing, as in
    /// kubectl.
    fn files(&self) -> Vec<Finding> {
        let config = &self.0;
        let dirs = config.dirs.iter().map(|dir| (dir, std::fs::read_dir(dir).err()));
        let files = config
            .files
            .iter()
            .map(|file| (file, std::fs::File::open(file).err()));
        let named: Vec<_> = files.chain(dirs).collect();
        if !named.is_empty() {
            let list = "ls -l {file}";
            let found = named
                .into_iter()
                .filter_map(|(path, error)| Some(finding(path, error?, "", list)));
            return found.collect();
        }
        let environment = config.environment.clone().unwrap_or_else(Environment::of_process);
        let paths = environment.kubeconfig.as_deref().map(split).unwrap_or_default();
        let errors = paths.iter().map(|path| std::fs::File::open(path).err());
        let errors: Vec<_> = paths.iter().zip(errors).collect();
        let is_missing = |error: &std::io::Error| error.kind() == ErrorKind::NotFound;
        let any_exists = errors
            .iter()
            .any(|(_, error)| !error.as_ref().is_some_and(is_missing));
        let found = errors.into_iter().filter_map(|(path, error)| {
            let mut found = finding(path, error?, " ($KUBECONFIG names it)", "");
            if any_exists && found.message.contains(" does not exist") {
                found.level = Level::Warning;
            }
            Some(found)
        });
        found.collect()
    }
}

fn finding(path: &Path, error: std::io::Error, named_by: &str, list: &'static str) -> Finding {
    let file = path.display().to_string();
    let (message, action, command) = match error.kind() {
        ErrorKind::NotFound if named_by.is_empty() => (format!("{file} does not exist"), "", list),
        ErrorKind::NotFound => (
            format!("{file} does not exist{named_by}"),
            "correct the variable KUBECONFIG, or choose files with --kubeconfigs",
            "",
        ),
        _ => (format!("{file} can't be read: {error}"), "", "ls -l {file}; id"),
    };
    Finding {
        check: "files",
        level: Level::Problem,
        message,
        fix: Some(Fix {
            action: action.into(),
            command: command.into(),
            values: Values::from([("file", file)]),
        }),
    }
}

/// The path in the object of a broken cluster: `file PATH, context "NAME"`.
fn file_of(object: &str) -> &str {
    let path = object.strip_prefix("file ").or(object.strip_prefix("folder "));
    let path = path.unwrap_or(object);
    path.split_once(", context \"").map_or(path, |(path, _)| path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileProvider;

    #[test]
    fn a_file_that_is_missing_is_a_problem_unless_it_is_one_of_several_of_the_variable() {
        let dir = tempfile::tempdir().unwrap();
        let there = dir.path().join("there");
        std::fs::write(&there, "").unwrap();
        let levels = |paths: &[&Path]| -> Vec<Level> {
            let list = std::env::join_paths(paths).unwrap();
            let provider = FileProvider::builder().environment(Environment::empty().kubeconfig(list));
            let found = FileDoctor(provider.build().unwrap().config).files();
            found.iter().map(|finding| finding.level).collect()
        };
        let nope = Path::new("/nope");
        assert_eq!(levels(&[nope]), [Level::Problem]);
        assert_eq!(levels(&[nope, &there]), [Level::Warning]);
        let named = FileProvider::builder().files([nope, &there]).build().unwrap();
        let found = FileDoctor(named.config).files();
        assert_eq!((found.len(), &*found[0].message), (1, "/nope does not exist"));
    }
}
