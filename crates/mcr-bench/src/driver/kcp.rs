//! A subject of suite `kcp`: a process that reports its events in lines. `crate::subject::kcp` describes them.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tokio::time::Instant;

use super::Running;

/// A running subject. It ends when this is dropped.
pub struct KcpSubject {
    /// Its process.
    pub process: Running,
    events: Events,
}

/// The events that a subject has reported. Times are nanoseconds since 1970.
#[derive(Debug, Default)]
pub struct Events {
    /// When each cluster that has not left became available, by its name.
    pub engaged: HashMap<String, u64>,
    /// When each cluster that has not come back left, by its name.
    pub disengaged: HashMap<String, u64>,
    /// When each write was reconciled first, by cluster and then by stamp.
    stamps: HashMap<String, BTreeMap<u64, u64>>,
    /// When each object of a cluster that has not left was reconciled first, by cluster and name.
    pub objects: HashMap<(String, String), u64>,
    tasks: Option<u64>,
}

impl Events {
    /// When a write was reconciled, or a later one of the same cluster that came before the subject had read the first.
    pub fn written(&self, cluster: &str, stamp: u64) -> Option<u64> {
        let (_, at) = self.stamps.get(cluster)?.range(stamp..).next()?;
        Some(*at)
    }

    fn read(&mut self, line: &str) -> Option<()> {
        let (event, at) = line.rsplit_once(' ')?;
        let at = at.parse().ok()?;
        let mut words = event.split(' ');
        match (words.next()?, words.next()?) {
            ("engaged", cluster) => {
                self.disengaged.remove(cluster);
                self.engaged.insert(cluster.to_owned(), at);
            }
            ("disengaged", cluster) => {
                self.engaged.remove(cluster);
                self.objects.retain(|(of, _), _| of != cluster);
                self.disengaged.insert(cluster.to_owned(), at);
            }
            ("reconciled", cluster) => {
                let (object, stamp) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
                self.objects.entry((cluster.to_owned(), object)).or_insert(at);
                let stamps = self.stamps.entry(cluster.to_owned()).or_default();
                stamps.entry(stamp).or_insert(at);
            }
            ("gone", _) => {}
            ("tasks", count) => self.tasks = Some(count.parse().ok()?),
            _ => return None,
        }
        Some(())
    }
}

impl KcpSubject {
    /// Starts a subject.
    ///
    /// # Errors
    ///
    /// When the program can't be started.
    pub fn start(program: &Path, kubeconfig: &Path, slice: &str) -> Result<Self> {
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let args = [kubeconfig, format!("--slice={slice}")];
        Ok(Self {
            process: Running::start("the subject", program, &args)?,
            events: Events::default(),
        })
    }

    /// Reads events until they are as wanted, which `what` names.
    ///
    /// # Errors
    ///
    /// When that is not so within `limit`, when the process has ended, or when a line is no event.
    pub async fn until<T>(
        &mut self,
        limit: Duration,
        what: &str,
        wanted: impl Fn(&Events) -> Option<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(found) = wanted(&self.events) {
                return Ok(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.process.line(left).await;
            let line = line.with_context(|| format!("not in {limit:?}: {what}"))?;
            if self.events.read(&line).is_none() {
                bail!("the subject sent {line:?}, which is no event");
            }
        }
    }

    /// How many tasks or goroutines it has.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub async fn tasks(&mut self) -> Result<u64> {
        self.events.tasks = None;
        self.process.send("tasks").await?;
        let limit = Duration::from_secs(30);
        self.until(limit, "the number of its tasks", |events| events.tasks)
            .await
    }

    /// How many sockets it has open.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn sockets(&self) -> Result<usize> {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.process.pid))?;
        let targets = files
            .flatten()
            .filter_map(|file| std::fs::read_link(file.path()).ok());
        Ok(targets
            .filter(|target| target.to_string_lossy().starts_with("socket:"))
            .count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reconcile_of_an_object_and_of_a_write_count() {
        let mut events = Events::default();
        for line in [
            "engaged a 1",
            "reconciled a default/w 7 2",
            "reconciled a default/w 7 3",
            "reconciled a default/w 8 4",
            "gone a default/w 5",
            "tasks 12 7",
        ] {
            assert_eq!(events.read(line), Some(()), "{line}");
        }
        assert_eq!(
            events.objects.get(&("a".to_owned(), "default/w".to_owned())),
            Some(&2)
        );
        assert_eq!(
            [6, 8, 9].map(|stamp| events.written("a", stamp)),
            [Some(2), Some(4), None]
        );
        assert_eq!((events.engaged.get("a"), events.tasks), (Some(&1), Some(12)));
        events.read("disengaged a 6").unwrap();
        assert!(events.engaged.is_empty() && events.objects.is_empty());
        for line in ["", "hello", "engaged a soon", "reconciled a default/w 3"] {
            assert_eq!(events.read(line), None, "{line}");
        }
    }
}
