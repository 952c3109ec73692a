//! mcr-provider-clusters
