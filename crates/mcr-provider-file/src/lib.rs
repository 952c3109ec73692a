//! mcr-provider-file
