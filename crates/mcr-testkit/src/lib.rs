//! mcr-testkit
