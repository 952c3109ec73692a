//! mcr-provider-single
