//! Which programs an untrusted kubeconfig may run, and what it may pass to them.

use std::{
    collections::BTreeMap,
    env, fmt,
    path::{Component, Path, PathBuf},
};

use crate::{error::quote, exec::PluginService};

/// The exec credential plugins that an untrusted kubeconfig may run. The variants have the names of
/// `credentialPluginPolicy` in Kubernetes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CredentialPluginPolicy {
    /// No plugin.
    #[default]
    DenyAll,
    /// Every plugin, with all arguments and variables. The author of a kubeconfig can then run any program with the rights
    /// of this process. No [service](AllowedPlugin::service) takes the place of a program.
    AllowAll,
    /// These plugins, and only as their entries say.
    Allowlist(Vec<AllowedPlugin>),
}

/// A plugin that an untrusted kubeconfig may run, and what the kubeconfig may pass to it: by default nothing.
///
/// The command is a path, or a name to look up in `PATH`. A kubeconfig may name it by any absolute path that leads to the
/// same file; the program then runs under the command given here.
///
/// ```
/// use mcr_access::{AllowedPlugin, CredentialPluginPolicy};
///
/// let aws = AllowedPlugin::new("/plugins/aws")
///     .args(["eks", "get-token", "--cluster-name", "*"])
///     .env(["AWS_PROFILE"]);
/// let policy = CredentialPluginPolicy::allowlist([aws, "/plugins/login".into()]);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct AllowedPlugin {
    command: PathBuf,
    /// The lists of arguments. None stands for any argument.
    args: Vec<Vec<Option<String>>>,
    /// The variables. Some: only with this value.
    env: BTreeMap<String, Option<String>>,
    cluster_info: bool,
    service: Option<PluginService>,
}

/// What a policy does not allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PluginRefusal {
    /// To run the command.
    Command,
    /// To pass these arguments.
    Args,
    /// To set the variable of this name, which is quoted.
    Env(String),
    /// To describe the cluster.
    ClusterInfo,
}

impl AllowedPlugin {
    /// Allows to run this command, without arguments, variables and the description of the cluster.
    pub fn new(command: impl Into<PathBuf>) -> Self {
        Self {
            command: command.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            cluster_info: false,
            service: None,
        }
    }

    /// Allows this list of arguments, whole and in this order. `*` stands for one argument that the kubeconfig chooses,
    /// which must not be empty and not begin with `-`. May be called several times, for several lists.
    #[must_use]
    pub fn args<A: Into<String>>(self, args: impl IntoIterator<Item = A>) -> Self {
        self.args_after(&[], args)
    }

    /// Allows these variables, with all values. A name that makes every program load another one (`PATH`, `LD_*`, `DYLD_*`)
    /// allows nothing.
    #[must_use]
    pub fn env<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        let loads = |name: &str| name == "PATH" || name.starts_with("LD_") || name.starts_with("DYLD_");
        let names = names.into_iter().map(Into::into).filter(|name| !loads(name));
        self.env.extend(names.map(|name| (name, None)));
        self
    }

    /// Allows `provideClusterInfo`: the plugin gets the address of the cluster and the configuration in its extension
    /// `client.authentication.k8s.io/exec`, both from the kubeconfig.
    #[must_use]
    pub fn cluster_info(mut self, allow: bool) -> Self {
        self.cluster_info = allow;
        self
    }

    /// Ties this command to a service, which answers instead of a program. A kubeconfig, also a trusted one, must name it by exactly
    /// this command. The service gets the description of the cluster, if [`cluster_info`](Self::cluster_info) allows it, and neither
    /// arguments nor variables.
    #[must_use]
    pub fn service(mut self, service: PluginService) -> Self {
        self.service = Some(service);
        self
    }

    /// As [`args`](Self::args), after arguments of the operator, in which `*` has no meaning.
    #[doc(hidden)]
    #[must_use]
    pub fn args_after<A: Into<String>>(mut self, own: &[String], more: impl IntoIterator<Item = A>) -> Self {
        let more = more.into_iter().map(Into::into);
        let more = more.map(|word: String| Some(word).filter(|word| word != "*"));
        self.args
            .push(own.iter().cloned().map(Some).chain(more).collect());
        self
    }

    /// Allows a variable of the operator, with this value only.
    #[doc(hidden)]
    #[must_use]
    pub fn env_value(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.entry(name.into()).or_insert_with(|| Some(value.into()));
        self
    }

    fn is_for(&self, command: &Path) -> bool {
        if self.service.is_some() {
            return self.command == command;
        }
        // A relative path would depend on the working directory of this process.
        (command.is_absolute() || is_bare(command))
            && (self.command == command
                || look_up(command).is_some_and(|file| look_up(&self.command) == Some(file)))
    }

    /// Checks what is passed to the plugin.
    ///
    /// # Errors
    /// The first thing that is not allowed.
    #[doc(hidden)]
    pub fn check(
        &self,
        args: &[String],
        env: &[(String, String)],
        cluster_info: bool,
    ) -> Result<(), PluginRefusal> {
        let fits = |(word, arg): (&Option<String>, &String)| match word {
            Some(word) => word == arg,
            None => !arg.is_empty() && !arg.starts_with('-'),
        };
        let follow = |rule: &Vec<_>| rule.len() == args.len() && rule.iter().zip(args).all(fits);
        if !(self.args.iter().any(follow) || (self.args.is_empty() && args.is_empty())) {
            return Err(PluginRefusal::Args);
        }
        let allowed = |(name, value): &&(String, String)| {
            let only = self.env.get(name);
            only.is_some_and(|only| only.as_ref().is_none_or(|only| only == value))
        };
        if let Some((name, _)) = env.iter().find(|variable| !allowed(variable)) {
            return Err(PluginRefusal::Env(quote(name)));
        }
        // Without a value that the operator sets, the plugin would work in another way.
        let missing = |name: &String| env.iter().all(|(set, _)| set != name);
        let mut fixed = self.env.iter().filter(|(_, only)| only.is_some());
        if let Some((name, _)) = fixed.find(|(name, _)| missing(name)) {
            return Err(PluginRefusal::Env(quote(name)));
        }
        if cluster_info && !self.cluster_info {
            Err(PluginRefusal::ClusterInfo)
        } else {
            Ok(())
        }
    }
}

impl From<&str> for AllowedPlugin {
    fn from(command: &str) -> Self {
        Self::new(command)
    }
}

// Arguments and values of the operator can be secrets.
impl fmt::Debug for AllowedPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllowedPlugin")
            .field("command", &self.command)
            .field("env", &self.env.keys())
            .finish_non_exhaustive()
    }
}

impl CredentialPluginPolicy {
    /// Allows these plugins; see [`Allowlist`](Self::Allowlist). A command alone allows no arguments and no variables.
    pub fn allowlist<P: Into<AllowedPlugin>>(plugins: impl IntoIterator<Item = P>) -> Self {
        Self::Allowlist(plugins.into_iter().map(Into::into).collect())
    }

    /// Returns the command to run, and the service that answers in its place.
    ///
    /// # Errors
    /// What is not allowed.
    pub(crate) fn check(
        &self,
        command: &Path,
        args: &[String],
        env: &[(String, String)],
        cluster_info: bool,
    ) -> Result<(PathBuf, Option<PluginService>), PluginRefusal> {
        let mut refused = PluginRefusal::Command;
        match self {
            Self::DenyAll => {}
            Self::AllowAll => return Ok((command.to_owned(), None)),
            Self::Allowlist(allowed) => {
                for plugin in allowed.iter().filter(|plugin| plugin.is_for(command)) {
                    match plugin.check(args, env, cluster_info) {
                        // A program may behave by the name it is run under, so that name is the operator's, too.
                        Ok(()) => return Ok((plugin.command.clone(), plugin.service.clone())),
                        Err(why) => refused = why,
                    }
                }
            }
        }
        Err(refused)
    }

    /// The service for a command of a trusted kubeconfig, which needs no permission.
    pub(crate) fn service_of(&self, command: &Path) -> Option<PluginService> {
        let Self::Allowlist(allowed) = self else {
            return None;
        };
        let mut same = allowed.iter().filter(|plugin| plugin.command == command);
        same.find_map(|plugin| plugin.service.clone())
    }
}

fn is_bare(command: &Path) -> bool {
    command.components().count() == 1 && matches!(command.components().next(), Some(Component::Normal(_)))
}

/// Finds the file of a command, with all links resolved.
fn look_up(command: &Path) -> Option<PathBuf> {
    if !is_bare(command) {
        return command
            .is_absolute()
            .then(|| command.canonicalize().ok())
            .flatten();
    }
    env::split_paths(&env::var_os("PATH")?)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(command))
        .find(|file| file.is_file())?
        .canonicalize()
        .ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(policy: &CredentialPluginPolicy, command: &str) -> Option<PathBuf> {
        Some(policy.check(Path::new(command), &[], &[], false).ok()?.0)
    }

    #[test]
    fn plugins_are_allowed_by_the_file_they_lead_to() {
        let policy = CredentialPluginPolicy::allowlist(["sh", "/opt/missing"]);
        assert_eq!(run(&policy, "sh").unwrap(), Path::new("sh"));
        // Not under the path of the kubeconfig: one file can be several programs, by the name it is run under.
        let file = look_up(Path::new("sh")).unwrap();
        assert_eq!(run(&policy, file.to_str().unwrap()).unwrap(), Path::new("sh"));
        assert!(run(&policy, "/opt/missing").is_some());
        for command in [
            "./sh",
            "bin/../sh",
            "cat",
            "/bin/cat",
            "",
            "..",
            "missing",
            "/opt/../opt/missing",
        ] {
            assert!(run(&policy, command).is_none(), "{command}");
        }
        assert!(run(&CredentialPluginPolicy::DenyAll, "sh").is_none());
        assert!(run(&CredentialPluginPolicy::AllowAll, "./anything").is_some());
    }

    #[test]
    fn a_service_is_tied_to_one_command_and_gets_no_other_arguments() {
        let service = PluginService::new(|_| async { Ok(Vec::new()) });
        let plugin = AllowedPlugin::new("sh").service(service.clone());
        let policy = CredentialPluginPolicy::allowlist([plugin]);
        let tied = |command: &str, args: &[String]| policy.check(Path::new(command), args, &[], false).ok();
        assert_eq!(tied("sh", &[]), Some(("sh".into(), Some(service))));
        // The program of this name never runs.
        let file = look_up(Path::new("sh")).unwrap();
        assert!(tied(file.to_str().unwrap(), &[]).is_none() && tied("sh", &["-c".into()]).is_none());
    }

    fn texts(of: &'static str, most: usize) -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec(prop_oneof![3 => of, 1 => any::<String>()], 0..most)
    }

    /// Names with which programs, interpreters and loaders are chosen, and others.
    const NAMES: &str = "PATH|LD_PRELOAD|DYLD_X|BASH_ENV|BASH_FUNC_x%%|NODE_OPTIONS|KUBECONFIG|TENANT|tenant";
    const ARGS: &str = "get|set|--tenant|--config=x|[*]|a";

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever a kubeconfig asks for: what runs is the operator's command, with arguments and variables that the operator
        /// has listed.
        #[test]
        fn what_an_untrusted_kubeconfig_chooses_is_what_the_operator_has_listed(
            listed in texts(NAMES, 4), own in texts(ARGS, 2), rule in texts(ARGS, 3), fixed in NAMES,
            names in texts(NAMES, 3), args in texts(ARGS, 4), info: bool, allow_info: bool, keeps: bool,
        ) {
            let plugin = AllowedPlugin::new("/plugins/p").env(listed.clone()).env_value(&fixed, "own");
            let plugin = plugin.args_after(&own, rule.clone()).cluster_info(allow_info);
            let policy = CredentialPluginPolicy::allowlist([plugin]);
            let mut env: Vec<_> = names.into_iter().map(|name| (name, "theirs".to_owned())).collect();
            env.extend(keeps.then(|| (fixed.clone(), "own".to_owned())));
            if let Ok((command, _)) = policy.check(Path::new("/plugins/p"), &args, &env, info) {
                prop_assert_eq!(command, Path::new("/plugins/p"));
                let loads = |name: &str| ["PATH", "LD_PRELOAD", "DYLD_X"].contains(&name);
                let free = |name: &String| listed.contains(name) && !loads(name);
                prop_assert!(env.iter().all(|(name, value)| free(name) || (*name == fixed && value == "own")));
                prop_assert!(keeps || free(&fixed));
                prop_assert!(allow_info || !info);
                prop_assert_eq!(args.len(), own.len() + rule.len());
                prop_assert_eq!(&args[..own.len()], &own);
                let mut chosen = rule.iter().zip(&args[own.len()..]);
                prop_assert!(chosen.all(|(rule, arg)| rule == arg || (rule == "*" && !arg.starts_with('-'))));
            }
            prop_assert!(run(&policy, "/bin/sh").is_none());
        }
    }
}
