//! The content of a Lease object, as the election reads and writes it.

use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::api::{DynamicObject, ObjectMeta};

/// One version of a Lease object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) uid: String,
    pub(crate) version: String,
    /// `None`: nobody holds the Lease.
    pub(crate) holder: Option<String>,
    /// How long the holder has the Lease after a renewal. `None`: the record does not contain it.
    pub(crate) duration: Option<Duration>,
    /// Whether a candidate has written the record. A person may create an empty Lease.
    pub(crate) written: bool,
}

impl Record {
    pub(crate) fn of(lease: &Lease) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        Self {
            uid: lease.metadata.uid.clone().unwrap_or_default(),
            version: lease.metadata.resource_version.clone().unwrap_or_default(),
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            duration: spec
                .lease_duration_seconds
                .and_then(|seconds| u64::try_from(seconds).ok())
                .map(Duration::from_secs),
            written: spec.renew_time.is_some(),
        }
    }
}

/// Reads a Lease object. Times after the year 9999 are limited to a day that the types of Kubernetes can hold.
///
/// # Errors
/// The text names what is wrong with the object.
pub(crate) fn read(mut object: DynamicObject) -> Result<Lease, String> {
    for field in ["acquireTime", "renewTime"] {
        if let Some(time) = object.data.pointer_mut(&format!("/spec/{field}"))
            && time
                .as_str()
                .is_some_and(|time| time.parse::<Timestamp>().is_err())
        {
            *time = Timestamp::MAX.to_string().into();
        }
    }
    object.try_parse().map_err(|error| error.to_string())
}

/// The duration in whole seconds, as the API requires. It is rounded up, so that others may wait too long for the
/// holder, but never too short.
fn seconds(duration: Duration) -> i32 {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

/// A Lease that does not exist yet, held by `holder`.
pub(crate) fn created(name: &str, holder: &str, duration: Duration) -> Lease {
    let mut lease = Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        spec: None,
    };
    hold(&mut lease, holder, duration);
    lease
}

/// Makes `holder` the holder of the Lease, or renews it. Keeps fields that belong to others.
pub(crate) fn hold(lease: &mut Lease, holder: &str, duration: Duration) {
    let now = MicroTime(Timestamp::now());
    let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
    if spec.holder_identity.as_deref() != Some(holder) {
        spec.lease_transitions = Some(match spec.lease_transitions {
            Some(transitions) => transitions.saturating_add(1),
            None => 0,
        });
        spec.holder_identity = Some(holder.to_owned());
        spec.acquire_time = Some(now.clone());
    }
    spec.renew_time = Some(now);
    spec.lease_duration_seconds = Some(seconds(duration));
}

/// Marks the Lease as held by nobody, in the form of client-go: no holder, and a duration of one second.
pub(crate) fn release(lease: &mut Lease) {
    let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    let now = MicroTime(Timestamp::now());
    (spec.renew_time, spec.acquire_time) = (Some(now.clone()), Some(now));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_is_written_renewed_and_released_as_client_go_does() {
        let mut lease = created("lock", "a", Duration::from_millis(14_500));
        lease.metadata.labels = Some([("owner".to_owned(), "me".to_owned())].into());
        let spec = lease.spec.clone().unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some("a"));
        assert_eq!(
            (spec.lease_duration_seconds, spec.lease_transitions),
            (Some(15), Some(0))
        );
        let acquired = spec.acquire_time;

        hold(&mut lease, "a", Duration::from_secs(15));
        let spec = lease.spec.clone().unwrap();
        assert_eq!((spec.acquire_time, spec.lease_transitions), (acquired, Some(0)));

        release(&mut lease);
        assert!(Record::of(&lease).written && Record::of(&lease).holder.is_none());
        assert_eq!(lease.spec.as_ref().unwrap().lease_duration_seconds, Some(1));

        hold(&mut lease, "b", Duration::from_secs(15));
        let record = Record::of(&lease);
        assert_eq!(
            (record.holder.as_deref(), record.duration),
            (Some("b"), Some(Duration::from_secs(15)))
        );
        assert_eq!(lease.spec.unwrap().lease_transitions, Some(1));
        assert_eq!(lease.metadata.labels.unwrap()["owner"], "me");
    }

    #[test]
    fn a_lease_is_read_whatever_its_times_are() {
        for time in [
            "2026-01-01T00:00:00.000000Z",
            "0001-01-01T00:00:00.000000Z",
            "9999-12-31T23:59:59.999999Z",
            "9999-12-31T00:00:00.000000Z",
            "2026-01-01T00:00:00.1234567890123Z",
        ] {
            let object = serde_json::json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "lock"},
                "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": time, "acquireTime": time},
            });
            let mut lease = read(serde_json::from_value(object).unwrap()).unwrap();
            let record = Record::of(&lease);
            assert!(record.written && record.holder.as_deref() == Some("a"), "{time}");
            hold(&mut lease, "a", Duration::from_secs(15));
            serde_json::to_string(&lease).unwrap();
        }
        let wrong = serde_json::json!({"metadata": {}, "spec": {"leaseDurationSeconds": "x"}});
        assert!(read(serde_json::from_value(wrong).unwrap()).is_err());
    }

    #[test]
    fn an_empty_lease_was_written_by_no_candidate() {
        let record = Record::of(&Lease::default());
        assert!(!record.written && record.holder.is_none() && record.duration.is_none());
    }
}
