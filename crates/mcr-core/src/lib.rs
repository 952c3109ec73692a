//! mcr-core
