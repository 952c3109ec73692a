//! Encodes metrics in the text format, by their descriptions.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};

use super::names::{MetricInfo, MetricKind};
use crate::controller::HistogramRead;

/// The value of a series.
pub(super) enum Value {
    Whole(u64),
    Real(f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Self::Whole(value as u64)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

/// Encodes metrics, one after the other.
pub(super) struct Encoder<'a>(DescriptorEncoder<'a>);

impl<'a> Encoder<'a> {
    pub(super) fn new(encoder: DescriptorEncoder<'a>) -> Self {
        Self(encoder)
    }

    /// Encodes a metric. `write` encodes its series.
    pub(super) fn family(
        &mut self,
        metric: MetricInfo,
        write: impl FnOnce(&mut Series<'_>) -> fmt::Result,
    ) -> fmt::Result {
        // The encoder adds the suffix of counters.
        let name = metric.name.strip_suffix("_total").unwrap_or(metric.name);
        let encoder = self
            .0
            .encode_descriptor(name, metric.help, None, metric.kind.type_of())?;
        write(&mut Series { metric, encoder })
    }

    /// Encodes a metric with one series.
    pub(super) fn one<const N: usize>(
        &mut self,
        metric: MetricInfo,
        labels: [&str; N],
        value: impl Into<Value>,
    ) -> fmt::Result {
        self.family(metric, |series| series.value(labels, value))
    }

    /// Encodes a metric with one label: a series for each of `things`, with its name as the label.
    pub(super) fn each<N: AsRef<str>, T, V: Into<Value>>(
        &mut self,
        metric: MetricInfo,
        things: impl IntoIterator<Item = (N, T)>,
        value: impl Fn(T) -> V,
    ) -> fmt::Result {
        self.family(metric, |series| {
            things
                .into_iter()
                .try_for_each(|(name, thing)| series.value([name.as_ref()], value(thing)))
        })
    }
}

/// The series of one metric.
pub(super) struct Series<'a> {
    metric: MetricInfo,
    encoder: MetricEncoder<'a>,
}

impl Series<'_> {
    fn labels<'v, const N: usize>(&self, values: [&'v str; N]) -> Vec<(&'static str, &'v str)> {
        debug_assert_eq!(N, self.metric.labels.len(), "{}", self.metric.name);
        self.metric.labels.iter().copied().zip(values).collect()
    }

    pub(super) fn value<const N: usize>(
        &mut self,
        labels: [&str; N],
        value: impl Into<Value>,
    ) -> fmt::Result {
        let labels = self.labels(labels);
        let kind = self.metric.kind;
        // The encoder would write an empty set of labels as `{}`.
        if labels.is_empty() {
            write(&mut self.encoder, kind, value.into())
        } else {
            write(&mut self.encoder.encode_family(&labels)?, kind, value.into())
        }
    }

    pub(super) fn histogram<const N: usize>(
        &mut self,
        labels: [&str; N],
        read: &HistogramRead,
    ) -> fmt::Result {
        let labels = self.labels(labels);
        let mut family = self.encoder.encode_family(&labels)?;
        family.encode_histogram::<NoLabelSet>(read.sum, read.count, &read.buckets, None)
    }
}

fn write(encoder: &mut MetricEncoder<'_>, kind: MetricKind, value: Value) -> fmt::Result {
    match (kind, value) {
        (MetricKind::Counter, Value::Whole(value)) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(&value, None)
        }
        (MetricKind::Counter, Value::Real(value)) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(&value, None)
        }
        (_, Value::Whole(value)) => encoder.encode_gauge(&value),
        (_, Value::Real(value)) => encoder.encode_gauge(&value),
    }
}
