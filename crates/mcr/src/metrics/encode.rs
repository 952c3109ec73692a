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

    fn family(&mut self, metric: MetricInfo) -> Result<MetricEncoder<'_>, fmt::Error> {
        // The encoder adds the suffix of counters.
        let name = metric.name.strip_suffix("_total").unwrap_or(metric.name);
        self.0
            .encode_descriptor(name, metric.help, None, metric.kind.type_of())
    }

    /// Encodes a metric: the values of its labels, and the value, of each series.
    pub(super) fn all<'l, const N: usize, V: Into<Value>>(
        &mut self,
        metric: MetricInfo,
        series: impl IntoIterator<Item = ([&'l str; N], V)>,
    ) -> fmt::Result {
        let mut family = self.family(metric)?;
        for (values, value) in series {
            let labels = labels(metric, values);
            // The encoder would write an empty set of labels as `{}`.
            if labels.is_empty() {
                write(&mut family, metric.kind, value.into())?;
            } else {
                write(&mut family.encode_family(&labels)?, metric.kind, value.into())?;
            }
        }
        Ok(())
    }

    /// Encodes a metric with one series.
    pub(super) fn one<const N: usize>(
        &mut self,
        metric: MetricInfo,
        labels: [&str; N],
        value: impl Into<Value>,
    ) -> fmt::Result {
        self.all(metric, [(labels, value)])
    }

    /// Encodes a metric with one label: a series for each of `things`, with its name as the label.
    pub(super) fn each<'l, N: AsRef<str> + ?Sized + 'l, T, V: Into<Value>>(
        &mut self,
        metric: MetricInfo,
        things: impl IntoIterator<Item = (&'l N, T)>,
        value: impl Fn(T) -> V,
    ) -> fmt::Result {
        let series = things
            .into_iter()
            .map(|(name, thing)| ([name.as_ref()], value(thing)));
        self.all(metric, series)
    }

    /// Encodes a histogram with one label.
    pub(super) fn histograms<'l, T>(
        &mut self,
        metric: MetricInfo,
        things: impl IntoIterator<Item = (&'l str, T)>,
        read: impl Fn(T) -> HistogramRead,
    ) -> fmt::Result {
        let mut family = self.family(metric)?;
        for (name, thing) in things {
            let (labels, read) = (labels(metric, [name]), read(thing));
            let mut series = family.encode_family(&labels)?;
            series.encode_histogram::<NoLabelSet>(read.sum, read.count, &read.buckets, None)?;
        }
        Ok(())
    }
}

fn labels<const N: usize>(metric: MetricInfo, values: [&str; N]) -> Vec<(&'static str, &str)> {
    debug_assert_eq!(N, metric.labels.len(), "{}", metric.name);
    metric.labels.iter().copied().zip(values).collect()
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
