//! The simulated provider: one seeded behaviour, over HTTP or in process.
