//! Medians, percentiles and slopes.

/// The median. `None` if there are no values.
pub fn median(values: &[f64]) -> Option<f64> {
    percentile(values, 50.0)
}

/// The percentile, interpolated between two values. `None` if there are no values.
pub fn percentile(values: &[f64], percent: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (percent / 100.0).clamp(0.0, 1.0) * (sorted.len().checked_sub(1)? as f64);
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    let (low, high) = (sorted.get(below)?, sorted.get(above)?);
    Some(low + (high - low) * (place - place.floor()))
}

/// The slope of the line of best fit. `None` if there are fewer than two different x values.
pub fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let together: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    (spread > 0.0).then_some(together / spread)
}
