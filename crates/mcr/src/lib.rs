//! mcr
