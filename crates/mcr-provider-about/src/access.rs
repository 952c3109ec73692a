//! Whether the access of an announced cluster has changed.

use mcr_core::Access;

/// Whether both are certainly the same access. For ready clients this is `false`, because they can't be compared.
pub(crate) fn is_same(a: &Access, b: &Access) -> bool {
    match (a, b) {
        (Access::Kubeconfig(a), Access::Kubeconfig(b)) => {
            a.yaml == b.yaml && a.trust == b.trust && a.context == b.context && a.base_dir == b.base_dir
        }
        (Access::Endpoint(a), Access::Endpoint(b)) => a.fingerprint() == b.fingerprint(),
        (Access::Scoped(a), Access::Scoped(b)) => a == b,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
