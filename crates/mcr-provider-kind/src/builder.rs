use std::{
    ffi::OsString,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use crate::{config::Config, engine::Engine, error::KindError, provider::KindProvider};

/// Builds a [`KindProvider`]. [`KindProvider::builder`] creates it.
#[derive(Debug, Clone)]
pub struct KindProviderBuilder {
    name: Arc<str>,
    config: Config,
}

impl KindProvider {
    /// A builder. Without options, the provider finds the clusters that `kind get clusters` shows.
    pub fn builder() -> KindProviderBuilder {
        KindProviderBuilder {
            name: "kind".into(),
            config: Config {
                prefix: String::new(),
                engine: None,
                program: None,
                env: Vec::new(),
                poll: Duration::from_secs(10),
                poll_without_events: Duration::from_secs(2),
                events: true,
                deadline: Duration::from_secs(10),
                refresh: Duration::from_secs(600),
            },
        }
    }
}

impl KindProviderBuilder {
    /// Sets the provider's name. Default: `kind`.
    #[must_use]
    pub fn provider_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Announces only clusters whose names have this prefix. The names are not shortened. Default: all.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.config.prefix = prefix.into();
        self
    }

    /// Sets the engine. Default: the engine in the variable `KIND_EXPERIMENTAL_PROVIDER`, otherwise the first of
    /// Docker, nerdctl and Podman that is installed. kind uses the same rule.
    #[must_use]
    pub fn engine(mut self, engine: Engine) -> Self {
        self.config.engine = Some(engine);
        self
    }

    /// Sets the command line program of the engine: a path, or a name that is searched in `PATH`. Default:
    /// [`Engine::program`]. Without [`engine`](Self::engine), the provider runs the program to find out which engine
    /// it is.
    #[must_use]
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.config.program = Some(program.into());
        self
    }

    /// Sets an environment variable of the program, such as `DOCKER_HOST`. The program also inherits the variables of
    /// this process.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.config.env.push((name.into(), value.into()));
        self
    }

    /// Sets how often the provider queries the engine without an event. Default: 10 s.
    #[must_use]
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.config.poll = interval;
        self
    }

    /// Sets how often the provider queries the engine while it gets no events. Default: 2 s.
    #[must_use]
    pub fn poll_interval_without_events(mut self, interval: Duration) -> Self {
        self.config.poll_without_events = interval;
        self
    }

    /// Sets whether to follow the events of the engine. Default: yes. Without events, the provider notices changes
    /// only by [polling](Self::poll_interval_without_events).
    #[must_use]
    pub fn events(mut self, on: bool) -> Self {
        self.config.events = on;
        self
    }

    /// Sets how long one run of the program may take before it is killed. Default: 10 s.
    #[must_use]
    pub fn command_deadline(mut self, deadline: Duration) -> Self {
        self.config.deadline = deadline;
        self
    }

    /// Sets how often the kubeconfig of a running cluster is read again, because its certificates may have been
    /// renewed in the node. Default: 10 minutes.
    #[must_use]
    pub fn refresh_interval(mut self, interval: Duration) -> Self {
        self.config.refresh = interval;
        self
    }

    /// Builds the provider. Does not search for an engine yet.
    ///
    /// # Errors
    /// [`KindError`] if an interval or the deadline is zero, or the program is an empty path.
    pub fn build(self) -> Result<KindProvider, KindError> {
        let config = self.config;
        for (what, value) in [
            ("the poll interval", config.poll),
            ("the poll interval without events", config.poll_without_events),
            ("the command deadline", config.deadline),
            ("the refresh interval", config.refresh),
        ] {
            if value.is_zero() {
                return Err(KindError::Zero(what));
            }
        }
        let program = config.program.as_ref();
        if program.is_some_and(|program| program.as_os_str().is_empty()) {
            return Err(KindError::Program);
        }
        Ok(KindProvider {
            name: self.name,
            config: Arc::new(config),
            failed: Arc::new(AtomicBool::new(false)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_options_are_refused_with_what_to_do() {
        let builder = KindProvider::builder;
        let error = |builder: KindProviderBuilder| builder.build().expect_err("must be refused").to_string();
        assert_eq!(
            error(builder().refresh_interval(Duration::ZERO)),
            "the refresh interval is zero, which would keep a processor busy all the time; give at least a millisecond"
        );
        assert!(error(builder().poll_interval(Duration::ZERO)).starts_with("the poll interval is zero"));
        assert!(
            error(builder().command_deadline(Duration::ZERO)).starts_with("the command deadline is zero")
        );
        assert!(error(builder().program("")).contains("/usr/bin/docker"));
    }
}
