//! mcr-provider-nop
