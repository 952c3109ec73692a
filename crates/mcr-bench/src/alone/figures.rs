use std::collections::BTreeMap;

/// Figures by name.
pub type Figures = BTreeMap<String, f64>;
