//! How long it takes until what is written is reconciled.

use std::time::Duration;

use examples::in_millis;
use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::{seen::Seen, world::Member};

/// Times from writes to their reconciles, in order.
#[derive(Default)]
pub(crate) struct Latencies(Vec<Duration>);

impl From<Vec<Duration>> for Latencies {
    fn from(mut all: Vec<Duration>) -> Self {
        all.sort_unstable();
        Self(all)
    }
}

impl Latencies {
    pub(crate) fn extend(&mut self, more: Self) {
        self.0.extend(more.0);
        self.0.sort_unstable();
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn p50(&self) -> Duration {
        self.0.get(self.0.len() / 2).copied().unwrap_or_default()
    }

    pub(crate) fn max(&self) -> Duration {
        self.0.last().copied().unwrap_or_default()
    }
}

impl Serialize for Latencies {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Latencies", 3)?;
        fields.serialize_field("objects", &self.count())?;
        fields.serialize_field("p50Ms", &in_millis(self.p50()))?;
        fields.serialize_field("maxMs", &in_millis(self.max()))?;
        fields.end()
    }
}

/// Writes an object into each of these clusters and waits until all are reconciled.
pub(crate) async fn round<'a>(
    members: impl Iterator<Item = &'a Member>,
    seen: &Seen,
    name: &str,
) -> anyhow::Result<Latencies> {
    let writes = members.map(async |member| {
        let written = member.create(name).await?;
        let reconciled = seen.until(
            Duration::from_secs(10),
            "a healthy cluster was not reconciled",
            |seen| seen.object(member.name(), name).live,
        );
        anyhow::Ok(reconciled.await?.saturating_duration_since(written))
    });
    Ok(futures::future::try_join_all(writes).await?.into())
}
