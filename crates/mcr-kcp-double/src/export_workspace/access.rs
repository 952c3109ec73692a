use std::sync::Arc;

use crate::inner::Inner;
use crate::shard::Shard;
use crate::state::Applied;
use mcr_testkit::sim::SimError;
use mcr_testkit::sim::kinds::{Kind, Kinds};

use super::Asked;

/// What a request may see of an export on a shard, as it is at this moment.
pub(super) struct Access {
    pub(super) kinds: Kinds,
    /// The value of the label of the export's bindings.
    pub(super) hash: String,
    /// The identities of exports that some logical cluster of this shard has bound.
    bound: Vec<String>,
    identity: String,
    claims: Vec<OfExport>,
    /// The claims that apply in the one logical cluster that is asked for.
    applied: Vec<Applied>,
    /// Whether that logical cluster has bound the export.
    pub(super) is_bound: bool,
}

/// A claim of the export itself.
struct OfExport {
    tables: Vec<Arc<str>>,
    verbs: Vec<String>,
    label: (String, String),
}

/// How a kind comes into the virtual workspace.
pub(super) enum Source<'a> {
    Exported,
    Bindings,
    Claimed {
        /// The label of the claimed objects.
        label: &'a (String, String),
        verbs: &'a [String],
        /// The claim as the logical cluster accepts it.
        applied: Option<&'a Applied>,
    },
}

impl Access {
    pub(super) fn of(inner: &Inner, shard: &Shard, asked: &Asked) -> Result<Self, SimError> {
        let state = inner.control.lock();
        let key = (Arc::from(&*asked.cluster), asked.export.clone());
        let export = state.exports.get(&key).filter(|export| export.exists);
        let Some(export) = export else {
            return Err(SimError::internal("API export not found"));
        };
        let target = asked.target.as_deref().unwrap_or_default();
        let on = |number: usize| export.on.get(number);
        let bound = state.exports.values().filter(|export| {
            let on = export.on.get(shard.number);
            on.is_some_and(|on| !on.bound.is_empty())
        });
        let applied = state.claims.get(target).into_iter().flatten();
        Ok(Self {
            kinds: export.kinds.clone(),
            hash: export.hash.clone(),
            bound: bound.map(|export| export.identity.clone()).collect(),
            identity: export.identity.clone(),
            claims: export
                .claims
                .iter()
                .map(|claim| OfExport {
                    tables: claim.tables(),
                    verbs: claim.verbs.clone(),
                    label: claim.label(&export.hash),
                })
                .collect(),
            applied: applied
                .filter(|claim| claim.label.0.ends_with(&export.hash))
                .cloned()
                .collect(),
            is_bound: on(shard.number).is_some_and(|on| on.bound.contains_key(target)),
        })
    }

    /// Whether a kind is of an export that nobody on this shard has bound: its lists have no resource version, and its
    /// watches never deliver anything.
    pub(super) fn is_dead(&self, kind: &Kind) -> bool {
        let identity = kind.table.split_once(':').map(|(_, identity)| identity);
        identity.is_some_and(|identity| !self.bound.iter().any(|bound| bound == identity))
    }

    pub(super) fn source(&self, kind: &Kind) -> Source<'_> {
        let has = |tables: &[Arc<str>]| tables.contains(&kind.table);
        let claim = self.claims.iter().find(|claim| has(&claim.tables));
        if kind.table.ends_with(&format!(":{}", self.identity)) {
            return Source::Exported;
        }
        match claim {
            Some(claim) if &*kind.table != crate::kinds::BINDINGS => Source::Claimed {
                label: &claim.label,
                verbs: &claim.verbs,
                applied: self.applied.iter().find(|claim| has(&claim.tables)),
            },
            _ => Source::Bindings,
        }
    }
}
