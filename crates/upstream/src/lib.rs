//! The provider: HTTP client of the paid service.
