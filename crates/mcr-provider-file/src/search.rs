//! Decides where to search for kubeconfigs. Reads no files.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use glob::{MatchOptions, Pattern};

/// The environment in which the provider searches for kubeconfigs if no files and no folders are given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Environment {
    /// `$KUBECONFIG`: a list of files, separated like `$PATH`.
    pub kubeconfig: Option<OsString>,
    /// The home folder of the user.
    pub home: Option<PathBuf>,
    /// The working directory.
    pub working_dir: Option<PathBuf>,
}

impl Environment {
    /// An environment without any values, in which the provider finds no clusters.
    pub fn empty() -> Self {
        Self::default()
    }

    /// The environment of this process.
    pub fn of_process() -> Self {
        Self {
            kubeconfig: std::env::var_os("KUBECONFIG"),
            home: std::env::home_dir(),
            working_dir: std::env::current_dir().ok(),
        }
    }

    /// Sets `$KUBECONFIG`.
    #[must_use]
    pub fn kubeconfig(mut self, list: impl Into<OsString>) -> Self {
        self.kubeconfig = Some(list.into());
        self
    }

    /// Sets the home folder.
    #[must_use]
    pub fn home(mut self, path: impl Into<PathBuf>) -> Self {
        self.home = Some(path.into());
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn working_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.working_dir = Some(path.into());
        self
    }
}

/// The files and folders to search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sources {
    /// Lists of files. References in a file are resolved in all files of its list.
    pub(crate) lists: Vec<Vec<PathBuf>>,
    pub(crate) dirs: Vec<PathBuf>,
    /// The option or variable that the sources were taken from, for the log.
    pub(crate) origin: &'static str,
}

impl Sources {
    /// Where the provider searches and how to add clusters, for the log.
    pub(crate) fn in_words(&self, globs: &[Pattern]) -> String {
        let globs = globs.iter().map(Pattern::as_str).collect::<Vec<_>>().join(", ");
        let files = self.lists.iter().flatten().map(|file| format!("file {file:?}"));
        let dirs = self
            .dirs
            .iter()
            .map(|dir| format!("folder {dir:?} for files named {globs}"));
        let places: Vec<String> = files.chain(dirs).collect();
        let places = if places.is_empty() {
            "nowhere".to_owned()
        } else {
            places.join(", ")
        };
        let fix = match self.origin {
            "options" => {
                "put kubeconfigs with contexts there, or give other files or folders to the provider"
            }
            _ => {
                "put kubeconfigs with contexts there, set $KUBECONFIG, or give files or folders to the provider"
            }
        };
        format!("{places} (from: {}). To add clusters, {fix}", self.origin)
    }
}

/// Applies the search order. Calls `exists` only for `~/.kube/config`.
pub(crate) fn sources(
    files: &[PathBuf],
    dirs: &[PathBuf],
    environment: &Environment,
    exists: impl Fn(&Path) -> bool,
) -> Sources {
    if !files.is_empty() || !dirs.is_empty() {
        let lists = files.iter().map(|file| vec![file.clone()]).collect();
        return Sources {
            lists,
            dirs: dirs.to_vec(),
            origin: "options",
        };
    }
    let list = environment.kubeconfig.as_deref().map(split).unwrap_or_default();
    if !list.is_empty() {
        return Sources {
            lists: vec![list],
            dirs: Vec::new(),
            origin: "$KUBECONFIG",
        };
    }
    let home = environment
        .home
        .as_ref()
        .map(|home| home.join(".kube").join("config"));
    if let Some(config) = home.filter(|config| exists(config)) {
        return Sources {
            lists: vec![vec![config]],
            dirs: Vec::new(),
            origin: "~/.kube/config",
        };
    }
    let dirs = environment.working_dir.iter().cloned().collect();
    Sources {
        lists: Vec::new(),
        dirs,
        origin: "working directory",
    }
}

pub(crate) fn split(list: &OsStr) -> Vec<PathBuf> {
    std::env::split_paths(list)
        .filter(|path| !path.as_os_str().is_empty())
        .collect()
}

/// Whether a file in a folder is a kubeconfig, judged by its name.
pub(crate) fn is_wanted(name: &OsStr, globs: &[Pattern]) -> bool {
    let options = MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: true,
    };
    let name = name.to_string_lossy();
    globs.iter().any(|glob| glob.matches_with(&name, options))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(paths: &[&str]) -> Vec<PathBuf> {
        paths.iter().map(PathBuf::from).collect()
    }

    fn environment() -> Environment {
        Environment::empty()
            .kubeconfig("/a::/b")
            .home("/home/me")
            .working_dir("/work")
    }

    #[test]
    fn options_come_first_and_each_file_stands_for_itself() {
        let found = sources(&paths(&["/x", "/y"]), &[], &environment(), |_| true);
        assert_eq!(
            (found.lists, found.dirs),
            (vec![paths(&["/x"]), paths(&["/y"])], vec![])
        );
        let found = sources(&[], &paths(&["/d"]), &environment(), |_| true);
        assert_eq!((found.lists, found.dirs), (vec![], paths(&["/d"])));
    }

    #[test]
    fn then_the_list_in_kubeconfig() {
        let found = sources(&[], &[], &environment(), |_| panic!("no need to look"));
        assert_eq!((found.lists, found.dirs), (vec![paths(&["/a", "/b"])], vec![]));
    }

    #[test]
    fn then_the_file_in_the_home_folder_then_the_working_directory() {
        for unset in ["", ":"] {
            let environment = environment().kubeconfig(unset);
            let found = sources(&[], &[], &environment, |path| {
                path == Path::new("/home/me/.kube/config")
            });
            assert_eq!(
                (found.lists, found.dirs),
                (vec![paths(&["/home/me/.kube/config"])], vec![])
            );
            let found = sources(&[], &[], &environment, |_| false);
            assert_eq!((found.lists, found.dirs), (vec![], paths(&["/work"])));
        }
        let found = sources(&[], &[], &Environment::empty(), |_| true);
        assert_eq!((found.lists, found.dirs), (vec![], vec![]));
    }

    #[test]
    fn the_log_reports_where_and_why_there_and_what_to_do() {
        let globs = [Pattern::new("*.kubeconfig").unwrap()];
        let words = |files: &[&str], dirs: &[&str], environment: &Environment| {
            sources(&paths(files), &paths(dirs), environment, |_| false).in_words(&globs)
        };
        assert_eq!(
            words(&["/x"], &["/d"], &environment()),
            "file \"/x\", folder \"/d\" for files named *.kubeconfig (from: options). To add clusters, put kubeconfigs with \
             contexts there, or give other files or folders to the provider"
        );
        let fix = "To add clusters, put kubeconfigs with contexts there, set $KUBECONFIG, or give files or folders to the provider";
        assert_eq!(
            words(&[], &[], &environment()),
            format!("file \"/a\", file \"/b\" (from: $KUBECONFIG). {fix}")
        );
        assert_eq!(
            words(&[], &[], &environment().kubeconfig("")),
            format!("folder \"/work\" for files named *.kubeconfig (from: working directory). {fix}")
        );
        assert!(words(&[], &[], &Environment::empty()).starts_with("nowhere (from: "));
    }

    #[test]
    fn globs_are_matched_with_whole_names() {
        let globs = ["kubeconfig.yaml", "*.kubeconfig"].map(|glob| Pattern::new(glob).unwrap());
        let wanted = |name: &str| is_wanted(OsStr::new(name), &globs);
        assert!(wanted("kubeconfig.yaml") && wanted("dev.kubeconfig") && wanted("a.b.kubeconfig"));
        assert!(!wanted("kubeconfig.yaml~") && !wanted("my-kubeconfig.yaml") && !wanted("dev.Kubeconfig"));
        assert!(!wanted(".#dev.kubeconfig"), "the lock file of an editor");
    }
}
